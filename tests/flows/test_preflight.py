"""Everything that can be checked is checked before a flow run exists; `--dry-run` starts no server at all."""

import pytest
import yaml
from prefect.client.orchestration import get_client
from server_pages import all_pages

from flows.cli import run
from flows.presets import STAGES, config_class_of, flow_hints
from kernel_core.config import EvaluateConfig
from kernel_core.config.reference import settings_of
from kernel_core.errors import ConfigError
from kernel_core.runs.configure import build
from kernel_core.runs.run_folder import Run

MISTAKES = [
    (["evaluate", "problems.suite=nowhere"], "no suite 'nowhere'"),
    (["evaluate", "problems.families=[softmaks]"], "did you mean softmax"),
    (["train", "problems.families=[softmaks]"], "did you mean softmax"),
    (["pipeline", "best_of_n.problems.suite=nowhere"], "no suite 'nowhere'"),
    (["ingest", "left_out=[gatd]"], "did you mean gated"),
    (["pipeline", "ingest.left_out=[gatd]"], "did you mean gated"),
    (["evaluate", "policy.model=./nowhere"], "./nowhere"),
    (["evaluate", "checkpoint=missing"], "no run 'missing'"),
    (["evaluate", "samples_per_problem=1", "k=[1,2]"], "raise samples_per_problem to 2"),
    (["evaluate", "policy.kind=openai", "policy.endpoint=http://127.0.0.1:9/v1"], "127.0.0.1:9"),
    (["train", "policy.kind=openai", "policy.endpoint=http://127.0.0.1:9/v1"], "cannot be trained"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES)
def test_a_mistake_leaves_no_run_behind(prefect_api, tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.setattr("kernel_core.policy.openai_policy.BACKOFF_S", 0.01)
    monkeypatch.chdir(tmp_path)
    with get_client(sync_client=True) as client:
        before = len(all_pages(client.read_flow_runs))
        assert run(arguments) in (2, 3)
        assert len(all_pages(client.read_flow_runs)) == before
    assert words in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


NOTHING_THERE = [
    ({"KERNELBENCH_ROOT": "nothing"}, ["evaluate", "problems.suite=kernelbench"], "no KernelBench/level1"),
    ({}, ["evaluate", "policy.model=./nothing"], "holds no model: it has no config.json"),
    ({}, ["evaluate", "answers=nothing/answers.jsonl"], "nothing/answers.jsonl"),
    ({}, ["evaluate", "answers=nothing"], "no answers in nothing"),
]


@pytest.mark.parametrize(("environment", "arguments", "words"), NOTHING_THERE)
def test_a_folder_without_what_it_should_hold_is_named(
    tmp_path, monkeypatch, capsys, environment, arguments, words
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nothing").mkdir()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run([*arguments, "--dry-run"]) == 2
    assert words in capsys.readouterr().err


def test_a_dry_run_prints_the_resolved_settings_and_starts_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.commands.stages.starting_server", None)
    assert run(["evaluate", "hand-written", "problems.limit=2", "samples_per_problem=4", "--dry-run"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["run"] == "hand-written"
    assert shown["config"]["problems"]["suite"] == "dojo" and shown["config"]["problems"]["limit"] == 2
    assert shown["config"]["k"] == [1, 4]
    assert build(EvaluateConfig, shown["config"]).samples_per_problem == 4
    assert not Run("runs", "evaluate-dojo").store.exists()


@pytest.mark.parametrize(("samples", "k"), [(1, (1,)), (2, (1, 2)), (8, (1, 8))])
def test_k_follows_the_number_of_samples(samples, k):
    assert EvaluateConfig(samples_per_problem=samples).k == k


def test_a_k_that_was_asked_for_is_kept_or_refused():
    assert EvaluateConfig(samples_per_problem=8, k=(2, 4)).k == (2, 4)
    with pytest.raises(ConfigError, match="raise samples_per_problem to 4"):
        build(EvaluateConfig, {"samples_per_problem": 2, "k": [4]})


def test_the_version_is_told(capsys):
    assert run(["--version"]) == 0 and capsys.readouterr().out.startswith("dojo ")


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "verify"])
def test_help_names_presets_and_settings(stage, capsys):
    assert config_class_of(stage) is flow_hints(stage)["config"]
    assert run([stage, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "presets (the first is used without a name):" in shown
    assert all(f"  {one.key} = " in shown for one in settings_of(config_class_of(stage)))
