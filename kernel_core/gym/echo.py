"""Do the outputs need what a candidate's kernels make of these inputs, or does the library do without?

A kernel that clears a flag, adds zeros or copies what the library computed is launched for nothing, but the
outputs break where it is left out. So the trace is played on other inputs first, and what each launch writes
there is kept. In a second pass, on the first inputs, torch's operators work as before, and each launch only
writes what it wrote for the others. If the outputs come out right all the same, or an operator of torch's
makes them, then nothing that the kernels found out about the inputs was needed. This is done with more than
one draw of other inputs: what is needed is needed each time, and a decoy now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from kernel_core.gym.compare import all_pass
from kernel_core.gym.reference import Expected

Launch = Callable[[dict[str, Any]], None]
ECHOES = 2
"""Draws of other inputs that a trace is played on."""


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

    def memory_of(self, operation: dict[str, Any]) -> list[torch.Tensor]:
        """The bytes of each storage among a launch's arguments."""
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
) -> bool:
    """Whether the right `outputs` for `inputs` depend on what the launches make of these, not of `others`.

    Outputs that are the same for both, or are an input, tell nothing; where all are, the answer is yes.
    """
    written, for_others = _play_and_keep(play_on(others))
    wanted = [
        Expected(str(value.dtype).removeprefix("torch."), tuple(value.shape), value, 0.0) for value in outputs
    ]
    telling = {
        index
        for index, want in enumerate(wanted)
        if not any(_is(tensor, want) for tensor in (for_others[index], *inputs))
    }
    found: set[int] = set()

    def look(tensor: torch.Tensor) -> None:
        found.update(index for index in telling - found if _is(tensor, wanted[index]))

    echo = play_on(inputs)
    echo.made.append(look)
    echo.play(lambda operation: written.write(echo, operation))
    found.update(index for index in telling if _is(echo.outputs()[index], wanted[index]))
    return not telling or found != telling


def _play_and_keep(player: Player) -> tuple[_Written, list[torch.Tensor]]:
    written = _Written()
    player.play(lambda operation: written.launch(player, operation))
    return written, player.outputs()


def _is(tensor: torch.Tensor, want: Expected) -> bool:
    if tensor.numel() != want.value.numel() or tensor.is_floating_point() != want.value.is_floating_point():
        return False
    return all_pass(tensor.reshape(want.shape).to(want.value.dtype), want)


class _Written:
    """Which bytes each launch changed, and to what."""

    def __init__(self) -> None:
        self._launches: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
        self._next = 0

    def launch(self, player: Player, operation: dict[str, Any]) -> None:
        """Do a launch and keep what it writes."""
        before = [raw.clone() for raw in player.memory_of(operation)]
        player.launch(operation)
        after = player.memory_of(operation)
        self._launches.append([(now != was, now.clone()) for now, was in zip(after, before, strict=True)])

    def write(self, player: Player, operation: dict[str, Any]) -> None:
        """Write what the same launch wrote in the first pass."""
        kept = self._launches[self._next]
        self._next += 1
        for raw, (changed, values) in zip(player.memory_of(operation), kept, strict=True):
            raw.copy_(torch.where(changed, values, raw))
