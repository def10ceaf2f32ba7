"""Two scorecards of the same problems, paired problem by problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Literal

from kernel_core.errors import ConfigError
from kernel_core.evaluation.metrics import (
    Outcome,
    Scorecard,
    SpeedKind,
    View,
    outcomes_in,
    pass_at_k_of,
    speedups_of,
)
from kernel_core.evaluation.statistics import (
    Difference,
    geometric_mean,
    geometric_mean_ratio,
    mean_difference,
)
from kernel_core.records import Record

Row = dict[str, Any]
Samples = Sequence[Outcome]


class Change(Record):
    """One figure before and after."""

    metric: str
    view: View
    unit: Literal["share", "speed-up"]
    before: float | None
    after: float | None
    change: Difference | None
    """`after - before` of a share, `after / before` of a speed-up; None where either side has none."""

    @property
    def clear(self) -> bool:
        """The p-value of the change is below 5 %."""
        return self.change is not None and self.change.clear

    def in_words(self, digits: int = 2) -> tuple[str, str]:
        """The change and its 95 % interval: `+0.07` is a difference, `×1.07` a ratio; empty if unknown."""
        if self.change is None:
            return "", ""
        change = self._sized(self.change.value, digits)
        if self.change.low is None or self.change.high is None:
            return change, ""
        return change, f"{self._sized(self.change.low, digits)} … {self._sized(self.change.high, digits)}"

    def in_a_sentence(self) -> str:
        """The figure before and after with its change, interval and p-value; the change must be known."""
        assert self.change is not None, "a figure that one side does not have"
        change, interval = self.in_words(digits=3)
        interval = f", 95 % interval {interval}" if interval else ""
        p_value = f"p = {self.change.p_value:.3f}"
        return f"{self.metric} {self.before:.3f} → {self.after:.3f} (change {change}{interval}, {p_value})"

    def _sized(self, value: float, digits: int) -> str:
        return f"{value:+.{digits}f}" if self.unit == "share" else f"×{value:.{digits}f}"


class Comparison(Record):
    """Changes between two scorecards, with the problems that were gained and lost."""

    before_version: str
    after_version: str
    headline: SpeedKind
    changes: tuple[Change, ...]
    gained: tuple[str, ...]
    """Problems with a correct last turn after, and none before."""
    lost: tuple[str, ...]

    def rows(self, before: str = "before", after: str = "after") -> list[Row]:
        """One row a figure, for a table that a person reads; the two sides are columns of these names."""
        return [
            {
                "metric": change.metric,
                "turn": "last" if change.view == "last" else "best (oracle)",
                before: change.before,
                after: change.after,
                "change": change.in_words(digits=3)[0],
                "95 % interval": change.in_words(digits=3)[1],
                "p": change.change and change.change.p_value,
                "clear": change.clear,
            }
            for change in self.changes
        ]


def compare(before: Scorecard, after: Scorecard) -> Comparison:
    """Return the change of every headline figure with its 95 % interval over problems and its p-value.

    Raises `ConfigError` unless both cover the same problems with the same kind of speed-up.
    """
    _require_comparable(before, after)
    kind = before.headline
    changes: list[Change] = []
    for view in ("last", "best"):
        changes += _changes(before, after, view, kind)
    solved_before, solved_after = _solved(before), _solved(after)
    return Comparison(
        before_version=before.conditions.policy_version,
        after_version=after.conditions.policy_version,
        headline=kind,
        changes=tuple(changes),
        gained=tuple(p for p in solved_after if p not in solved_before),
        lost=tuple(p for p in solved_before if p not in solved_after),
    )


def _changes(before: Scorecard, after: Scorecard, view: View, kind: SpeedKind) -> list[Change]:
    befores = [outcomes_in(problem, view, kind) for problem in before.problems]
    by_id = {problem.problem_id: problem for problem in after.problems}
    afters = [outcomes_in(by_id[problem.problem_id], view, kind) for problem in before.problems]

    def of_shares(metric: str, share: Callable[[Samples], float]) -> Change:
        old, new = list(map(share, befores)), list(map(share, afters))
        return Change(
            metric=metric,
            view=view,
            unit="share",
            before=fmean(old),
            after=fmean(new),
            change=mean_difference(old, new),
        )

    shares: dict[str, Callable[[Samples], float]] = {
        "format_rate": lambda samples: fmean(o.formatted for o in samples),
        "compile_rate": lambda samples: fmean(o.compiled for o in samples),
        "correct_rate": lambda samples: fmean(o.correct for o in samples),
    }
    for k in sorted(set(before.k) & set(after.k)):
        shares[f"pass@{k}"] = partial(pass_at_k_of, k=k)
    for p in sorted(set(before.thresholds) & set(after.thresholds)):
        shares[f"fast_{p:g} ({kind})"] = partial(_faster_than, threshold=p, kind=kind)
    changes = [of_shares(metric, share) for metric, share in shares.items()]
    old_speedups, new_speedups = speedups_of(befores, kind), speedups_of(afters, kind)
    old, new = geometric_mean(old_speedups), geometric_mean(new_speedups)
    changes.append(
        Change(
            metric=f"geometric-mean speed-up ({kind})",
            view=view,
            unit="speed-up",
            before=old and old.value,
            after=new and new.value,
            change=geometric_mean_ratio(old_speedups, new_speedups),
        )
    )
    return changes


def _require_comparable(before: Scorecard, after: Scorecard) -> None:
    if before.headline != after.headline:
        raise ConfigError(
            f"one scorecard has {before.headline} speed-ups and the other {after.headline} ones; "
            "evaluate both on the same kind of device"
        )
    conditions = (before.conditions, after.conditions)
    baselines = {condition.baseline for condition in conditions if before.headline == "measured"}
    for words, values in (
        ("verdicts are under different tolerances", {condition.tolerance for condition in conditions}),
        ("speed-ups are over different baselines", baselines),
    ):
        if len(values) > 1:
            raise ConfigError(
                f"the {words} ({' and '.join(sorted(values))}); "
                "judge the answers of one again with `dojo runs judge`"
            )
    old, new = ({(p.problem_id, p.sha256) for p in card.problems} for card in (before, after))
    if old != new:
        different = sorted({problem_id for problem_id, _ in old ^ new})
        raise ConfigError(
            f"the scorecards differ in {len(different)} problems (first: {different[0]}); "
            "evaluate both on the same problems"
        )


def _solved(card: Scorecard) -> dict[str, None]:
    return {
        problem.problem_id: None
        for problem in card.problems
        if any(outcome.correct for outcome in outcomes_in(problem, "last", card.headline))
    }


def _faster_than(samples: Samples, threshold: float, kind: SpeedKind) -> float:
    return fmean(outcome.faster_than(threshold, kind) for outcome in samples)
