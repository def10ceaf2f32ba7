"""Prepared problems for judges: executed, with accepted draws, and with trials of these. Each is made once
for all its candidates."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TypeVar

from kernel_core.config import GymConfig
from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge import kernelbench_rules
from kernel_core.gym.oracle.input_families import (
    FAR,
    HOSTILE,
    HOSTILE_TO_GRADIENTS,
    ONE_SIGNED,
    Draw,
    hostile_draw,
    moderate,
)
from kernel_core.gym.oracle.reference import Reference, reference_key
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.workers.workers import Workers

KEPT_PROBLEMS = 8
REPLAY = "replay"
"""The label of the trial on which recorded work is replayed."""
_MANY_TIES = ("integers", "edges")
"""Families for outputs that are constant elsewhere, such as truth values of a comparison."""
_KEPT_TRIALS = 32
_KEPT_DRAWS = 1024
_K = TypeVar("_K")
_V = TypeVar("_V")


class Prepared:
    """References, their draws and their trials. Threads may ask at once."""

    def __init__(self, config: GymConfig, workers: Workers) -> None:
        self._strict = config.rules == "kernelbench"
        self._tolerance = config.tolerance
        self._num_trials = config.trials
        self._num_own = max(1, config.trials - 1)
        self._workers = workers
        self._references: OrderedDict[str, Reference] = OrderedDict()
        self._trials: OrderedDict[tuple[str, int, str], Trial] = OrderedDict()
        self._draws: OrderedDict[tuple[str, int], list[tuple[str, Draw]]] = OrderedDict()
        self._lock = threading.RLock()

    def reference(self, request: JudgeRequest) -> Reference:
        """Return the problem's reference at the request's sizes, made once and kept. Raises `NotAProblem`."""
        sizes = request.run_sizes(self._workers.device)
        key = reference_key(request.problem, sizes)
        with self._lock:
            known = self._references.get(key)
        if known is not None:
            return known
        with self._workers.draw(), self._lock:
            if key not in self._references:
                reference = Reference(
                    request.problem,
                    sizes,
                    self._workers.device,
                    varies=not self._strict,
                    tolerance="field" if self._strict else self._tolerance,
                )
                keep(self._references, key, reference, KEPT_PROBLEMS)
            return self._references[key]

    def draws(self, reference: Reference, seed: int) -> list[tuple[str, Draw]]:
        """Labels and draws of all trials: the problem's own, and around them hostile ones that the reference
        can take; found once. What a candidate prepares in its first pass is for all: its work on own draws is
        that of later ones."""
        if self._strict:
            return [(f"{number}", "own") for number in kernelbench_rules.SEEDS]
        if self._tolerance == "field":  # KernelBench has no other inputs
            return [(f"trial {number}", "own") for number in range(self._num_trials)]
        key = (reference.key, self._draws_seed(seed))
        if key not in self._draws:
            keep(self._draws, key, self._find_draws(reference, seed), _KEPT_DRAWS)
        return self._draws[key]

    def beyond(self, reference: Reference, seed: int) -> Iterator[Trial]:
        """Trials with inputs that lie beyond the contract, of families that the reference takes."""
        if self._tolerance == "field":
            return
        for draw in () if self._takes_far(reference, seed) else (FAR, HOSTILE[0]):
            if self._takes(reference, seed, "beyond", draw):
                yield self.trial(reference, seed, "beyond", draw)

    def trial(self, reference: Reference, seed: int, label: str, draw: Draw) -> Trial:
        """Inputs and what is expected of them. Raises `NotAProblem`."""
        key = (reference.key, seed, f"{label}:{draw}")
        with self._workers.draw(), self._lock:
            if key not in self._trials:
                trial = reference.trial(self.number(seed, label, draw), draw, exact=not self._strict)
                keep(self._trials, key, trial, _KEPT_TRIALS)
            return self._trials[key]

    def number(self, seed: int, label: str, draw: Draw) -> int:
        """The seed of one draw; KernelBench's five are public, and are their trials' labels."""
        return int(label) if self._strict and label.isdecimal() else derive_seed(seed, label, draw)

    def _draws_seed(self, seed: int) -> int:
        """The seed that stands for all seeds with the same accepted draws."""
        return seed

    def _find_draws(self, reference: Reference, seed: int) -> list[tuple[str, Draw]]:
        def usable(label: str, families: Sequence[Draw]) -> Draw | None:
            takes = functools.partial(self._takes, reference, seed, label)
            return hostile_draw(takes, families, lambda: reference.num_floating)

        takes_far = self._takes_far(reference, seed)
        one_signed = (FAR, ONE_SIGNED) if takes_far else (ONE_SIGNED,)
        own: list[tuple[str, Draw]] = [(f"trial {i}", "own") for i in range(self._num_own)]
        if self._num_own > 1 and (first := usable("one sign", one_signed)):
            own = [("one sign", first), *own[:-1]]
        hostile = HOSTILE_TO_GRADIENTS if reference.gradients else HOSTILE
        hostile = hostile if takes_far else moderate(hostile)
        last = self._first_label(hostile[0])
        draws = [*own, (last, usable(last, hostile) or "own")]
        constants = self._constants(reference, seed, *draws[0])
        if constants is None or any(self._constants(reference, seed, *other) != constants for other in draws):
            return draws
        for draw in dict.fromkeys((*_MANY_TIES, *hostile)):
            if all(
                self._takes(reference, seed, label, draw)
                and self._constants(reference, seed, label, draw) != constants
                for label in (last, REPLAY)
            ):
                return [*own, (last, draw)]
        values = ", ".join(map(str, constants))
        raise NotAProblem(
            f"the output of {reference.problem.id} is {values} for all inputs tried, so a kernel that reads "
            "no input would be right; give inputs for which it differs"
        )

    def _constants(self, reference: Reference, seed: int, label: str, draw: Draw) -> list[float] | None:
        """Return the number that fills each output of a trial; None if an output has several, or there are no
        inputs, or the outputs were not kept."""
        trial = self.trial(reference, seed, label, draw)
        with self._workers.draw():
            if not trial.has_values or not any(tensor.numel() for tensor in tensors_in(trial.inputs)):
                return None
            pairs = [
                (leaf.value[(0,) * leaf.value.dim()], leaf.value)
                for leaf in trial.expected
                if leaf.value.numel()
            ]
            is_constant = all((values == first).all() for first, values in pairs)
            return [first.item() for first, _ in pairs] if is_constant else None

    def _takes_far(self, reference: Reference, seed: int) -> bool:
        """Return True if trials have numbers far from zero: only these tell products in bfloat16 from
        products in TF32. A trial of own draws, which all candidates need, tells whether there are such
        products."""
        if reference.may_have_tf32_products:
            self.trial(reference, seed, self._first_label("own"), "own")
        return reference.takes_any_size or reference.may_have_tf32_products

    def _takes(self, reference: Reference, seed: int, label: str, draw: Draw) -> bool:
        """Return True if it gives what it would for own draws. One that raises need not have a value there;
        what fails on its own draws does so in their trial."""
        try:
            return reference.is_safe_with(draw) and self.trial(reference, seed, label, draw).is_usual
        except NotAProblem:
            return False

    def _first_label(self, draw: Draw) -> str:
        """The label of the first trial with inputs of a family."""
        if self._strict:
            return f"{kernelbench_rules.SEEDS[0]}"
        return "trial 0" if draw == "own" else f"trial {self._num_own}"


def keep(known: OrderedDict[_K, _V], key: _K, value: _V, count: int) -> None:
    """Remember a value, and forget the oldest beyond `count`."""
    known[key] = value
    while len(known) > count:
        known.popitem(last=False)
