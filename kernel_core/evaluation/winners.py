"""One problem's winner: ranked by a first judgement, named only after a second.

The first judgement of many candidates favours the lucky one. So candidates are ranked by it, and then, from
the top, judged again until one passes. The second judgement uses new input draws, several times as many.
Its speed-up is the winner's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kernel_core.dialogue.rollout import seed_of
from kernel_core.dialogue.turns import TrajectoryGroup, Turn
from kernel_core.evaluation.metrics import SpeedKind, outcome_of
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.records import Candidate, Evaluation, Problem, Record, Verdict

FRESH_DRAWS = 3
"""Second judgements of a candidate, each of the gym's number of trials on a seed of its own."""


class Ranked(Record):
    """A distinct candidate that the first judgement called correct, and where it came from."""

    candidate: Candidate
    sample: int
    turn: int
    evaluation: Evaluation


class Rejudged(Record):
    """A ranked candidate and what the judge said on draws that it had not seen."""

    rank: int
    """0 is the best of the first judgement."""
    ranked: Ranked
    again: tuple[Evaluation, ...]
    speedup: float | None
    """Median over `again`, of the selection's kind; None where one of them has none."""

    @property
    def stands(self) -> bool:
        """Every second judgement is `correct`."""
        return len(self.again) == FRESH_DRAWS and all(evaluation.correct for evaluation in self.again)


class Selected(Record):
    """Result of the selection for one problem."""

    problem_id: str
    family: str
    level: int | None
    num_candidates: int
    verdicts: dict[Verdict, int]
    """Verdicts of the first judgement, turn by turn."""
    num_distinct_correct: int
    winner: Rejudged | None
    rejected: tuple[Rejudged, ...]
    """Ranked above the winner, and wrong the second time."""
    not_judged: str = ""
    """Reason why the problem is none on the judge's device."""

    @property
    def why_none(self) -> str:
        """Why there is no winner, in words; empty where there is one."""
        if self.winner is not None:
            return ""
        if self.not_judged:
            return f"not a problem here: {self.not_judged}"
        if self.rejected:
            return f"none of {len(self.rejected)} correct candidates passed the second judgement"
        seen = ", ".join(f"{count} {verdict}" for verdict, count in self.verdicts.items() if count)
        return f"no correct candidate ({seen})"

    def in_words(self, kind: SpeedKind) -> str:
        """The problem and its winner, or why there is none."""
        if self.winner is None:
            return f"{self.problem_id}: {self.why_none}."
        speedup = f", {kind} speed-up {self.winner.speedup:.2f}" if self.winner.speedup else ""
        return f"{self.problem_id}: a winner{speedup}."


def select(problem: Problem, group: TrajectoryGroup, gym: Gym, kind: SpeedKind, seed: int) -> Selected:
    """The winner among one problem's conversations, if any candidate stands a second judgement."""
    turns = [turn for trajectory in group.trajectories for turn in trajectory.turns]
    ranking = rank(turns, kind)
    rejected: list[Rejudged] = []
    winner: Rejudged | None = None
    for position, ranked in enumerate(ranking):
        judged = _judge_again(problem, ranked, position, gym, kind, seed)
        if judged.stands:
            winner = judged
            break
        rejected.append(judged)
    verdicts = [turn.evaluation.verdict for turn in turns]
    return Selected(
        problem_id=problem.id,
        family=problem.family,
        level=problem.level,
        num_candidates=len(turns),
        verdicts={verdict: verdicts.count(verdict) for verdict in Verdict},
        num_distinct_correct=len(ranking),
        winner=winner,
        rejected=tuple(rejected),
        not_judged=group.not_judged,
    )


def rank(turns: Sequence[Turn], kind: SpeedKind) -> list[Ranked]:
    """The distinct correct candidates: faster first, then the shorter source, then by hash."""
    distinct: dict[str, Ranked] = {}
    for turn in turns:
        if turn.evaluation.correct and isinstance(turn.candidate, Candidate):
            ranked = Ranked(
                candidate=turn.candidate, sample=turn.trajectory, turn=turn.index, evaluation=turn.evaluation
            )
            distinct.setdefault(turn.candidate.sha256, ranked)
    return sorted(
        distinct.values(),
        key=lambda r: (
            -(speedup_of(r.evaluation, kind) or 0.0),
            len(r.candidate.source),
            r.candidate.sha256,
        ),
    )


def _judge_again(
    problem: Problem, ranked: Ranked, position: int, gym: Gym, kind: SpeedKind, seed: int
) -> Rejudged:
    requests = [
        JudgeRequest(
            problem=problem,
            candidate=ranked.candidate,
            seed=seed_of("winner", seed, problem.id, draw),
            rejudge=True,
        )
        for draw in range(FRESH_DRAWS)
    ]
    outcomes = gym.judge(requests)
    again = tuple(outcome for outcome in outcomes if isinstance(outcome, Evaluation))
    speedups = [known for e in again if (known := speedup_of(e, kind)) is not None]
    return Rejudged(
        rank=position,
        ranked=ranked,
        again=again,
        speedup=statistics.median(speedups) if len(speedups) == len(outcomes) else None,
    )


def speedup_of(evaluation: Evaluation, kind: SpeedKind) -> float | None:
    """The evaluation's speed-up of one kind, None where it is unknown."""
    return outcome_of(evaluation, turn=0).speedup(kind)
