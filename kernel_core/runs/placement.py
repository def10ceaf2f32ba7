"""Placement of learning, sampling and judging on this host's GPUs: by their number and the settings alone.

| visible GPUs | learners  | sampler                                 | judges                         |
|--------------|-----------|-----------------------------------------|--------------------------------|
| one          | GPU 0     | GPU 0                                   | GPU 0, in turns with the rest  |
| two          | GPU 0     | GPU 0                                   | GPU 1, while others write      |
| more         | the first | the learners'; with `sample_ahead` next | the last, at most `gym.workers`|

From three on each role has as many as its share of `SECONDS`. A step in order samples and learns in turns, so
both roles have the same GPUs; a sampler in this process uses the first alone. A role that `placement` names
has those, and the others are placed on what is left. A set number of `learners` is kept, if need be with
judges on the learners' GPUs.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple, TypeVar

from kernel_core.config import PlacementConfig, TrainConfig
from kernel_core.config.rollout import RolloutStageConfig
from kernel_core.errors import ConfigError

StageConfig = TypeVar("StageConfig", bound=RolloutStageConfig)
Role = Literal["learn", "sample", "judge"]

SECONDS: dict[Role, float] = {"learn": 0.3, "sample": 2.2, "judge": 2.8}
"""Seconds of one step in sequence on an H200 (docs/results/learning.md): a role's share of the GPUs."""
_MANY = 1 << 16


class _DeviceNeed(NamedTuple):
    """Minimal and maximal number of GPUs of a role."""

    least: int
    most: int


def placed(config: StageConfig, num_gpus: int) -> StageConfig:
    """Return the settings of a stage with every role on GPUs of this host, of which `num_gpus` are visible.

    Unchanged where no role is on them. A `rollout.overlap` that was left out is off where a judge shares a
    GPU: sampling would disturb its clock. Raises `ConfigError` where GPUs are missing.
    """
    if not num_gpus or not _needs(config):
        return config
    plan = plan_for(config, num_gpus)
    changes: dict[str, object] = {"placement": plan}
    if plan.learn:
        changes["learners"] = len(plan.learn)
    if plan.judge and config.rollout.overlap is None:
        is_alone = not {*plan.judge} & {*plan.learn, *plan.sample}
        changes["rollout"] = config.rollout.model_copy(update={"overlap": is_alone})
    return config.model_copy(update=changes)


def plan_for(config: RolloutStageConfig, num_gpus: int) -> PlacementConfig:
    """Return the GPUs of each role that is on this host's GPUs; other roles have none."""
    needs = _needs(config)
    plan = {role: gpus for role, gpus in config.placement.gpus.items() if gpus}
    _check_visible(plan, needs, num_gpus)
    named = {gpu for gpus in plan.values() for gpu in gpus}
    every = tuple(range(num_gpus))
    pool = tuple(gpu for gpu in every if gpu not in named) or every
    left = {role: need for role, need in needs.items() if role not in plan}
    in_order = not getattr(config, "sample_ahead", False)
    follows = "learn" in needs and "sample" in left and (in_order or _too_few(pool, left))
    if follows:
        del left["sample"]
    if _too_few(pool, left):
        plan |= {
            role: (pool if len(pool) >= need.least else every)[: need.most] for role, need in left.items()
        }
    else:
        plan |= _shared_out(pool, left, follows)
    if follows:
        plan["sample"] = plan["learn"][: needs["sample"].most]
    return PlacementConfig.model_validate({"cluster": config.placement.cluster, **plan})


def _needs(config: RolloutStageConfig) -> dict[Role, _DeviceNeed]:
    """Return the roles of a stage that are on GPUs of this host, in the order of assignment."""
    needs: dict[Role, _DeviceNeed] = {}
    if config.samples_on_gpu:
        if isinstance(config, TrainConfig):
            needs["learn"] = _DeviceNeed(config.num_learners, config.learners or _MANY)
        if not isinstance(config, TrainConfig) or config.sampler.kind != "server":
            needs["sample"] = _DeviceNeed(1, 1)
    if config.judges_on_gpu:
        needs["judge"] = _DeviceNeed(1, config.gym.workers)
    return needs


def _too_few(pool: tuple[int, ...], needs: dict[Role, _DeviceNeed]) -> bool:
    return sum(need.least for need in needs.values()) > len(pool)


def _shared_out(
    pool: tuple[int, ...], needs: dict[Role, _DeviceNeed], follows: bool
) -> dict[str, tuple[int, ...]]:
    """Divide the pool: each spare GPU goes to the role with the most seconds for each of its GPUs.

    The sampler's seconds are the learners' if it `follows` them.
    """
    counts = {role: need.least for role, need in needs.items()}
    seconds = SECONDS | ({"learn": SECONDS["learn"] + SECONDS["sample"]} if follows else {})
    for _ in range(len(pool) - sum(counts.values())):
        if growing := [role for role in counts if counts[role] < needs[role].most]:
            counts[max(growing, key=lambda role: seconds[role] / counts[role])] += 1
    plan, left = {}, pool
    for role, count in counts.items():
        plan[str(role)], left = left[:count], left[count:]
    return plan


def _check_visible(named: dict[str, tuple[int, ...]], needs: dict[Role, _DeviceNeed], num_gpus: int) -> None:
    missing = [f"placement.{role}={list(gpus)}" for role, gpus in named.items() if max(gpus) >= num_gpus]
    if (learn := needs.get("learn")) and learn.least > num_gpus:
        missing.append(f"learners={learn.least}")
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)}, but {num_gpus} GPUs are visible, numbered from 0; name those, or make "
            "others visible by CUDA_VISIBLE_DEVICES"
        )


def environment_with(gpus: tuple[int, ...]) -> dict[str, str]:
    """Return this process's environment with only these GPUs visible, numbered from 0 in this order."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = shown.split(",") if shown else None
    chosen = [names[gpu] if names else str(gpu) for gpu in gpus]
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(chosen)}
