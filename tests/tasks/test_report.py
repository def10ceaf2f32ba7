"""What a person reads of a speed says whether it was measured or predicted."""

import base64

import pytest
from prefect.client.orchestration import get_client
from server_pages import all_pages

from kernel_core.evaluation.evidence import best_answers, extremes
from kernel_core.evaluation.tables import TURN_SCHEMA
from kernel_core.parquet_rows import packed
from kernel_core.report.markdown import artifact_key
from kernel_core.report.pages import curriculum_blocks
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.artifacts import LivePage


@pytest.fixture
def live(prefect_api, tmp_path):
    """A page of a run, and a look at what the server has of it."""
    page = LivePage(artifact_key(f"{tmp_path.name}-learning-curves"), Store(tmp_path), "curves")

    def look():
        with get_client(sync_client=True) as client:
            return [row.data for row in all_pages(client.read_artifacts) if row.key == page._key]

    return page, look


def test_the_newest_step_names_the_kind_of_each_speed(tmp_path, live):
    page, look = live
    run = Run(str(tmp_path), "mine")
    speeds = {"kernel/speedup_geometric_mean": 2.0, "probe/fast_1": 0.5, "multiturn/turn_1/fast_1_rate": 0.25}
    row = {"step": 1, "stage": "speed", "speedups": "predicted for L4", "reward/mean": 0.5, **speeds}
    run.store.append_line("metrics.jsonl", row)
    page.show(curriculum_blocks(run))
    (shown,) = look()
    assert "| reward/mean | 0.5 |" in shown
    for name, value in speeds.items():
        assert f"| {name} (predicted for L4) | {value:.3g} |" in shown


def test_curves_are_one_artifact_that_is_drawn_again(tmp_path, live):
    page, look = live
    run = Run(str(tmp_path), "mine")
    pictures = []
    for step in (1, 2, 3):
        row = {"step": step, "stage": "format", "probe/correct_rate": step / 4, "reward/mean": step / 8}
        run.store.append_line("metrics.jsonl", row)
        page.show(curriculum_blocks(run))
        (shown,) = look()
        assert f"| step | {step} |" in shown
        pictures.append(shown.partition("base64,")[2].partition(")")[0])
    assert len(set(pictures)) == 3 and all(base64.b64decode(one).startswith(b"\x89PNG") for one in pictures)


def test_a_row_of_an_earlier_version_names_none(tmp_path, live):
    page, look = live
    run = Run(str(tmp_path), "mine")
    run.store.append_line("metrics.jsonl", {"step": 1, "stage": "speed", "probe/fast_1": 0.5})
    page.show(curriculum_blocks(run))
    assert "| probe/fast_1 | 0.5 |" in look()[0]


@pytest.mark.parametrize(
    ("measured", "predicted", "kind"),
    [(None, 5.0, "predicted for H200"), (3.0, 5.0, "measured"), (None, None, "")],
)
def test_an_answer_says_of_which_kind_its_speed_up_is(tmp_path, measured, predicted, kind):
    row = dict.fromkeys(TURN_SCHEMA.names) | {"problem_id": "a", "verdict": "correct"}
    row |= {"speedup": measured, "predicted_speedup": predicted, "predicted_gpu": "H200"}
    store = Run(str(tmp_path), "mine").store
    store.write("evaluations.parquet", packed([row], TURN_SCHEMA))
    (answer,) = best_answers(store)
    assert answer.speed_kind == kind


def answer(problem, verdict, speedup=None, **more):
    """A row of an evaluation's answers."""
    row = dict.fromkeys(TURN_SCHEMA.names) | {"problem_id": problem, "verdict": verdict}
    return row | {"predicted_speedup": speedup, "predicted_gpu": "H200"} | more


def test_the_five_best_and_the_five_worst_answers_are_of_different_problems(tmp_path):
    rows = [answer(f"p{n}", "correct", float(n)) for n in range(8)]
    rows += [answer("p7", "wrong"), answer("p6", "malformed", answer="I cannot."), answer("p5", "hacked")]
    times = {"predicted_ms": 1.0, "reference_predicted_ms": 9.0, "own_kernel_share": 0.5}
    rows += [answer("p4", "correct", 9.0, code="fast", **times)]
    store = Run(str(tmp_path), "mine").store
    store.write("evaluations.parquet", packed(rows, TURN_SCHEMA))
    best, worst = extremes(store)
    assert [one.problem_id for one in best] == ["p4", "p7", "p6", "p5", "p3"]
    assert [(one.problem_id, one.verdict) for one in worst[:3]] == [
        ("p5", "hacked"),
        ("p6", "malformed"),
        ("p7", "wrong"),
    ]
    assert worst[1].code == "I cannot.", "the whole text of an answer without a kernel"
    assert best[0].report_text == "1 ms, reference 9 ms; 50 % of the time in its own kernels"
    assert best[0].in_words() == "p4: correct, speed-up 9.00 (predicted for H200)"
