"""The forms of the Prefect UI: what people change comes first, the rest is in a box `advanced`."""

import pytest
from prefect.client.orchestration import get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.flow_engine import run_flow
from prefect.utilities.callables import parameter_schema

import kernel_core.config
from flows.presets import STAGES, load_flow
from flows.stage_flow import stage_flow
from kernel_core.config import Config, ProblemsConfig, TrainConfig
from kernel_core.config.base import ADVANCED, unfolded
from kernel_core.config.corpus import SUITES
from kernel_core.problems.load import load_dojo, load_problems
from kernel_core.reward.presets import REWARD_PRESETS


def form_of(stage):
    """The schema that the form of a stage is made from."""
    return parameter_schema(load_flow(stage)).model_dump_for_openapi()


def shown(schema, name):
    """The fields of a class in a form, in order."""
    return list(schema["definitions"][name]["properties"])


@pytest.mark.parametrize("stage", STAGES)
def test_every_form_begins_with_the_run(stage):
    schema = form_of(stage)
    if stage == "pipeline":
        assert shown(schema, "PipelineConfig")[0] == "run"
    else:
        assert min(schema["properties"], key=lambda name: schema["properties"][name]["position"]) == "run"


def test_a_form_shows_what_people_change_and_folds_the_rest():
    schema = form_of("evaluate")
    assert shown(schema, "EvaluateConfig") == [
        "checkpoint",
        "policy",
        "problems",
        "samples_per_problem",
        ADVANCED,
    ]
    assert shown(schema, "PolicyConfig")[0] == "model"
    assert shown(schema, "ProblemsConfig")[:3] == ["suite", "split", "limit"]
    advanced = schema["definitions"]["EvaluateConfig"]["properties"][ADVANCED]
    assert "properties" not in advanced and advanced["type"] == "object", (
        "the UI edits such an object as JSON"
    )
    assert "`rollout`" in advanced["description"] and "`policy`" not in advanced["description"]


def test_every_field_that_a_form_names_is_a_setting():
    classes = [one for one in vars(kernel_core.config).values() if isinstance(one, type)]
    for one in classes:
        if issubclass(one, Config):
            assert set(one.FORM) <= set(one.model_fields), one


def test_suites_and_presets_of_rewards_are_offered_by_name():
    schema = form_of("train")
    known, other = schema["definitions"]["ProblemsConfig"]["properties"]["suite"]["anyOf"]
    assert known["enum"] == list(SUITES) and other["type"] == "string" and "enum" not in other
    assert set(schema["definitions"]["CurriculumConfig"]["properties"]["rewards"]["enum"]) == set(
        REWARD_PRESETS
    )


def test_the_suites_that_a_form_offers_are_those_that_are_known(tmp_path, monkeypatch):
    level = tmp_path / "KernelBench" / "level1"
    level.mkdir(parents=True)
    (level / "19_ReLU.py").write_text(load_dojo()[0].source)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    for suite in SUITES:
        assert load_problems(ProblemsConfig(suite=suite, split="held_out", limit=1, levels=(1,)))


def test_a_setting_in_the_box_is_laid_into_its_place():
    sent = {"steps": 3, "curriculum": {"only": None, ADVANCED: {"probe_every": 5}}, ADVANCED: {"lr": 0.5}}
    assert unfolded(sent) == {"steps": 3, "lr": 0.5, "curriculum": {"only": None, "probe_every": 5}}
    assert unfolded({ADVANCED: {"rollout": {"turns": 1}}, "rollout": {"exemplars": 0}}) == {
        "rollout": {"turns": 1, "exemplars": 0}
    }


@pytest.mark.parametrize("stage", STAGES)
def test_a_form_shows_every_setting_or_names_it_in_a_box(stage):
    definitions = form_of(stage)["definitions"]
    for name, schema in definitions.items():
        config_class = getattr(kernel_core.config, name, None)
        if config_class is None or not config_class.FORM:
            continue
        told = schema["properties"][ADVANCED]["description"]
        for field in config_class.model_fields:
            assert (field in schema["properties"]) != (f"`{field}`" in told), f"{name}.{field}"


def test_the_server_takes_what_a_form_sends_with_its_box_and_the_presets_hidden_settings(
    prefect_api, tmp_path, monkeypatch
):
    seen = []

    @stage_flow("form-of-a-test", run_name="{run}")
    def stage(config: TrainConfig, run: str = "x", root: str = "runs") -> None:
        seen.append((config, run))

    below = {"config": {"steps": 6, "lr": 0.5, "rollout": {"turns": 1}}, "run": "mine", "root": str(tmp_path)}
    schema = parameter_schema(stage).model_dump_for_openapi()
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(
            client.create_flow(stage),
            "form",
            parameters=below,
            parameter_openapi_schema=schema,
            enforce_parameter_schema=True,
        )
        sent = {"steps": 9, ADVANCED: {"group_size": 4, "rollout": {"exemplars": 0}}}
        flow_run = client.create_flow_run_from_deployment(deployment, parameters={"config": sent})
        with pytest.raises(PrefectHTTPStatusError, match="steps"):
            client.create_flow_run_from_deployment(deployment, parameters={"config": {"steps": "many"}})
        monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(flow_run.id))
        run_flow(stage, flow_run=flow_run)
    ((config, run),) = seen
    assert (config.steps, config.lr, config.group_size) == (9, 0.5, 4)
    assert (config.rollout.turns, config.rollout.exemplars, run) == (1, 0, "mine")
