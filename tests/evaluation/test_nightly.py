"""Nights: the trend, what is missing, and a regression only where the interval says so."""

import numpy as np
import pytest

from kernel_core.evaluation.comparison import compare
from kernel_core.evaluation.metrics import Conditions, Outcome, ProblemOutcomes, make_scorecard
from kernel_core.evaluation.nightly import (
    checkpoint_of,
    finished_nights,
    last_change,
    missed_before,
    regressions,
    trend_rows,
)
from kernel_core.evaluation.plots import trend_png
from kernel_core.evaluation.scorecard import KIND
from kernel_core.records import Verdict
from kernel_core.runs.run_folder import Run

CPU = Conditions(
    policy_version="p",
    gym_version="g",
    device="cpu",
    gpu="H200",
    baseline="fair",
    tolerance="measured",
    versions={},
)


def card(correct_by_problem, samples=2, speedup=1.5):
    """A scorecard with so many correct samples of each problem."""
    right = Outcome(turn=0, verdict=Verdict.CORRECT, predicted=speedup)
    wrong = Outcome(turn=0, verdict=Verdict.WRONG)
    problems = [
        ProblemOutcomes(
            problem_id=f"p{number}",
            sha256=f"p{number}",
            family="f",
            level=None,
            samples=tuple((right if sample < count else wrong,) for sample in range(samples)),
        )
        for number, count in enumerate(correct_by_problem)
    ]
    return make_scorecard(problems, (1,), (1.0,), CPU)


def keep(run, night, scorecard, checkpoint="step-000001"):
    """Leave a night's scorecard where the flow leaves it."""
    store = run.store.child(f"mine--{night}--{checkpoint}")
    sha = store.write("scorecard.json", scorecard.model_dump_json().encode())
    store.seal(KIND, {"scorecard.json": sha}, meta={})


@pytest.fixture
def nightly(tmp_path):
    return Run(str(tmp_path), "nightly")


def test_the_trend_has_every_night_in_order_and_counts_those_that_are_missing(nightly):
    for day in (1, 2, 3, 6):
        keep(nightly, f"2026-11-0{day}T0300", card([2, 1, 0, 2]))
    nightly.store.write("mine--2026-11-07T0300--step-000002/turns.json", b"unfinished")
    nightly.store.write("mine--too--2026-11-01T0300--step-000001/manifest.json", b"another run's")
    nights = finished_nights(nightly, "mine")
    assert [row["night"][8:10] for row in trend_rows(nights)] == ["01", "02", "03", "06"]
    assert missed_before(nights) == [0, 0, 0, 2]
    begun = Run(nightly.root, "mine").store.child("checkpoints/step-000002")
    begun.write("model", b"")
    assert checkpoint_of(nightly, "mine", "2026-11-07T0300") == begun.root
    assert trend_png(trend_rows(nights)).startswith(b"\x89PNG")


def test_one_night_has_nothing_to_be_compared_with(nightly):
    keep(nightly, "2026-11-01T0300", card([2, 1]))
    (night,) = finished_nights(nightly, "mine")
    assert last_change([night]) is None
    assert trend_rows([night])[0]["missed_before"] == 0
    assert trend_png(trend_rows([night])).startswith(b"\x89PNG")


def test_a_night_on_other_problems_is_not_compared(nightly):
    keep(nightly, "2026-11-01T0300", card([2] * 8))
    keep(nightly, "2026-11-02T0300", card([0] * 9))
    assert last_change(finished_nights(nightly, "mine")) is None


def test_a_clear_fall_is_a_regression_and_names_the_figure():
    found = regressions(compare(card([2] * 24), card([2] * 8 + [0] * 16)))
    assert len(found) == 2
    assert found[0].startswith("correct_rate 1.000 → 0.333 (change -0.")


@pytest.mark.parametrize("after", [[2] * 24, [2] * 23 + [1], [1] + [2] * 23])
def test_the_same_or_hardly_less_is_none(after):
    assert regressions(compare(card([2] * 24), card(after))) == ()


def test_slower_is_a_regression_even_if_as_many_are_correct():
    (found,) = regressions(compare(card([2] * 24), card([2] * 24, speedup=0.8)))
    assert found.startswith("fast_1 (predicted)")


@pytest.mark.exhaustive
@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 2.0), (5.0, 1.0)])
def test_chance_alone_is_called_a_regression_in_fewer_than_one_night_in_twenty(a, b):
    """Two nights of one policy whose problems have success rates drawn from Beta(a, b)."""
    random = np.random.default_rng(7)
    alarms, nights = 0, 100
    for _ in range(nights):
        rates = random.beta(a, b, 24)
        before, after = (random.binomial(2, rates) for _ in range(2))
        alarms += bool(regressions(compare(card(before), card(after))))
    assert alarms <= 0.05 * nights
