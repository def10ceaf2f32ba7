"""Prepared references and trials of a GPU's judge, as long as there is memory."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.problem_cache import KEPT_PROBLEMS, Prepared, keep
from kernel_core.gym.oracle.input_families import Draw
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial, outline
from kernel_core.gym.workers.workers import Workers

_LARGE_BYTES = 1 << 30
"""Larger trials are not kept but made again."""
_REFERENCES_SHARE = 0.5
"""The share of the cache for references; trials have the rest."""
_GROUP = 16
"""Candidates of one problem that share secret inputs."""
_K = TypeVar("_K")
_S = TypeVar("_S", Reference, Trial)


class CudaPrepared(Prepared):
    """References and trials within `num_bytes` of the GPU's memory."""

    def __init__(self, config: GymConfig, workers: Workers, num_bytes: int) -> None:
        super().__init__(config, workers)
        self._num_bytes = num_bytes
        self._outlines: dict[tuple[str, Draw], Trial] = {}
        self._fixed: dict[str, bool] = {}
        self._groups: OrderedDict[str, list[int]] = OrderedDict()

    def group_seed(self, reference: Reference) -> int:
        """A secret seed for the next few candidates of a problem."""
        with self._lock:
            seed, uses = self._groups.pop(reference.key, [secrets.randbits(62), 0])
            if uses >= _GROUP:
                seed, uses = secrets.randbits(62), 0
            keep(self._groups, reference.key, [seed, uses + 1], KEPT_PROBLEMS)
            return seed

    def forget_trials(self) -> None:
        """Drop the kept trials."""
        with self._lock:
            self._trials.clear()

    def reference(self, request: JudgeRequest) -> Reference:
        """As `Prepared`; references are kept as long as their weights fit."""
        reference = super().reference(request)
        with self._lock:
            shrink(self._references, int(_REFERENCES_SHARE * self._num_bytes))
        return reference

    def outline(self, reference: Reference, seed: int) -> Trial:
        """The outline of all trials of a problem."""
        if (reference.key, "own") not in self._outlines:
            self.trial(reference, seed, self._first_label("own"), "own")
        return self._outlines[reference.key, "own"]

    def has_fixed_sizes(self, reference: Reference, seed: int, labels: Sequence[str]) -> bool:
        """Return True if outputs for other inputs have the sizes of the outline. If not, calls cannot be
        timed, and a trial cannot be made again from its outline. The other inputs are those of the trials
        with these labels, which are kept as `trial` keeps them: of few draws, two may have one size by
        chance."""
        if reference.key not in self._fixed:
            like, others = self.outline(reference, seed), []
            for label in labels:
                with self._workers.draw():
                    others.append(reference.trial_like(like, self.number(seed, label, "own")))
            shapes = [[leaf.shape for leaf in trial.expected] for trial in (like, *others)]
            self._fixed[reference.key] = all(form == shapes[0] for form in shapes)
            if not self._is_made_again(reference, like):
                for label, other in zip(labels, others, strict=True):
                    self._keep_trial((reference.key, seed, f"{label}:own"), other)
        return self._fixed[reference.key]

    def trial(self, reference: Reference, seed: int, label: str, draw: Draw) -> Trial:
        """Trials are kept while they fit. Large trials keep neither inputs nor expected outputs after the
        first use; they are made when they are needed, because all candidates would wait for their memory.

        The first trial measures the error of honest arithmetic on the problem's own draws.
        """
        number, key = self.number(seed, label, draw), (reference.key, seed, f"{label}:{draw}")
        is_first = self._strict or draw != "own" or label == self._first_label(draw)
        alike = None if is_first else self.outline(reference, seed)
        known = self._known_trial(reference, number, draw, key)
        if known is not None:
            return known
        with self._workers.draw():
            known = self._known_trial(reference, number, draw, key)
            if known is not None:
                return known
            trial = (
                reference.trial(number, draw, exact=not self._strict)
                if alike is None
                else reference.trial_like(alike, number)
            )
            like = outline(trial)
            self._outlines.setdefault((reference.key, draw), like)
            if self._is_made_again(reference, like):
                return replace(like, inputs=[])
            self._keep_trial(key, trial)
            return trial

    def _keep_trial(self, key: tuple[str, int, str], trial: Trial) -> None:
        with self._lock:
            self._trials[key] = trial
            shrink(self._trials, int((1 - _REFERENCES_SHARE) * self._num_bytes))

    def _known_trial(
        self, reference: Reference, number: int, draw: Draw, key: tuple[str, int, str]
    ) -> Trial | None:
        """A trial that need not be made. A lookup waits for no turn."""
        like = self._outlines.get((reference.key, draw))
        if like is not None and self._is_made_again(reference, like):
            return replace(like, seed=number, inputs=[])
        with self._lock:
            trial = self._trials.get(key)
            if trial is not None:
                self._trials.move_to_end(key)
            return trial

    def _is_made_again(self, reference: Reference, like: Trial) -> bool:
        return like.num_bytes > _LARGE_BYTES and self._fixed.get(reference.key, True)

    def _draws_seed(self, seed: int) -> int:
        """The accepted draws of a problem are found once for all seeds, because the seed changes after every
        few candidates."""
        return 0


def shrink(known: OrderedDict[_K, _S], num_bytes: int) -> None:
    """Forget the oldest until the rest fits, but never the newest."""
    while len(known) > 1 and sum(trial.num_bytes for trial in known.values()) > num_bytes:
        known.popitem(last=False)
