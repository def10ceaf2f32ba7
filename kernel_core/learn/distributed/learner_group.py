"""The update on several GPUs of one host.

The trainer samples, judges and writes. torchrun starts the learners and, when one dies, starts all again.
Each learner has a shard of weights, gradients and moments (FSDP2, `member.py`). The trainer has a whole
policy in the type that samples, and neither gradients nor moments.

    trainer ──rows──▶ learner 0 … learner n−1 ──whole tensors, one by one──▶ trainer

Learners wait for the trainer without a limit; within an update they wait for one another `learner_timeout_s`
at most. New learners begin with the newest checkpoint and repeat the update that was under way: the trainer
counts it once. If an update came after that checkpoint, the trainer goes back to it, as after any fault.
"""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch

from kernel_core.config import TrainConfig
from kernel_core.errors import LearnersLost
from kernel_core.learn.batch import Row
from kernel_core.learn.checkpoint import SHARDS, Files
from kernel_core.learn.learner import REFERENCE, rate
from kernel_core.learn.update_report import UpdateReport
from kernel_core.policy.device_memory import give_back
from kernel_core.policy.folder import local_copy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress
from kernel_core.runs.placement import environment_with
from kernel_core.store import Store

log = logging.getLogger(__name__)

PART_BYTES = 1 << 24
TRIES = 3
"""Times that one command is given to new learners before the step is given up."""
RESTARTS = 1000
"""Starts that torchrun may make in a run: `TRIES` is the limit that counts."""


class LearnerGroup:
    """See `Learning`. `policy` is the trainer's; `store` is the run's."""

    optimiser = None

    def __init__(self, config: TrainConfig, policy: TorchPolicy, store: Store) -> None:
        self._config, self._policy, self._store = config, policy, store
        self._scratch = tempfile.TemporaryDirectory(prefix="dojo-learners-")
        self._folder = Path(self._scratch.name)
        (self._folder / "config.json").write_text(config.model_dump_json())
        policy.save(str(self._folder / "policy"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._folder / "socket"))
        self._listening.listen()
        self._listening.settimeout(1.0)
        self._learners: list[Connection] = []
        self._turn = threading.RLock()
        self._num_updates = 0
        self._begin_with: tuple[int, tuple[str, str] | None] = 0, None
        """What new learners are asked first, and after how many updates they are then."""
        self._is_holding = False
        self._agent = subprocess.Popen(
            f"{sys.executable} -m torch.distributed.run --standalone --local-addr=localhost "
            f"--nproc-per-node={config.num_learners} --max-restarts={RESTARTS} "
            f"-m kernel_core.learn.distributed.member {self._folder}".split(),
            env=environment_with(config.placement.learn) if config.samples_on_gpu else None,
        )

    def begin(self) -> None:
        """Before the first step: keep the policy as it is for the KL term, if there is one."""
        if self._config.kl_coefficient:
            self._policy.save(self._store.child(REFERENCE))
            self._is_holding = True
            self._ask("hold", self._store.child(REFERENCE).root)

    def went_back(self, folder: Store) -> None:
        """The policy is a checkpoint's now; learners take theirs from it, whatever number wrote it."""
        shards = folder.child(f"trainer/{SHARDS}")
        if names := shards.names():
            command = "restore", local_copy(shards, names, str(self._empty("restored")))
        else:
            command = "restore_whole", folder.root
        self._begin_with = self._num_updates, command
        self._is_holding = self._config.kl_coefficient > 0
        if self._learners:
            self._ask(*command)

    def update(self, rows: Sequence[Row], step: int, progress: Progress) -> UpdateReport:
        """One step's update; the trainer's policy has the new weights afterwards."""
        if self._config.method == "frozen":
            return UpdateReport.nothing()
        trained = [p for p in self._policy.model.parameters() if p.requires_grad]
        dtypes = [parameter.dtype for parameter in trained]

        def receive(report: UpdateReport) -> None:
            for parameter in trained if report.num_optimiser_steps else ():
                whole = torch.empty(parameter.shape, dtype=parameter.dtype)
                self._learners[0].recv_bytes_into(whole.flatten().view(torch.uint8).numpy())
                parameter.data.copy_(whole)

        report: UpdateReport = self._ask("update", rows, rate(self._config, step), dtypes, then=receive)
        self._num_updates += report.num_optimiser_steps > 0
        give_back(self._policy.device)  # a judge on the same GPU is next
        return report

    def save(self, folder: Store) -> Callable[[], Files]:
        """Have the learners begin to write; the call that comes back waits, and gives the files."""
        written, after = self._empty(f"saved-{self._num_updates}"), self._num_updates
        self._ask("save", str(written))

        def files() -> Files:
            if not self._ask("saved", tries=1):
                raise LearnersLost("learners were lost while they wrote a checkpoint; it is left out")
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
        """End the learners: they leave when their connection ends."""
        self._drop()
        self._listening.close()
        try:
            self._agent.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._agent.terminate()
            self._agent.wait()
        self._scratch.cleanup()

    def _ask(self, *command: Any, then: Callable[[Any], None] | None = None, tries: int = TRIES) -> Any:
        """The first learner's answer; lost learners are replaced, and the new ones are asked the same."""
        with self._turn:
            for _ in range(tries):
                try:
                    if not self._learners:
                        self._connect()
                    answer = self._told(*command)
                    if then is not None:
                        then(answer)
                except (EOFError, OSError) as error:
                    log.warning("learners were lost during %s (%s); new ones are started", command[0], error)
                    self._drop()
                else:
                    return answer
        raise LearnersLost(
            f"learners were lost {tries} times during {command[0]}; their errors are above in the log"
        )

    def _told(self, name: str, *arguments: Any) -> Any:
        message = ForkingPickler.dumps((name, arguments))
        for learner in self._learners:
            learner.send_bytes(message)
        first, *_ = [learner.recv() for learner in self._learners]
        return first

    def _connect(self) -> None:
        """Wait for learners of one start, and bring them to where the trainer is."""
        found: dict[int, dict[int, Connection]] = {}
        while not self._learners:
            try:
                learner = Connection(self._listening.accept()[0].detach())
                start, rank = learner.recv()
            except TimeoutError:
                if (code := self._agent.poll()) is not None:
                    raise LearnersLost(f"torchrun ended with exit code {code}; start the run again") from None
                continue
            except (EOFError, OSError):
                continue
            of_start = found.setdefault(start, {})
            of_start[rank] = learner
            if len(of_start) == self._config.num_learners:
                self._learners = [of_start[rank] for rank in range(self._config.num_learners)]
        after, command = self._begin_with
        if after != self._num_updates:
            raise LearnersLost(
                f"learners were lost after {self._num_updates} updates, and their newest checkpoint is from "
                f"after {after}; the run goes back to it"
            )
        if command is not None:
            self._told(*command)
        if self._is_holding:
            self._told("hold", self._store.child(REFERENCE).root)

    def _drop(self) -> None:
        for learner in self._learners:
            learner.close()
        self._learners = []

    def _empty(self, name: str) -> Path:
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder
