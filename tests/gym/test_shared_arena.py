"""Tensors lie in an arena as they lie in their own memory, where their elements have no gaps."""

from __future__ import annotations

import json
import math

import pytest
import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.shared_arena import Arena, Slot, lay_out, like_these, order_in_memory
from kernel_core.gym.oracle.input_families import DRAWS, Draw
from kernel_core.gym.oracle.input_generators import redraw
from kernel_core.gym.untrusted.candidate.candidate_module import unpack
from kernel_core.gym.workers.payload import pack


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(5, 7).t(),
        torch.rand(2, 3, 4, 5).permute(0, 3, 1, 2),
        torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.rand(5, 7),
        torch.rand(1, 7).t(),
    ],
)
def test_a_tensor_keeps_its_strides(tensor: torch.Tensor) -> None:
    slots, num_bytes = lay_out([(tuple(tensor.shape), tensor.dtype)])
    [slot] = like_these(slots, [tensor])
    slot = Slot.from_json(json.loads(json.dumps(slot.to_json())))
    arena = Arena.create(num_bytes)
    laid = arena.tensor(slot)
    laid.copy_(tensor)
    assert torch.equal(laid, tensor)
    assert laid.is_contiguous() == tensor.is_contiguous()
    if not tensor.is_contiguous():
        assert laid.stride() == tensor.stride()
    arena.close()


@pytest.mark.parametrize("tensor", [torch.rand(5, 7)[:, ::2], torch.rand(5, 1).expand(5, 7)])
def test_elements_with_gaps_or_in_shared_memory_are_laid_out_in_rows(tensor: torch.Tensor) -> None:
    assert order_in_memory(tensor) is None


@pytest.mark.parametrize("draw", DRAWS)
def test_other_families_keep_the_strides_of_own_draws(draw: Draw) -> None:
    [[drawn]] = redraw([[torch.rand(12, 9).t()]], draw)
    assert drawn.shape == (9, 12)
    assert drawn.stride() == (1, 9)


def test_arguments_come_back_as_they_were_and_others_are_the_problems_mistake() -> None:
    values = [(1, [2.5, -math.inf]), torch.float16, torch.nn.Linear, None, "x", True, torch.arange(3)]
    tensors: list[torch.Tensor] = []
    packed = json.loads(json.dumps(pack(values, tensors)))
    slots, num_bytes = lay_out([(tuple(one.shape), one.dtype) for one in tensors])
    arena = Arena.create(num_bytes)
    for slot, tensor in zip(slots, tensors, strict=True):
        arena.tensor(slot).copy_(tensor)
    *plain, last = unpack(packed, [slot.to_json() for slot in slots], arena)
    assert plain == values[:-1] and torch.equal(last, torch.arange(3))
    assert [type(one) for one in plain] == [type(one) for one in values[:-1]]
    with pytest.raises(NotAProblem, match="an argument of type object cannot be handed"):
        pack([[object()]], tensors)
