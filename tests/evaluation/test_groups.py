"""Groups of problems, figures of arms, and paired differences, on counted rows and on rows of the judge."""

from pathlib import Path
from typing import Any

import pytest

from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import format_completion
from kernel_core.evaluation.groups import (
    SEEN,
    UNSEEN,
    JudgedAnswer,
    difference_rows,
    figure_rows,
    group_of,
    pairs_of,
    read_answers,
)
from kernel_core.evaluation.judged_rows import figure_tables
from kernel_core.generator.graded import answered_problems
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.problems.generate import generate
from kernel_core.problems.load import load_dojo, load_folder
from kernel_core.problems.modules.generate import RESERVED, generate_modules

ROOT = Path(__file__).parents[2]


def answers(problem: str, verdicts: str, speedup: float = 1.1) -> list[JudgedAnswer]:
    """A right answer for each `r`, a wrong one for each other letter."""
    return [JudgedAnswer(problem, letter == "r", speedup if letter == "r" else None) for letter in verdicts]


def test_a_problem_is_seen_unseen_or_of_a_folder_by_its_family_and_suite() -> None:
    unseen = list(generate_modules("held_out", len(RESERVED), 1, sorted(RESERVED)))
    assert {group_of(problem.id) for problem in unseen} == {UNSEEN}
    seen = list(generate_modules("held_out", 3, 1, ("linear_elementwise", "conv_pool")))
    assert {group_of(problem.id) for problem in seen} == {SEEN}
    assert {group_of(one.problem.id) for one in generate("held_out", 20, 1)} == {SEEN}
    assert {group_of(one.id) for one in load_dojo()} == {"dojo"}
    assert group_of("graphs/softmax-0123456789ab") == "graphs"
    assert {group_of(one.id) for one in load_folder(ROOT / "data" / "backward")} == {"backward"}
    assert group_of("kernelbench/level2/7_Anything") == "KernelBench level 2"


def test_figures_are_means_over_problems_and_stand_only_where_answers_suffice() -> None:
    arm = [
        *answers("mine/one", "rrww"), *answers("mine/two", "wwww"), *answers("mine/three", "rrrrrrrr", 1.3)
    ]  # fmt: skip
    (row,) = figure_rows({"rl": arm})
    assert (row["group"], row["problems"], row["answers"]) == ("mine", 3, 16)
    assert row["pass@1"].startswith("50.0 % (") and row["fast_1"].startswith("50.0 % (")
    assert row["fast_1.2"].startswith("33.3 % (")
    assert row["pass@4"].startswith("66.7 % (")
    assert row["pass@8"] == row["pass@16"] == ""  # one problem of three has eight answers


def test_what_was_not_timed_is_neither_fast_nor_slow() -> None:
    timed, untimed = answers("mine/one", "rrww"), [JudgedAnswer("mine/one", True, None)]
    fast, unknown = figure_rows({"gpu": timed, "cpu": untimed})
    assert fast["fast_1"].startswith("50.0 % (") and unknown["fast_1"] == unknown["fast_1.2"] == ""
    assert list(fast) == list(unknown)
    (row,) = difference_rows({"gpu": timed, "cpu": untimed}, {"gpu": "cpu"})
    assert row["fast_1"] == "" and row["pass@1"].startswith("-50.0 %")


def test_differences_are_paired_by_problem_and_leave_the_others_out() -> None:
    after = [*(one for n in range(20) for one in answers(f"mine/{n}", "rr")), *answers("mine/extra", "ww")]
    before = [one for n in range(20) for one in answers(f"mine/{n}", "rw" if n % 2 else "ww")]
    (row,) = difference_rows({"rl-0": after, "frozen-0": before}, {"rl-0": "frozen-0"})
    assert (row["arm"], row["problems"]) == ("rl-0 less frozen-0", 20)
    low = float(row["pass@1"].split("(")[1].split(" …")[0])
    assert row["pass@1"].startswith("+75.0 % (") and 0 < low < 75


def test_arms_are_compared_within_their_seed() -> None:
    arms = ["frozen-0", "rl-0", "frozen-1", "rl-1", "rl_shuffled-1"]
    assert pairs_of(arms) == {"rl-0": "frozen-0", "rl-1": "frozen-1", "rl_shuffled-1": "frozen-1"}
    assert pairs_of(["first", "second"]) == {"second": "first"}
    assert pairs_of(["rl-0", "start"], "start") == {"rl-0": "start"}
    assert pairs_of(["alone"]) == {}


def test_what_the_judge_could_not_judge_stays_in_the_denominator_and_is_counted() -> None:
    rows = [{"problem": "mine/a", "verdict": "not judged"}, {"problem": "mine/a", "verdict": "correct"}]
    (row,) = figure_rows({"rl": read_answers(rows)})
    assert (row["answers"], row["not judged"]) == (2, 1)
    assert row["pass@1"].startswith("50.0 % (")


def test_several_seeds_of_an_arm_have_a_row_of_their_own_that_is_wider_where_they_disagree() -> None:
    before = [one for n in range(20) for one in answers(f"mine/{n}", "rw" if n % 2 else "ww")]
    better = [one for n in range(20) for one in answers(f"mine/{n}", "rr" if n % 3 else "rw")]
    arms = {"rl-0": better, "frozen-0": before, "rl-1": before, "frozen-1": before}
    *single, both = difference_rows(arms, pairs_of(arms, "frozen"))
    assert [row["arm"] for row in single] == ["rl-0 less frozen-0", "rl-1 less frozen-1"]
    assert (both["arm"], both["problems"]) == ("rl less frozen, 2 seeds", 20)
    assert single[1]["pass@1"] == "+0.0 % p 1.000"
    low = float(both["pass@1"].split("(")[1].split(" …")[0])
    assert low < 0 < float(both["pass@1"].split(" %")[0])
    figures = {row["arm"]: row for row in figure_rows(arms)}
    assert figures["rl, 2 seeds"]["answers"] == 2 * figures["rl-0"]["answers"]
    assert _width(figures["rl, 2 seeds"]["pass@1"]) > _width(figures["frozen, 2 seeds"]["pass@1"])


def _width(figure: str) -> float:
    low, high = figure.split("(")[1].rstrip(")").split(" … ")
    return float(high) - float(low)


@pytest.fixture(scope="module")
def judged(quick_gym, tmp_path_factory) -> list[dict[str, Any]]:
    """Two arms' rows as the CPU judge gives them: right kernels, and right and faulty ones in turn."""
    folder = tmp_path_factory.mktemp("judged")
    made = [
        *answered_problems(generate_modules("held_out", 2, 3, ("linear_elementwise",))),
        *answered_problems(generate_modules("held_out", 2, 3, ("row_gather",))),
        *generate("train", 2, 3),
    ]
    mine = folder / "theirs"
    mine.mkdir()
    for one in made[4:]:
        sizes = ", ".join(f"{name}={value}" for name, value in one.problem.cpu_constants.items())
        (mine / f"{one.problem.name}.py").write_text(f"# cpu: {sizes}\n{one.problem.source}")
    theirs = {problem.name: problem for problem in load_folder(mine)}
    asked = []
    for one in made:
        problem = theirs.get(one.problem.name, one.problem)
        for grade in ("tuned", "mistake"):
            kernel = next(kernel for kernel in one.kernels if kernel.grade == grade)
            candidate = parse_completion(format_completion("", kernel.source), "stop")
            asked.append((grade, JudgeRequest(problem=problem, candidate=candidate, seed=0)))
    evaluations = quick_gym.judge([request for _, request in asked])
    rows = [
        (grade, {"problem": request.problem.id, "verdict": found.verdict, "speedup": found.speedup})
        for (grade, request), found in zip(asked, evaluations, strict=True)
    ]
    right = [row for grade, row in rows if grade == "tuned"]
    arms = {"rl": [*right, *right], "frozen": [row for _, row in rows]}
    return [{"run": arm, "seed": 0, **row} for arm, lines in arms.items() for row in lines]


@pytest.mark.exhaustive
def test_one_table_has_the_three_groups_of_both_arms_and_their_differences(judged) -> None:
    tables = figure_tables(judged, "frozen")
    figures = tables["by group of problems"]
    assert [(row["group"], row["arm"]) for row in figures] == [
        (group, arm) for group in (SEEN, UNSEEN, "theirs") for arm in ("rl", "frozen")
    ]
    shares = [row["pass@1"].split(" (")[0] for row in figures]
    assert shares == ["100.0 %", "50.0 %"] * 3
    differences = tables["differences over the same problems"]
    assert [row["arm"] for row in differences] == ["rl less frozen"] * 3
    assert [row["pass@1"] for row in differences] == ["+50.0 % p 0.500"] * 3
