"""Which weights and which index a stage uses: from words in a config to folders."""

from __future__ import annotations

from kernel_core.config import PolicyConfig
from kernel_core.errors import NotFound
from kernel_core.policy import SHIPPED
from kernel_core.runs import Run, find_run
from kernel_core.stage_work import sealed_digest
from kernel_core.store import Store

CHECKPOINTS, BEST = "checkpoints.jsonl", "checkpoints/best.json"
COLD_START = "cold_start"


def needs_cold_start(policy: PolicyConfig) -> bool:
    """Whether a policy must be taught before RL: one from nothing."""
    return policy.kind == "torch" and policy.model == "new"


def is_shipped(policy: PolicyConfig) -> bool:
    """Whether it is the tiny policy under data/policy."""
    return policy.kind == "torch" and policy.model == "shipped"


def choose_weights(run: Run, policy: PolicyConfig, checkpoint: str | None) -> str | None:
    """The folder of weights to load: a checkpoint's, the run's cold start, or the shipped policy's.

    None for a model that the config names itself.

    Raises `NotFound` when the policy has to be taught first and was not.
    """
    if checkpoint:
        return locate_checkpoint(run.root, checkpoint)
    if not needs_cold_start(policy):
        return str(SHIPPED) if is_shipped(policy) else None
    if not run.store.child(COLD_START).sealed():
        raise NotFound(
            f"run {run.name!r} has no cold start, which policy.model = {policy.model!r} needs; "
            f"make it with `dojo cold-start run={run.name}`"
        )
    return run.store.path(COLD_START)


def locate_checkpoint(root: str, words: str) -> str:
    """The folder that `NAME`, `NAME@STEP`, `NAME@best` or a path means; the newest checkpoint of a run by
    default.

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
    """The run's own index, or else that of the run whose checkpoint is used; None if neither has one."""
    candidates = [run.store]
    folder, is_a_runs, _ = (checkpoint or "").rpartition("/checkpoints/")
    if is_a_runs:
        candidates.append(Store(folder))
    elif checkpoint and "/" not in checkpoint:
        candidates.append(Run(run.root, checkpoint.partition("@")[0]).store)
    return next((store.child("index") for store in candidates if store.child("index").sealed()), None)


def read_digests(run: Run, policy: PolicyConfig, checkpoint: str | None) -> dict[str, str]:
    """Digests of the index and of the weights that a stage reads."""
    index = locate_index(run, checkpoint)
    weights = choose_weights(run, policy, checkpoint)
    reads = {"index": sealed_digest(index)} if index is not None else {}
    return reads | ({"weights": sealed_digest(Store(weights))} if weights is not None else {})
