"""Update on several GPUs, of one host or of a Ray cluster.

The trainer samples, judges and writes. It starts the learners and, when one dies, starts all again
(`places/workers.py`); the learners of a start form one group (`process_group.py`). Each learner has a shard
of weights, gradients and moments (FSDP2, `member.py`). The trainer has a whole policy in the type that
samples, and neither gradients nor moments.

    trainer ──rows──▶ learner 0 … learner n−1 ──whole tensors, one by one──▶ trainer

Learners wait for the trainer without a limit; within an update they wait for one another `learner_timeout_s`
at most. New learners begin with the newest checkpoint and repeat the update that was under way: the trainer
counts it once. If an update came after that checkpoint, the trainer goes back to it, as after any fault.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernel_core.config import TrainConfig
from kernel_core.errors import WorkersLost
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.checkpoint import SHARDS, Files
from kernel_core.learn.distributed.process_group import Meeting
from kernel_core.learn.learner import REFERENCE, Learning, rate
from kernel_core.learn.update_report import UpdateReport
from kernel_core.places.place import log_in, places_of_learners, shared_folder
from kernel_core.places.workers import WorkerGroup
from kernel_core.policy.device_memory import release_cached_memory
from kernel_core.policy.folder import local_copy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress
from kernel_core.store import Store

PART_BYTES = 1 << 24
MEMBER = "kernel_core.learn.distributed.member"


class LearnerGroup(Learning):
    """See `Learning`, and of a cold start `Updater`. `policy` is the trainer's; `store` is the run's."""

    def __init__(
        self, config: TrainConfig, policy: TorchPolicy, store: Store, weight_decay: float = 0.0
    ) -> None:
        self._config, self._policy, self._store = config, policy, store
        places = places_of_learners(config)
        shared = None if places.is_here else shared_folder(store)
        for left in shared.glob("learners-*") if shared else ():  # by a trainer that was killed
            shutil.rmtree(left)
        self._scratch = tempfile.TemporaryDirectory(prefix="learners-", dir=shared)
        self._folder = Path(self._scratch.name)
        (self._folder / "config.json").write_text(config.model_dump_json())
        policy.save(str(self._folder / "policy"))
        self._num_updates = 0
        self._begin_with: tuple[int, tuple[str, str] | None] = 0, None
        """Number of updates behind the state from which new learners start, and the command that loads it."""
        self._is_holding = False
        self._meeting = Meeting(places.host)
        arguments = [str(self._folder), self._meeting.address, str(weight_decay)]
        self._learners = WorkerGroup(
            MEMBER, arguments, places, log_in(store, "learners.log"), self._brought_up
        )

    def begin(self) -> None:
        """Prepare the first step: keep the policy as it is for the KL term, if there is one."""
        if self._config.kl_coefficient:
            self._policy.save(self._store.child(REFERENCE))
            self._is_holding = True
            self._learners.ask("hold", self._store.child(REFERENCE).root)

    def on_restore(self, folder: Store) -> None:
        """Load the checkpoint that the policy now has into the learners, whatever number of them wrote it."""
        shards = folder.child(f"trainer/{SHARDS}")
        if names := shards.names():
            command = "restore", local_copy(shards, names, str(self._empty("restored")))
        else:
            command = "restore_whole", folder.root
        self._begin_with = self._num_updates, command
        self._is_holding = self._config.kl_coefficient > 0
        if self._learners.connections:
            self._learners.ask(*command)

    def update(self, rows: Sequence[TokenRow], step: int, progress: Progress) -> UpdateReport:
        """Make one step's update; the trainer's policy has the new weights afterwards."""
        if self._config.method == "frozen":
            return UpdateReport.nothing()

        def receive(report: UpdateReport) -> None:
            if report.num_optimiser_steps:
                self._receive()

        report: UpdateReport = self._learners.ask(
            "update", rows, rate(self._config, step), self._dtypes(), then=receive
        )
        self._num_updates += report.num_optimiser_steps > 0
        release_cached_memory(self._policy.device)  # a judge on the same GPU is next
        return report

    def teach(self, rows: Sequence[TokenRow], lr: float, packed: bool) -> tuple[float, float, int]:
        """Make one update of a cold start on the learners alone; return loss, norm and tokens read."""
        taught: tuple[float, float, int] = self._learners.ask("teach", rows, lr, packed)
        self._num_updates += 1
        return taught

    def loss(self, rows: Sequence[TokenRow], packed: bool) -> float:
        """Nats a token of the answers."""
        return float(self._learners.ask("loss", rows, packed))

    def fill(self) -> None:
        """Copy the learners' weights into the trainer's policy."""
        self._learners.ask("give", self._dtypes(), then=lambda _: self._receive())

    def save(self, folder: Store) -> Callable[[], Files]:
        """Start writing on the learners; the returned call waits and returns the files."""
        written, after = self._empty(f"saved-{self._num_updates}"), self._num_updates
        self._learners.ask("save", str(written))

        def files() -> Files:
            if not self._learners.ask("saved", tries=1):
                raise WorkersLost("learners were lost while they wrote a checkpoint; it is left out")
            for file in sorted(written.iterdir()):
                with file.open("rb") as opened:
                    yield f"{SHARDS}/{file.name}", iter(lambda: opened.read(PART_BYTES), b"")
            shards = folder.child(f"trainer/{SHARDS}")
            kept = local_copy(shards, [], "") if shards.is_local else str(written)
            self._begin_with = after, ("restore", kept)
            for older in set(self._folder.glob("saved-*")) - {Path(kept)}:
                shutil.rmtree(older)

        return files

    def close(self) -> None:
        """Stop the learners."""
        self._learners.close()
        self._scratch.cleanup()

    def _brought_up(self) -> None:
        """Bring new learners to where the trainer is."""
        after, command = self._begin_with
        if after != self._num_updates:
            raise WorkersLost(
                f"learners were lost after {self._num_updates} updates, and their newest checkpoint is from "
                f"after {after}; the run goes back to it when it is called again"
            )
        if command is not None:
            self._learners.ask_once(*command)
        if self._is_holding:
            self._learners.ask_once("hold", self._store.child(REFERENCE).root)

    def _trained(self) -> list[torch.nn.Parameter]:
        return [p for p in self._policy.model.parameters() if p.requires_grad]

    def _dtypes(self) -> list[torch.dtype]:
        return [parameter.dtype for parameter in self._trained()]

    def _receive(self) -> None:
        """Take the weights that the first learner sends after its answer."""
        for parameter in self._trained():
            whole = torch.empty(parameter.shape, dtype=parameter.dtype)
            self._learners.connections[0].recv_bytes_into(whole.flatten().view(torch.uint8).numpy())
            parameter.data.copy_(whole)

    def _empty(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder
