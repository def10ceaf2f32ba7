"""Judged answers of one or several arms, by group of problems, with paired differences between arms.

A group says how far a problem is from what the suites teach: its operators are seen, its family is held out
whole, it is KernelBench's, or it is of a folder. Intervals are over problems, and where an arm has several
seeds also over seeds (`statistics.py`). An arm of one seed shows one training and one set of draws.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kernel_core.evaluation.metrics import Scorecard
from kernel_core.evaluation.statistics import (
    in_per_cent,
    mean_difference_of_seeds,
    pass_at_k,
    share_of_seeds,
)
from kernel_core.problems.modules.generate import RESERVED

Row = dict[str, Any]

SEEN, UNSEEN = "seen operators", "unseen operators"
THRESHOLDS = (1.0, 1.2)
K = (4, 8, 16)
ENOUGH = 0.5
"""A pass@k stands in the table where at least this share of a group's problems has k answers."""


class JudgedAnswer(NamedTuple):
    """One answer and its verdict."""

    problem: str
    correct: bool
    speedup: float | None
    """Over the judge's baseline; None where it is not known."""
    judged: bool = True
    """Without a verdict the answer stays in every denominator, as not correct, and is counted."""


Answered = Mapping[str, Sequence[JudgedAnswer]]
"""Answers by problem, or by arm."""


def group_of(problem_id: str) -> str:
    """The group of a problem by its id, such as `modules/softmax_row-0123456789ab`.

    Problems of `generated` and `modules` are seen or unseen by family. KernelBench's levels are groups of
    their own. All else has the name of its suite: a folder's, or `graphs`, where no id tells the split.
    """
    suite, _, name = problem_id.partition("/")
    if suite in ("generated", "modules"):
        held_out = suite == "modules" and name.rpartition("-")[0] in RESERVED
        return UNSEEN if held_out else SEEN
    if suite == "kernelbench":
        return f"KernelBench {name.partition('/')[0].replace('level', 'level ')}"
    return suite


def read_answers(rows: Iterable[Mapping[str, Any]], own_share: float = 0.0) -> list[JudgedAnswer]:
    """Return the answers of rows with `problem`, `verdict` and `speedup`.

    A correct answer counts from a share of `own_share` of own work on.
    """
    return [
        JudgedAnswer(
            row["problem"],
            correct=row["verdict"] == "correct"
            and (not own_share or (row.get("own_share") or 0.0) >= own_share),
            speedup=row.get("speedup"),
            judged=row["verdict"] != "not judged",
        )
        for row in rows
    ]


def answers_of(card: Scorecard) -> list[JudgedAnswer]:
    """Return the last turn of each conversation of a scorecard."""
    return [
        JudgedAnswer(problem.problem_id, turns[-1].correct, turns[-1].speedup(card.headline))
        for problem in card.problems
        for turns in problem.samples
        if turns
    ]


def metrics(answers: Sequence[JudgedAnswer], *, timed: bool) -> dict[str, float | None]:
    """The figures of a problem by name: pass@1, fast_p at each threshold, and pass@k.

    Without an answer that was `timed`, fast_p is not known; pass@k is not, of fewer than k answers.
    """
    number, correct = len(answers), [answer for answer in answers if answer.correct]
    figures: dict[str, float | None] = {"pass@1": len(correct) / number}
    for threshold in THRESHOLDS:
        faster = sum((answer.speedup or 0.0) > threshold for answer in correct)
        figures[f"fast_{threshold:g}"] = faster / number if timed else None
    for k in K:
        figures[f"pass@{k}"] = pass_at_k(number, len(correct), k) if number >= k else None
    return figures


def figure_rows(arms: Answered) -> list[Row]:
    """A row a group and arm: problems, answers, and each figure in per cent with its 95 % interval.

    Several seeds of an arm have a further row, over the problems that all of them have.
    """
    rows = []
    for group in _groups(arms):
        seeds: dict[str, list[Answered]] = defaultdict(list)
        for arm, answers in arms.items():
            if problems := _by_problem(answers, group):
                rows.append({"group": group, "arm": arm, **_figures([problems])})
                seeds[_name(arm)].append(problems)
        rows += [
            {"group": group, "arm": f"{name}, {len(its)} seeds", **_figures(its)}
            for name, its in seeds.items()
            if len(its) > 1 and set.intersection(*map(set, its))
        ]
    return rows


def _figures(seeds: Sequence[Answered]) -> Row:
    """The figures of one row: `seeds` are the answers by problem of each seed."""
    common = [problem for problem in seeds[0] if all(problem in answered for answered in seeds)]
    answers = [answer for answered in seeds for problem in common for answer in answered[problem]]
    row: Row = {"problems": len(common), "answers": len(answers)}
    row["not judged"] = sum(not answer.judged for answer in answers)
    for name, by_seed in _known(seeds, common).items():
        row[name] = in_per_cent(share_of_seeds(by_seed)) if by_seed else ""
    return row


def _known(sides: Sequence[Answered], common: Sequence[str]) -> dict[str, list[tuple[float, ...]]]:
    """Values of each figure, a tuple for each side over the common problems that all sides know it of.

    Empty where these are too few.
    """
    timed = all(map(_is_timed, sides))
    lines = [[metrics(answered[problem], timed=timed) for answered in sides] for problem in common]
    known: dict[str, list[tuple[float, ...]]] = {}
    for name in lines[0][0]:
        values = [[figure for figures in line if (figure := figures[name]) is not None] for line in lines]
        whole = [line for line in values if len(line) == len(sides)]
        enough = whole and len(whole) >= ENOUGH * len(common)
        known[name] = list(zip(*whole, strict=True)) if enough else []
    return known


def difference_rows(arms: Answered, against: Mapping[str, str]) -> list[Row]:
    """A row a group and pair of arms: the mean difference over problems that both have, with its interval.

    `against` names for an arm the one that is subtracted from it. Several seeds of an arm have a further row,
    over the problems that all of them have.
    """
    by_name: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for arm, other in against.items():
        by_name[_name(arm)].append((arm, other))
    compared = {f"{arm} less {other}": [(arm, other)] for arm, other in against.items()}
    compared |= {
        f"{name} less {_name(pairs[0][1])}, {len(pairs)} seeds": pairs
        for name, pairs in by_name.items()
        if len(pairs) > 1
    }
    rows = []
    for group in _groups(arms):
        for label, pairs in compared.items():
            sides = [(_by_problem(arms[other], group), _by_problem(arms[arm], group)) for arm, other in pairs]
            common = [
                problem
                for problem in sides[0][0]
                if all(problem in answered for side in sides for answered in side)
            ]
            if common:
                rows.append({"group": group, "arm": label, **_differences(sides, common)})
    return rows


def _differences(
    sides: Sequence[tuple[Answered, Answered]],
    common: Sequence[str],
) -> Row:
    """The differences of one row: `sides` are the answers before and after, by problem, of each seed."""
    row: Row = {"problems": len(common)}
    for name, by_side in _known([answers for side in sides for answers in side], common).items():
        difference = by_side and mean_difference_of_seeds(by_side[::2], by_side[1::2])
        row[name] = in_per_cent(difference, signed=True) if difference else ""
    return row


def pairs_of(arms: Iterable[str], baseline: str = "") -> dict[str, str]:
    """For each arm the one that it is compared with: the baseline of its seed, else the baseline itself.

    Arms are named `NAME` or `NAME-SEED`. Without `baseline` the first arm's name is taken.
    """
    names = list(arms)
    base = baseline or _name(names[0])
    pairs = {}
    for arm in names:
        same_seed = f"{base}{arm.removeprefix(_name(arm))}"
        other = same_seed if same_seed in names else base
        if other in names and other != arm:
            pairs[arm] = other
    return pairs


def _name(arm: str) -> str:
    name, _, seed = arm.rpartition("-")
    return name if name and seed.isdigit() else arm


def _groups(arms: Answered) -> list[str]:
    """Groups that any arm has: ours, then the suites of evaluation and folders."""
    present = {group_of(answer.problem) for answers in arms.values() for answer in answers}
    ordered = [group for group in (SEEN, UNSEEN) if group in present]
    return [*ordered, *sorted(present - set(ordered))]


def _is_timed(problems: Answered) -> bool:
    return any(answer.speedup is not None for answers in problems.values() for answer in answers)


def _by_problem(answers: Sequence[JudgedAnswer], group: str) -> dict[str, list[JudgedAnswer]]:
    grouped: dict[str, list[JudgedAnswer]] = defaultdict(list)
    for answer in answers:
        if group_of(answer.problem) == group:
            grouped[answer.problem].append(answer)
    return dict(grouped)
