"""Tests whether the outputs need what a candidate's kernels make of these inputs.

A kernel that clears a flag, adds zeros or copies the library's results is launched for nothing, but the
outputs break where it is left out. So the trace is played on other inputs first, and the writes of each
launch are kept. In a second pass, on the first inputs, torch's operators work as before. Each launch only
writes what it wrote for the others. If the outputs are right all the same, or an operator of torch's makes
them, the kernels' results about the inputs were not needed. This is done with more than one draw of other
inputs: a needed kernel is needed each time, a decoy now and then. Launches that only move data work as
torch's operators do (`copy_detection.py`).

Outputs count as right if less than a hundredth of the elements that differ between the two inputs is wrong. A
kernel for one row of many, or for the one number in a thousand that is too large, does almost none of the
work, however long it takes. That also refuses honest kernels with an effect as sparse on these inputs, if
they leave the rest to torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import torch

from kernel_core.gym.channel.decoy_thresholds import NEGLIGIBLE_SHARE
from kernel_core.gym.channel.torch_ops import computable
from kernel_core.gym.numerics.compare import num_failing
from kernel_core.gym.numerics.expected import Expected

if TYPE_CHECKING:
    from kernel_core.gym.untrusted.replay.trace_player import TracePlayer

DoLaunch = Callable[[dict[str, Any]], None]


def outputs_need_kernels(
    play_on: Callable[[list[torch.Tensor]], TracePlayer],
    inputs: list[torch.Tensor],
    others: list[torch.Tensor],
    outputs: list[torch.Tensor],
    moving: Collection[int],
) -> bool:
    """Return True if the right `outputs` for `inputs` depend on what the launches make of these, not of
    `others`; `moving` are the ids of those that only move data.

    Outputs that are the same for both, or are an input, tell nothing; where all are, the answer is yes.
    """
    written, for_others = _play_and_keep(play_on(others), moving)
    wanted = [
        Expected(str(value.dtype).removeprefix("torch."), tuple(value.shape), computable(value))
        for value in outputs
    ]
    telling: dict[int, int] = {}
    """The number of elements that must fail before an output counts as another."""
    for index, want in enumerate(wanted):
        differing = _num_failing(for_others[index], want)
        if differing and all(_num_failing(tensor, want, 1) for tensor in inputs):
            telling[index] = math.ceil(NEGLIGIBLE_SHARE * differing)
    needed: set[int] = set()

    def look(tensor: torch.Tensor) -> None:
        needed.update(
            index
            for index in telling.keys() - needed
            if _num_failing(tensor, wanted[index], telling[index]) < telling[index]
        )

    echo = play_on(inputs)
    echo.made.append(look)
    # A write of the value that was already there counts as no write, so the same value must be there again.
    echo.play(
        lambda operation: (
            echo.launch(operation) if id(operation) in moving else written.write(echo, operation)
        ),
        as_before=True,
    )
    given = echo.outputs()
    needed.update(
        index for index, least in telling.items() if _num_failing(given[index], wanted[index], least) < least
    )
    return not telling or needed != telling.keys()


def _play_and_keep(player: TracePlayer, moving: Collection[int]) -> tuple[_LaunchWrites, list[torch.Tensor]]:
    written = _LaunchWrites()
    player.play(
        lambda operation: (
            player.launch(operation) if id(operation) in moving else written.launch(player, operation)
        )
    )
    return written, player.outputs()


def _num_failing(tensor: torch.Tensor, want: Expected, enough: float = math.inf) -> int:
    """The number of wrong elements, counted to `enough`; all of a tensor of another size or kind."""
    if tensor.numel() != want.value.numel() or tensor.is_floating_point() != want.value.is_floating_point():
        return want.value.numel()
    return num_failing(tensor.reshape(want.shape).to(want.value.dtype), want, enough)


class _LaunchWrites:
    """The bytes that each launch changed, and their new values."""

    def __init__(self) -> None:
        self._launches: list[dict[int, tuple[torch.Tensor, torch.Tensor]]] = []
        self._next = 0

    def launch(self, player: TracePlayer, operation: dict[str, Any]) -> None:
        """Do a launch and keep what it writes."""
        before = {number: raw.clone() for number, raw in player.memory_of(operation).items()}
        player.launch(operation)
        after = player.memory_of(operation)
        self._launches.append({number: (now != before[number], now.clone()) for number, now in after.items()})

    def write(self, player: TracePlayer, operation: dict[str, Any]) -> None:
        """Write what the same launch wrote in the first pass."""
        kept = self._launches[self._next]
        self._next += 1
        for number, raw in player.memory_of(operation).items():
            changed, values = kept[number]
            raw.copy_(torch.where(changed, values, raw))
