"""The page of a run: its end, the sizes of its model, unknown token counts, curves of one point."""

import json

from kernel_core.report.run_page import settings_in_force, write_report
from kernel_core.report.training import _figure
from kernel_core.runs.run_folder import Run


def test_a_folders_sizes_are_its_own_and_defaults_that_did_not_decide_are_left_out(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 64, "num_hidden_layers": 2}))
    settings = {"config.policy.model": str(tmp_path), "config.policy.hidden_size": 192}
    settings |= {"config.policy.num_heads": 6, "config.lr": 0.1}
    shown = settings_in_force(settings)
    assert shown["config.policy.hidden_size"] == 64 and shown["config.policy.num_layers"] == 2
    assert "config.policy.num_heads" not in shown and shown["config.lr"] == 0.1
    new = {"config.policy.model": "new", "config.policy.hidden_size": 192}
    assert settings_in_force(new) == new


def test_the_last_task_of_a_training_says_finished_and_a_page_of_a_running_run_its_time(tmp_path):
    run = Run(str(tmp_path), "mine")
    with run.owned("train", {}):
        write_report(run.store, is_trained=True)
        assert "train, finished" in run.store.read("report.html").decode()
        write_report(run.store)
        assert "train, running when this page was written, 20" in run.store.read("report.html").decode()


def test_a_curve_of_one_step_has_a_marker():
    (row,) = [{"step": 1, "reward/mean": 0.5, "reward/paid_mean": 0.1}]
    one = _figure([row], 1).axes[0].lines[0]
    two = _figure([row, row | {"step": 2}], 1).axes[0].lines[0]
    assert one.get_marker() == "o" and two.get_marker() != "o"
