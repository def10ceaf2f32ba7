"""A setting that is given alone changes that setting alone, from the command line and on a deployment."""

import pytest
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow

from flows.presets import STAGES, build_parameters, config_class_of, preset, presets, settings_for
from flows.stage_flow import stage_flow
from kernel_core.config import Config, EvaluateConfig
from kernel_core.config.base import laid_over
from kernel_core.errors import ConfigError
from kernel_core.runs.configure import build, without_defaults
from kernel_core.runs.stage_record import canonical, flat

EVERY_PRESET = [
    pytest.param(stage, name, marks=pytest.mark.exhaustive if number else ())
    for stage in STAGES
    for number, name in enumerate(presets(stage))
]
"""The fast suite takes the first of each stage."""
DECIDES_OTHERS = ("rewards", "only", "kind", "device", "model", "predict_gpu", "lora_rank", "max_context")
DECIDES_OTHERS += ("samples_per_problem",)  # and k with it
"""Settings that settle others by a rule, as a reward preset settles the stages of a curriculum."""


def values_of(parameters):
    """Every setting by its dotted name."""
    return flat(canonical({k: v.model_dump() if isinstance(v, Config) else v for k, v in parameters.items()}))


def nested(path, value):
    """One value as settings of groups."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return value


def another(value):
    """A value that differs, where one is easily found."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value


@pytest.mark.parametrize(("stage", "name"), EVERY_PRESET)
def test_every_one_key_override_of_every_stage_keeps_all_other_settings(stage, name):
    below = preset(stage, name)
    before = values_of(build_parameters(stage, below))
    for path, value in before.items():
        if path.rpartition(".")[2] in DECIDES_OTHERS:
            continue
        for given in (value, another(value)):
            try:
                after = values_of(build_parameters(stage, laid_over(below, nested(path, given))))
            except ConfigError:
                continue  # out of its bounds
            changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            assert changed == ({path} if given != value else set()), f"{path}={given}"


@pytest.mark.parametrize("values", [{}, {"limit": 2}, {"seed": 5}, {"families": ["softmax"]}])
def test_a_part_of_a_group_keeps_the_rest_of_its_fields_default(values):
    problems = EvaluateConfig.model_validate({"problems": values}).problems.model_dump(mode="json")
    assert problems == EvaluateConfig().problems.model_dump(mode="json") | values


def test_the_command_line_asks_held_out_problems_whatever_else_it_sets():
    settings = settings_for("evaluate", None, None, ["problems.limit=2"], {})
    problems = build_parameters("evaluate", settings)["config"].problems
    assert (problems.split, problems.limit, problems.seed) == ("held_out", 2, 1000)


def test_best_of_n_on_a_gpu_asks_once_a_sample():
    assert (
        build_parameters("best-of-n", preset("best-of-n", "sixteen-samples-on-gpu"))["config"].rollout.turns
        == 1
    )


@pytest.mark.parametrize(("stage", "name"), EVERY_PRESET)
def test_a_form_that_is_sent_as_it_came_chooses_nothing(stage, name):
    below = preset(stage, name).get("config") or {}
    kind = config_class_of(stage)
    for shown in (build(kind, below), kind.model_construct()):
        sent = laid_over(shown.model_dump(mode="json"), canonical(below))
        assert without_defaults(sent, below, build(kind, below), kind.model_construct()) == {}


def test_a_model_typed_into_a_form_gets_the_settings_of_its_kind():
    sent = laid_over(EvaluateConfig().model_dump(mode="json"), {"policy": {"model": "Qwen/Qwen2.5-Coder-7B"}})
    chosen = without_defaults(sent, {}, EvaluateConfig(), EvaluateConfig.model_construct())
    assert chosen == {"policy": {"model": "Qwen/Qwen2.5-Coder-7B"}}
    config = build(EvaluateConfig, chosen)
    assert (config.rollout.sampling.max_new_tokens, config.rollout.prompt_budget) == (1536, 4608)


@pytest.mark.parametrize(
    ("below", "given"),
    [
        ({}, {"problems": {"limit": None}}),
        ({"rollout": {"turns": 1}}, {"rollout": {"turns": 2}}),
        ({"problems": {"suite": "dojo", "limit": None}}, {"problems": {"limit": 24}}),
        ({}, {"problms": {"limit": 2}}),
    ],
)
def test_what_a_form_changes_is_kept(below, given):
    sent = laid_over(build(EvaluateConfig, below).model_dump(mode="json"), given)
    chosen = without_defaults(sent, below, build(EvaluateConfig, below), EvaluateConfig.model_construct())
    assert chosen == given


def test_a_run_of_a_deployment_keeps_the_presets_settings_that_its_caller_left_out(prefect_api, monkeypatch):
    seen = []

    @stage_flow("stage-of-a-test", run_name="{run}")
    def stage(config: EvaluateConfig, run: str = "x", root: str = "runs") -> None:
        seen.append((config, run, root))

    preset_of_it = {"config": {"problems": {"suite": "dojo", "limit": None}}, "run": "evaluate-dojo"}
    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(stage), "dojo", parameters=preset_of_it)
        asked = {"config": {"problems": {"limit": 2}}}
        flow_run = client.create_flow_run_from_deployment(deployment, parameters=asked)
        monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(flow_run.id))
        monkeypatch.setenv("DOJO_ROOT", "/shared/runs")
        run_flow(stage, flow_run=flow_run)
        assert client.read_flow_run(flow_run.id).name == "evaluate-dojo"
    ((config, run, root),) = seen
    assert root == "/shared/runs", "the worker's root, where the caller named none"
    assert run == "evaluate-dojo"
    assert (config.problems.suite, config.problems.limit, config.problems.split) == ("dojo", 2, "held_out")
