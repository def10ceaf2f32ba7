"""Which weights a stage opens: a checkpoint's, the cold start of that policy, or what the config names."""

import pytest

from kernel_core.config import ColdStartConfig, PolicyConfig, TrainConfig
from kernel_core.errors import ConfigError, NotFound
from kernel_core.policy import SHIPPED
from kernel_core.runs.resolve import check_cold_start, choose_weights, needs_cold_start, weights_to_train
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import working_on

MODEL = PolicyConfig(model="/models/some")
UNTAUGHT = TrainConfig(policy=MODEL, cold_start="none")
CHATS = ColdStartConfig(data=("chats.jsonl",))


@pytest.fixture
def run(tmp_path):
    return Run(str(tmp_path), "mine")


def teach(run, policy):
    with working_on(run, "cold-start", {"policy": policy.model_dump()}, {}, folder="cold_start") as work:
        work.store.seal("policy", {"a": work.store.write("a", b"x")}, meta={})


def test_a_policy_from_nothing_and_one_with_chats_are_taught_first():
    assert needs_cold_start(TrainConfig(policy=PolicyConfig(model="new")))
    assert needs_cold_start(TrainConfig(policy=MODEL, cold_start=CHATS))
    assert needs_cold_start(TrainConfig(cold_start=CHATS))
    assert not needs_cold_start(TrainConfig())


def test_a_pretrained_model_is_taught_unless_the_settings_say_none(tmp_path):
    assert needs_cold_start(TrainConfig(policy=MODEL))
    assert not needs_cold_start(UNTAUGHT)
    assert UNTAUGHT.cold_start.steps == 0
    (tmp_path / "policy.json").write_text('{"version": "cold-start-1"}')  # as a cold start leaves a folder
    assert not needs_cold_start(TrainConfig(policy=PolicyConfig(model=str(tmp_path))))


def test_without_a_cold_start_the_config_says(run):
    assert choose_weights(run, MODEL, None) is None
    assert choose_weights(run, PolicyConfig(), None) == str(SHIPPED)
    with pytest.raises(NotFound, match="dojo cold-start run=mine"):
        choose_weights(run, PolicyConfig(model="new"), None)
    with pytest.raises(NotFound, match="dojo cold-start run=mine"):
        weights_to_train(run, TrainConfig(policy=MODEL, cold_start=CHATS))


@pytest.mark.parametrize("policy", [MODEL, PolicyConfig(), PolicyConfig(model="new")])
def test_a_cold_start_of_the_policy_is_opened(run, policy):
    teach(run, policy)
    assert choose_weights(run, policy, None) == run.store.path("cold_start")
    check_cold_start(run, TrainConfig(policy=policy))


def test_another_policy_is_evaluated_as_it_is_but_not_trained_past_the_cold_start(run):
    teach(run, MODEL)
    assert choose_weights(run, PolicyConfig(), None) == str(SHIPPED)
    with pytest.raises(ConfigError, match=r"policy\.model = '/models/some', now 'shipped'.*run=NAME"):
        check_cold_start(run, TrainConfig())


def test_new_adapters_fit_on_taught_weights_and_taught_adapters_keep_their_rank(run):
    adapted = MODEL.model_copy(update={"lora_rank": 4})
    teach(run, MODEL)
    check_cold_start(run, TrainConfig(policy=adapted, cold_start="none"))
    run.store.child("cold_start").remove()
    teach(run, adapted)
    check_cold_start(run, TrainConfig(policy=adapted, cold_start="none"))
    with pytest.raises(ConfigError, match=r"policy\.lora_rank = 4, now None"):
        check_cold_start(run, UNTAUGHT)


def test_an_unfinished_cold_start_is_not_left_out_in_silence(run):
    class Killed(BaseException):
        pass

    settings = {"policy": MODEL.model_dump()}
    with pytest.raises(Killed), working_on(run, "cold-start", settings, {}, folder="cold_start") as work:
        work.store.write("metrics.jsonl", b"")
        raise Killed
    with pytest.raises(ConfigError, match="not finished: go on with it by `dojo cold-start run=mine`"):
        check_cold_start(run, UNTAUGHT)
    check_cold_start(run, TrainConfig(policy=MODEL, cold_start=CHATS))  # its own stage goes on with it
