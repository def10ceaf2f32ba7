"""The life of a judge process, and what its ancestors warm up for it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_core.config import GymConfig
from kernel_core.errors import DojoError, GymUnavailable
from kernel_core.gym.channel import framing
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.cpu_judge import CpuJudge
from kernel_core.gym.judge.cuda_judge import CudaJudge
from kernel_core.gym.judge.death_verdict import blame
from kernel_core.gym.judge.extension_check import Builder
from kernel_core.gym.judge.judge import Judge
from kernel_core.gym.processes.cuda_workers import CudaWorkers, bring_up, wait_for_job
from kernel_core.gym.sandbox import fork_server
from kernel_core.gym.sandbox.fork_server import ForkServer, ForkServerLost
from kernel_core.gym.timing.nvml import gpu_architecture, keep_to_gpu
from kernel_core.gym.untrusted.candidate import dry_run, runner
from kernel_core.gym.untrusted.compile import nvcc_job
from kernel_core.gym.untrusted.interpreter.patches import prepare_interpreter
from kernel_core.gym.untrusted.replay import replay
from kernel_core.gym.workers.workers import CpuWorkers
from kernel_core.store import Store

_log = logging.getLogger(__name__)
_JOBS: dict[str, fork_server.Job] = {
    "runner": runner.run,
    "runner_on_one_processor": runner.run_on_one_processor,
    "replay": replay.replay,
    "rehearse": dry_run.rehearse,
}
_FORK_SERVERS_BY_GPU = 3
"""Each waits while a process of its own goes, which takes a GPU's context a while."""
_BUILDS = "builds"
"""The folder of builds, kept as long as the gym: judges may die meanwhile."""


def warm_up() -> None:
    """Load what the first candidate would otherwise pay for: operators, one interpreted launch, imports."""

    @triton.jit  # type: ignore[untyped-decorator]
    def copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.arange(0, BLOCK)
        tl.store(target + offsets, tl.load(source + offsets))

    torch.set_num_threads(1)
    prepare_interpreter()
    source, target = torch.ones(16, 16), torch.empty(16, 16)
    copy[(1,)](source, target, BLOCK=256)
    torch.nn.functional.conv2d(source @ target.reshape(1, 1, 16, 16), torch.ones(1, 1, 3, 3))
    load_late_modules()


def load_late_modules() -> None:
    """Import what torch imports at the first operator of the meta device and at the first gradient: several
    hundred modules, for which each candidate's process would pay seconds. Libraries of kernels name
    `torch.distributed.tensor`, which they find imported elsewhere."""
    for name in ("torch.distributed.tensor", "torch.fx.experimental.symbolic_shapes"):
        importlib.import_module(name)
    with torch.device("meta"), torch.no_grad():
        torch.softmax(torch.nn.Linear(4, 4)(torch.rand(2, 4)), dim=-1)


def live(pool: socket.socket, compilers: socket.socket) -> None:
    """First fork its own fork server, then answer requests until the pool goes away."""
    runners = _start_fork_server(_JOBS, (pool, compilers))
    gc.freeze()
    hello = framing.receive(pool).header
    config = GymConfig.model_validate(hello["config"])
    with _folder(hello["base"]) as folder:
        workers = CpuWorkers(config, ForkServer(runners), folder)
        _answer_all(pool, CpuJudge(config, workers, ForkServer(compilers), folder))


def live_on_gpu(channels: socket.socket, index: int) -> None:
    """The judge of one GPU: every channel that comes in over `channels` is answered by a thread."""
    keep_to_gpu(index)
    fork_servers = [
        _start_fork_server({"warm": wait_for_job}, (channels,), prepare=bring_up)
        for _ in range(_FORK_SERVERS_BY_GPU)
    ]
    builders = ForkServer(_start_fork_server({"build": nvcc_job.build}, (channels,)))
    gc.freeze()
    judge: Judge | None = None
    with contextlib.ExitStack() as stack:
        while True:
            try:
                message = framing.receive(channels, take_descriptors=True)
            except framing.ChannelClosed:
                return
            channel = socket.socket(fileno=message.descriptors[0])
            hello = framing.receive(channel).header
            if judge is None:
                config = GymConfig.model_validate(hello["config"])
                folder = stack.enter_context(_folder(hello["base"]))
                workers = CudaWorkers(config, [ForkServer(fd) for fd in fork_servers], folder)
                shelf = Store(f"{hello['base']}/{_BUILDS}")
                builder = Builder(builders, folder, gpu_architecture(), shelf)
                judge = CudaJudge(config, workers, builder, Store(hello["store"]) if hello["store"] else None)
            threading.Thread(target=_answer_all, args=(channel, judge), daemon=True).start()


def _start_fork_server(
    jobs: dict[str, fork_server.Job],
    foreign: tuple[socket.socket, ...],
    prepare: Callable[[], None] | None = None,
) -> socket.socket:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            for other in (*foreign, ours):
                other.close()
            fork_server.serve(theirs, jobs, prepare)
        os._exit(0)
    theirs.close()
    return ours


@contextlib.contextmanager
def _folder(base: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="judge-", dir=base) as folder:
        Path(folder).chmod(0o711)
        yield folder


def _answer_all(channel: socket.socket, judge: Judge) -> None:
    while True:
        try:
            message = framing.receive(channel)
            framing.send(channel, _answer(judge, message.header))
        except framing.ChannelClosed:
            return


def _answer(judge: Judge, header: dict[str, Any]) -> dict[str, Any]:
    request, seed = JudgeRequest.model_validate(header["request"]), int(header["seed"])
    blamed = str(header["blamed"])
    try:
        evaluation = blame(judge, request, seed, blamed) if blamed else judge.evaluate(request, seed)
    except DojoError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except ForkServerLost:
        # Its pool notices the end and starts another.
        os._exit(1)
    except Exception as error:
        _log.exception("judging %s", request.problem.id)
        message = f"the judge failed on {request.problem.id}: {type(error).__name__}: {error}"
        return {"error": GymUnavailable.__name__, "message": message}
    return {"evaluation": evaluation.model_dump(mode="json")}
