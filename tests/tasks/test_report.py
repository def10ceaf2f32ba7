"""What a person reads of a speed says whether it was measured or predicted."""

import pytest

import tasks.report
from kernel_core.evaluation.evidence import best_answers
from kernel_core.evaluation.tables import TURN_SCHEMA, parquet
from kernel_core.runs.run_folder import Run


@pytest.fixture
def shown(monkeypatch):
    pages = []
    monkeypatch.setattr(tasks.report, "page", lambda *_: pages.append(_[3]))
    return pages


def test_the_newest_step_names_the_kind_of_each_speed(tmp_path, shown):
    run = Run(str(tmp_path), "mine")
    speeds = {"kernel/speedup_geometric_mean": 2.0, "probe/fast_1": 0.5, "multiturn/turn_1/fast_1_rate": 0.25}
    row = {"step": 1, "stage": "speed", "speedups": "predicted for L4", "reward/mean": 0.5, **speeds}
    run.store.append_line("metrics.jsonl", row)
    tasks.report.show_curriculum(run)
    figures = {one["what"]: one["value"] for one in shown[0]["newest step"]}
    assert figures["reward/mean"] == 0.5
    assert [figures[f"{name} (predicted for L4)"] for name in speeds] == [2.0, 0.5, 0.25]


def test_a_row_of_an_earlier_version_names_none(tmp_path, shown):
    run = Run(str(tmp_path), "mine")
    run.store.append_line("metrics.jsonl", {"step": 1, "stage": "speed", "probe/fast_1": 0.5})
    tasks.report.show_curriculum(run)
    assert {"what": "probe/fast_1", "value": 0.5} in shown[0]["newest step"]


@pytest.mark.parametrize(
    ("measured", "predicted", "kind"),
    [(None, 5.0, "predicted for H200"), (3.0, 5.0, "measured"), (None, None, "")],
)
def test_an_answer_says_of_which_kind_its_speed_up_is(tmp_path, measured, predicted, kind):
    row = dict.fromkeys(TURN_SCHEMA.names) | {"problem_id": "a", "verdict": "correct"}
    row |= {"speedup": measured, "predicted_speedup": predicted, "predicted_gpu": "H200"}
    store = Run(str(tmp_path), "mine").store
    store.write("evaluations.parquet", parquet([row], TURN_SCHEMA))
    (answer,) = best_answers(store)
    assert answer.speed_kind == kind
