"""The update on several GPUs of one host.

The trainer's own process is the first of the team; it rolls out, judges and writes, and starts the others,
which only update. Rows go to all of them, and each does its share of the batches. Afterwards the trainer's
policy has the new weights, and sampling, checkpoints and everything else go on as with one GPU. So a
checkpoint does not know how many GPUs wrote it, and any number resumes from it.

    trainer ──rows──▶ process 0 … process n−1 ──whole weights──▶ trainer

A small model is whole in each process: gradients are averaged once, and each makes the same step, the
first with the trainer's own weights and moments. Of a larger one each has a shard (FSDP2), and the trainer a
copy of the weights.

On a CPU the same runs over gloo, which is how it is tested. A process that dies ends the others: collective
operations fail, and the step is repeated from the last checkpoint like after any fault.
"""

from __future__ import annotations

import copy
import datetime
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard

from kernel_core.config import TrainConfig
from kernel_core.errors import ConfigError
from kernel_core.learn.batch import Row
from kernel_core.learn.decoder_layers import decoder_layers
from kernel_core.learn.distributed.data_parallel import Share
from kernel_core.learn.distributed.row_arrays import Parcel
from kernel_core.learn.reference import HeldModel, Reference, hold
from kernel_core.learn.update import keep_master_weights, new_optimiser, set_rate, update
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.store import Store

PATIENCE = datetime.timedelta(minutes=10)
"""Longer than any update: after it a silent process counts as dead."""
SPARE_SHARE = 0.1
"""The share of a GPU's memory that may be spent on having everything in each process."""
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
SPREAD = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)


class Member:
    """One process of the team: its copy or shard of the model, and its share of each update."""

    def __init__(
        self,
        config: TrainConfig,
        policy: TorchPolicy,
        share: Share,
        optimiser: torch.optim.Optimizer | None = None,
    ) -> None:
        self._config, self._policy, self._share = config, policy, share
        keep_master_weights(policy)
        if not share.has_copy:
            shard(policy.model)
        self._optimiser = optimiser or new_optimiser(policy.model, config.lr)
        self._reference: Reference | None = None

    def hold(self, folder: str) -> None:
        """Take the policy in a folder for the KL term; it is sharded if the one that learns is."""
        if self._share.has_copy:
            self._reference = hold(Store(folder), self._policy)
            return
        model = TorchPolicy.load(folder, self._config.policy).model.requires_grad_(False).eval()
        shard(model)
        self._reference = HeldModel(model)

    def update(self, rows: Sequence[Row], lr: float) -> UpdateReport:
        """See `update.update`, at this learning rate; the same report in every process."""
        set_rate(self._optimiser, lr)
        return update(self._policy, self._optimiser, rows, self._config, self._reference, share=self._share)

    def give(self, model: Any | None) -> None:
        """Copy the weights that train, gathered from their shards, into the trainer's model; processes
        without it help to gather them."""
        wanted = dict(model.named_parameters()) if model is not None else {}
        with torch.no_grad():
            for name, parameter in self._policy.model.named_parameters():
                if parameter.requires_grad:
                    weights = parameter.full_tensor()
                    if wanted:
                        wanted[name].copy_(weights)

    def moments(self) -> dict[str, Any]:
        """The optimiser's state, gathered from its shards; empty in every process but the first."""
        return dict(get_optimizer_state_dict(self._policy.model, self._optimiser, options=WHOLE))

    def take(self, weights: dict[str, Any], moments: dict[str, Any] | None) -> None:
        """Spread what the first process has; others hand in anything. No moments: as after no step."""
        set_model_state_dict(self._policy.model, weights, options=SPREAD)
        if moments is None:
            self._optimiser.state.clear()
        else:
            set_optimizer_state_dict(self._policy.model, self._optimiser, moments, options=SPREAD)


class Team:
    """The team, as the trainer sees it. `policy` and `optimiser` are the trainer's own and stay whole.

    `has_copy` says whether each process has all weights; by default their size does.
    """

    def __init__(
        self,
        config: TrainConfig,
        policy: TorchPolicy,
        optimiser: torch.optim.Optimizer,
        has_copy: bool | None = None,
    ) -> None:
        if dist.is_initialized():
            raise ConfigError("this process is in a team of learners already; close the other trainer first")
        self._policy, self._optimiser = policy, optimiser
        self._is_holding = False
        self._share = share = Share(0, config.learners, is_small(policy) if has_copy is None else has_copy)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._folder = tempfile.TemporaryDirectory(prefix="dojo-learners-")
        start = Path(self._folder.name)
        (start / "config.json").write_text(config.model_dump_json())
        policy.save(str(start / "policy"))
        self._others = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "kernel_core.learn.distributed.learner_group",
                    str(start),
                    str(rank),
                    str(port),
                ]
                + ["copy"] * share.has_copy
            )
            for rank in range(1, config.learners)
        ]
        _join(share, port, config.policy.device)
        if share.has_copy:
            self._member = Member(config, policy, share, optimiser)
        else:
            model = copy.deepcopy(policy.model)
            mine = TorchPolicy(
                model, policy.tokenizer, policy.config, version=policy.version, base=policy.base
            )
            self._member = Member(config, mine, share)
        self.take()

    def update(self, rows: Sequence[Row], lr: float) -> UpdateReport:
        """One update by the whole team; the trainer's policy has the new weights afterwards."""
        _tell(("update", (Parcel.wrap(rows), lr)))
        report = self._member.update(rows, lr)
        if report.num_optimiser_steps and not self._share.has_copy:
            self._has_moments = True
            _tell(("give", None))
            self._member.give(self._policy.model)
        return report

    def hold(self, folder: str) -> None:
        """Have the team hold the policy in a folder for the KL term, once: it never changes."""
        if self._is_holding:
            return
        self._is_holding = True
        _tell(("hold", folder))
        self._member.hold(folder)

    def give_moments(self) -> None:
        """Put what shards there are of moments into the trainer's optimiser, for a checkpoint."""
        if not self._has_moments:
            return
        _tell(("moments", None))
        set_optimizer_state_dict(self._policy.model, self._optimiser, self._member.moments())

    def take(self) -> None:
        """Spread the trainer's weights and moments over the team, at the start and after a restore."""
        moments = None
        if self._optimiser.state:
            moments = dict(get_optimizer_state_dict(self._policy.model, self._optimiser, options=WHOLE))
        self._has_moments = moments is not None and not self._share.has_copy
        _tell(("take", moments is not None))
        self._member.take(get_model_state_dict(self._policy.model, options=WHOLE), moments)

    def close(self) -> None:
        """End the other processes. A group is left by all its members together."""
        _tell(("end", None))
        dist.destroy_process_group()
        for process in self._others:
            process.wait(timeout=60)
        self._folder.cleanup()


def is_small(policy: TorchPolicy) -> bool:
    """Whether there is memory to spare for weights, two copies of gradients and two moments in float32."""
    if policy.device.type != "cuda":
        return True
    total_bytes = torch.cuda.get_device_properties(policy.device).total_memory
    return 5 * 4 * policy.num_parameters < SPARE_SHARE * total_bytes


def shard(model: Any) -> None:
    """Shard every decoder layer, and what is left, over all processes."""
    for layer in decoder_layers(model):
        fully_shard(layer)
    fully_shard(model)


def _join(share: Share, port: int, device: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    backend = "gloo"
    if device == "cuda":
        if torch.cuda.device_count() < share.size:
            raise ConfigError(f"learners = {share.size}, but {torch.cuda.device_count()} GPUs are visible")
        torch.cuda.set_device(share.rank)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, rank=share.rank, world_size=share.size, timeout=PATIENCE)


def _tell(command: tuple[str, Any]) -> None:
    dist.broadcast_object_list([command], src=0, device=torch.device("cpu"))


def _follow(folder: Path, rank: int, port: int, has_copy: bool) -> None:
    """Do what the first process says, until it says that it is over."""
    config = TrainConfig.model_validate_json((folder / "config.json").read_text())
    share = Share(rank, config.learners, has_copy)
    _join(share, port, config.policy.device)
    member = Member(config, TorchPolicy.load(str(folder / "policy"), config.policy), share)
    while True:
        heard: list[Any] = [None]
        dist.broadcast_object_list(heard, src=0, device=torch.device("cpu"))
        what, with_it = heard[0]
        match what:
            case "hold":
                member.hold(with_it)
            case "update":
                parcel, lr = with_it
                member.update(parcel.unwrap(), lr)
            case "give":
                member.give(None)
            case "moments":
                member.moments()
            case "take":
                member.take({}, {} if with_it else None)
            case _:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    _follow(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), has_copy="copy" in sys.argv)
