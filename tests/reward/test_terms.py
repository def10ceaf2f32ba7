"""One turn's reward: a table of worked examples, and what must never pay more than what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import CurriculumConfig, RewardWeights
from kernel_core.dialogue.turns import Completion, Turn
from kernel_core.records import Candidate, Evaluation, NoCandidate, Provenance, Timing, Verdict
from kernel_core.reward.presets import REWARD_PRESETS
from kernel_core.reward.terms import SPEEDUP_CAP, reward, speed_term, usual_own_share, worth
from kernel_core.runs.configure import build

PRESETS = [stage.weights for stages in REWARD_PRESETS.values() for stage in stages]
STAGES = {stage.name: stage.weights for stage in CurriculumConfig().stages}
EQUAL = RewardWeights(
    format=1, compile=1, correct=1, speed=1, own_share=1, thinking=1, length=1, hack_penalty=-0.5
)
FAILURES = [v for v in Verdict if v is not Verdict.CORRECT]

speedups = st.floats(0.01, 40)
shares = st.floats(0, 1)


def turn_of(
    verdict, *, speedup=None, own_share=None, launches=1, thinking="", repeats=False, parsed=True, passed=0
):
    timing = None
    if speedup is not None:
        timing = Timing(median_ms=1.0, ci_low_ms=1.0, ci_high_ms=1.0, num_calls=9, clock="device_events")
    candidate = Candidate.from_source("import triton", thinking)
    return Turn(
        problem_id="p",
        trajectory=0,
        index=0,
        messages=(),
        completion=Completion(text="", finish_reason="stop", policy_version="v"),
        candidate=candidate if parsed else NoCandidate(reason="no kernel", thinking=thinking),
        evaluation=Evaluation(
            problem_id="p",
            candidate_sha=candidate.sha256,
            verdict=verdict,
            trials=3,
            trials_passed=3 if verdict is Verdict.CORRECT else passed,
            timing=timing,
            reference_timing=timing,
            speedup=speedup,
            provenance=Provenance(launched=(), num_launches=launches, own_kernel_share=own_share),
            feedback="",
            gym_version="t",
            device="cpu",
            seconds=0.0,
        ),
        repeats_earlier=repeats,
    )


@pytest.mark.parametrize(
    ("turn", "terms"),
    [
        (turn_of(Verdict.MALFORMED, parsed=False), {}),
        (turn_of(Verdict.MALFORMED, thinking="a thought"), {}),
        (turn_of(Verdict.NOT_COMPILED), {"format": 1, "length": 1}),
        (turn_of(Verdict.CRASHED), {"format": 1, "compile": 0.5, "length": 1}),
        (turn_of(Verdict.TIMED_OUT), {"format": 1, "compile": 0.5, "length": 1}),
        (turn_of(Verdict.CRASHED, launches=0), {"format": 1, "length": 1}),
        (turn_of(Verdict.WRONG), {"format": 1, "compile": 1, "length": 1}),
        (turn_of(Verdict.WRONG, launches=0), {"format": 1, "length": 1}),
        (turn_of(Verdict.HACKED, thinking="sly"), {"format": 1, "penalty": -0.5}),
        (turn_of(Verdict.CORRECT), {"format": 1, "compile": 1, "correct": 1, "length": 1}),
        (
            turn_of(Verdict.CORRECT, speedup=3.0, own_share=0.25, thinking="fuse them"),
            {
                "format": 1,
                "compile": 1,
                "correct": 1,
                "speed": 1,
                "own_share": 0.25,
                "thinking": 1,
                "length": 1,
            },
        ),
        (turn_of(Verdict.CORRECT, speedup=3.0, repeats=True), {}),
        (turn_of(Verdict.HACKED, repeats=True), {"penalty": -0.5}),
    ],
)
def test_terms_of_worked_examples(turn, terms):
    found = reward(turn, EQUAL)
    expected = {name: 0.0 for name in type(found).model_fields if name != "total"} | terms
    assert found.model_dump(exclude={"total"}) == expected
    assert found.total == pytest.approx(sum(expected.values()))


def test_an_own_share_that_is_not_known_counts_as_the_usual_one_of_the_group():
    known = [turn_of(Verdict.CORRECT, own_share=share) for share in (0.9, 0.5)]
    wrong, lost = turn_of(Verdict.WRONG, own_share=0.0), turn_of(Verdict.CORRECT)
    usual = usual_own_share([turn.evaluation for turn in (*known, wrong, lost)])
    assert usual == pytest.approx(0.7)
    shares = [worth(turn, EQUAL, usual).own_share for turn in (*known, wrong, lost)]
    assert shares == pytest.approx([0.9, 0.5, 0.0, 0.7])
    assert usual_own_share([wrong.evaluation, lost.evaluation]) == 0.0


def test_the_total_is_the_weighted_sum():
    weights = RewardWeights(format=0.05, compile=0.15, correct=1.0, speed=0.5)
    assert reward(turn_of(Verdict.CORRECT, speedup=1.0), weights).total == pytest.approx(1.2 + 0.25)


def test_a_correct_kernel_at_parity_is_paid_for_its_speed():
    assert speed_term(1.0) == 0.5
    assert speed_term(3.0) == 1.0
    assert speed_term(None) == 0.0


@pytest.mark.parametrize(
    ("form", "at_half", "at_parity", "at_2x", "at_9x", "at_40x"),
    [
        ("log", 0.2925, 0.5, 0.7925, 1.661, 2.0),
        ("ratio", 0.5, 1.0, 2.0, 9.0, 15.0),
        ("clipped", 0.5, 1.0, 2.0, 3.0, 3.0),
        ("above_parity", 0.0, 0.0, 1.0, 8.0, 10.0),
    ],
)
def test_forms_of_the_speed_term(form, at_half, at_parity, at_2x, at_9x, at_40x):
    found = [speed_term(s, form) for s in (0.5, 1.0, 2.0, 9.0, 40.0)]
    assert found == pytest.approx([at_half, at_parity, at_2x, at_9x, at_40x], abs=1e-3)
    assert speed_term(None, form) == 0.0


@pytest.mark.parametrize(
    ("preset", "turn", "total"),
    [
        ("kevin", turn_of(Verdict.CORRECT, speedup=1.0), 1.3),
        ("kevin", turn_of(Verdict.CORRECT, speedup=0.5), 0.8),
        ("kevin", turn_of(Verdict.WRONG, passed=2), 0.0),
        ("dr_kernel", turn_of(Verdict.CORRECT, speedup=5.0, own_share=0.25), 1 + 3 + 0.25),
        ("dr_kernel", turn_of(Verdict.CORRECT, speedup=0.6, own_share=None), 1.6),
        ("dr_kernel", turn_of(Verdict.CRASHED), 0.0),
        ("seed", turn_of(Verdict.CORRECT, speedup=2.0), 0.05 + 0.1 + 0.5 + 0.35),
        ("seed", turn_of(Verdict.CORRECT, speedup=0.5), 0.65),
        ("dojo", turn_of(Verdict.CORRECT, speedup=3.0, own_share=1.0), 0.05 + 0.5 + 2.0 + 0.2),
    ],
)
def test_last_stage_of_each_preset(preset, turn, total):
    assert reward(turn, REWARD_PRESETS[preset][-1].weights).total == pytest.approx(total)


def test_partial_credit_pays_a_wrong_kernel_for_trials_and_a_hack_for_nothing():
    weights = RewardWeights(correct=1.0, partial_credit=True)
    assert reward(turn_of(Verdict.WRONG, passed=2), weights).total == pytest.approx(2 / 3)
    assert reward(turn_of(Verdict.HACKED, passed=3), weights).total == 0.0
    assert reward(turn_of(Verdict.CORRECT), weights).total == 1.0


def test_our_speed_stage_pays_a_third_more_for_twice_the_speed():
    weights = REWARD_PRESETS["dojo"][-1].weights
    at_parity, twice, a_fifth_more = (
        reward(turn_of(Verdict.CORRECT, speedup=speedup, own_share=1.0), weights).total
        for speedup in (1.0, 2.0, 1.2)
    )
    assert twice / at_parity >= 4 / 3
    assert 1.0 - at_parity / a_fifth_more > 0.07


@pytest.mark.parametrize("preset", REWARD_PRESETS)
def test_a_preset_is_chosen_by_name_and_survives_being_written_down(preset):
    chosen = build(CurriculumConfig, {"rewards": preset})
    assert chosen.stages == REWARD_PRESETS[preset]
    assert build(CurriculumConfig, chosen.model_dump(mode="json")) == chosen


@given(speedups, speedups)
def test_a_faster_correct_kernel_never_earns_less(one, other):
    slow, fast = sorted((one, other))
    for weights in PRESETS:
        earned = [reward(turn_of(Verdict.CORRECT, speedup=s), weights).total for s in (slow, fast)]
        assert earned[1] >= earned[0]
    if fast <= SPEEDUP_CAP and fast > slow * 1.001:
        assert speed_term(fast) > speed_term(slow)


@given(st.sampled_from(FAILURES), speedups, shares, st.sampled_from(["", "a thought", "x" * 9000]))
def test_no_failure_earns_more_than_a_correct_kernel(verdict, speedup, own_share, thinking):
    for weights in [*PRESETS, EQUAL]:
        failed = reward(turn_of(verdict, thinking=thinking), weights).total
        for known in (speedup, None):
            right = turn_of(Verdict.CORRECT, speedup=known, own_share=own_share, thinking=thinking)
            assert reward(right, weights).total >= failed


@given(st.sampled_from(FAILURES), st.sampled_from(["", "a thought"]))
def test_no_hack_earns_more_than_any_other_kernel_that_parses(verdict, thinking):
    for weights in [*PRESETS, EQUAL]:
        hacked = reward(turn_of(Verdict.HACKED, thinking=thinking), weights).total
        if verdict is not Verdict.MALFORMED:
            assert reward(turn_of(verdict, thinking=thinking), weights).total >= hacked


@given(st.sampled_from(list(Verdict)), shares)
def test_handing_in_the_same_kernel_again_never_earns_anything(verdict, own_share):
    for weights in [*PRESETS, EQUAL]:
        first = reward(turn_of(verdict, own_share=own_share), weights).total
        again = reward(turn_of(verdict, own_share=own_share, repeats=True), weights).total
        assert again <= 0.0
        assert again <= max(first, 0.0)


@given(st.sampled_from(list(Verdict)), st.booleans())
def test_the_worth_of_a_kernel_does_not_depend_on_what_came_before(verdict, repeats):
    assert worth(turn_of(verdict, repeats=repeats), EQUAL) == reward(turn_of(verdict), EQUAL)


@given(shares, shares)
def test_more_own_share_never_earns_less(one, other):
    less, more = sorted((one, other))
    weights = STAGES["speed"]
    assert (
        reward(turn_of(Verdict.CORRECT, own_share=more), weights).total
        >= reward(turn_of(Verdict.CORRECT, own_share=less), weights).total
    )


def test_every_stage_pays_each_step_on_the_way_to_a_correct_kernel():
    """The former project gated every term on correctness, so its early stages could not learn."""
    ladder = [Verdict.NOT_COMPILED, Verdict.CRASHED, Verdict.WRONG, Verdict.CORRECT]
    for name in ("format", "compile", "correct"):
        earned = [reward(turn_of(verdict), STAGES[name]).total for verdict in ladder]
        assert earned == sorted(earned)
        assert earned[-1] > earned[0]
