"""Resolution of a stage's weights and index: from words in a config to folders."""

from __future__ import annotations

import hashlib
from typing import Any, TypeVar

from kernel_core.config import PolicyConfig, RolloutStageConfig, TrainConfig, suited
from kernel_core.config.model_kind import is_untaught
from kernel_core.dialogue.answers import is_answers_file
from kernel_core.errors import ConfigError, NotFound
from kernel_core.policy import SHIPPED
from kernel_core.runs.run_folder import Run, find_run
from kernel_core.store import Store

CHECKPOINTS, BEST = "checkpoints.jsonl", "checkpoints/best.json"
_StageConfig = TypeVar("_StageConfig", bound=RolloutStageConfig)
COLD_START = "cold_start"
UNTAUGHT = "@base"
"""Checkpoint value for the model that the config names, also in a run that has a cold start of it."""


def needs_cold_start(config: TrainConfig) -> bool:
    """Return whether training teaches its policy first.

    A policy from nothing is always taught, a pretrained one unless `cold_start` is `none`, and any policy on
    chats that are given.
    """
    if config.policy.kind not in ("torch", "tinker"):
        return False
    is_asked_for = bool(config.cold_start.data) or is_untaught(config.policy)
    return config.policy.model == "new" or (is_asked_for and config.cold_start.steps > 0)


def is_shipped(policy: PolicyConfig) -> bool:
    """Return True for the tiny policy under data/policy."""
    return policy.kind == "torch" and policy.model == "shipped"


def check_cold_start(run: Run, config: TrainConfig) -> None:
    """Refuse to train past a cold start that the run has: what was taught is not left out in silence.

    One that `config` asks for itself is compared, finished or refused by its own stage. Raises `ConfigError`
    for one that is not finished, or that began with another policy.
    """
    begun = _cold_started(run)
    if begun is None or needs_cold_start(config) or _taught_here(run, config.policy) is not None:
        return
    folder = run.store.path(COLD_START)
    if not run.store.child(COLD_START).sealed():
        raise ConfigError(
            f"run {run.name!r} has a cold start that is not finished: go on with it by `dojo cold-start "
            f"run={run.name}` and its settings, choose another name with run=NAME, or delete {folder}"
        )
    now = config.policy.model_dump()
    # New adapters may be put on weights that were taught whole; adapters that were taught keep their rank.
    compared = ("model", "revision", *(("lora_rank",) if begun["lora_rank"] is not None else ()))
    changed = [
        f"policy.{key} = {begun[key]!r}, now {now[key]!r}" for key in compared if begun[key] != now[key]
    ]
    if changed:
        raise ConfigError(
            f"run {run.name!r} has a cold start that was begun with {'; '.join(changed)}: set it so to "
            f"go on from there, choose another name with run=NAME, or delete {folder}"
        )


def _cold_started(run: Run) -> dict[str, Any] | None:
    """Return the settings of the policy that the run's cold start began with; None for a run without one."""
    record = run.stage("cold-start")
    if record is None or not run.store.child(COLD_START).exists():
        return None
    policy: dict[str, Any] = record.config["policy"]
    return policy


def _taught_here(run: Run, policy: PolicyConfig) -> Store | None:
    """Return the folder of this run that the policy names, such as that of a round of expert iteration."""
    is_here = policy.kind == "torch" and policy.model.startswith(f"{run.store.path()}/")
    return Store(policy.model) if is_here else None


def _has_taught(run: Run, policy: PolicyConfig) -> bool:
    """Return True if the run has a complete cold start of this very policy."""
    if policy.kind not in ("torch", "tinker") or not run.store.child(COLD_START).sealed():
        return False
    begun = _cold_started(run)
    return begun is None or (begun["model"], begun["revision"]) == (policy.model, policy.revision)


def weights_to_train(run: Run, config: TrainConfig) -> str | None:
    """Return the folder of weights that RL begins with, as `choose_weights` chooses it.

    Raises `NotFound` when the policy has to be taught first and was not.
    """
    if needs_cold_start(config) and not run.store.child(COLD_START).sealed():
        raise _not_taught(run, config.policy)
    return choose_weights(run, config.policy, checkpoint=None)


def _not_taught(run: Run, policy: PolicyConfig) -> NotFound:
    return NotFound(
        f"run {run.name!r} has no cold start, which policy.model = {policy.model!r} needs; "
        f"make it with `dojo cold-start run={run.name}`"
    )


def choose_weights(run: Run, policy: PolicyConfig, checkpoint: str | None) -> str | None:
    """Return the folder of weights to load: a checkpoint's, the run's cold start of this policy, or the
    shipped policy's.

    None for a model that the config names itself.

    Raises `NotFound` when the policy has to be taught first and was not.
    """
    if checkpoint == UNTAUGHT:
        return str(SHIPPED) if is_shipped(policy) else None
    if checkpoint:
        return locate_checkpoint(run.root, checkpoint)
    if _has_taught(run, policy):
        return run.store.path(COLD_START)
    if policy.kind == "torch" and policy.model == "new":
        raise _not_taught(run, policy)
    return str(SHIPPED) if is_shipped(policy) else None


def locate_checkpoint(root: str, words: str) -> str:
    """Return the folder of `NAME`, `NAME@STEP`, `NAME@best` or a path; by default a run's newest checkpoint.

    Raises `NotFound` for a run, step or folder that is not there.
    """
    if "/" in words or Store(words).exists():
        if not Store(words).exists():
            raise NotFound(f"no checkpoint folder {words}; give a run's name, NAME@STEP or a folder")
        return words
    name, _, step = words.partition("@")
    run = find_run(root, name)
    kept = [line for line in run.store.lines(CHECKPOINTS) if run.store.exists(line["folder"])]
    if not kept:
        raise NotFound(f"run {name!r} has no checkpoint yet; `dojo train run={name}` makes them")
    if not step:
        return run.store.path(kept[-1]["folder"])
    if step == "best" and run.store.exists(BEST):
        step = str(run.store.read_json(BEST)["step"])
    for line in kept:
        if str(line["step"]) == step:
            return run.store.path(line["folder"])
    steps = ", ".join(str(line["step"]) for line in kept)
    raise NotFound(f"run {name!r} keeps no checkpoint of step {step}; it has {steps}")


def locate_index(run: Run, checkpoint: str | None) -> Store | None:
    """Return the run's own index, or else that of the checkpoint's run; None if neither has one."""
    candidates = [run.store]
    folder, is_a_runs, _ = (checkpoint or "").rpartition("/checkpoints/")
    if is_a_runs:
        candidates.append(Store(folder))
    elif checkpoint and checkpoint != UNTAUGHT and "/" not in checkpoint:
        candidates.append(Run(run.root, checkpoint.partition("@")[0]).store)
    return next((store.child("index") for store in candidates if store.child("index").sealed()), None)


def folders_read(
    run: Run, policy: PolicyConfig, checkpoint: str | None, answers: str | None = None
) -> dict[str, Store]:
    """Return the folders that an evaluation reads, index and weights, or those of its answers."""
    if answers is not None:
        return {} if is_answers_file(answers) else {"answers": Store(answers)}
    index = locate_index(run, checkpoint)
    weights = choose_weights(run, policy, checkpoint)
    reads = {"index": index} if index is not None else {}
    return reads | ({"weights": Store(weights)} if weights is not None else {})


def files_read(answers: str | None) -> dict[str, str]:
    """Return the SHA-256 of the file of answers that an evaluation reads, if it reads one."""
    if answers is None or not is_answers_file(answers):
        return {}
    folder, _, name = answers.rpartition("/")
    return {"answers": hashlib.sha256(Store(folder or ".").read(name)).hexdigest()}


def foundations(run: Run, config: TrainConfig) -> dict[str, Store]:
    """Return the run's snapshot, index and initial weights, as far as it has them.

    Raises `ConfigError` where the run has a cold start that this training would leave out.
    """
    check_cold_start(run, config)
    has_cold_start = needs_cold_start(config) or run.store.child(COLD_START).sealed()
    names = ("snapshot", "index", *((COLD_START,) if has_cold_start else ()))
    stores = {name: run.store.child(name) for name in names}
    if (taught := _taught_here(run, config.policy)) is not None:
        stores["taught"] = taught
    return stores | ({"shipped": Store(str(SHIPPED))} if is_shipped(config.policy) else {})


def suited_to(config: _StageConfig, weights: str | None) -> _StageConfig:
    """Return a stage with the settings of the kind of model in a folder, where they were left out."""
    policy, rollout = suited(config.policy, config.rollout, weights)
    return config.model_copy(update={"policy": policy, "rollout": rollout})
