"""Curriculum: the run's stage, its promotions and demotions, and the choice of practice problems.

The state is a record that lives in every checkpoint; every rule is a pure function of it, of a probe
(measurements on validation problems) and of the config, so a resumed run goes through the same stages.

- **Promotion**: after `min_steps` in a stage, when its `promote_metric` averaged over the last `window`
  probes reaches `promote_at`; or after `max_steps`, whatever the metric says.
- **Demotion**: on collapse, which is when the metric that *opened* the stage falls below the stage's
  `demote_at`. It takes `window` probes made since the stage was entered, so a change of stage cannot be
  undone by the measurements that caused it; and because `demote_at` must be below the `promote_at` that
  opened the stage, no one measurement satisfies both rules.
- A stage left by `max_steps` is behind for good: going back could only repeat what did not help.
- **Problems** are drawn by how much can be learned from their family: the recent share of its groups with
  answers that earned differently, plus ε. A family that always or never works is rare but never absent. One
  that always works at different speeds is not rare once speed is paid for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kernel_core.config import CurriculumConfig, StageConfig
from kernel_core.errors import ConfigError
from kernel_core.records import Record

Metric = Literal["format_rate", "compile_rate", "correct_rate", "fast_1"]
MEMORY = 0.8
"""Weight of the past when what a family teaches is updated: about five sightings."""
UNKNOWN_TEACHES = 1.0
"""Learnability of a family never seen: the most that can be learned."""
LEARNABILITY_FLOOR = 0.2
"""Floor ε: a family whose groups are all alike is drawn a sixth as often as one whose groups all vary."""


class Probe(Record):
    """Shares, in [0, 1], of one answer to each of some validation problems."""

    step: int
    format_rate: float
    compile_rate: float
    correct_rate: float
    fast_1: float
    num_left_out: int = 0
    """Problems that the shares are not about, because a fault of ours left them without an answer."""

    def value(self, metric: Metric) -> float:
        """Return the share by its name in a stage's `promote_metric`."""
        return float(getattr(self, metric))


class StageEvent(Record):
    """Change of stage: something a person should see."""

    step: int
    kind: Literal["promoted", "demoted"]
    from_stage: str
    to_stage: str
    reason: str


class CurriculumState(Record):
    """Curriculum position of the run, with everything that the rules read."""

    stage_index: int = 0
    lowest_stage: int = 0
    """Demotion never goes below this: what was left by `max_steps` is behind."""
    steps_in_stage: int = 0
    probes: tuple[Probe, ...] = ()
    """Newest last; as many as the longest window needs."""
    probes_in_stage: int = 0
    """Number of newest probes made since this stage was entered."""
    demoted_here: bool = False
    """True if the stage was entered from above: it is left again only on fresh probes."""
    teaches: dict[str, float] = Field(default_factory=dict)
    """Recent share of the groups with answers that earned differently, by problem family."""
    events: tuple[StageEvent, ...] = ()


def check_stages(config: CurriculumConfig) -> None:
    """Refuse stages that would swing: each `demote_at` must be below what opened the stage."""
    for before, stage in zip(config.stages, config.stages[1:], strict=False):
        if 0 < stage.demote_at >= before.promote_at:
            raise ConfigError(
                f"stage {stage.name!r} falls back when {before.promote_metric} is below {stage.demote_at}, "
                f"but opens at {before.promote_at}; set demote_at lower than that"
            )


def observe(state: CurriculumState, probe: Probe, config: CurriculumConfig) -> CurriculumState:
    """Return the state after a probe, without any change of stage (the one before the first step, for
    example)."""
    longest = max(stage.window for stage in config.stages)
    return state.model_copy(
        update={
            "probes": (*state.probes, probe)[-longest:],
            "probes_in_stage": state.probes_in_stage + 1,
        }
    )


def advance(
    state: CurriculumState, probe: Probe | None, step: int, config: CurriculumConfig
) -> tuple[CurriculumState, StageEvent | None]:
    """Return the state after training step number `step`, and the change of stage if there is one.

    `probe` is what was measured after that step, or None when nothing was.
    """
    state = state.model_copy(update={"steps_in_stage": state.steps_in_stage + 1})
    if probe is not None:
        state = observe(state, probe, config)
    if (reason := _collapse(state, config)) is not None:
        return _moved(state, -1, step, reason, config)
    if (reason := _success(state, config)) is not None:
        return _moved(state, +1, step, reason, config)
    if (reason := _exhausted(state, config)) is not None:
        state, event = _moved(state, +1, step, reason, config)
        return state.model_copy(update={"lowest_stage": state.stage_index}), event
    return state, None


def observe_groups(state: CurriculumState, varied: Mapping[str, Sequence[bool]]) -> CurriculumState:
    """Return the state after one step; `varied` flags each family's groups that had something to teach."""
    teaches = dict(state.teaches)
    for family, groups in varied.items():
        if groups:
            before = teaches.get(family, UNKNOWN_TEACHES)
            teaches[family] = MEMORY * before + (1 - MEMORY) * sum(groups) / len(groups)
    return state.model_copy(update={"teaches": teaches})


def learnability(teaches: Mapping[str, float], families: Sequence[str]) -> list[float]:
    """Return each family's probability, summing to 1: proportional to the share of groups that teach,
    plus ε."""
    weights = [teaches.get(family, UNKNOWN_TEACHES) + LEARNABILITY_FLOOR for family in families]
    return [weight / sum(weights) for weight in weights]


def choose_families(state: CurriculumState, families: Sequence[str], count: int, seed: int) -> list[str]:
    """Choose the families of `count` problems by learnability; the same arguments give the same draw.

    The draw is systematic (one offset, evenly spaced points), so a step's mix is as near to the wanted
    shares as `count` allows, and the order is shuffled.
    """
    if not families:
        raise ConfigError("there is no problem family to choose from; loosen problems.families")
    rng = np.random.default_rng(seed)
    edges = np.cumsum(learnability(state.teaches, families))
    points = (np.arange(count) + rng.random()) / count
    chosen = np.minimum(np.searchsorted(edges, points, side="right"), len(families) - 1)
    return [families[index] for index in rng.permutation(chosen)]


def _collapse(state: CurriculumState, config: CurriculumConfig) -> str | None:
    """Return the reason to fall back a stage, or None."""
    if state.stage_index <= state.lowest_stage:
        return None
    stage = config.stages[state.stage_index]
    opener = config.stages[state.stage_index - 1].promote_metric
    if state.probes_in_stage < stage.window:
        return None
    mean = _window_mean(state, opener, stage.window)
    if mean >= stage.demote_at:
        return None
    return f"{opener} {mean:.2f} < {stage.demote_at:.2f}"


def _success(state: CurriculumState, config: CurriculumConfig) -> str | None:
    """Return the reason why the next stage is earned, or None."""
    stage = config.stages[state.stage_index]
    if state.stage_index == len(config.stages) - 1 or state.steps_in_stage < stage.min_steps:
        return None
    usable = state.probes_in_stage if state.demoted_here else len(state.probes)
    if usable < stage.window:
        return None
    mean = _window_mean(state, stage.promote_metric, stage.window)
    if mean < stage.promote_at:
        return None
    return f"{stage.promote_metric} {mean:.2f} >= {stage.promote_at:.2f}"


def _exhausted(state: CurriculumState, config: CurriculumConfig) -> str | None:
    """Return the reason why the next stage opens although it was not earned, or None."""
    stage = config.stages[state.stage_index]
    last = state.stage_index == len(config.stages) - 1
    if last or stage.max_steps is None or state.steps_in_stage < stage.max_steps:
        return None
    return f"max_steps: {stage.max_steps}"


def _window_mean(state: CurriculumState, metric: Metric, window: int) -> float:
    return float(np.mean([probe.value(metric) for probe in state.probes[-window:]]))


def _moved(
    state: CurriculumState, by: int, step: int, reason: str, config: CurriculumConfig
) -> tuple[CurriculumState, StageEvent]:
    stages: tuple[StageConfig, ...] = config.stages
    index = state.stage_index + by
    event = StageEvent(
        step=step,
        kind="promoted" if by > 0 else "demoted",
        from_stage=stages[state.stage_index].name,
        to_stage=stages[index].name,
        reason=reason,
    )
    moved = state.model_copy(
        update={
            "stage_index": index,
            "steps_in_stage": 0,
            "probes_in_stage": 0,
            "demoted_here": by < 0,
            "events": (*state.events, event),
        }
    )
    return moved, event


class StageSpan(Record):
    """Steps on end that a run spent in one stage."""

    stage: str
    from_step: int
    to_step: int
    reward: float | None
    """Mean reward of the last of them."""


def stage_spans(metrics: Iterable[Mapping[str, Any]]) -> list[StageSpan]:
    """Return the stages of a run, from the lines of its `metrics.jsonl`, oldest first."""
    spans: list[StageSpan] = []
    for line in metrics:
        stage, step, reward = line.get("stage", ""), line.get("step", 0), line.get("reward/mean")
        if spans and spans[-1].stage == stage:
            spans[-1] = spans[-1].model_copy(update={"to_step": step, "reward": reward})
        else:
            spans.append(StageSpan(stage=stage, from_step=step, to_step=step, reward=reward))
    return spans
