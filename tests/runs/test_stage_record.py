"""A stage is done once, goes on after a kill, and is never taken for another's."""

import pytest

from flows.train import MAY_CHANGE
from kernel_core.config import TrainConfig
from kernel_core.data_folder import DATA
from kernel_core.errors import ConfigError
from kernel_core.runs import stage_record
from kernel_core.runs.run_folder import Run
from kernel_core.runs.stage_record import code_version, flat, sealed_digest, working_on


@pytest.fixture
def run(tmp_path):
    return Run(str(tmp_path), "first")


def make(run, config, inputs=None, **options):
    """Do the stage `made` if it is not done; gives whether it was done already."""
    with working_on(run, "made", config, inputs or {}, folder="made", **options) as work:
        if not work.done:
            work.store.seal("thing", {"a": work.store.write("a", b"x")}, meta={})
        return work.done


def test_a_stage_is_done_once(run):
    assert make(run, {"rows": 3}) is False
    assert make(run, {"rows": 3}) is True
    record = run.stage("made")
    assert record.status == "done"
    assert record.output == sealed_digest(run.store.child("made"))
    assert record.code == code_version()


def test_tuples_and_lists_are_the_same_setting(run):
    make(run, {"levels": (1, 2)})
    assert make(run, {"levels": [1, 2]}) is True


def test_other_settings_are_refused_by_name(run):
    make(run, {"rows": 3, "policy": {"model": "new"}})
    with pytest.raises(ConfigError, match=r"policy\.model = 'new', now 'shipped'.*run=NAME"):
        make(run, {"rows": 3, "policy": {"model": "shipped"}})


def test_other_inputs_are_refused_by_name(run):
    make(run, {"rows": 3}, {"snapshot": "abc"})
    with pytest.raises(ConfigError, match="another snapshot"):
        make(run, {"rows": 3}, {"snapshot": "def"})


def test_a_stage_that_follows_its_inputs_is_done_again_for_others(run):
    assert make(run, {"rows": 3}, {"snapshot": "abc"}, follows_inputs=True) is False
    assert make(run, {"rows": 3}, {"snapshot": "abc"}, follows_inputs=True) is True
    assert make(run, {"rows": 3}, {"snapshot": "def"}, follows_inputs=True) is False
    with pytest.raises(ConfigError, match="rows = 3, now 4"):
        make(run, {"rows": 4}, {"snapshot": "def"}, follows_inputs=True)


def test_a_stage_that_was_killed_is_gone_on_with(run):
    with pytest.raises(KeyboardInterrupt), working_on(run, "made", {}, {}, folder="made") as work:
        work.store.write("half", b"x")
        raise KeyboardInterrupt
    assert run.stage("made").status == "begun"
    assert run.stage_at_work() == "made"
    assert make(run, {}) is False
    assert run.stage_at_work() == ""


def test_a_setting_of_how_far_to_go_may_change(run):
    make(run, {"steps": 3}, may_change=("steps",))
    assert make(run, {"steps": 4}, may_change=("steps",)) is False
    assert make(run, {"steps": 4}, may_change=("steps",)) is True


def test_a_training_may_follow_the_advice_of_an_alarm_and_nothing_else_may_change(run):
    settings = TrainConfig().model_dump()
    make(run, settings, may_change=MAY_CHANGE)
    assert make(run, settings | {"lr": 1e-5, "alarms_stop": ("junk",)}, may_change=MAY_CHANGE) is False
    with pytest.raises(ConfigError, match="gamma"):
        make(run, settings | {"gamma": 0.9}, may_change=MAY_CHANGE)


def test_an_output_that_was_removed_is_made_again_with_any_settings(run):
    make(run, {"rows": 3})
    run.store.remove("made")
    assert make(run, {"rows": 4}) is False


def test_other_code_is_said_and_gone_on_with(run, caplog):
    make(run, {"rows": 3})
    run.record(run.stage("made").model_copy(update={"code": "older"}))
    assert make(run, {"rows": 3}) is True
    assert "other code" in caplog.text


def test_nested_settings_get_dotted_names():
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_the_code_version_covers_every_room_of_the_core_and_the_problems_digest_every_problem() -> None:
    rooms = {path.parent.name for path in stage_record._PACKAGE.rglob("*.py")}
    assert {"gym", "problems", "learn", "runs", "kernel_core"} <= rooms
    assert len(list((DATA / "problems").glob("*.py"))) > 30
    assert (DATA / "sources.toml").is_file()
