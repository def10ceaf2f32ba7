"""Scores of hand-made outcomes: worked fast_p, views of a conversation, order of curves, comparisons."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.errors import ConfigError, NotFound
from kernel_core.evaluation.comparison import Change, compare
from kernel_core.evaluation.metrics import (
    Conditions,
    Outcome,
    ProblemOutcomes,
    Scorecard,
    best_turn,
    make_scorecard,
    outcome_of,
)
from kernel_core.evaluation.plots import fast_p_png
from kernel_core.evaluation.statistics import Difference
from kernel_core.evaluation.tables import family_rows, headline_rows, problem_rows, work_rows
from kernel_core.records import (
    NOT_EXERCISED,
    BaselineTiming,
    Evaluation,
    Finding,
    NotJudged,
    Provenance,
    Timing,
    Verdict,
)

CPU = Conditions(
    policy_version="p",
    gym_version="g",
    device="cpu",
    gpu="H200",
    baseline="fair",
    tolerance="measured",
    versions={},
)
THRESHOLDS = (0.0, 1.0, 1.5, 2.0)


def correct(speedup, turn=0):
    return Outcome(turn=turn, verdict=Verdict.CORRECT, predicted=speedup)


def failed(verdict=Verdict.WRONG, turn=0):
    return Outcome(turn=turn, verdict=verdict)


def problem(name, *samples, family="softmax"):
    turns = tuple(sample if isinstance(sample, tuple) else (sample,) for sample in samples)
    return ProblemOutcomes(problem_id=name, sha256=name, family=family, level=None, samples=turns)


def scorecard(*problems, k=(1,), conditions=CPU):
    return make_scorecard(problems, k, THRESHOLDS, conditions)


def shares(score):
    return {point.threshold: point.share.value for point in score.headline.fast_p}


def test_fast_p_counts_all_samples_and_only_speedups_strictly_above_p():
    card = scorecard(problem("a", correct(1.0), correct(2.0)), problem("b", correct(1.6), failed()))
    assert shares(card.last) == {0.0: 0.75, 1.0: 0.5, 1.5: 0.5, 2.0: 0.0}
    assert card.last.headline.geometric_mean.value == pytest.approx((1.0 * 2.0 * 1.6) ** (1 / 3))


def test_a_hacked_candidate_compiles_and_is_not_correct():
    card = scorecard(problem("a", failed(Verdict.HACKED), failed(Verdict.NOT_COMPILED)))
    assert card.last.format_rate.value == 1.0
    assert card.last.compile_rate.value == 0.5
    assert card.last.correct_rate.value == 0.0
    assert card.last.verdicts[Verdict.HACKED] == 1


def test_fast_1_is_scored_even_where_no_threshold_asks_for_it():
    card = make_scorecard([problem("a", correct(3.0))], (1,), (2.0,), CPU)
    assert card.thresholds == (1.0, 2.0)
    assert card.last.headline.fast_1.value == 1.0


def test_the_headline_is_the_last_turn_and_the_best_turn_is_kept_apart():
    regressed = (correct(2.0, turn=0), failed(turn=1))
    card = scorecard(problem("a", regressed))
    assert card.last.correct_rate.value == 0.0
    assert card.best.correct_rate.value == 1.0
    assert [score.correct_rate.value for score in card.by_turn] == [1.0, 0.0]


def test_the_best_turn_is_the_fastest_correct_one_and_else_the_one_that_got_furthest():
    slow, fast = correct(1.1, turn=0), correct(1.4, turn=1)
    assert best_turn([slow, fast, failed(turn=2)], "predicted") is fast
    malformed, wrong = failed(Verdict.MALFORMED, 0), failed(Verdict.WRONG, 1)
    assert best_turn([malformed, wrong], "predicted") is wrong
    assert best_turn([wrong, failed(Verdict.WRONG, 2)], "predicted") is wrong


def test_measured_and_predicted_speedups_are_never_mixed():
    both = Outcome(turn=0, verdict=Verdict.CORRECT, measured=0.5, predicted=3.0)
    on_gpu = scorecard(problem("a", both), conditions=CPU.model_copy(update={"device": "cuda"}))
    assert [speed.kind for speed in on_gpu.last.speeds] == ["measured", "predicted"]
    assert [speed.fast_1.value for speed in on_gpu.last.speeds] == [0.0, 1.0]
    on_cpu = scorecard(problem("a", correct(3.0)))
    assert [speed.kind for speed in on_cpu.last.speeds] == ["predicted"]


def test_a_correct_sample_without_a_speedup_counts_as_not_faster_and_is_reported():
    card = scorecard(problem("a", correct(None), correct(2.0)))
    assert card.last.correct_rate.value == 1.0
    assert shares(card.last)[0.0] == 0.5
    assert card.last.headline.num_unknown == 1


def test_nothing_correct_gives_zeros_and_no_geometric_mean():
    card = scorecard(problem("a", failed()), problem("b", failed(Verdict.CRASHED)))
    assert set(shares(card.last).values()) == {0.0}
    assert card.last.headline.geometric_mean is None


def test_pass_at_k_averages_over_problems():
    card = scorecard(problem("a", correct(1), failed()), problem("b", failed(), failed()), k=(1, 2))
    assert {k: estimate.value for k, estimate in card.last.pass_at_k.items()} == {1: 0.25, 2: 0.5}


def test_families_are_scored_apart():
    card = scorecard(problem("a", correct(2.0)), problem("b", failed(), family="scan"))
    assert {row["family"]: row["correct_rate"] for row in family_rows(card)} == {"softmax": 1.0, "scan": 0.0}


def test_a_scorecard_survives_its_file():
    card = scorecard(problem("a", correct(1.5), failed()), problem("b", correct(0.9), failed()), k=(1, 2))
    assert Scorecard.model_validate_json(card.model_dump_json()) == card


outcomes = st.one_of(
    st.builds(correct, st.one_of(st.none(), st.floats(0.01, 5))),
    st.builds(failed, st.sampled_from([verdict for verdict in Verdict if verdict is not Verdict.CORRECT])),
)
samples_of_problems = st.integers(1, 3).flatmap(
    lambda n: st.lists(st.lists(outcomes, min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(samples_of_problems)
def test_fast_p_and_its_interval_never_rise_with_p(samples):
    card = scorecard(*(problem(str(index), *of_one) for index, of_one in enumerate(samples)))
    for earlier, later in zip(card.last.headline.fast_p, card.last.headline.fast_p[1:], strict=False):
        assert earlier.share.value >= later.share.value
        assert earlier.share.low >= later.share.low - 1e-12
        assert earlier.share.high >= later.share.high - 1e-12
    assert card.last.headline.fast_p[0].share.value <= card.last.correct_rate.value + 1e-12
    assert card.last.correct_rate.value <= card.last.compile_rate.value + 1e-12


@pytest.mark.exhaustive
@given(samples_of_problems)
def test_tables_hold_one_row_a_problem_and_no_number_that_is_not_finite(samples):
    card = scorecard(*(problem(str(index), *of_one) for index, of_one in enumerate(samples)))
    assert len(problem_rows(card)) == len(samples)
    for row in problem_rows(card) + family_rows(card) + headline_rows(card) + compare(card, card).rows():
        assert all(abs(value) < float("inf") for value in row.values() if isinstance(value, float))


def test_a_comparison_pairs_problems_and_names_what_was_gained_and_lost():
    before = scorecard(problem("a", correct(1.0)), problem("b", failed()), problem("c", correct(2.0)))
    after = scorecard(problem("c", failed()), problem("b", correct(4.0)), problem("a", correct(2.0)))
    change = compare(before, after)
    assert (change.gained, change.lost) == (("b",), ("c",))
    rows = {(row["metric"], row["turn"]): row for row in change.rows()}
    assert rows["correct_rate", "last"]["change"] == "+0.000"
    assert rows["fast_1 (predicted)", "last"]["before"] == pytest.approx(1 / 3)
    assert rows["fast_1 (predicted)", "last"]["after"] == pytest.approx(2 / 3)
    speedup = rows["geometric-mean speed-up (predicted)", "last"]
    assert speedup["change"] == "×2.000"
    (figure,) = [c for c in change.changes if c.unit == "speed-up" and c.view == "last"]
    assert figure.change.value == pytest.approx(8**0.5 / 2**0.5)


def test_a_ratio_never_looks_like_a_difference():
    figures = {"metric": "m", "view": "last", "before": 3.78, "after": 3.55}
    slower = Difference(value=0.939, low=0.84, high=1.05, p_value=0.2)
    assert Change(unit="speed-up", change=slower, **figures).in_words() == ("×0.94", "×0.84 … ×1.05")
    worse = Difference(value=-0.061, low=-0.16, high=0.05, p_value=0.2)
    assert Change(unit="share", change=worse, **figures).in_words() == ("-0.06", "-0.16 … +0.05")
    alone = Difference(value=2.0, low=None, high=None, p_value=1.0)
    assert Change(unit="speed-up", change=alone, **figures).in_words() == ("×2.00", "")
    assert Change(unit="speed-up", change=None, **figures).in_words() == ("", "")


def test_a_large_gain_on_many_problems_is_clear_and_a_small_one_is_not():
    names = [f"problem {index}" for index in range(20)]
    before = scorecard(*(problem(name, failed()) for name in names))
    much = scorecard(*(problem(name, correct(2.0)) for name in names))
    little = scorecard(*(problem(name, correct(2.0) if name == names[0] else failed()) for name in names))
    assert {c.metric: c.clear for c in compare(before, much).changes}["correct_rate"]
    assert not {c.metric: c.clear for c in compare(before, little).changes}["correct_rate"]


def test_scorecards_of_other_problems_are_not_compared():
    with pytest.raises(ConfigError, match=r"differ in 2 problems \(first: a\)"):
        compare(scorecard(problem("a", failed())), scorecard(problem("b", failed())))


def test_measured_and_predicted_scorecards_are_not_compared():
    on_gpu = scorecard(problem("a", failed()), conditions=CPU.model_copy(update={"device": "cuda"}))
    with pytest.raises(ConfigError, match="same kind of device"):
        compare(scorecard(problem("a", failed())), on_gpu)


def test_the_plot_is_a_png_and_the_same_every_time():
    card = scorecard(
        problem("a", correct(1.5), failed()), problem("b", correct(0.9), failed(), family="scan")
    )
    assert fast_p_png(card)[:8] == b"\x89PNG\r\n\x1a\n"
    assert fast_p_png(card) == fast_p_png(card)


def timing(median_ms):
    return Timing(median_ms=median_ms, ci_low_ms=median_ms, ci_high_ms=median_ms, num_calls=1, clock="wall")


def evaluated(verdict=Verdict.CORRECT, precision="tf32", own_share=0.2, tolerances=("measured",)):
    """An answer of 1 ms beside baselines of which only those with TF32 products are faster."""
    times_ms = {"eager": 2.0, "compile": 1.6, "eager_tf32": 0.5, "compile_tf32": 0.8}
    correct = verdict is Verdict.CORRECT
    kind = "eager_tf32" if precision == "tf32" else "compile"
    return Evaluation(
        problem_id="a",
        candidate_sha="",
        verdict=verdict,
        trials=1,
        trials_passed=int(correct),
        timing=timing(1.0) if correct else None,
        reference_timing=timing(times_ms[kind]) if correct else None,
        speedup=times_ms[kind] if correct else None,
        baseline=kind if correct else None,
        baselines=tuple(BaselineTiming(kind=name, timing=timing(ms)) for name, ms in times_ms.items()),
        product_precision=precision,
        tolerances_passed=tolerances,
        provenance=Provenance(launched=("k",), num_launches=1, own_kernel_share=own_share),
        feedback="",
        gym_version="g",
        device="cuda",
        seconds=0.0,
    )


def measured_card():
    """One TF32 answer and one IEEE answer that are correct, one that is right at the field's tolerance."""
    answers = (
        evaluated(),
        evaluated(precision="ieee", own_share=0.9, tolerances=("field", "measured", "strict")),
        evaluated(Verdict.WRONG, tolerances=("field",)),
        evaluated(Verdict.HACKED, tolerances=("field", "measured", "strict")),
    )
    problem = ProblemOutcomes(
        problem_id="a",
        sha256="a",
        family="f",
        level=None,
        samples=tuple((outcome_of(one, 0),) for one in answers),
    )
    made = CPU.model_copy(update={"device": "cuda"})
    skipped = NotJudged(problem_id="b", reason="no such type")
    return make_scorecard([problem], (1,), (1.2, 1.5), made, [skipped])


def test_a_measured_card_has_the_fair_eager_and_compiled_baseline_side_by_side():
    card = measured_card()
    assert [(speed.kind, speed.baseline) for speed in card.last.speeds] == [
        ("measured", None), ("measured", "eager"), ("measured", "compile")
    ]  # fmt: skip
    shares = {row["metric"]: row["last turn"] for row in headline_rows(card)}
    fast = {name: value for name, value in shares.items() if name.startswith("fast_1.5")}
    assert fast == {
        "fast_1.5 (measured, over fair)": 1 / 4,  # the TF32 answer is 0.5 times as fast as eager with TF32
        "fast_1.5 (measured, over eager)": 2 / 4,
        "fast_1.5 (measured, over compile)": 2 / 4,
    }


def test_precision_tolerance_and_own_work_are_counted_with_their_denominators():
    rows = {row["what"]: row["value"] for row in work_rows(measured_card())}
    assert rows == {
        "outputs within the tolerance `field`": "2 of 4 answers",
        "outputs within the tolerance `measured`": "2 of 4 answers",
        "outputs within the tolerance `strict`": "1 of 4 answers",
        "precision of products: tf32": "1 of 2 correct answers",
        "precision of products: ieee": "1 of 2 correct answers",
        "share of the time in own kernels, quartiles": "38 % / 55 % / 73 %",
        "fused tails: under 50 % in own kernels": "1 of 2 correct answers",
        "not a problem here: b": "no such type",
    }


def test_speed_ups_over_different_baselines_are_not_compared():
    card = measured_card()
    eager = card.model_copy(update={"conditions": card.conditions.model_copy(update={"baseline": "eager"})})
    with pytest.raises(ConfigError, match="different baselines"):
        compare(card, eager)
    field = card.model_copy(update={"conditions": card.conditions.model_copy(update={"tolerance": "field"})})
    with pytest.raises(ConfigError, match="different tolerances"):
        compare(card, field)


def test_a_card_without_a_problem_that_can_be_judged_says_why():
    skipped = NotJudged(problem_id="b", reason="no such type")
    with pytest.raises(NotFound, match="none of 1 problems can be judged here: b: no such type"):
        make_scorecard([], (1,), (), CPU, [skipped])


def test_correct_answers_with_loops_that_turned_too_little_are_counted():
    turned, unturned = evaluated(), evaluated()
    finding = Finding(rule=NOT_EXERCISED, detail="the loop in line 9")
    answers = (turned, unturned.model_copy(update={"findings": (finding,)}))
    card = scorecard(problem("a", *(outcome_of(answer, 0) for answer in answers)))
    assert card.last.work.not_exercised == 1
    row = {
        "what": "loops or grids that turn more at the problem's own sizes",
        "value": "1 of 2 correct answers",
    }
    assert row in work_rows(card)


def test_a_fair_baseline_without_torch_compile_is_counted():
    timed = evaluated()
    failed = tuple(
        row.model_copy(update={"timing": None, "failure": "PermissionError"})
        if row.kind.startswith("compile")
        else row
        for row in timed.baselines
    )
    answers = (timed, timed.model_copy(update={"baselines": failed}))
    made = CPU.model_copy(update={"device": "cuda"})
    outcomes = [problem("a", *(outcome_of(answer, 0) for answer in answers))]
    card = make_scorecard(outcomes, (1,), (), made, [])
    row = {
        "what": "`torch.compile` was not timed, so `fair` is eager alone",
        "value": "1 of 2 correct answers",
    }
    assert row in work_rows(card)
