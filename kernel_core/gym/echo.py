"""Do the outputs need what a candidate's kernels make of these inputs, or does the library do without?

A kernel that clears a flag, adds zeros or copies what the library computed is launched for nothing, but the
outputs break where it is left out. So the trace is played on other inputs first, and what each launch writes
there is kept. In a second pass, on the first inputs, torch's operators work as before, and each launch only
writes what it wrote for the others. If the outputs come out right all the same, or an operator of torch's
makes them, then nothing that the kernels found out about the inputs was needed. This is done with more than
one draw of other inputs: what is needed is needed each time, and a decoy now and then. Launches that only
move data work as torch's operators do (`moving.py`).

Right is what is right but for a hundredth: a kernel that looks after one row of a hundred and one, or clamps
the one number in a thousand that is too large, does almost none of the work, however long it takes. That
refuses honest kernels too whose effect is that sparse, on these inputs, and which leave all else to torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Protocol

import torch

from kernel_core.gym.compare import as_many_fail, fails_at
from kernel_core.gym.reference import Expected

Launch = Callable[[dict[str, Any]], None]
ECHOES = 2
"""Draws of other inputs that a trace is played on."""
NEGLIGIBLE_SHARE = 0.01
"""Below this share of the time, or of the outputs, a candidate's own kernels are a decoy."""


class Player(Protocol):
    """One pass over a trace."""

    made: list[Callable[[torch.Tensor], None]]
    """Called with each tensor that an operator of torch's made or wrote."""

    def play(self, launch: Launch) -> list[Any]:
        """Do every operation in order; launches are left to `launch`."""
        ...

    def launch(self, operation: dict[str, Any]) -> None:
        """Do a launch."""
        ...

    def memory_of(self, operation: dict[str, Any]) -> dict[int, torch.Tensor]:
        """The bytes of each storage among a launch's arguments, by its number."""
        ...

    def outputs(self) -> list[torch.Tensor]:
        """What the pass gave."""
        ...


def library_works(trace: dict[str, Any] | None) -> bool:
    """Whether there is a trace, and it has operators of torch's beyond views and allocation, which are not
    recorded."""
    return trace is not None and any("op" in operation for operation in trace["operations"])


def outputs_need_kernels(
    play_on: Callable[[list[torch.Tensor]], Player],
    inputs: list[torch.Tensor],
    others: list[torch.Tensor],
    outputs: list[torch.Tensor],
    moving: Collection[int],
) -> bool:
    """Whether the right `outputs` for `inputs` depend on what the launches make of these, not of `others`;
    `moving` are the ids of those that only move data.

    Elements that are the same for both tell nothing, nor do outputs that are an input; where that are all,
    the answer is yes.
    """
    written, for_others = _play_and_keep(play_on(others), moving)
    wanted = [
        Expected(str(value.dtype).removeprefix("torch."), tuple(value.shape), value, 0.0) for value in outputs
    ]
    telling: dict[int, torch.Tensor] = {}
    for index, want in enumerate(wanted):
        differ = _fails_at(for_others[index], want)
        if bool(differ.any()) and all(bool(_fails_at(tensor, want).any()) for tensor in inputs):
            telling[index] = differ
    found: set[int] = set()

    def look(tensor: torch.Tensor) -> None:
        found.update(
            index
            for index, differ in telling.items()
            if index not in found and _is(tensor, wanted[index], differ)
        )

    echo = play_on(inputs)
    echo.made.append(look)
    echo.play(
        lambda operation: (
            echo.launch(operation) if id(operation) in moving else written.write(echo, operation)
        )
    )
    for index, differ in telling.items():
        if _is(echo.outputs()[index], wanted[index], differ):
            found.add(index)
    return not telling or found != telling.keys()


def _play_and_keep(player: Player, moving: Collection[int]) -> tuple[_Written, list[torch.Tensor]]:
    written = _Written()
    player.play(
        lambda operation: (
            player.launch(operation) if id(operation) in moving else written.launch(player, operation)
        )
    )
    return written, player.outputs()


def _is(tensor: torch.Tensor, want: Expected, among: torch.Tensor) -> bool:
    """Whether it has the right values but for a negligible share of the elements `among` all."""
    if not _is_comparable(tensor, want):
        return False
    least = max(1, math.ceil(NEGLIGIBLE_SHARE * int(among.sum())))
    return not as_many_fail(tensor.reshape(want.shape).to(want.value.dtype), want, among, least)


def _fails_at(tensor: torch.Tensor, want: Expected) -> torch.Tensor:
    if not _is_comparable(tensor, want):
        return torch.ones(want.value.numel(), dtype=torch.bool, device=want.value.device)
    return fails_at(tensor.reshape(want.shape).to(want.value.dtype), want)


def _is_comparable(tensor: torch.Tensor, want: Expected) -> bool:
    return (
        tensor.numel() == want.value.numel() and tensor.is_floating_point() == want.value.is_floating_point()
    )


class _Written:
    """Which bytes each launch changed, and to what."""

    def __init__(self) -> None:
        self._launches: list[dict[int, tuple[torch.Tensor, torch.Tensor]]] = []
        self._next = 0

    def launch(self, player: Player, operation: dict[str, Any]) -> None:
        """Do a launch and keep what it writes."""
        before = {number: raw.clone() for number, raw in player.memory_of(operation).items()}
        player.launch(operation)
        after = player.memory_of(operation)
        self._launches.append({number: (now != before[number], now.clone()) for number, now in after.items()})

    def write(self, player: Player, operation: dict[str, Any]) -> None:
        """Write what the same launch wrote in the first pass."""
        kept = self._launches[self._next]
        self._next += 1
        for number, raw in player.memory_of(operation).items():
            changed, values = kept[number]
            raw.copy_(torch.where(changed, values, raw))
