"""Judged answers of one or several arms, by group of problems, with paired differences between arms.

A group says how far a problem is from what the suites teach: its operators are seen, its family is held out
whole, it is KernelBench's, or it is of a folder. The unit of every interval is the problem (`statistics.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_core.evaluation.metrics import Scorecard
from kernel_core.evaluation.statistics import Estimate, mean_difference, pass_at_k, share
from kernel_core.problems.generators import ENDLESS_SUITES
from kernel_core.problems.modules.generate import RESERVED

Row = dict[str, Any]

SEEN, UNSEEN = "seen operators", "unseen operators"
THRESHOLDS = (1.0, 1.2)
K = (4, 8, 16)
ENOUGH = 0.5
"""A pass@k stands in the table where at least this share of a group's problems has k answers."""


class Judged(NamedTuple):
    """One answer and its verdict."""

    problem: str
    correct: bool
    speedup: float | None
    """Over the eager reference; None where it is not known."""


Metric = Callable[[Sequence[Judged]], float | None]
"""A share of one problem's answers; None where they are too few."""


def group_of(problem_id: str) -> str:
    """The group of a problem by its id, such as `modules/softmax_row-0123456789ab`.

    Problems of our suites are seen or unseen by family. KernelBench's levels are groups of their own. All
    else has the name of its suite, such as a folder's.
    """
    suite, _, name = problem_id.partition("/")
    if suite in ENDLESS_SUITES:
        held_out = suite == "modules" and name.rpartition("-")[0] in RESERVED
        return UNSEEN if held_out else SEEN
    if suite == "kernelbench":
        return f"KernelBench {name.partition('/')[0].replace('level', 'level ')}"
    return suite


def read_answers(rows: Iterable[Mapping[str, Any]]) -> list[Judged]:
    """Rows with `problem`, `verdict` and `speedup`; those that the judge could not judge are left out."""
    return [
        Judged(row["problem"], row["verdict"] == "correct", row.get("speedup"))
        for row in rows
        if row["verdict"] != "not judged"
    ]


def answers_of(card: Scorecard) -> list[Judged]:
    """Return the last turn of each conversation of a scorecard."""
    return [
        Judged(problem.problem_id, turns[-1].correct, turns[-1].speedup(card.headline))
        for problem in card.problems
        for turns in problem.samples
        if turns
    ]


def metrics(k: Sequence[int] = K, *, timed: bool) -> dict[str, Metric]:
    """The figures of a problem by name: pass@1, fast_p at each threshold, and pass@k.

    Without an answer that was `timed`, fast_p is not known.
    """
    found: dict[str, Metric] = {"pass@1": lambda answers: _mean(one.correct for one in answers)}
    for threshold in THRESHOLDS:
        found[f"fast_{threshold:g}"] = _faster(threshold) if timed else lambda answers: None
    for number in k:
        found[f"pass@{number}"] = _pass_at(number)
    return found


def _faster(threshold: float) -> Metric:
    return lambda answers: _mean(one.correct and (one.speedup or 0.0) > threshold for one in answers)


def _pass_at(k: int) -> Metric:
    def value(answers: Sequence[Judged]) -> float | None:
        return pass_at_k(len(answers), sum(one.correct for one in answers), k) if len(answers) >= k else None

    return value


def _mean(holds: Iterable[bool]) -> float:
    values = list(holds)
    return sum(values) / len(values)


def figure_rows(arms: Mapping[str, Sequence[Judged]], k: Sequence[int] = K) -> list[Row]:
    """A row a group and arm: problems, answers, and each figure in per cent with its 95 % interval."""
    found = []
    for group in _groups(arms):
        for arm, answers in arms.items():
            problems = _by_problem(answers, group)
            if not problems:
                continue
            row: Row = {"group": group, "arm": arm, "problems": len(problems)}
            row["answers"] = sum(map(len, problems.values()))
            for name, metric in metrics(k, timed=_is_timed(problems)).items():
                values = [value for one in problems.values() if (value := metric(one)) is not None]
                enough = values and len(values) >= ENOUGH * len(problems)
                row[name] = _in_words(share(values), signed=False) if enough else ""
            found.append(row)
    return found


def difference_rows(
    arms: Mapping[str, Sequence[Judged]], against: Mapping[str, str], k: Sequence[int] = K
) -> list[Row]:
    """A row a group and pair of arms: the mean difference over problems that both have, with its interval.

    `against` names for an arm the one that is subtracted from it.
    """
    found = []
    for group in _groups(arms):
        for arm, other in against.items():
            after, before = _by_problem(arms[arm], group), _by_problem(arms[other], group)
            common = [problem for problem in after if problem in before]
            if not common:
                continue
            row: Row = {"group": group, "arm": f"{arm} less {other}", "problems": len(common)}
            timed = _is_timed(before) and _is_timed(after)
            for name, metric in metrics(k, timed=timed).items():
                pairs = [(metric(before[one]), metric(after[one])) for one in common]
                known = [(old, new) for old, new in pairs if old is not None and new is not None]
                enough = known and len(known) >= ENOUGH * len(common)
                row[name] = (
                    _in_words(mean_difference(*zip(*known, strict=True)), signed=True) if enough else ""
                )
            found.append(row)
    return found


def pairs_of(arms: Iterable[str], baseline: str = "") -> dict[str, str]:
    """For each arm the one that it is compared with: the baseline of its seed, else the baseline itself.

    Arms are named `NAME` or `NAME-SEED`. Without `baseline` the first arm's name is taken.
    """
    names = list(arms)
    base = baseline or _name(names[0])
    found = {}
    for arm in names:
        same_seed = f"{base}{arm.removeprefix(_name(arm))}"
        other = same_seed if same_seed in names else base
        if other in names and other != arm:
            found[arm] = other
    return found


def _name(arm: str) -> str:
    name, _, seed = arm.rpartition("-")
    return name if name and seed.isdigit() else arm


def _groups(arms: Mapping[str, Sequence[Judged]]) -> list[str]:
    """Groups that any arm has: ours, then the suites of evaluation and folders."""
    present = {group_of(one.problem) for answers in arms.values() for one in answers}
    ordered = [group for group in (SEEN, UNSEEN) if group in present]
    return [*ordered, *sorted(present - set(ordered))]


def _is_timed(problems: Mapping[str, Sequence[Judged]]) -> bool:
    return any(one.speedup is not None for answers in problems.values() for one in answers)


def _by_problem(answers: Sequence[Judged], group: str) -> dict[str, list[Judged]]:
    found: dict[str, list[Judged]] = defaultdict(list)
    for one in answers:
        if group_of(one.problem) == group:
            found[one.problem].append(one)
    return dict(found)


def _in_words(estimate: Estimate, *, signed: bool) -> str:
    sign = "+" if signed else ""
    value = f"{100 * estimate.value:{sign}.1f} %"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} ({100 * estimate.low:{sign}.1f} … {100 * estimate.high:{sign}.1f})"
