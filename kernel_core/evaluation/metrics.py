"""From verdicts to a scorecard: pure functions of what the judge said about every turn.

A sample is one conversation. Its **last** turn is what the policy hands in, and the headline. Its **best**
turn is chosen with the judge's help, which exists in evaluations only, and is labelled an oracle.
Measured and predicted speed-ups are scored apart and never mixed. Measured ones are scored against the
baseline of the judge, and beside it against each baseline of `SIDE_BY_SIDE`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

from pydantic import Field

from kernel_core.dialogue.turns import TrajectoryGroup
from kernel_core.errors import NotFound
from kernel_core.evaluation.statistics import Estimate, geometric_mean, pass_at_k, share
from kernel_core.evaluation.work import WorkCounts, work_of
from kernel_core.records import (
    BASELINES,
    NOT_EXERCISED,
    Baseline,
    Evaluation,
    NotJudged,
    Problem,
    ProductPrecision,
    Record,
    Tolerance,
    Verdict,
)

SpeedKind = Literal["measured", "predicted"]
SIDE_BY_SIDE: tuple[Baseline, ...] = ("fair", "eager", "compile")
"""Baselines of measured speed-ups on each card: fair, eager as torch ships it, `torch.compile`."""
View = Literal["last", "best"]


def in_words(kind: SpeedKind, gpu: str) -> str:
    """Label of a speed-up: `measured`, or predicted for the named GPU."""
    return kind if kind == "measured" else f"predicted for {gpu}"


def is_of_speed(metric: str) -> bool:
    """True if a metric of a training step is derived from speed-ups."""
    return metric.rpartition("/")[2] in ("fast_1", "fast_1_rate", "speedup_geometric_mean")


class Outcome(Record):
    """The judge's result for one turn."""

    turn: int
    verdict: Verdict
    measured: float | None = None
    """Speed-up over the judge's baseline; only of a correct candidate."""
    predicted: float | None = None
    """Speed-up over the eager reference from counted traffic."""
    over: dict[Baseline, float] = Field(default_factory=dict)
    """Measured speed-ups over each baseline that was timed."""
    product_precision: ProductPrecision | None = None
    tolerances: tuple[Tolerance, ...] = ()
    """Tolerances under which the outputs pass; empty where they were not compared."""
    own_share: float | None = None
    """Share of the time in own kernels: measured, or of the predicted time."""
    is_exercised: bool = True
    """False where a loop or a grid of its kernels turned less than it does at the problem's own sizes."""

    @property
    def formatted(self) -> bool:
        """A `ModelNew` could be taken from the text."""
        return self.verdict is not Verdict.MALFORMED

    @property
    def compiled(self) -> bool:
        """It got past the import and the compile gate."""
        return self.verdict not in (Verdict.MALFORMED, Verdict.NOT_COMPILED)

    @property
    def correct(self) -> bool:
        """Every trial passed by honest work."""
        return self.verdict is Verdict.CORRECT

    def speedup(self, kind: SpeedKind, baseline: Baseline | None = None) -> float | None:
        """The speed-up of one kind, over the judge's baseline or another; None where it is unknown."""
        if baseline is not None:
            return self.over.get(baseline)
        return self.measured if kind == "measured" else self.predicted

    def faster_than(self, threshold: float, kind: SpeedKind, baseline: Baseline | None = None) -> bool:
        """Correct, and its speed-up is known and strictly above the threshold."""
        speedup = self.speedup(kind, baseline)
        return self.correct and speedup is not None and speedup > threshold


class ProblemOutcomes(Record):
    """Every sample of one problem, turn by turn."""

    problem_id: str
    sha256: str
    family: str
    level: int | None
    samples: tuple[tuple[Outcome, ...], ...]
    """Samples, and the turns of each."""


class FastP(Record):
    """The share of all samples that are correct with a speed-up strictly above a threshold."""

    threshold: float
    share: Estimate


class SpeedScore(Record):
    """Speed of one kind over all samples of a view."""

    kind: SpeedKind
    baseline: Baseline | None = None
    """Baseline of measured speed-ups, where it is not that of the judge."""
    fast_p: tuple[FastP, ...]
    geometric_mean: Estimate | None
    """Over correct samples; None when none is correct."""
    num_unknown: int
    """Correct samples without a speed-up of this kind: they count as not faster."""

    @property
    def fast_1(self) -> Estimate:
        """The share of samples that are correct and faster than the baseline."""
        return next(point.share for point in self.fast_p if point.threshold == 1.0)


class Score(Record):
    """The metrics of a set of samples, one outcome a sample."""

    num_problems: int
    num_samples: int
    verdicts: dict[Verdict, int]
    format_rate: Estimate
    compile_rate: Estimate
    correct_rate: Estimate
    pass_at_k: dict[int, Estimate]
    speeds: tuple[SpeedScore, ...]
    """The headline kind first, then the other kind and other baselines where anything has them."""
    work: WorkCounts

    @property
    def headline(self) -> SpeedScore:
        """Speed of the kind that the scorecard's headline means."""
        return self.speeds[0]


class Conditions(Record):
    """Conditions of a scorecard; figures are comparable only under equal conditions."""

    policy_version: str
    gym_version: str
    device: str
    gpu: str
    """The GPU of predicted times."""
    baseline: Baseline
    """Baseline of measured speed-ups. Predicted ones are over the traffic of the eager reference."""
    tolerance: Tolerance
    """Error bound of the verdict `correct`."""
    versions: dict[str, str]
    taken_out: tuple[str, ...] = ()
    """Judges that failed their health checks or left meanwhile, each with the reason."""
    left_out: tuple[str, ...] = ()
    """The ids of problems that pay for nothing."""
    answers: str = ""
    """Folder of the answers, where they were judged again."""
    unanswered: tuple[str, ...] = ()
    """The ids of problems without the asked number of answers there."""

    @property
    def speed(self) -> str:
        """The kind of speed-up without a label, its GPU and its baseline, in words."""
        if self.device == "cuda":
            return f"measured speed-ups over the baseline `{self.baseline}`"
        return f"speed-ups predicted for {self.gpu}, over the eager reference"


class Scorecard(Record):
    """A policy on a set of problems."""

    conditions: Conditions
    headline: SpeedKind
    """The kind of speed-up that figures without a label mean: measured on a GPU, else predicted."""
    k: tuple[int, ...]
    thresholds: tuple[float, ...]
    last: Score
    best: Score
    """Oracle: each conversation's best turn, which takes the judge to find."""
    by_turn: tuple[Score, ...]
    """Scores of the conversations that reached the turn."""
    by_family: dict[str, Score]
    """Of last turns."""
    problems: tuple[ProblemOutcomes, ...]
    not_judged: tuple[NotJudged, ...] = ()
    """Problems with a reference that fails here. They are in no figure."""

    def view(self, view: View) -> Score:
        """The score of last or of best turns."""
        return self.last if view == "last" else self.best


def share_above(
    samples: Sequence[Sequence[Outcome]],
    threshold: float,
    kind: SpeedKind,
    baseline: Baseline | None = None,
) -> Estimate:
    """fast_p: the share of samples that are correct and strictly faster than the threshold."""
    return share(
        [sum(o.faster_than(threshold, kind, baseline) for o in problem) / len(problem) for problem in samples]
    )


def outcome_of(evaluation: Evaluation, turn: int) -> Outcome:
    """The scored part of an evaluation."""
    over = {name: evaluation.speedup_over(name) for name in BASELINES}
    return Outcome(
        turn=turn,
        verdict=evaluation.verdict,
        measured=evaluation.speedup,
        predicted=evaluation.predicted_speedup,
        over={name: speedup for name, speedup in over.items() if speedup is not None},
        product_precision=evaluation.product_precision,
        tolerances=evaluation.tolerances_passed,
        own_share=own_share_of(evaluation),
        is_exercised=all(finding.rule != NOT_EXERCISED for finding in evaluation.findings),
    )


def own_share_of(evaluation: Evaluation) -> float | None:
    """The measured share of the time in own kernels, else that of the predicted time; None if unknown."""
    if evaluation.provenance is not None and evaluation.provenance.own_kernel_share is not None:
        return evaluation.provenance.own_kernel_share
    return evaluation.traffic.own_share if evaluation.traffic is not None else None


def outcomes_of(problem: Problem, group: TrajectoryGroup) -> ProblemOutcomes:
    """Every sample of a problem from the group of its conversations."""
    return ProblemOutcomes(
        problem_id=problem.id,
        sha256=problem.sha256,
        family=problem.family,
        level=problem.level,
        samples=tuple(
            tuple(outcome_of(turn.evaluation, turn.index) for turn in trajectory.turns)
            for trajectory in group.trajectories
        ),
    )


def best_turn(turns: Sequence[Outcome], kind: SpeedKind) -> Outcome:
    """The fastest correct turn, else the one that got furthest; the earliest of equals."""

    def rank(turn: Outcome) -> tuple[bool, bool, bool, float, int]:
        return turn.correct, turn.compiled, turn.formatted, turn.speedup(kind) or 0.0, -turn.turn

    return max(turns, key=rank)


def outcomes_in(problem: ProblemOutcomes, view: View, kind: SpeedKind) -> tuple[Outcome, ...]:
    """One outcome a sample: its last or its best turn."""
    return tuple(turns[-1] if view == "last" else best_turn(turns, kind) for turns in problem.samples)


def score(
    samples: Sequence[Sequence[Outcome]],
    k: Sequence[int],
    thresholds: Sequence[float],
    kinds: Sequence[tuple[SpeedKind, Baseline | None]],
) -> Score:
    """The metrics of one outcome a sample, given problem by problem. Every problem needs a sample."""

    def rate(holds: Callable[[Outcome], bool]) -> Estimate:
        return share([sum(map(holds, problem)) / len(problem) for problem in samples])

    verdicts = Counter(outcome.verdict for problem in samples for outcome in problem)
    return Score(
        num_problems=len(samples),
        num_samples=sum(map(len, samples)),
        verdicts={verdict: verdicts[verdict] for verdict in Verdict},
        format_rate=rate(lambda outcome: outcome.formatted),
        compile_rate=rate(lambda outcome: outcome.compiled),
        correct_rate=rate(lambda outcome: outcome.correct),
        pass_at_k={i: share([pass_at_k_of(problem, i) for problem in samples]) for i in k},
        speeds=tuple(_speed(samples, thresholds, *kind) for kind in kinds),
        work=work_of([outcome for problem in samples for outcome in problem]),
    )


def make_scorecard(
    problems: Sequence[ProblemOutcomes],
    k: Sequence[int],
    thresholds: Sequence[float],
    conditions: Conditions,
    not_judged: Sequence[NotJudged] = (),
) -> Scorecard:
    """The scorecard of all samples. Every problem has the same number of them, at least `max(k)`.

    Raises `NotFound` where no problem was judged.
    """
    if not problems:
        reasons = "; ".join(f"{entry.problem_id}: {entry.reason}" for entry in not_judged[:3])
        raise NotFound(f"none of {len(not_judged)} problems can be judged here: {reasons}")
    headline: SpeedKind = "measured" if conditions.device == "cuda" else "predicted"
    other: SpeedKind = "predicted" if headline == "measured" else "measured"
    turns = [turn for problem in problems for sample in problem.samples for turn in sample]
    kinds: list[tuple[SpeedKind, Baseline | None]] = [(headline, None)]
    kinds += [(other, None)] * any(turn.speedup(other) is not None for turn in turns)
    timed = {name for turn in turns for name in turn.over}
    kinds += [("measured", name) for name in SIDE_BY_SIDE if name in timed and name != conditions.baseline]
    thresholds = sorted({1.0, *thresholds})

    def of(samples: Sequence[Sequence[Outcome]], k: Sequence[int] = k) -> Score:
        return score(samples, k, thresholds, kinds)

    last = [outcomes_in(problem, "last", headline) for problem in problems]
    families = sorted({problem.family for problem in problems})
    return Scorecard(
        conditions=conditions,
        headline=headline,
        k=tuple(k),
        thresholds=tuple(thresholds),
        last=of(last),
        best=of([outcomes_in(problem, "best", headline) for problem in problems]),
        # Conversations may end early, so that a later turn can have fewer samples than pass@k needs.
        by_turn=tuple(of(reached, k=()) for reached in _by_turn(problems)),
        by_family={
            family: of([s for s, p in zip(last, problems, strict=True) if p.family == family])
            for family in families
        },
        problems=tuple(problems),
        not_judged=tuple(not_judged),
    )


def speedups_of(
    samples: Sequence[Sequence[Outcome]], kind: SpeedKind, baseline: Baseline | None = None
) -> list[list[float]]:
    """The known speed-ups of correct samples, problem by problem."""
    return [
        [known for o in problem if o.correct and (known := o.speedup(kind, baseline)) is not None]
        for problem in samples
    ]


def pass_at_k_of(problem: Sequence[Outcome], k: int) -> float:
    """The chance that at least one of `k` samples of a problem is correct."""
    return pass_at_k(len(problem), sum(outcome.correct for outcome in problem), k)


def _speed(
    samples: Sequence[Sequence[Outcome]],
    thresholds: Sequence[float],
    kind: SpeedKind,
    baseline: Baseline | None,
) -> SpeedScore:
    speedups = speedups_of(samples, kind, baseline)
    return SpeedScore(
        kind=kind,
        baseline=baseline,
        fast_p=tuple(FastP(threshold=p, share=share_above(samples, p, kind, baseline)) for p in thresholds),
        geometric_mean=geometric_mean(speedups),
        num_unknown=sum(o.correct for problem in samples for o in problem) - sum(map(len, speedups)),
    )


def _by_turn(problems: Sequence[ProblemOutcomes]) -> list[list[list[Outcome]]]:
    """For each turn, the outcomes of the problems that have a conversation which reached it."""
    num_turns = max(len(turns) for problem in problems for turns in problem.samples)
    reached = [
        [[turns[index] for turns in problem.samples if len(turns) > index] for problem in problems]
        for index in range(num_turns)
    ]
    return [[problem for problem in turn if problem] for turn in reached]
