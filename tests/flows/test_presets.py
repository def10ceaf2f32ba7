"""Presets are deployments; settings are laid over one another, and an unknown one names the nearest."""

import pytest

from flows.presets import STAGES, build_parameters, preset, presets, settings_for
from kernel_core.errors import ConfigError, NotFound


@pytest.mark.parametrize("stage", STAGES)
def test_every_preset_of_every_stage_is_valid_and_there_is_a_default(stage):
    known = presets(stage)
    assert known
    for parameters in known.values():
        assert "config" in build_parameters(stage, parameters)


def test_the_first_deployment_of_a_flow_is_the_default_preset():
    assert preset("pipeline", None) == presets("pipeline")["quickstart"]


def test_each_layer_lies_over_the_one_before(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("steps: 7\ngroup_size: 3\nlr: 0.5\nrun: from-file\n")
    environment = {"DOJO_TRAIN__GROUP_SIZE": "4", "DOJO_TRAIN__LR": "0.25", "DOJO_EVALUATE__SEED": "9"}
    settings = settings_for("train", "kevin", file, ["lr=0.125", "run=mine"], environment)
    parameters = build_parameters("train", settings)
    config = parameters["config"]
    assert config.estimator == "kevin"  # the preset
    assert config.steps == 7  # the file over the preset
    assert config.group_size == 4  # the environment over the file
    assert config.lr == 0.125  # the command line over the environment
    assert parameters["run"] == "mine"


def test_the_environment_of_a_stage_reaches_it_inside_a_pipeline():
    environment = {"DOJO_TRAIN__ROLLOUT__TURNS": "3", "DOJO_EVALUATE__SEED": "5", "DOJO_RUN": "mine"}
    settings = settings_for("pipeline", None, None, [], environment)
    config = build_parameters("pipeline", settings)["config"]
    assert (config.train.rollout.turns, config.evaluate.seed, config.run) == (3, 5, "mine")


def test_settings_beside_the_config_are_the_flows_own_parameters():
    settings = settings_for("train", "smoke", None, ["ingest.generator_rows=11", "steps=1"], {})
    parameters = build_parameters("train", settings)
    assert parameters["ingest"].generator_rows == 11
    assert parameters["config"].steps == 1


@pytest.mark.parametrize(
    ("assignment", "nearest"),
    [
        ("group_sise=4", "group_size"),
        ("rollout.turn=2", "rollout.turns"),
        ("ingest.generator_row=2", "generator_rows"),
        ("rollout.sampling.temprature=1", "rollout.sampling.temperature"),
    ],
)
def test_an_unknown_key_names_the_nearest_known_one(assignment, nearest):
    with pytest.raises(ConfigError, match=f"did you mean .*{nearest}"):
        build_parameters("train", settings_for("train", None, None, [assignment], {}))


def test_an_unknown_variable_of_the_environment_is_refused():
    with pytest.raises(ConfigError, match="did you mean group_size"):
        build_parameters("train", settings_for("train", None, None, [], {"DOJO_TRAIN__GROUP_SISE": "4"}))


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("steps=0", "steps = 0"),
        ("steps=many", "steps = 'many'"),
        ("steps", "not of the form"),
        ("run=[1]", "run ="),
    ],
)
def test_a_value_out_of_bounds_is_one_clear_line(assignment, message):
    with pytest.raises(ConfigError, match=message):
        build_parameters("train", settings_for("train", None, None, [assignment], {}))


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(NotFound, match="did you mean learn"):
        preset("train", "lern")


@pytest.mark.parametrize(
    ("text", "message"), [("a: [1", "line"), ("- just\n- a list", "settings by name"), ("\tx: 1", "not YAML")]
)
def test_a_broken_settings_file_is_named(tmp_path, text, message):
    file = tmp_path / "broken.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        settings_for("train", None, file, [], {})


def test_a_missing_settings_file_is_named(tmp_path):
    with pytest.raises(NotFound, match=r"missing\.yaml"):
        settings_for("train", None, tmp_path / "missing.yaml", [], {})
