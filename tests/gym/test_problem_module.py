"""A problem's text on a device: a generator of its own draws the same numbers wherever the tensors are."""

import pytest
import torch
import torch.nn as nn

from kernel_core.gym.oracle.problem_module import DrawnOnTheHost


def _draw_all() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    weight = nn.Parameter(torch.empty(4, 5))
    nn.init.normal_(weight, generator=generator)
    return [
        torch.rand(3, 4, generator=generator),
        torch.randint(0, 9, (5,), generator=generator),
        torch.randperm(7, generator=generator),
        torch.empty(6).uniform_(-1, 1, generator=generator),
        torch.normal(torch.zeros(4), torch.ones(4), generator=generator),
        torch.multinomial(torch.ones(8), 3, generator=generator),
        weight.detach(),
    ]


def _drawn_on(device: str) -> list[torch.Tensor]:
    with torch.device(device), DrawnOnTheHost(device):
        return _draw_all()


def test_own_generators_draw_as_without_a_device():
    for drawn, plain in zip(_drawn_on("cpu"), _draw_all(), strict=True):
        assert torch.equal(drawn, plain)


def test_shapes_are_drawn_without_numbers():
    assert {tensor.device.type for tensor in _drawn_on("meta")} == {"meta"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_own_generators_draw_the_same_for_a_gpu():
    for drawn, plain in zip(_drawn_on("cuda"), _draw_all(), strict=True):
        assert drawn.is_cuda and torch.equal(drawn.cpu(), plain)
