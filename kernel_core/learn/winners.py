"""Store of the best correct kernels of each problem, for expert iteration.

`winners.jsonl` in the run's store has a line for each, in order. Correct answers to a problem are ranked by
speed-up where their stage pays for speed, and by age otherwise; the best `BEST` distinct kernels count, over
all steps. Kernels that differ in comments and spacing alone are one. A line holds the token ids as they were
sampled, so that the policy learns to write exactly what it wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from kernel_core.corpus.normalise import kernel_hash
from kernel_core.dialogue.rollout import Rollouts
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.credit import GradedTurn, sampled_ids, truncated
from kernel_core.records import Candidate
from kernel_core.store import Store

WINNERS = "winners.jsonl"
BEST = 2
"""Distinct kernels a problem: one alone would teach one way of writing it."""


class Winners:
    """The file of winners of one run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self, step: int, graded: Sequence[Sequence[GradedTurn]], rollouts: Rollouts, *, by_speed: bool
    ) -> None:
        """Keep the winners of a step's groups.

        Without `by_speed` all have speed-up 0, and age ranks them. A fast verdict has no speed-up, so that
        else the few answers that were judged in full would win by that alone.
        """
        winners = [
            winner
            for group in graded
            for graded_turn in group
            if (winner := _winner(step, graded_turn, rollouts, by_speed)) is not None
        ]
        for winner in _best(winners):
            self._store.append_line(WINNERS, winner)

    def rows(self, step: int, most: int, seed: int) -> list[TokenRow]:
        """Return at most so many rows: winners of the step, then earlier ones, drawn at random."""
        best = _best(list(self._store.lines(WINNERS)))
        new = [winner for winner in best if winner["step"] == step]
        earlier = [winner for winner in best if winner["step"] < step]
        order = np.random.default_rng(seed).permutation(len(earlier))
        chosen = [*new, *(earlier[i] for i in order)][:most]
        return [
            TokenRow(np.array(winner["prompt_ids"], np.int32), np.array(winner["answer_ids"], np.int32))
            for winner in chosen
        ]


def _winner(step: int, graded: GradedTurn, rollouts: Rollouts, by_speed: bool) -> dict[str, Any] | None:
    turn = graded.turn
    # A truncated answer has no end: the policy would learn to write on after the kernel.
    if not turn.evaluation.correct or truncated(turn) or not isinstance(turn.candidate, Candidate):
        return None
    prompt_ids, answer_ids = sampled_ids(rollouts, turn)
    return {
        "step": step,
        "problem_id": turn.problem_id,
        "kernel_hash": kernel_hash(turn.candidate.source, "triton"),
        "speedup": (turn.evaluation.best_known_speedup or 0.0) if by_speed else 0.0,
        "prompt_ids": prompt_ids.tolist(),
        "answer_ids": answer_ids.tolist(),
    }


def _best(winners: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the best distinct kernels of each problem, in order of appearance; of equals the earliest."""
    by_problem: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for winner in winners:
        by_problem[winner["problem_id"]].append(winner)
    best = []
    for candidates in by_problem.values():
        distinct: dict[str, dict[str, Any]] = {}
        for winner in sorted(candidates, key=lambda winner: -winner["speedup"]):
            distinct.setdefault(winner["kernel_hash"], winner)
        best += list(distinct.values())[:BEST]
    return best
