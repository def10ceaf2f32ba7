"""Figures of files of judged answers, and KernelBench's answers by kind of problem."""

import pandas as pd
import pytest

from flows.cli import run
from kernel_core.errors import ConfigError, NotFound
from kernel_core.evaluation.judged_rows import figure_tables, read_rows
from kernel_core.evaluation.kinds import baseline_rows, kind_of, kind_rows
from kernel_core.evaluation.metrics import Outcome, ProblemOutcomes
from kernel_core.records import Verdict

H200 = "docs/results/kernelbench_h200.parquet"


def rows(run_name, seed, verdicts, own_share=1.0):
    """A row a verdict, each of a problem of its own."""
    return [
        {"run": run_name, "seed": seed, "problem": f"mine/{number}", "sample": 0}
        | {"verdict": verdict, "speedup": 1.5 if verdict == "correct" else None, "own_share": own_share}
        for number, verdict in enumerate(verdicts)
    ]


def test_arms_have_figures_and_paired_differences() -> None:
    half, all_right = ["correct", "wrong"] * 5, ["correct"] * 10
    arms = [("frozen", 0, half), ("rl", 0, all_right), ("rl", 1, all_right), ("frozen", 1, half)]
    answers = [row for arm in arms for row in rows(*arm)]
    tables = figure_tables(answers, "frozen")
    by_arm = {row["arm"]: row for row in tables["by group of problems"]}
    assert by_arm["rl-0"]["pass@1"].startswith("100.0 %")
    assert by_arm["frozen-1"]["fast_1"].startswith("50.0 %")
    assert not {"not judged", "pass@4"} & by_arm["rl-0"].keys()
    labels = [row["arm"] for row in tables["differences over the same problems"]]
    assert labels == ["rl-0 less frozen-0", "rl-1 less frozen-1", "rl less frozen, 2 seeds"]
    with pytest.raises(NotFound, match="runs: frozen, rl"):
        figure_tables(answers, "nothing")


def test_a_correct_answer_with_little_own_work_may_be_left_out() -> None:
    answers = rows("rl", 0, ["correct"] * 4, own_share=0.2)
    (row,) = figure_tables(answers, own_share=0.3)["by group of problems"]
    assert row["pass@1"].startswith("0.0 %")


def test_the_kept_answers_to_kernelbench_give_the_published_figures(capsys) -> None:
    tables = figure_tables(read_rows(H200))
    by_group = {row["group"]: row for row in tables["KernelBench by kind"]}
    first, second = by_group["level 1"], by_group["level 2"]
    assert (first["problems"], first["answers"], second["answers"]) == (46, 184, 216)
    figures = ("measured", "field", "strict", "fair fast_1")
    assert [first[name].split(" %")[0] for name in figures] == ["83.2", "46.2", "55.4", "19.6"]
    assert [second[name].split(" %")[0] for name in figures] == ["63.9", "41.7", "9.3", "0.0"]
    assert sum(row["answers"] for group, row in by_group.items() if group.startswith("level 2 ")) == 216
    over = {(row["group"], row["faster than"]): row for row in tables["KernelBench by baseline"]}
    assert over["level 2", "eager"]["fast_1"].startswith("57.4 %") and len(over) == 10
    assert run(["runs", "figures", H200]) == 0
    assert "19.6 % (11.5 … 30.7)" in capsys.readouterr().out


def test_kinds_are_those_of_kernelbench_alone() -> None:
    assert kind_of("kernelbench/level1/82_conv_depthwise_2D") == "convolution"
    assert kind_of("kernelbench/level1/19_ReLU") == "elementwise"
    outcome = Outcome(turn=0, verdict=Verdict.HACKED, tolerances=("field",), over={"fair": 2.0})
    problem = ProblemOutcomes(problem_id="x", sha256="", family="", level=1, samples=((outcome,),))
    assert kind_rows([problem]) == baseline_rows([problem]) == []
    theirs = problem.model_copy(update={"problem_id": "kernelbench/level1/19_ReLU"})
    level, kind = kind_rows([theirs])
    assert (level["group"], kind["group"]) == ("level 1", "level 1 elementwise")
    assert level["field"].startswith("0.0 %") and level["fair fast_1"].startswith(
        "0.0 %"
    )  # hacked is neither


def test_a_file_of_something_else_is_refused(tmp_path) -> None:
    pd.DataFrame([{"a": 1}]).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match="no column problem"):
        read_rows(str(tmp_path / "other.parquet"))
    (tmp_path / "text.parquet").write_text("nothing")
    with pytest.raises(ConfigError, match="no Parquet file"):
        read_rows(str(tmp_path / "text.parquet"))
