"""One of several learners: a process with its shard of the model, which does what the trainer asks for.

torchrun starts it with the trainer's folder, which holds settings, the policy and a socket. It waits on the
socket without a limit; the end of the connection, after the trainer's, ends it. An error ends it as well, and
torchrun then starts all learners again.
"""

from __future__ import annotations

import datetime
import os
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import distribute_tensor

from kernel_core.config import TrainConfig
from kernel_core.learn.batch import Row
from kernel_core.learn.checkpoint import OPTIMISER, STATE, nested
from kernel_core.learn.distributed import sharded_state
from kernel_core.learn.distributed.data_parallel import Share, shard
from kernel_core.learn.reference import HeldModel
from kernel_core.learn.update import new_optimiser, set_rate, update
from kernel_core.policy.device_memory import give_back
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store


class Member:
    """Its shard of weights, gradients and moments. All members are asked the same, in the same order."""

    def __init__(self, folder: Path, trainer: Connection, share: Share) -> None:
        self._config = TrainConfig.model_validate_json((folder / "config.json").read_text())
        self._trainer, self._share = trainer, share
        self._dtype = getattr(torch, self._config.policy.dtype)
        self._files = self._join()
        self._policy = self._sharded(str(folder / "policy"))
        self._optimiser = new_optimiser(self._policy.model, self._config.lr)
        self._reference: HeldModel | None = None
        self._saving: Future[Any] | None = None

    def follow(self) -> None:
        """Answer the trainer until it is gone."""
        while True:
            try:
                name, arguments = self._trainer.recv()
            except (EOFError, ConnectionError):
                return
            getattr(self, name)(*arguments)

    def hold(self, folder: str) -> None:
        """Take the policy in a folder for the KL term."""
        model = self._sharded(folder).model.requires_grad_(False).eval()
        self._reference = HeldModel(model)
        self._trainer.send(None)

    def update(self, rows: Sequence[Row], lr: float, dtypes: Sequence[torch.dtype]) -> None:
        """See `update.update`. The first member answers with the report, and sends the new weights after it,
        one whole tensor at a time, each in the type that the trainer has it in."""
        set_rate(self._optimiser, lr)
        report = update(self._policy, self._optimiser, rows, self._config, self._reference, share=self._share)
        self._trainer.send(report)
        if report.num_optimiser_steps:
            self._give(dtypes)
        give_back(self._policy.device)

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

    def _join(self) -> Any:
        """Meet the other learners; gives a group of its own for writing files."""
        backend, is_cuda = "gloo", self._config.policy.device == "cuda"
        if is_cuda:
            torch.cuda.set_device(self._share.rank)
            backend = "cpu:gloo,cuda:nccl"
        store, rank, size = next(rendezvous("env://"))
        # torchrun keeps its store over some starts, with addresses of processes that are gone.
        start = dist.PrefixStore(  # type: ignore[attr-defined]
            os.environ["TORCHELASTIC_RESTART_COUNT"], store
        )
        limit = datetime.timedelta(seconds=self._config.learner_timeout_s)
        dist.init_process_group(backend, store=start, rank=rank, world_size=size, timeout=limit)
        return dist.new_group(backend="gloo", timeout=limit)

    def _sharded(self, folder: str) -> TorchPolicy:
        """The policy of a folder; it is read into the host's memory, and shards alone get to the GPU."""
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
    """This process's part of a tensor that all processes have."""
    return distribute_tensor(
        whole.detach().to(parameter.device), parameter.device_mesh, parameter.placements, src_data_rank=None
    )


def main(folder: str) -> None:
    """Join the trainer of a folder, if it is still there."""
    share = Share(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    try:
        with socket.socket(socket.AF_UNIX) as connecting:
            connecting.connect(f"{folder}/socket")
            trainer = Connection(connecting.detach())
        trainer.send((int(os.environ["TORCHELASTIC_RESTART_COUNT"]), share.rank))
    except OSError:
        return
    Member(Path(folder), trainer, share).follow()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
