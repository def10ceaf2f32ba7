"""The launches of a trace that only move data: copies, slices, transposes, paddings, in chains too.

Such a launch only puts values elsewhere, and the places do not depend on the values. Its effect on other
values tells (`value_substitution.py`). In some passes operators of torch's are given data that depends on the
inputs: the inputs, weights or results that such launches move. Moves count for nothing there. In other
passes, to move may be all the work.

Integers stay as they are. If the inputs' integers tell a launch what goes where, it does not count as a copy;
a launch with integers from elsewhere may. Launches that write integers, and those of CUDA C++, which do not
declare types, count as a copy where they copy another argument whole.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from kernel_core.gym.channel.decoy_thresholds import copies_as_it_lies
from kernel_core.gym.channel.pytree import same_bytes
from kernel_core.gym.channel.shared_arena import DTYPES
from kernel_core.gym.channel.trace_codec import views_in, views_of_launch
from kernel_core.gym.untrusted.replay.value_substitution import OtherValues

if TYPE_CHECKING:
    from kernel_core.gym.untrusted.replay.trace_player import TracePlayer


class Movers:
    """Launches of one pass, each looked at as it is done."""

    def __init__(self, trace: dict[str, Any]) -> None:
        self.idle: set[int] = set()
        """The ids of launches that changed nothing: what they write stood there, as after a first launch that
        only warms up or that an autotuner timed."""
        self._found: set[int] = set()
        self._operations = iter(trace["operations"])
        self._outputs = list(views_in(trace["outputs"]))
        self._reached: set[int] = set(trace["inputs"])
        """Storages with contents that may depend on the inputs."""
        self._library_works = False
        """True if an operator of torch's was given such a storage, and did more than copy it as it lies."""

    @property
    def found(self) -> set[int]:
        """When the pass is over, the ids of the launches that only move, where that is no work."""
        self._follow_until(None)
        return self._found if self._library_works else set()

    def launch(self, player: TracePlayer, operation: dict[str, Any]) -> None:
        """Do a launch of a pass, and look whether it only moves."""
        self._follow_until(operation)
        memory = player.memory_of(operation)
        before = {number: raw.clone() for number, raw in memory.items()}
        player.launch(operation)
        changed = {number for number, raw in memory.items() if not same_bytes(raw, before[number])}
        if not changed:
            self.idle.add(id(operation))
            return
        others = self._other_values(player, operation, memory, before, changed)
        if others.find_a_move() if others else _copies_whole(player, operation, memory, before):
            self._found.add(id(operation))
        if self._reached & memory.keys():
            self._reached |= changed

    def _follow_until(self, launch: dict[str, Any] | None) -> None:
        """Follow the inputs through operators of torch's."""
        for operation in self._operations:
            if operation is launch:
                return
            if "op" in operation:
                given = {view[0] for view in views_in([operation["args"], operation["kwargs"]])}
                if given & self._reached:
                    # An operator that returns nothing writes to its arguments.
                    self._reached |= {view[0] for view in operation["outputs"]} or given
                    self._library_works |= not copies_as_it_lies(operation)

    def _other_values(
        self,
        player: TracePlayer,
        operation: dict[str, Any],
        memory: dict[int, torch.Tensor],
        before: dict[int, torch.Tensor],
        changed: set[int],
    ) -> OtherValues | None:
        """The test with other values. None where it would not tell: the launch writes integers, or integers
        of the inputs choose places."""
        types: dict[int, set[torch.dtype]] = {}
        for number, dtype, *_ in views_of_launch(operation):
            types.setdefault(number, set()).add(DTYPES[dtype])
        if any(len(widths) > 1 for widths in types.values()):
            return None
        floats = {number: dtype for number, [dtype] in types.items() if dtype.is_floating_point}
        chosen_by = types.keys() - floats.keys() - changed
        if not changed <= floats.keys() or chosen_by & self._reached:
            return None
        launch = functools.partial(player.launch, operation)
        given = functools.partial(self._given_from, player, memory)
        return OtherValues(memory, before, floats, changed, launch, given)

    def _given_from(self, player: TracePlayer, memory: dict[int, torch.Tensor], number: int) -> torch.Tensor:
        """Bytes that are not zero where a storage holds an output."""
        flags = torch.zeros_like(memory[number])
        for view in self._outputs:
            if view[0] == number:
                player.view_of(view, flags).fill_(1)
        return flags


def _copies_whole(
    player: TracePlayer,
    operation: dict[str, Any],
    memory: dict[int, torch.Tensor],
    before: dict[int, torch.Tensor],
) -> bool:
    """Return True if each argument that changed is now another one as it was."""
    views = list(views_of_launch(operation))
    was = [player.view_of(view, before[view[0]]) for view in views]
    now = [player.view_of(view, memory[view[0]]) for view in views]
    changed = [index for index, tensor in enumerate(now) if not same_bytes(tensor, was[index])]
    return bool(changed) and all(
        any(
            other != index and _looks_like(before, now[index]) and same_bytes(before, now[index])
            for other, before in enumerate(was)
        )
        for index in changed
    )


def _looks_like(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and left.numel() == right.numel()
