"""Learner process: holds one shard of the model and serves the trainer's commands.

The trainer starts it (`places/workers.py`) with a folder, which holds settings and the policy, and the
address of the meeting where the learners of a start form their group. It ends with its connection to the
trainer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed as dist
from torch.distributed.tensor import distribute_tensor

from kernel_core.config import TrainConfig
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.checkpoint import OPTIMISER, STATE, nested
from kernel_core.learn.cold_start.passes import Passes
from kernel_core.learn.cold_start.updater import TorchUpdater
from kernel_core.learn.distributed import sharded_state
from kernel_core.learn.distributed.data_parallel import Share, shard
from kernel_core.learn.distributed.process_group import form_group
from kernel_core.learn.reference import Reference, whole_model
from kernel_core.learn.update import new_optimiser, set_rate, update
from kernel_core.places.workers import RANK, WORLD_SIZE, follow
from kernel_core.policy.device_memory import release_cached_memory
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store


class Member:
    """Shard of weights, gradients and moments. All members receive the same commands, in the same order."""

    def __init__(self, folder: Path, meeting: str, weight_decay: float, trainer: Connection) -> None:
        self._config = TrainConfig.model_validate_json((folder / "config.json").read_text())
        self._trainer = trainer
        self._share = Share(int(os.environ[RANK]), int(os.environ[WORLD_SIZE]))
        self._dtype = getattr(torch, self._config.policy.dtype)
        is_cuda, limit_s = self._config.policy.device == "cuda", self._config.learner_timeout_s
        self._files = form_group(
            meeting, self._share.rank, self._share.size, is_cuda=is_cuda, limit_s=limit_s
        )
        self._policy = self._sharded(str(folder / "policy"))
        self._optimiser = new_optimiser(self._policy.model, self._config.lr, weight_decay)
        self._reference: Reference | None = None
        self._saving: Future[Any] | None = None

    def hold(self, folder: str) -> None:
        """Take the policy in a folder for the KL term."""
        self._reference = whole_model(self._sharded(folder).model)
        self._trainer.send(None)

    def update(self, rows: Sequence[TokenRow], lr: float, dtypes: Sequence[torch.dtype]) -> None:
        """See `update.update`. The first member answers with the report, and sends the new weights after it,
        one whole tensor at a time, each in the type that the trainer has it in."""
        set_rate(self._optimiser, lr)
        report = update(self._policy, self._optimiser, rows, self._config, self._reference, share=self._share)
        self._trainer.send(report)
        if report.num_optimiser_steps:
            self._give(dtypes)
        release_cached_memory(self._policy.device)

    def teach(self, rows: Sequence[TokenRow], lr: float, packed: bool) -> None:
        """See `TorchUpdater.update`; loss, gradient's norm and tokens read are those of all members."""
        updater = self._updater(packed)
        with updater.training():
            mine = updater.update(rows, lr)
        loss, num_read = self._share.total([float(mine.loss), mine.num_read])
        self._trainer.send((loss, mine.grad_norm, int(num_read)))

    def loss(self, rows: Sequence[TokenRow], packed: bool) -> None:
        """See `TorchUpdater.loss`; answers with that of all members."""
        self._trainer.send(self._share.total([self._updater(packed).loss(rows)])[0])

    def give(self, dtypes: Sequence[torch.dtype]) -> None:
        """Answer, and send the weights as `update` does."""
        self._trainer.send(None)
        self._give(dtypes)

    def save(self, folder: str) -> None:
        """Begin to write this member's shards into a folder; `saved` waits for it."""
        self._saving = sharded_state.begin_save(self._policy.model, self._optimiser, folder, self._files)
        self._trainer.send(None)

    def saved(self) -> None:
        """Answer whether the shards of all members are written, when they are."""
        if self._saving is not None:
            self._saving.result()
        self._trainer.send(self._saving is not None)

    def restore(self, shards: str) -> None:
        """Go back to the shards of a checkpoint."""
        sharded_state.load(self._policy.model, self._optimiser, shards)
        self._trainer.send(None)

    def restore_whole(self, folder: str) -> None:
        """Go back to the checkpoint of one process, which holds whole weights and moments."""
        store = Store(folder)
        config = self._config.policy.model_copy(update={"device": "cpu", "dtype": "float32"})
        weights = dict(TorchPolicy.load(store, config).model.named_parameters())
        tensors = safetensors.torch.load(store.child("trainer").read(OPTIMISER))
        groups = store.child("trainer").read_json(STATE)["optimiser_groups"]
        self._optimiser.load_state_dict(nested(tensors, groups))
        with torch.no_grad():
            for name, parameter in sharded_state.trained(self._policy.model):
                parameter.copy_(_like(parameter, weights[name]))
                state = self._optimiser.state.get(parameter, {})
                state.update({key: _like(parameter, v) for key, v in state.items() if v.ndim})
        self._trainer.send(None)

    def _updater(self, packed: bool) -> TorchUpdater:
        config = self._config
        passes = Passes(self._policy, config.minibatch_tokens, packed, config.cold_start.loss_floor)
        return TorchUpdater(passes, self._optimiser, self._share)

    def _sharded(self, folder: str) -> TorchPolicy:
        """Load a folder's policy into host memory and shard it; only shards reach the GPU."""
        config = self._config.policy.model_copy(update={"device": "cpu", "decoding": "growing"})
        policy = TorchPolicy.load(folder, config)
        shard(policy.model, self._dtype)
        return policy

    def _give(self, dtypes: Sequence[torch.dtype]) -> None:
        for (_, parameter), dtype in zip(sharded_state.trained(self._policy.model), dtypes, strict=True):
            whole = parameter.detach().full_tensor()
            if self._share.rank == 0:
                self._trainer.send_bytes(whole.to(dtype).cpu().flatten().view(torch.uint8).numpy())


def _like(parameter: Any, whole: torch.Tensor) -> torch.Tensor:
    """Return this process's part of a tensor that all processes have."""
    return distribute_tensor(
        whole.detach().to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


if __name__ == "__main__":
    follow(lambda trainer: Member(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), trainer))
    dist.destroy_process_group()
