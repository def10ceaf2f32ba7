"""Search for a part's winner: candidates judged, the best confirmed on fresh draws and neighbouring sizes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kernel_core.dialogue.turns import Completion, Trajectory, TrajectoryGroup, Turn
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.evaluation.winners import Selected, select
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.optimize.authors import Author, AuthoredCandidate
from kernel_core.optimize.part import Contract, Part
from kernel_core.records import Candidate, Evaluation, NotJudged, Record


class Confirmed(Record):
    """Outcome of the search for one part."""

    part: Part
    """Its contract has the free dimensions at which the winner passed."""
    author: str
    """Author of the winner; empty without one."""
    selected: Selected
    lost_sizes: tuple[str, ...] = ()
    """Free dimensions at which the winner failed or compiles anew; its contract has their own sizes only."""

    @property
    def saved_ms(self) -> float:
        """Median time that a place saves: measured against the fair baseline, or predicted against eager."""
        winner = self.selected.winner
        return statistics.median(_saved_ms(self.part, again) for again in winner.again) if winner else 0.0

    @property
    def candidate(self) -> Candidate | None:
        """The winner's source."""
        return self.selected.winner.ranked.candidate if self.selected.winner is not None else None

    @property
    def why_no_place(self) -> str:
        """Return why the winner was not put into the whole."""
        if self.selected.winner is None:
            return self.selected.why_none
        if self.saved_ms <= 0:
            return f"it saves nothing: {-self.saved_ms:.4f} ms slower at a place"
        return "kernels around it or inside it save more"

    def in_words(self, kind: SpeedKind) -> str:
        """Return the part's outcome in one line."""
        words = self.selected.in_words(kind)
        return f"{words} {self.author}." if self.author else words


def search(part: Part, authors: Sequence[Author], gym: Gym, kind: SpeedKind, seed: int) -> Confirmed:
    """Judge every author's candidates for a part and confirm the best; equal candidates are judged once."""
    written: dict[str, AuthoredCandidate] = {}
    for author in authors:
        for entry in author(part.problem):
            if kind == "measured" or not entry.is_of_one_size:  # a prediction does not know the difference
                written.setdefault(entry.candidate.sha256, entry)
    requests = [
        JudgeRequest(problem=part.problem, candidate=entry.candidate, seed=seed) for entry in written.values()
    ]
    outcomes = gym.judge(requests)
    group = group_of(part.problem.id, list(written.values()), outcomes)
    selected = select(part.problem, group, gym, kind, seed)
    if selected.winner is None:
        return Confirmed(part=part, author="", selected=selected)
    candidate = selected.winner.ranked.candidate
    entry = written[candidate.sha256]
    if entry.is_of_one_size:
        lost = tuple(part.contract.free)
    else:
        lost = _lost_sizes(part, candidate, selected.winner.ranked.evaluation, gym, seed)
    return Confirmed(
        part=part.model_copy(update={"contract": without_free(part.contract, lost)}),
        author=entry.author,
        selected=selected,
        lost_sizes=lost,
    )


def _saved_ms(part: Part, evaluation: Evaluation) -> float:
    """Return the time that a correct candidate saves at one place.

    A prediction takes the judge's ratio and the profile's time: the judge counts a library's attention as
    its separate operators, the profile as one.
    """
    if evaluation.timing is not None and evaluation.reference_timing is not None:
        return evaluation.reference_timing.median_ms - evaluation.timing.median_ms
    return part.predicted_ms * (1.0 - 1.0 / (evaluation.predicted_speedup or 1.0))


def without_free(contract: Contract, names: Sequence[str]) -> Contract:
    """Return a contract that holds at the own sizes only of some free dimensions."""
    shapes = tuple(
        tuple(contract.free[size] if isinstance(size, str) and size in names else size for size in shape)
        for shape in contract.shapes
    )
    free = {name: size for name, size in contract.free.items() if name not in names}
    return contract.model_copy(update={"shapes": shapes, "free": free})


def _lost_sizes(
    part: Part, candidate: Candidate, evaluation: Evaluation, gym: Gym, seed: int
) -> tuple[str, ...]:
    """Return the free dimensions at which a candidate fails: at 1, or next to the size that was judged."""
    run_sizes, requests, names = evaluation.run_sizes, [], []
    for name, own in part.contract.free.items():
        size = int(run_sizes.get(name, own))
        for neighbour in sorted({1, size - 1, size + 1} - {0, size}):
            sizes = {**run_sizes, name: neighbour}
            names.append(name)
            requests.append(
                JudgeRequest(
                    problem=part.problem, candidate=candidate, sizes=sizes, seed=seed, timing=False, fast=True
                )
            )
    outcomes = gym.judge(requests) if requests else []
    failed = [
        name
        for name, outcome in zip(names, outcomes, strict=True)
        if not (isinstance(outcome, Evaluation) and outcome.correct)
    ]
    return tuple(dict.fromkeys(failed))


def group_of(
    problem: str, written: Sequence[AuthoredCandidate], outcomes: Sequence[Evaluation | NotJudged]
) -> TrajectoryGroup:
    """Return the judged candidates as the group of conversations that confirmation takes."""
    reasons = [out.reason for out in outcomes if isinstance(out, NotJudged)]
    trajectories = tuple(
        Trajectory(
            problem_id=problem,
            turns=(
                Turn(
                    problem_id=problem,
                    trajectory=index,
                    index=0,
                    messages=(),
                    completion=Completion(
                        text=entry.candidate.thinking, finish_reason="stop", policy_version=entry.author
                    ),
                    candidate=entry.candidate,
                    evaluation=outcome,
                ),
            ),
        )
        for index, (entry, outcome) in enumerate(zip(written, outcomes, strict=True))
        if isinstance(outcome, Evaluation)
    )
    return TrajectoryGroup(problem_id=problem, trajectories=trajectories, not_judged=next(iter(reasons), ""))
