"""Checkpoints: everything that training needs to go on, in a sealed folder; no pickles.

`checkpoints/step-000012/` is a policy's folder that opens like any saved policy. In it, `trainer/` holds
`optimiser.safetensors` (moments and random-number states) and `trainer.json` (the rest). Of several learners
`trainer/learners/` holds weights and moments in shards, which any number of learners reads. `trainer/` is
sealed first and the folder itself last, each with a checksum of every file, so a kill leaves a whole
checkpoint or none. `checkpoints.jsonl` lists them, `checkpoints/latest.json` names the newest, and
`checkpoints/best.json` the one that did best on validation problems, which is never removed.
"""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import safetensors.torch
import torch

from kernel_core.errors import Corrupt, NotFound
from kernel_core.learn.distributed import sharded_state
from kernel_core.policy.folder import KIND as POLICY_KIND
from kernel_core.policy.folder import local_copy
from kernel_core.policy.tensor_stream import safetensors_parts
from kernel_core.policy.trainable import Trainable
from kernel_core.runs.holds import held
from kernel_core.runs.resolve import BEST, CHECKPOINTS
from kernel_core.store import MANIFEST, Store

log = logging.getLogger(__name__)

TRAINER_KIND = "trainer"
FOLDER = "checkpoints"
LATEST = f"{FOLDER}/latest.json"
OPTIMISER, STATE = "optimiser.safetensors", "trainer.json"
SHARDS = "learners"
"""Folder under `trainer/` with the weights and moments of several learners."""
Files = Iterator[tuple[str, Iterable[bytes]]]
"""Files by name, each part by part."""


def folder_of(step: int) -> str:
    """Return the folder of the checkpoint after a step, relative to the run's folder."""
    return f"{FOLDER}/step-{step:06d}"


def draft(
    store: Store,
    step: int,
    policy: Trainable,
    optimiser: torch.optim.Optimizer | None,
    state: dict[str, Any],
    keep: int,
    score: Sequence[float] | None = None,
    shards: Callable[[], Files] | None = None,
    *,
    copied: bool = False,
) -> Callable[[], None]:
    """Collect the content of a checkpoint now; the call that comes back writes it and seals it.

    `copied` tensors do not change while training goes on. Without an `optimiser` the policy keeps its own, or
    `shards` waits for the files of several learners and gives them. `state` is what else the trainer needs,
    JSON-able. `score`, where this step was measured, is compared with the best one's, number after number.
    All but the newest `keep` and the best are removed.
    """
    name, version = folder_of(step), policy.version
    folder, trainer = store.child(name), store.child(f"{name}/trainer")
    _remove(folder)
    tensors, groups = _flat(optimiser) if optimiser is not None else ({}, [])
    tensors |= _rng_states()
    weights = policy.weights()
    if copied:
        tensors = _copies(tensors)
        weights = {file: _copies(part) for file, part in weights.items()}
    about = {"optimiser_groups": groups, "python_rng": random.getstate(), "state": state}
    policy_files = policy.write_surroundings(folder)

    def finish() -> None:
        files = {
            OPTIMISER: trainer.write_stream(OPTIMISER, safetensors_parts(tensors)),
            STATE: trainer.write_json(STATE, about),
        }
        for shard, parts in shards() if shards is not None else ():
            files[shard] = trainer.write_stream(shard, parts)
        trainer.seal(TRAINER_KIND, files, meta={"step": step})
        streams = {file: folder.write_stream(file, safetensors_parts(part)) for file, part in weights.items()}
        folder.seal(POLICY_KIND, policy_files | streams, meta={"version": version})
        _list_and_replace(store, {"step": step, "folder": name, "policy_version": version}, keep, score)

    return finish


def _list_and_replace(store: Store, named: dict[str, Any], keep: int, score: Sequence[float] | None) -> None:
    """Name a sealed checkpoint as the newest, and perhaps the best, and remove what it replaces."""
    step = named["step"]
    store.write_json(LATEST, named)
    list_checkpoint(store, step, named["policy_version"])
    best = _best(store, step)
    if is_best(store, step, score):
        assert score is not None
        best = named | {"score": list(score)}
        store.write_json(BEST, best)
    waited_for = held(store)
    for old in [step for step in _steps(store) if store.child(folder_of(step)).sealed()][keep:]:
        is_best_one = best is not None and old == best["step"]
        if not is_best_one and folder_of(old).rsplit("/", 1)[-1] not in waited_for:
            _remove(store.child(folder_of(old)))


def is_best(store: Store, step: int, score: Sequence[float] | None) -> bool:
    """Return True if a step's score exceeds that of every step saved before it."""
    best = _best(store, step)
    return score is not None and (best is None or list(score) > best["score"])


def _copies(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}


def _best(store: Store, step: int) -> dict[str, Any] | None:
    """Return the best score up to a step."""
    if not store.exists(BEST):
        return None
    best: dict[str, Any] = store.read_json(BEST)
    is_there = best["step"] <= step and store.child(best["folder"]).sealed()
    return best if is_there else None


def list_checkpoint(store: Store, step: int, version: str) -> None:
    """Add a checkpoint to the list unless it is there: a kill may have come between sealing and listing."""
    if step not in {line["step"] for line in store.lines(CHECKPOINTS)}:
        store.append_line(CHECKPOINTS, {"step": step, "folder": folder_of(step), "policy_version": version})


def newest(store: Store) -> str | None:
    """Return the folder of the newest complete checkpoint; None before the first one.

    A damaged one is passed over with a warning; `Corrupt` when every one is damaged. What is left of
    checkpoints that were never finished is removed.
    """
    damage: Exception | None = None
    for step in _steps(store):
        folder = store.child(folder_of(step))
        if not folder.sealed():
            folder.remove()
            continue
        try:
            folder.open_sealed(POLICY_KIND)
            folder.child("trainer").open_sealed(TRAINER_KIND)
        except (Corrupt, NotFound) as error:
            log.warning("checkpoint %s is damaged: %s; going back to the one before", folder.root, error)
            damage = error
            continue
        return folder_of(step)
    if damage is not None:
        raise Corrupt(
            f"every checkpoint in {store.path(FOLDER)} is damaged ({damage}); "
            "remove that folder to train from the start"
        ) from damage
    return None


def restore(store: Store, policy: Trainable, optimiser: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Restore the weights, optimiser and random-number states of the checkpoint in a folder.

    Gives the `state` that it was saved with.
    """
    policy.take(store)
    trainer = store.child("trainer")
    values = trainer.read_json(STATE)
    tensors = safetensors.torch.load(trainer.read(OPTIMISER))
    if optimiser is not None and (shards := trainer.child(SHARDS)).exists():
        with tempfile.TemporaryDirectory() as scratch:
            files = local_copy(shards, shards.names(), scratch)
            sharded_state.load(policy.model, optimiser, files)  # type: ignore[attr-defined]
    elif optimiser is not None:
        optimiser.load_state_dict(nested(tensors, values["optimiser_groups"]))
    version, internal, gauss = values["python_rng"]
    random.setstate((version, tuple(internal), gauss))
    torch.set_rng_state(tensors["rng.cpu"])
    for device in range(torch.cuda.device_count()):
        if f"rng.cuda.{device}" in tensors:
            torch.cuda.set_rng_state(tensors[f"rng.cuda.{device}"], device)
    state: dict[str, Any] = values["state"]
    return state


def _steps(store: Store) -> list[int]:
    """Steps that have a folder, newest first, whole or not."""
    names = [name.removeprefix("step-") for name in store.names(FOLDER) if name.startswith("step-")]
    return sorted((int(name) for name in names if name.isdigit()), reverse=True)


def _remove(folder: Store) -> None:
    """Remove a checkpoint; its manifest first, so that a half-removed folder does not count."""
    folder.remove(MANIFEST)
    folder.remove()


def _flat(optimiser: torch.optim.Optimizer) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Return the optimiser's moments by name, and its groups as JSON."""
    state = optimiser.state_dict()
    tensors = {
        f"state.{index}.{key}": value.detach()
        for index, values in state["state"].items()
        for key, value in values.items()
    }
    return tensors, state["param_groups"]


def nested(tensors: dict[str, torch.Tensor], groups: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an optimiser's nested state from the flat one in a checkpoint of one process."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if name.startswith("state."):
            _, index, key = name.split(".", 2)
            state.setdefault(int(index), {})[key] = tensor
    return {"state": state, "param_groups": groups}


def _rng_states() -> dict[str, torch.Tensor]:
    states = {"rng.cpu": torch.get_rng_state()}
    for device in range(torch.cuda.device_count()):
        states[f"rng.cuda.{device}"] = torch.cuda.get_rng_state(device)
    return states
