"""The life of a judge process, and what its ancestors warm up for it."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_core.config import GymConfig
from kernel_core.errors import DojoError, GymUnavailable
from kernel_core.gym import replay, runner, wire, zygote
from kernel_core.gym.interpret import prepare_interpreter
from kernel_core.gym.judge import Judge
from kernel_core.gym.protocol import JudgeRequest

_log = logging.getLogger(__name__)


def warm_up() -> None:
    """Touch what the first candidate would otherwise pay for: operators, one interpreted launch, and the
    meta device, whose first operator imports several hundred modules."""

    @triton.jit  # type: ignore[untyped-decorator]
    def copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.arange(0, BLOCK)
        tl.store(target + offsets, tl.load(source + offsets))

    torch.set_num_threads(1)
    prepare_interpreter()
    source, target = torch.ones(16, 16), torch.empty(16, 16)
    copy[(1,)](source, target, BLOCK=256)
    torch.nn.functional.conv2d(source @ target.reshape(1, 1, 16, 16), torch.ones(1, 1, 3, 3))
    with torch.device("meta"), torch.no_grad():
        torch.softmax(torch.nn.Linear(4, 4)(torch.rand(2, 4)), dim=-1)


def live(pool: socket.socket, compilers: socket.socket) -> None:
    """First fork its own zygote, then answer requests until the pool goes away."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            for other in (pool, compilers, ours):
                other.close()
            zygote.serve(theirs, {"runner": runner.run, "replay": replay.replay})
        os._exit(0)
    theirs.close()
    gc.freeze()
    hello = wire.receive(pool).header
    with tempfile.TemporaryDirectory(prefix="judge-", dir=hello["base"]) as folder:
        Path(folder).chmod(0o711)
        judge = Judge(GymConfig.model_validate(hello["config"]), ours, compilers, folder)
        while True:
            try:
                message = wire.receive(pool)
            except wire.ChannelClosed:
                return
            wire.send(pool, _answer(judge, message.header))


def _answer(judge: Judge, header: dict[str, Any]) -> dict[str, Any]:
    request = JudgeRequest.model_validate(header["request"])
    try:
        evaluation = judge.evaluate(request, int(header["seed"]))
    except DojoError as error:
        return {"error": type(error).__name__, "message": str(error)}
    except Exception as error:
        _log.exception("judging %s", request.problem.id)
        message = f"the judge failed on {request.problem.id}: {type(error).__name__}: {error}"
        return {"error": GymUnavailable.__name__, "message": message}
    return {"evaluation": evaluation.model_dump(mode="json")}
