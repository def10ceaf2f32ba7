"""Which run a command works in: the one it names, the one it began, or a new one."""

import inspect
import json

import pytest

from flows.cli import run as dojo
from flows.presets import build_parameters, load_flow, preset
from flows.run_names import as_json, in_own_run, names_a_run, place_of
from kernel_core.runs.run_folder import Run

TINY = ["problems.limit=1", "samples_per_problem=1", "rollout.turns=1", "rollout.sampling.max_new_tokens=8"]


def every_parameter(function, parameters):
    """Parameters as Prefect gives them to a flow."""
    bound = inspect.signature(function).bind(**parameters)
    bound.apply_defaults()
    return bound.arguments


def begin(stage, parameters):
    """The folder of a run as its flow leaves it: with every parameter, defaults too."""
    place = place_of(stage, parameters)
    with Run(*place).owned(stage, as_json(every_parameter(load_flow(stage).fn, parameters))):
        pass
    return place.run


def settings(tmp_path, **values):
    """Typed parameters of an evaluation that names no run."""
    below = preset("evaluate", None)
    return build_parameters("evaluate", below | {"config": values, "root": str(tmp_path)})


def test_another_command_begins_a_run_of_its_own_and_the_same_one_goes_on(tmp_path):
    flow = load_flow("evaluate")
    first, other = (in_own_run(flow, settings(tmp_path, seed=seed)) for seed in (0, 1))
    assert begin("evaluate", first) == "held-out"
    other = in_own_run(flow, settings(tmp_path, seed=1))
    assert begin("evaluate", other) == "held-out-0002"
    again = [in_own_run(flow, settings(tmp_path, seed=seed))["run"] for seed in (0, 1, 2)]
    assert again == ["held-out", "held-out-0002", "held-out-0003"]


def test_a_pipelines_name_is_in_its_config(tmp_path):
    flow, typed = load_flow("pipeline"), build_parameters("pipeline", preset("pipeline", "smoke"))
    typed = {"config": typed["config"].model_copy(update={"root": str(tmp_path)})}
    begin("pipeline", typed)
    begun = json.loads((tmp_path / "smoke" / "config.json").read_text())
    assert begun["parameters"]["config"]["run"] == "smoke"
    longer = {"config": typed["config"].model_copy(update={"index": typed["config"].index})}
    assert in_own_run(flow, longer)["config"].run == "smoke"
    changed = typed["config"].index.model_copy(update={"batch_size": 7})
    longer = {"config": typed["config"].model_copy(update={"index": changed})}
    assert in_own_run(flow, longer)["config"].run == "smoke-0002"


@pytest.mark.parametrize("stage", ["ingest", "index", "cold-start", "promote", "nightly"])
def test_stages_that_add_to_a_run_keep_its_name(stage, tmp_path):
    typed = build_parameters(stage, preset(stage, None) | {"root": str(tmp_path)})
    begin(stage, typed)
    assert in_own_run(load_flow(stage), typed) == typed


@pytest.mark.parametrize(
    ("stage", "chosen", "named"),
    [
        ("evaluate", {"run": "held-out"}, True),
        ("evaluate", {"config": {"seed": 1}}, False),
        ("pipeline", {"config": {"run": "x"}}, True),
        ("pipeline", {}, False),
    ],
)
def test_a_name_that_was_typed_is_known_even_if_it_is_the_presets(stage, chosen, named):
    assert names_a_run(stage, chosen) is named


@pytest.mark.exhaustive
def test_on_the_command_line_a_new_setting_needs_no_new_name(prefect_api, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = []
    for words in ([], ["seed=5"], []):
        assert dojo(["evaluate", *TINY, *words]) == 0
        shown.append(capsys.readouterr().out)
    assert [next(line for line in one.splitlines() if line.startswith("Again:")) for one in shown] == [
        "Again: dojo runs show held-out",
        "Again: dojo runs show held-out-0002",
        "Again: dojo runs show held-out",
    ]
    assert dojo(["evaluate", *TINY, "seed=6", "run=held-out"]) == 2
    refused = capsys.readouterr().err
    assert "seed = 0, now 6" in refused and "`dojo runs resume held-out`" in refused
