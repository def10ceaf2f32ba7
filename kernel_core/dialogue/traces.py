"""Traces of references in prompts: made by processes of their own, since a reference is another's program."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import FrameType

from kernel_core.records import Problem

log = logging.getLogger(__name__)

MAX_SECONDS = 20
"""Time of one trace; a reference that takes longer has none."""
_PER_PROCESS = 16
_KEPT: dict[str, str] = {}
"""Traces by the hash of the problem."""


def trace_of(problem: Problem) -> str:
    """Return the trace of a problem's `forward`; empty where it cannot be traced."""
    keep_traces([problem])
    return _KEPT[problem.sha256]


def keep_traces(problems: Iterable[Problem]) -> None:
    """Make the traces that later prompts show, about 30 ms each on a core."""
    missing = {problem.sha256: problem for problem in problems if problem.sha256 not in _KEPT}
    if missing:
        _make(list(missing.values()))


def _make(problems: list[Problem]) -> None:
    """Make traces; where a reference ends its process, each half of the problems is tried again."""
    count = min(os.cpu_count() or 1, math.ceil(len(problems) / _PER_PROCESS))
    with _processes(count) as processes:
        made = processes.map(functools.partial(_trace, seconds=MAX_SECONDS), problems, chunksize=_PER_PROCESS)
        try:
            _KEPT.update((problem.sha256, text) for problem, text in zip(problems, made, strict=True))
            return
        except BrokenProcessPool:
            _kept_process.cache_clear()
    if len(problems) == 1:
        log.warning("%s ended the process that traced it; its prompt has no trace", problems[0].id)
        _KEPT[problems[0].sha256] = ""
        return
    half = len(problems) // 2
    _make(problems[:half])
    _make(problems[half:])


@contextlib.contextmanager
def _processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that trace: a kept one for few problems, as each step of a training has them."""
    from kernel_core.generator.graded import worker_processes  # which imports torch

    if count == 1:
        yield _kept_process()
        return
    with worker_processes(count) as processes:
        yield processes


@functools.cache
def _kept_process() -> ProcessPoolExecutor:
    from kernel_core.generator.graded import worker_processes

    return worker_processes(1)


def _trace(problem: Problem, seconds: int) -> str:
    from kernel_core.generator.trace import trace

    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    try:
        return trace(problem)
    except (TimeoutError, SystemExit):
        return ""
    finally:
        signal.alarm(0)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TimeoutError
