"""The curriculum's rules: when stages change, when they must not, and which problems are drawn."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import CurriculumConfig, RewardWeights, StageConfig
from kernel_core.errors import ConfigError
from kernel_core.reward.curriculum import (
    CurriculumState,
    Probe,
    advance,
    check_stages,
    choose_families,
    learnability,
    observe,
    observe_groups,
    stage_spans,
)

DEFAULT = CurriculumConfig()
rates = st.floats(0, 1)
probe_values = st.tuples(rates, rates, rates, rates)


def probe_of(step=0, format_rate=0.0, compile_rate=0.0, correct_rate=0.0, fast_1=0.0):
    return Probe(
        step=step,
        format_rate=format_rate,
        compile_rate=compile_rate,
        correct_rate=correct_rate,
        fast_1=fast_1,
    )


def two_stages(**second):
    def stage(name, metric, **values):
        return StageConfig(name=name, weights=RewardWeights(), promote_metric=metric, **values)

    return CurriculumConfig(
        stages=(
            stage("first", "compile_rate", promote_at=0.8, window=2),
            stage("second", "correct_rate", **({"promote_at": 0.9, "demote_at": 0.3, "window": 2} | second)),
        )
    )


def run(config, probes, state=None):
    """The state and the events after one step a probe (None: a step without one)."""
    state = state or CurriculumState()
    events = []
    for step, probe in enumerate(probes, start=1):
        state, event = advance(state, probe, step, config)
        if event:
            events.append(event)
    return state, events


def test_a_stage_is_left_when_the_mean_over_its_window_is_reached():
    state, events = run(two_stages(), [probe_of(compile_rate=0.7), probe_of(compile_rate=0.9)])
    assert state.stage_index == 1
    assert [(e.step, e.kind, e.from_stage, e.to_stage) for e in events] == [
        (2, "promoted", "first", "second")
    ]
    assert events[0].reason == "compile_rate 0.80 >= 0.80"


def test_one_good_probe_is_not_enough_for_a_window_of_two():
    state, events = run(two_stages(), [probe_of(compile_rate=1.0), None, None])
    assert (state.stage_index, events) == (0, [])


def test_a_policy_that_can_already_do_the_early_stages_passes_through_them_a_step_at_a_time():
    able = probe_of(format_rate=1.0, compile_rate=0.95, correct_rate=0.6, fast_1=0.1)
    before_training = observe(CurriculumState(), able, DEFAULT)
    state, events = run(DEFAULT, [None, able, None, None], before_training)
    assert [e.to_stage for e in events] == ["compile", "correct", "speed"]
    assert state.stage_index == 3


def test_entering_a_hard_stage_is_not_a_collapse():
    """A correct rate of nil is what the stage is for; only losing what opened it is a collapse."""
    state, events = run(DEFAULT, [probe_of(format_rate=1, compile_rate=0.9)] * 12)
    assert state.stage_index == 2
    assert [e.kind for e in events] == ["promoted", "promoted"]


def test_losing_what_opened_a_stage_falls_back_one():
    good, lost = probe_of(compile_rate=1.0), probe_of(compile_rate=0.1)
    state, events = run(two_stages(), [good, good, lost, lost])
    assert state.stage_index == 0
    assert (events[-1].kind, events[-1].step, events[-1].reason) == ("demoted", 4, "compile_rate 0.10 < 0.30")


def test_a_promotion_is_not_undone_within_a_window_of_probes():
    good, lost = probe_of(compile_rate=1.0), probe_of(compile_rate=0.0)
    state, _ = run(two_stages(), [good, good, lost, None, None, None])
    assert state.stage_index == 1


def test_after_a_fall_the_way_up_needs_fresh_probes():
    good, lost = probe_of(compile_rate=1.0), probe_of(compile_rate=0.0)
    state, _ = run(two_stages(), [good, good, lost, lost, good])
    assert state.stage_index == 0
    state, _ = run(two_stages(), [good, good, lost, lost, good, good])
    assert state.stage_index == 1


def test_max_steps_opens_the_next_stage_and_closes_the_way_back():
    config = two_stages()
    first = config.stages[0].model_copy(update={"max_steps": 3})
    config = config.model_copy(update={"stages": (first, config.stages[1])})
    state, events = run(config, [probe_of()] * 10)
    assert [(e.step, e.reason) for e in events] == [(3, "max_steps: 3")]
    assert state.stage_index == 1


def test_min_steps_holds_a_stage_that_is_already_mastered():
    config = two_stages()
    first = config.stages[0].model_copy(update={"min_steps": 4})
    config = config.model_copy(update={"stages": (first, config.stages[1])})
    _, events = run(config, [probe_of(compile_rate=1.0)] * 6)
    assert events[0].step == 4


def test_stages_that_would_swing_are_refused():
    check_stages(DEFAULT)
    with pytest.raises(ConfigError, match="'second' falls back when compile_rate is below"):
        check_stages(two_stages(demote_at=0.9))


@given(st.lists(st.one_of(st.none(), probe_values), max_size=60))
def test_the_stage_moves_one_at_a_time_and_never_swings(measurements):
    probes = [None if m is None else probe_of(i, *m) for i, m in enumerate(measurements)]
    state = CurriculumState()
    probes_since_move, last = 0, None
    for step, probe in enumerate(probes, start=1):
        before = state
        state, event = advance(state, probe, step, DEFAULT)
        probes_since_move += probe is not None
        assert 0 <= state.stage_index < len(DEFAULT.stages)
        assert abs(state.stage_index - before.stage_index) == (event is not None)
        if event:
            if last is not None and event.kind != last:
                assert probes_since_move >= 2  # a change of direction rests on a whole fresh window
            probes_since_move, last = 0, event.kind


@given(st.lists(probe_values, max_size=20))
def test_the_state_survives_json_and_goes_on_the_same(measurements):
    state, _ = run(DEFAULT, [probe_of(0, *m) for m in measurements])
    again = CurriculumState.model_validate_json(state.model_dump_json())
    assert again == state
    assert advance(again, probe_of(), 99, DEFAULT) == advance(state, probe_of(), 99, DEFAULT)


@given(st.lists(probe_values, min_size=2, max_size=20), st.integers(0, 19))
def test_better_probes_never_lead_to_a_lower_stage_in_one_step(measurements, at):
    probes = [probe_of(0, *m) for m in measurements]
    state, _ = run(DEFAULT, probes[:-1])
    perfect = probe_of(0, 1.0, 1.0, 1.0, 1.0)
    worse, _ = advance(state, probes[-1], 99, DEFAULT)
    better, _ = advance(state, perfect, 99, DEFAULT)
    assert better.stage_index >= worse.stage_index


def test_what_teaches_is_drawn_most_and_nothing_is_ever_absent():
    chances = learnability({"alike": 0.0, "even": 0.5, "varied": 1.0}, ["alike", "even", "varied", "new"])
    assert sum(chances) == pytest.approx(1.0)
    assert chances[2] == chances[3] == max(chances) == pytest.approx(6 * chances[0])
    assert chances[0] < chances[1] < chances[2]


@given(st.integers(0, 10_000), st.integers(1, 40))
def test_the_draw_of_families_is_seeded_and_near_the_wanted_shares(seed, count):
    state = CurriculumState(teaches={"a": 0.0, "b": 0.5, "c": 0.9})
    families = ["a", "b", "c"]
    drawn = choose_families(state, families, count, seed)
    assert drawn == choose_families(state, families, count, seed)
    counts = Counter(drawn)
    for family, chance in zip(families, learnability(state.teaches, families), strict=True):
        assert abs(counts[family] - chance * count) <= 1.0 + 1e-6


def test_what_a_family_teaches_follows_its_groups():
    state = observe_groups(CurriculumState(), {"softmax": [True] * 4, "scan": [False] * 4, "none": []})
    assert state.teaches["softmax"] == 1.0 > state.teaches["scan"]
    assert "none" not in state.teaches
    for _ in range(30):
        state = observe_groups(state, {"softmax": [False]})
    assert state.teaches["softmax"] < 0.01


def test_more_groups_are_at_the_edge_of_what_is_learned_than_by_uniform_draws():
    """Groups of 8 with 1 to 6 right answers: a fifth of the families is half solved."""
    chance = {f"f{i:02}": (0.5 if i % 5 == 0 else 0.995 if i % 2 else 0.005) for i in range(40)}
    rng, state, edges = np.random.default_rng(0), CurriculumState(), []
    for step in range(300):
        groups: dict[str, list[bool]] = {}
        for family in choose_families(state, list(chance), 4, seed=step):
            right = rng.binomial(8, chance[family])
            groups.setdefault(family, []).append(0 < right < 8)
            edges.append(1 <= right <= 6)
        state = observe_groups(state, groups)
    uniform = [1 <= rng.binomial(8, rng.choice(list(chance.values()))) <= 6 for _ in range(4000)]
    assert np.mean(edges[-800:]) > 2 * np.mean(uniform)


def test_no_family_to_choose_from_is_the_callers_mistake():
    with pytest.raises(ConfigError, match="no problem family"):
        choose_families(CurriculumState(), [], 3, 0)


def test_a_run_tells_its_stages_as_spans_of_steps():
    lines = [{"stage": stage, "step": step, "reward/mean": step / 10} for step, stage in enumerate("aabba")]
    spans = stage_spans(lines)
    assert [(span.stage, span.from_step, span.to_step) for span in spans] == [
        ("a", 0, 1),
        ("b", 2, 3),
        ("a", 4, 4),
    ]
    assert spans[1].reward == 0.3


@pytest.mark.parametrize("name", ["format", "compile", "correct", "speed"])
def test_one_stage_alone_is_that_stage_as_it_is_and_stays_so_when_written_and_read(name):
    config = CurriculumConfig(only=name)
    (stage,) = config.stages
    assert stage == next(stage for stage in CurriculumConfig().stages if stage.name == name)
    assert CurriculumConfig.model_validate(config.model_dump()) == config


def test_a_stage_that_is_not_among_those_given_is_refused():
    others = tuple(stage for stage in CurriculumConfig().stages if stage.name != "speed")
    with pytest.raises(ValueError, match="no such stage"):
        CurriculumConfig(only="speed", stages=others)
