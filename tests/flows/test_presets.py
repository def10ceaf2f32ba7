"""Presets are deployments; settings are laid over one another, and an unknown one names the nearest."""

import golden
import pytest
from golden import differences, recorded

from flows.presets import STAGES, build_parameters, preset, presets, settings_for
from kernel_core.config import MismatchConfig
from kernel_core.config.evaluate import UNTAUGHT_PROBLEMS
from kernel_core.dialogue.turns import Completion, Trajectory, Turn
from kernel_core.errors import ConfigError, NotFound
from kernel_core.learn.credit import paid_rewards
from kernel_core.problems.modules.generate import RESERVED
from kernel_core.records import Candidate, Evaluation, Verdict
from kernel_core.reward.presets import REWARD_PRESETS
from kernel_core.runs.resolve import needs_cold_start


@pytest.mark.parametrize("stage", STAGES)
def test_every_preset_of_every_stage_is_valid_and_there_is_a_default(stage):
    known = presets(stage)
    assert known
    for parameters in known.values():
        assert "config" in build_parameters(stage, parameters)


def test_the_first_deployment_of_a_flow_is_the_default_preset():
    assert preset("pipeline", None) == presets("pipeline")["quickstart"]


def test_a_presets_name_says_what_it_does_and_is_there_once():
    names = [name for stage in STAGES for name in presets(stage)]
    assert len(names) == len(set(names))
    assert not {"cpu", "cuda", "default"} & set(names)


def chosen(stage, name):
    """The config of a preset."""
    return build_parameters(stage, preset(stage, name))["config"]


def test_kevin_is_what_was_published():
    config = chosen("train", "kevin")
    assert config.curriculum.stages == REWARD_PRESETS["kevin"]
    assert (config.estimator, config.credit, config.returns, config.gamma) == (
        "kevin",
        "absolute",
        "sum",
        0.4,
    )
    assert (config.group_size, config.rollout.turns, config.updates_per_step) == (16, 4, 2)
    assert (config.clip_low, config.clip_high, config.max_grad_norm) == (0.2, 0.28, 0.05)
    assert (config.kl_coefficient, config.aggregation) == (0.0, "constant")
    assert (config.rollout.thoughts, config.rollout.sampling.temperature) == ("summary", 0.9)
    assert not config.mask_regressions and config.rollout.stop_at_speedup is None


def test_dr_kernel_is_what_was_published():
    config = chosen("train", "dr_kernel")
    assert config.curriculum.stages == REWARD_PRESETS["dr_kernel"]
    assert (config.estimator, config.credit, config.returns, config.gamma) == (
        "trloo",
        "absolute",
        "sum",
        1.0,
    )
    assert (config.group_size, config.rollout.turns, config.updates_per_step) == (16, 3, 1)
    assert (config.clip_low, config.clip_high, config.dual_clip) == (0.2, 0.28, 3.0)
    assert (config.kl_coefficient, config.entropy_coefficient, config.max_grad_norm) == (0.0, 0.0, 1.0)
    assert (config.profile_rejection, config.mask_regressions) == ("published", True)
    assert config.mismatch == MismatchConfig(band=0.001, veto=0.0001)
    assert (config.rollout.thoughts, config.rollout.sampling.temperature) == ("keep", 1.0)


def turn(index, verdict, repeats=False):
    """A turn of a conversation with this verdict."""
    candidate = Candidate.from_source("import triton", "")
    return Turn(
        problem_id="p",
        trajectory=0,
        index=index,
        messages=(),
        completion=Completion(text="", finish_reason="stop", policy_version="v"),
        candidate=candidate,
        evaluation=Evaluation(
            problem_id="p",
            candidate_sha=candidate.sha256,
            verdict=verdict,
            trials=3,
            trials_passed=3 if verdict is Verdict.CORRECT else 0,
            feedback="",
            gym_version="t",
            device="cpu",
            seconds=0.0,
        ),
        repeats_earlier=repeats,
    )


@pytest.mark.parametrize(("name", "correct"), [("kevin", 0.3), ("dr_kernel", 1.0)])
def test_by_a_published_rule_a_turn_is_paid_for_its_whole_kernel(name, correct):
    config = chosen("train", name)
    right, wrong = turn(0, Verdict.CORRECT), turn(1, Verdict.WRONG)
    turns = (right, wrong, turn(2, Verdict.CORRECT), turn(3, Verdict.CORRECT, repeats=True))
    conversation = Trajectory(problem_id="p", turns=turns)
    assert paid_rewards(conversation, config.curriculum.stages[0].weights, config) == [correct, 0, correct, 0]


@pytest.mark.parametrize(("stage", "name"), [("cold-start", "teach-coder-7b"), ("train", "learn-coder-7b")])
def test_a_model_of_seven_billion_weights_is_trained_by_adapters(stage, name):
    """All of its weights, with gradients and moments, do not fit on a GPU."""
    for config in (chosen(stage, name), chosen("pipeline", "coder-7b").train):
        assert config.policy.model.endswith("7B-Instruct")
        assert config.policy.lora_rank and config.policy.gradient_checkpointing
        assert config.lr <= 1e-5 and config.cold_start.lr <= 2e-4
        assert config.sampler.kind == "copy" and config.mismatch.importance_cap
        longest = config.rollout.prompt_budget + config.rollout.sampling.max_new_tokens
        assert longest <= config.minibatch_tokens <= config.policy.max_context


def test_a_pipeline_teaches_a_pretrained_model_before_rl():
    """RL on an untaught model has nothing to reward: no preset skips the cold start in silence."""
    for name in presets("pipeline"):
        train = chosen("pipeline", name).train
        assert needs_cold_start(train) or train.policy.model == "shipped"


@pytest.mark.parametrize("name", ["coder", "coder-quick"])
def test_one_preset_teaches_trains_and_measures_any_code_model(name, tmp_path):
    settings = settings_for("pipeline", name, None, [f"policy.model={tmp_path}"], {})
    config = build_parameters("pipeline", settings)["config"]
    train, taught = config.train, config.train.as_taught
    assert train.policy.model == str(tmp_path) and needs_cold_start(train)
    assert taught.policy.lora_rank is None and taught.minibatch_tokens == 36000
    assert train.policy.lora_rank == 32 and train.minibatch_tokens == 16384
    assert [stage.name for stage in train.curriculum.stages][-3:] == ["compile", "correct", "speed"]
    cards = config.evaluate.by_folder("evaluate-after")
    assert cards["evaluate-after"].problems.suite == "kernelbench"
    assert all(one.problems.split in ("held_out", "all") for one in cards.values())
    assert set(cards["evaluate-after-held-out"].problems.families) == RESERVED
    assert cards["evaluate-after-hand-written"].problems.suite == "dojo"
    assert train.gym.device == config.best_of_n.gym.device == "cuda"  # speeds are measured


def test_an_untaught_model_is_told_the_form_of_an_answer():
    evaluation = chosen("pipeline", "coder").evaluate
    assert evaluation.rollout.template == "compact"
    assert evaluation.of_untaught.rollout.template == "full"
    assert evaluation.of_untaught.samples_per_problem == 1
    limits = {group.limit for group in evaluation.of_untaught.groups.values()}
    assert evaluation.of_untaught.problems.limit == UNTAUGHT_PROBLEMS and limits == {UNTAUGHT_PROBLEMS}
    few = evaluation.model_copy(update={"problems": evaluation.problems.at_most(7)})
    assert few.of_untaught.problems.limit == 7


def test_whoever_writes_kernels_on_a_gpu_has_room_for_them():
    pipeline = chosen("pipeline", "coder-7b")
    for config in (pipeline.train, pipeline.evaluate, pipeline.best_of_n, chosen("evaluate", "kernelbench")):
        assert config.rollout.sampling.max_new_tokens == 4096
    assert pipeline.best_of_n.rollout.turns == 1


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
    settings = settings_for("train", "learn-two-steps", None, ["ingest.generator_rows=11", "steps=1"], {})
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


def test_effective_settings_of_every_preset_are_the_recorded_ones():
    changed = differences(recorded("presets"), golden.presets())
    assert not changed, "\n".join(("`just golden presets --write` records these:", *changed))
