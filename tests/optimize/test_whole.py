"""The best places: no kernel inside another, and what saves most together."""

from __future__ import annotations

import pytest

from kernel_core.evaluation.best_of_n import KIND, Selection
from kernel_core.evaluation.winners import Ranked, Rejudged, Selected
from kernel_core.optimize.authors import winners_of
from kernel_core.optimize.library import kernel_name
from kernel_core.optimize.part import Part, problem_of, recorded_calls
from kernel_core.optimize.search import Confirmed, without_free
from kernel_core.optimize.target import load_target
from kernel_core.optimize.whole import choose_places
from kernel_core.optimize.write import write_part
from kernel_core.records import Candidate, Evaluation, Verdict
from kernel_core.store import Store

_TARGET = load_target("tests.optimize.small_modules:block")


def confirmed(paths: tuple[str, ...], saved_ms: float, kind: str, is_winner: bool = True) -> Confirmed:
    """Return a part with a winner that saves so much at each place."""
    path = paths[0]
    text, contract = write_part(_TARGET.module.get_submodule(path), recorded_calls(_TARGET, [path])[path])
    part = Part(
        problem=problem_of(text, kind), contract=contract, paths=paths, kind=kind, predicted_ms=10, gain_ms=1
    )
    candidate = Candidate.from_source("class ModelNew: ...")
    evaluation = Evaluation(
        problem_id=part.problem.id, candidate_sha=candidate.sha256, verdict=Verdict.CORRECT, trials=1,
        trials_passed=1, predicted_speedup=1 / (1 - saved_ms / 10), feedback="", gym_version="",
        device="cpu", seconds=0,
    )  # fmt: skip
    ranked = Ranked(candidate=candidate, sample=0, turn=0, evaluation=evaluation)
    winner = Rejudged(rank=0, ranked=ranked, again=(evaluation,) * 3, speedup=2.0)
    selected = Selected(
        problem_id=part.problem.id, family="", level=None, num_candidates=1, verdicts={},
        num_distinct_correct=1, winner=winner if is_winner else None, rejected=(),
    )  # fmt: skip
    return Confirmed(part=part, author="test", selected=selected)


@pytest.fixture(scope="module")
def norms() -> Confirmed:
    return confirmed(("norms.0", "norms.1"), 0.2, "RMSNorm")


def test_two_places_beat_the_whole_that_saves_less(norms):
    whole = confirmed(("",), 0.3, "Block")
    assert choose_places([whole, norms]) == {kernel_name(norms): ["norms.0", "norms.1"]}


def test_the_whole_beats_places_that_save_less(norms):
    whole = confirmed(("",), 0.5, "Block")
    assert choose_places([norms, whole]) == {kernel_name(whole): [""]}


def test_what_has_no_winner_or_saves_nothing_has_no_place(norms):
    slower = confirmed(("mixers.0", "mixers.1"), -0.1, "SwiGLU")
    without = confirmed(("",), 9.0, "Block", is_winner=False)
    assert list(choose_places([norms, slower, without])) == [kernel_name(norms)]


def test_winners_of_a_best_of_n_run_are_an_author(norms, tmp_path):
    selection = Selection(
        policy_version="mine", gym_version="", device="cpu", mode="parallel", n=8, speed_kind="predicted",
        problems=(norms.selected.model_copy(update={"problem_id": f"problems/{norms.part.problem.name}"}),),
    )  # fmt: skip
    store = Store(tmp_path)
    report = {"winners/report.json": store.write("winners/report.json", selection.model_dump_json().encode())}
    store.seal(KIND, report, {})
    author = winners_of(store)
    (written,) = author(norms.part.problem)
    assert written.author == "best of 8, mine" and written.candidate == norms.candidate
    assert author(norms.part.problem.model_copy(update={"name": "other"})) == []


def test_a_dimension_that_failed_keeps_its_own_size(norms):
    contract = without_free(norms.part.contract, ["M"])
    assert contract.free == {"B": 2} and contract.shapes == (("B", 12, 32),)
