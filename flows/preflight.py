"""Checks of a stage's settings before its flow begins, so that a mistake leaves no failed run behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flows.run_names import place_of
from kernel_core.config import (
    BestOfNConfig,
    Config,
    EvaluateConfig,
    IndexConfig,
    IngestConfig,
    PolicyConfig,
    ProblemsConfig,
)
from kernel_core.config.rollout import RolloutStageConfig
from kernel_core.corpus.generator_source import check_left_out
from kernel_core.dialogue.answers import stored_answers
from kernel_core.policy import check_policy
from kernel_core.problems.load import check_problems
from kernel_core.runs.host_gpus import require_gpu
from kernel_core.runs.resolve import choose_weights
from kernel_core.runs.run_folder import Run


def check_before_start(stage: str, parameters: Mapping[str, Any], *, elsewhere: bool = False) -> None:
    """Raise the first mistake in suites, families, devices, checkpoints, models and endpoints.

    Nothing is downloaded and no judge starts. Stages that run `elsewhere` or as deployments check their own
    hosts for GPUs and models.
    """
    if (search := parameters.get("search")) is not None:  # its problems are not written yet
        check_policy(search.policy)
    config = parameters.get("config")
    if config is None:
        return  # a flow without a stage's settings
    here = parameters.get("mode", "inline") == "inline" and not elsewhere
    stages = list(_stages_of(config))
    for owner in stages:
        for problems in _groups(owner):
            check_problems(problems)
    for value in (config, getattr(config, "ingest", None), parameters.get("ingest")):
        if isinstance(value, IngestConfig):
            check_left_out(value)
    answers = getattr(config, "answers", None)
    if answers is not None:
        stored_answers(answers).in_order()
    elif isinstance(config, EvaluateConfig | BestOfNConfig) and stage != "nightly":
        choose_weights(Run(*place_of(stage, parameters)), config.policy, config.checkpoint)
    if here:
        for owner in stages:
            require_gpu(owner.policy_here if answers is None else None, owner.gym)
        if isinstance(config, IndexConfig):
            require_gpu(PolicyConfig(device=config.device))
        # In a pipeline the policy that is trained is also the one that is asked.
        if stages and answers is None and getattr(config, "checkpoint", None) is None:
            check_policy(stages[0].policy)


def _stages_of(config: Config) -> Iterator[RolloutStageConfig]:
    if isinstance(config, RolloutStageConfig):
        yield config
        return
    for name in type(config).model_fields:
        if isinstance(value := getattr(config, name), RolloutStageConfig):
            yield value


def _groups(config: Config) -> Iterator[ProblemsConfig]:
    for name in type(config).model_fields:
        value = getattr(config, name)
        for group in value.values() if isinstance(value, dict) else [value]:
            if isinstance(group, ProblemsConfig):
                yield group
