"""The judge's side of timing: inputs and poisoned outputs for many calls, and the judge's own clock.

The judge holds the GPU alone from the first call to the last, with all work between them. The work before and
after happens beside other work. Every call has contents of its own at addresses of its own. The judge knows
the outputs of some secret calls, and compares them. The contents of the other calls are drawn for the moment.
"""

from __future__ import annotations

import contextlib
import functools
import random
import secrets
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kernel_core.gym.channel.cuda_arena import DeviceArena
from kernel_core.gym.channel.messages import CallTimes, Failure, Mapped
from kernel_core.gym.channel.pytree import Fingerprint, fingerprint
from kernel_core.gym.channel.shared_arena import DTYPES, lay_out, like_these, slots_to_json
from kernel_core.gym.numerics.compare import compare_values, each_passes
from kernel_core.gym.numerics.expected import Expected
from kernel_core.gym.oracle.problem_module import own_seeds
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.timing.nvml import NvmlDevice
from kernel_core.gym.timing.timing_stats import Clocked, Clocks
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.workers.child import NO_ANSWER, Answer, ChildSession, Died
from kernel_core.gym.workers.gpu_locks import Drawn
from kernel_core.gym.workers.payload import pack, settle_device
from kernel_core.gym.workers.workers import Workers

_WARM_UP_CALLS = 2
"""A process does some things once: these calls are thrown away, and tell how many to make."""
_CALLS, _FEW_CALLS = 50, 8
_LONG_CALL_MS = 1.0
_INTERRUPTED_MS = 4.0
"""A GPU divides its time by a few milliseconds among the processes that have work: a shorter call is mostly
over before it is another's turn."""
_BED_BYTES = 1 << 30
"""There are as many places for calls as fit in this, and at least one."""
_RANDOM = random.SystemRandom()


class GpuAccess:
    """The GPU, shared or alone. Where there is a case, its phases say how long it had the GPU alone."""

    def __init__(self, workers: Workers, gpu: NvmlDevice, case: Case | None) -> None:
        self._workers = workers
        self._gpu = gpu
        self._case = case

    def draw(self) -> contextlib.AbstractContextManager[Drawn]:
        """A turn beside others. No other thread draws inputs meanwhile."""
        return self._workers.draw()

    def share(self) -> contextlib.AbstractContextManager[None]:
        """A turn beside others, without draws."""
        return self._workers.share()

    @contextlib.contextmanager
    def alone(self, *, still: bool) -> Iterator[None]:
        """An exclusive turn. With `still` no process starts meanwhile."""
        with self._workers.alone(still=still), contextlib.ExitStack() as stack:
            if self._case is not None:
                stack.enter_context(self._case.phase("timed alone"))
            yield

    def clocks(self) -> Clocks:
        """The state of the GPU now."""
        return self._gpu.clocks()


def clock_calls(
    talk: ChildSession,
    reference: Reference,
    like: Trial,
    trials: Sequence[Trial],
    arena: DeviceArena,
    turns: GpuAccess,
    still: bool,
) -> Clocked | str | Died | Failure:
    """Calls until there are enough. `like` says what inputs and outputs look like, `trials` lie hidden
    among the calls. `still` calls, and all long ones, are made while no process comes up. A text is what is
    wrong with an output."""
    bed = _Bed(like, arena)
    warm_up = _Rounds(talk, reference, bed, turns)
    fault: str | Died | Failure | None = warm_up.go_beside_others(_WARM_UP_CALLS)
    if fault is not None:
        return fault
    call_ms = min(warm_up.times_ms)
    wanted = _enough(call_ms)
    places = _RANDOM.sample(range(wanted), min(wanted, len(trials)))
    rounds = _Rounds(talk, reference, bed, turns)
    hidden = dict(zip(places, trials, strict=False))
    fault = rounds.go_alone(wanted, hidden, still=still or call_ms >= _INTERRUPTED_MS)
    if fault is not None:
        return fault
    return Clocked(tuple(rounds.times_ms), rounds.wall_ms, rounds.state, rounds.outputs)


def arena_bytes(like: Trial) -> int:
    """The size of a candidate's arena: inputs and outputs, of several calls where they are small."""
    tensors: list[torch.Tensor] = []
    pack(like.inputs, tensors)
    inputs = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    outputs = [(leaf.shape, DTYPES[leaf.dtype]) for leaf in like.expected]
    _, place_bytes = lay_out([*inputs, *outputs])
    return place_bytes * max(1, min(_CALLS, _BED_BYTES // place_bytes))


def _enough(call_ms: float) -> int:
    """The number of calls for a good median: fewer when they are long, because long calls vary less."""
    return _CALLS if call_ms < _LONG_CALL_MS else _FEW_CALLS


class _Rounds:
    """Rounds of calls, each as large as the number of places."""

    def __init__(self, talk: ChildSession, reference: Reference, bed: _Bed, turns: GpuAccess) -> None:
        self._talk = talk
        self._reference = reference
        self._bed = bed
        self._turns = turns
        self.times_ms: list[float] = []
        self.wall_ms = 0.0
        self.state = Clocks()
        self.outputs: dict[int, list[Fingerprint]] = {}

    def go_beside_others(self, count: int) -> Died | Failure | None:
        """Make so many calls without a look at their outputs."""
        for _, num_calls in self._rounds(count):
            with self._turns.draw() as drawn:
                answer = self._prepare(num_calls, {})
                drawn()
                fault = answer if isinstance(answer, Died) else self._call(num_calls)
            if fault is not None:
                return fault
        return None

    def go_alone(self, count: int, hidden: dict[int, Trial], *, still: bool) -> str | Died | Failure | None:
        """Make so many calls; `hidden` are trials by their place among them."""
        rounds = self._rounds(count)
        here = [
            {place - start: trial for place, trial in hidden.items() if start <= place < start + num_calls}
            for start, num_calls in rounds
        ]
        with self._turns.draw():
            answer = self._prepare(rounds[0][1], here[0])
        if isinstance(answer, Died):
            return answer
        with self._turns.alone(still=still):
            for number, (_, num_calls) in enumerate(rounds):
                if number > 0:
                    answer = self._prepare(num_calls, here[number])
                    if isinstance(answer, Died):
                        return answer
                fault: str | Died | Failure | None = self._call(num_calls)
                if fault is None and number + 1 < len(rounds):
                    fault = self._compare_all(here[number])
                if fault is not None:
                    return fault
        return self._compare_beside_others(here[-1])

    def _compare_beside_others(self, hidden: dict[int, Trial]) -> str | None:
        """Only values that were not kept are drawn, or those that are looked at closely after a fault."""
        if all(trial.has_values for trial in hidden.values()):
            with self._turns.share():
                if all(self._passes(place, trial) for place, trial in hidden.items()):
                    return None
        with self._turns.draw():
            return self._compare_all(hidden)

    def _rounds(self, count: int) -> list[tuple[int, int]]:
        """The first call of each, and how many there are."""
        starts = range(0, count, self._bed.num_places)
        return [(start, min(self._bed.num_places, count - start)) for start in starts]

    def _call(self, count: int) -> Died | Failure | None:
        started = time.perf_counter()
        answer = self._talk.ask(self._bed.calls(count), (CallTimes, Failure))
        wall_ms = 1e3 * (time.perf_counter() - started)
        self.state = self._turns.clocks()
        if isinstance(answer, Died):
            return answer
        if isinstance(answer.claim, Failure):
            return answer.claim
        if not isinstance(answer.claim, CallTimes) or len(answer.claim.times_ms) != count:
            return Died(timed_out=False, reason=NO_ANSWER)
        self.times_ms += answer.claim.times_ms
        self.wall_ms += wall_ms
        return None

    def _compare_all(self, hidden: dict[int, Trial]) -> str | None:
        faults = (self._compare(place, trial) for place, trial in hidden.items())
        return next((fault for fault in faults if fault is not None), None)

    def _compare(self, place: int, trial: Trial) -> str | None:
        """The fault of one call's outputs. The errors of its own inputs may excuse what another trial's
        errors do not: a sum that happens to cancel."""
        if self._passes(place, trial):
            return None
        is_enough = functools.partial(each_passes, self._bed.values(place))
        return self._bed.compare(place, self._reference.exactly(trial, is_enough).expected)

    def _passes(self, place: int, trial: Trial) -> bool:
        """Return True if one call's outputs are right by the errors that all inputs of the family have."""
        self.outputs[trial.seed] = self._bed.outputs(place)
        return each_passes(self._bed.values(place), self._reference.with_values(trial).expected)

    def _prepare(self, count: int, hidden: dict[int, Trial]) -> Answer | Died:
        """Have the memory mapped afresh, and lay out new contents."""
        header, descriptors = self._bed.mapping()
        mapped = self._talk.ask(header, (Mapped,), descriptors=descriptors)
        for place in range(count if isinstance(mapped, Answer) else 0):
            with own_seeds("cuda"):
                self._bed.lay(place, self._contents(hidden.get(place)))
        settle_device("cuda")
        return mapped

    def _contents(self, trial: Trial | None) -> list[Any]:
        if trial is not None:
            return self._reference.inputs_of(trial)
        return self._reference.draw(secrets.randbits(60), "own")


class _Bed:
    """Inputs and poisoned outputs for a number of calls, in one arena."""

    def __init__(self, like: Trial, arena: DeviceArena) -> None:
        tensors: list[torch.Tensor] = []
        pack(like.inputs, tensors)
        inputs = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        outputs = [(leaf.shape, DTYPES[leaf.dtype]) for leaf in like.expected]
        _, place_bytes = lay_out([*inputs, *outputs])
        self.num_places = min(_CALLS, arena.num_bytes // place_bytes)
        slots, _ = lay_out([*inputs, *outputs] * self.num_places)
        width, middle = len(inputs) + len(outputs), len(inputs)
        rows = [slots[start : start + width] for start in range(0, len(slots), width)]
        self._inputs = [like_these(row[:middle], tensors) for row in rows]
        self._outputs = [row[middle:] for row in rows]
        self._described: list[list[Any]] = [[] for _ in rows]
        self.arena = arena
        self._is_handed_over = False

    def lay(self, place: int, inputs: Sequence[Any]) -> None:
        """Put one call's inputs in their place, and poison where its outputs will be."""
        tensors: list[torch.Tensor] = []
        self._described[place] = pack(inputs, tensors)
        for tensor, slot in zip(tensors, self._inputs[place], strict=True):
            self.arena.tensor(slot).copy_(tensor)
        self.arena.poison(self._outputs[place])

    def mapping(self) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Tells the candidate's process to map the arena at a new address in each round. A process that has
        the arena from the round before moves it."""
        descriptors = () if self._is_handed_over else (self.arena.descriptor,)
        self._is_handed_over = True
        return {"bed": True, "arena_bytes": self.arena.num_bytes}, descriptors

    def calls(self, count: int) -> dict[str, Any]:
        """The message to the candidate's process about the first `count` places."""
        rows = zip(self._described[:count], self._inputs, self._outputs, strict=False)
        return {
            "calls": [
                [described, slots_to_json(inputs), slots_to_json(outputs)]
                for described, inputs, outputs in rows
            ]
        }

    def outputs(self, place: int) -> list[Fingerprint]:
        """Fingerprints of the outputs of one call."""
        return [fingerprint(value) for value in self.values(place)]

    def values(self, place: int) -> list[torch.Tensor]:
        """One call's outputs, where they lie."""
        return [self.arena.tensor(slot) for slot in self._outputs[place]]

    def compare(self, place: int, expected: Sequence[Expected]) -> str | None:
        """The fault of one call's outputs."""
        faults = (compare_values(*pair) for pair in zip(self.values(place), expected, strict=True))
        return next((fault for fault in faults if fault is not None), None)
