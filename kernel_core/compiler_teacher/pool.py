"""Captures many problems, each in a forked process of its own, with a deadline and bounded memory."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from kernel_core.compiler_teacher.capture import CannotCapture, Captured, capture
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem

_MEMORY_BYTES = 9 << 30
_POLL_S = 0.02
_WARM = """# cpu: N=5, B=3
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layer = nn.Linear(n, n)
        self.norm = nn.LayerNorm(n)

    def forward(self, x):
        return torch.softmax(self.norm(torch.relu(self.layer(x))), -1)


N = 64
B = 32


def get_inputs():
    return [torch.randn(B, N)]


def get_init_inputs():
    return [N]
"""
"""Captured once before any fork, so that a child finds the compiler imported."""


@dataclass(frozen=True)
class _Running:
    position: int
    file: Path
    began: float


def captured(
    problems: Sequence[Problem], processes: int = 2, deadline_s: float = 120.0
) -> Iterator[tuple[int, Captured | str]]:
    """Positions with the code of each problem, or the reason why there is none, as they are ready.

    It changes settings of torch in this process, and forks: call it in a process without other work.
    """
    torch.set_num_threads(1)
    capture(parse_problem(_WARM, id="teacher/warm", suite="teacher"))
    torch._dynamo.reset()
    todo = list(enumerate(problems))
    running: dict[int, _Running] = {}
    with tempfile.TemporaryDirectory(prefix="teacher-") as folder:
        while todo or running:
            while todo and len(running) < processes:
                position, problem = todo.pop(0)
                file = Path(folder) / f"{position}.json"
                running[_forked(problem, file)] = _Running(position, file, time.monotonic())
            for pid, one in list(running.items()):
                ended, _ = os.waitpid(pid, os.WNOHANG)
                late = time.monotonic() - one.began > deadline_s
                if not (ended or late):
                    continue
                if not ended:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                del running[pid]
                yield one.position, _read(one.file, late)
            time.sleep(_POLL_S)


def _forked(problem: Problem, file: Path) -> int:
    """The child's process; it leaves its answer in the file."""
    pid = os.fork()
    if pid:
        return pid
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        partial = file.with_suffix(".part")
        partial.write_text(_answer(problem))
        partial.rename(file)
    finally:
        os._exit(0)


def _answer(problem: Problem) -> str:
    try:
        return capture(problem).model_dump_json()
    except CannotCapture as reason:
        return json.dumps(str(reason))
    except Exception as error:
        return json.dumps(f"{type(error).__name__} in the module")


def _read(file: Path, late: bool) -> Captured | str:
    with contextlib.suppress(FileNotFoundError):
        answer = json.loads(file.read_text())
        return answer if isinstance(answer, str) else Captured.model_validate(answer)
    return "takes too long" if late else "ends its process"
