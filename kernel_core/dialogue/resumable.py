"""Conversations held part by part, so that a killed evaluation goes on from the last whole part.

A part is about one sampling batch. Its file holds its groups in full, and its name the digest of
everything that decided them; a run with other settings never reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.batches import Batch, EachBatch, in_order
from kernel_core.config import BestOfNConfig, EvaluateConfig, RolloutConfig
from kernel_core.dialogue.rollout import roll_out
from kernel_core.dialogue.turns import Group
from kernel_core.errors import ConfigError, Corrupt
from kernel_core.gym.contract.requests import Gym
from kernel_core.policy.protocol import Policy
from kernel_core.progress import Progress, silent
from kernel_core.records import Problem
from kernel_core.retrieval.protocol import Retriever
from kernel_core.store import Store, digest_of

CPU_CONVERSATIONS = 16
"""Conversations of a part on a CPU, where a part is minutes and larger batches sample little faster."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """The groups of all problems, in order, and the files that hold them."""

    groups: list[Group]
    files: dict[str, str]
    """Name and SHA-256 of each part."""


def digest_of_stage(
    config: EvaluateConfig | BestOfNConfig, problems: Sequence[Problem], policy: Policy, gym: Gym
) -> str:
    """Digest of all that decides a stage's result: not the policy's origin, nor the number of judges."""
    settings = config.model_dump(
        mode="json",
        exclude={"policy": True, "checkpoint": True, "gym": {"workers", "cluster", "ray_address"}},
    )
    contents = [[problem.id, problem.sha256, problem.cpu_constants] for problem in problems]
    return digest_of([settings, contents, policy.version, gym.version])


def finished(store: Store, kind: str, digest: str) -> bool:
    """Whether the folder holds this stage's result; that of other settings is a `ConfigError`."""
    if not store.sealed():
        return False
    if store.open_sealed(kind).meta.get("digest") != digest:
        raise ConfigError(
            f"{store.root} holds {kind} of other settings, problems or another policy; "
            "choose another run name, or remove the folder to make it again"
        )
    return True


def converse(
    policy: Policy,
    gym: Gym,
    problems: Sequence[Problem],
    retriever: Retriever | None,
    config: RolloutConfig,
    *,
    samples: int,
    device: str,
    seed: int,
    digest: str,
    store: Store,
    progress: Progress = silent,
    each: EachBatch = in_order,
) -> Conversations:
    """`samples` conversations a problem; parts that the store already has are read, not held again.

    `each` works on the parts that are left. They go one after another: all of them need the policy.
    """
    conversations = config.sampling.batch_size
    if device == "cpu":
        conversations = min(conversations, CPU_CONVERSATIONS)
    per_part = max(1, conversations // samples)
    total = len(problems)
    names = {
        f"conversations/{digest[:12]}-{start:05d}.json": Batch(
            label="problems", start=start, end=min(start + per_part, total), total=total
        )
        for start in range(0, total, per_part)
    }

    def hold(part: Batch) -> str:
        progress("problems", done=part.start, total=total)
        asked = problems[part.start : part.end]
        held = roll_out(
            policy, gym, asked, retriever, config, group_size=samples, seed=seed, progress=progress
        )
        (name,) = (name for name, one in names.items() if one == part)
        store.write(name, _encode(held.groups))
        return _in_words(held.groups)

    each([part for name, part in names.items() if not store.exists(name)], hold, at_once=False)
    groups: list[Group] = []
    files: dict[str, str] = {}
    for name, part in names.items():
        data = store.read(name)
        groups += _decode(data, store.path(name), [problem.id for problem in problems[part.start : part.end]])
        files[name] = hashlib.sha256(data).hexdigest()
    progress("problems", done=total, total=total)
    return Conversations(groups=groups, files=files)


def _in_words(groups: Sequence[Group]) -> str:
    """How many problems have a correct answer, and which have none."""
    unsolved = [
        group.problem_id
        for group in groups
        if not any(turn.evaluation.correct for trajectory in group.trajectories for turn in trajectory.turns)
    ]
    left = f"; not: {', '.join(unsolved)}" if unsolved else ""
    return f"{len(groups) - len(unsolved)} of {len(groups)} problems solved{left}."


def _encode(groups: Sequence[Group]) -> bytes:
    return b"[" + b",\n".join(group.model_dump_json().encode() for group in groups) + b"]\n"


def _decode(data: bytes, path: str, problem_ids: list[str]) -> list[Group]:
    try:
        groups = [Group.model_validate(group) for group in json.loads(data)]
    except ValueError as error:
        raise Corrupt(f"{path} does not hold conversations; remove it and run again") from error
    if [group.problem_id for group in groups] != problem_ids:
        raise Corrupt(f"{path} holds other problems than expected; remove it and run again")
    return groups
