"""Two methods with two seeds from one cold start, as small as it gets, and the table of their differences."""

import pandas as pd
import pytest
from pydantic import ValidationError
from rich.console import Console

from flows.cli import run as dojo
from flows.commands.stages import show_results
from flows.compare import compare
from flows.presets import build_parameters, preset
from kernel_core.config import Arm, CompareConfig, EvaluateConfig, IngestConfig
from kernel_core.evaluation.judged_rows import ANSWERS, DIFFERENCES, figure_tables, read_rows
from kernel_core.runs.judges import judges_kept
from kernel_core.runs.run_folder import Run

ARMS = [Arm(method, seed) for method in ("frozen", "rl") for seed in (0, 1)]
INGEST = IngestConfig(generator_rows=40, decontaminate_against=("dojo",))


def smallest() -> CompareConfig:
    """The training and the evaluation of the smoke preset; one step, and one more group of problems."""
    pipeline = build_parameters("pipeline", preset("pipeline", "smoke"))["config"]
    group = {"hand-written": {"suite": "dojo", "limit": 1}}
    evaluation = EvaluateConfig.model_validate(
        {**pipeline.evaluate.model_dump(exclude_unset=True), "groups": group}
    )
    train = pipeline.train.model_copy(update={"steps": 1})
    return CompareConfig(methods=("frozen", "rl"), seeds=(0, 1), train=train, evaluate=evaluation)


@pytest.fixture(scope="module")
def finished(prefect_api, tmp_path_factory):
    """Root and settings of a comparison that went through."""
    root, config = str(tmp_path_factory.mktemp("runs")), smallest()
    with judges_kept():
        compare(config, run="both", root=root, ingest=INGEST)
        yield root, config


@pytest.mark.exhaustive
def test_each_arm_is_a_run_from_the_same_weights_with_its_own_method_and_seed(finished):
    root, config = finished
    taught = Run(root, "both").store.path("cold_start")
    for arm in ARMS:
        run = Run(root, f"both-{arm.name}")
        assert run.state().status == "finished"
        trained = ["train"] if arm.learns else []
        assert [record.stage for record in run.stages()] == [*trained, "evaluate", "evaluate-hand-written"]
        assert run.stage("evaluate").config["policy"]["model"] == taught
        if arm.learns:
            training = run.stage("train").config
            assert (training["method"], training["seed"], training["policy"]["model"]) == (*arm, taught)
        assert run.stage("evaluate").config["seed"] == config.evaluate.seed + arm.seed


@pytest.mark.exhaustive
def test_the_comparison_ends_in_one_table_with_paired_differences(finished):
    root, config = finished
    run = Run(root, "both")
    rows = read_rows(run.store.path(f"comparison/{ANSWERS}"))
    asked = (config.evaluate.problems.limit + 1) * config.evaluate.samples_per_problem
    assert len(rows) == len(ARMS) * asked
    differences = figure_tables(rows, "frozen")[DIFFERENCES]
    labels = {row["arm"] for row in differences if row["group"] == "dojo"}
    assert labels == {"rl-0 less frozen-0", "rl-1 less frozen-1", "rl less frozen, 2 seeds"}
    kept = pd.read_parquet(run.store.path("comparison/differences.parquet"))
    assert set(kept["arm"]) == labels and "pass@1" in kept


@pytest.mark.exhaustive
def test_the_same_command_again_trains_and_asks_nothing(finished, capsys):
    root, config = finished
    names = ("both", *(f"both-{arm.name}" for arm in ARMS))
    before = [Run(root, name).stages() for name in names]
    compare(config, run="both", root=root, ingest=INGEST)
    assert [Run(root, name).stages() for name in names] == before
    console = Console(width=200)
    show_results("compare", {"config": config, "run": "both", "root": root}, "id", console)
    assert dojo(["runs", "figures", f"{root}/both/comparison/{ANSWERS}", "--against", "frozen"]) == 0
    assert capsys.readouterr().out.count("rl less frozen, 2 seeds") == 4  # two groups, printed twice


def test_an_arm_is_there_once_and_seeds_are_numbers_of_runs():
    with pytest.raises(ValidationError, match="repeats one"):
        CompareConfig(seeds=(1, 1))
    with pytest.raises(ValidationError, match="0 or more"):
        CompareConfig(seeds=(-1,))
    assert len(CompareConfig().arms) == 12


def test_the_preset_of_a_code_model_compares_four_methods_on_the_pool(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    words = ["policy.device=cpu", "policy.model=shipped", "train.gym.device=cpu", "evaluate.gym.device=cpu"]
    suites = ["evaluate.problems.suite=dojo", "evaluate.groups.held-out.limit=1"]
    assert dojo(["compare", "coder-methods", *words, *suites, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "# train: 4 methods with 3 seeds, each: " in shown and "mode: deployed" in shown
