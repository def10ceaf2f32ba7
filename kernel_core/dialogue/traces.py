"""Traces of references in prompts: made by processes of their own, since a reference is another's program."""

from __future__ import annotations

import functools
import logging
import os
import signal
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from types import FrameType

from kernel_core.records import Problem

log = logging.getLogger(__name__)

MAX_SECONDS = 20
"""Time of one trace; a reference that takes longer has none."""
_AT_ONCE = 16
_KEPT: dict[str, str] = {}
"""Traces by the hash of the problem."""


def trace_of(problem: Problem) -> str:
    """Return the trace of a problem's `forward`; empty where it cannot be traced."""
    keep_traces([problem])
    return _KEPT[problem.sha256]


def keep_traces(problems: Iterable[Problem]) -> None:
    """Make the traces that later prompts show, about 30 ms each on a core.

    Where a reference ends its process, each half of the problems that are left is tried again.
    """
    missing = [*{problem.sha256: problem for problem in problems if problem.sha256 not in _KEPT}.values()]
    if not missing:
        return
    with _processes(len(missing)) as processes:
        made = processes.map(functools.partial(_trace, seconds=MAX_SECONDS), missing, chunksize=_AT_ONCE)
        try:
            _KEPT.update((problem.sha256, text) for problem, text in zip(missing, made, strict=True))
            return
        except BrokenProcessPool:
            _kept_process.cache_clear()
    if len(missing) == 1:
        log.warning("%s ended the process that traced it; its prompt has no trace", missing[0].id)
        _KEPT[missing[0].sha256] = ""
        return
    half = len(missing) // 2
    keep_traces(missing[:half])
    keep_traces(missing[half:])


def _processes(num_problems: int) -> AbstractContextManager[ProcessPoolExecutor]:
    """One process a core for many problems; for few a kept one, as each step of a training has them."""
    from kernel_core.generator.graded import LEAST_SHARED, worker_processes  # which imports torch

    if num_problems < LEAST_SHARED:
        return nullcontext(_kept_process())
    return worker_processes(os.cpu_count() or 1)


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
