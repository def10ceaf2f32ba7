"""Kernels with their verdicts, as `dojo judge` tells them to other programs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kernel_core.config import GymConfig
from kernel_core.errors import CallerError, DojoError
from kernel_core.gym.contract.requests import JudgeRequest, TakenOut
from kernel_core.gym.judge.json_report import judge_report
from kernel_core.gym.judge.not_python import not_python
from kernel_core.problems.gradients import forward_alone, wanted_gradients
from kernel_core.problems.source import with_members
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation
from kernel_core.runs.configure import build

if TYPE_CHECKING:
    from kernel_core.gym.pool.pool import PooledGym

_MAX_CPU_JUDGES = 16
"""Each takes up to a gigabyte of memory."""
_MAX_GPUS = 64
"""More than any node has."""
_Judge = Callable[[list[JudgeRequest]], Sequence[Evaluation | DojoError]]
_TIMES = ("runtime_ms", "reference_ms", "predicted_runtime_ms", "predicted_reference_ms")


class JudgedRequest(NamedTuple):
    """Request, or the reason for none, with its outcome."""

    request: JudgeRequest | CallerError
    outcome: Evaluation | DojoError
    forward: Evaluation | DojoError | None
    """Evaluation of the same kernel without the problem's gradients: the times of the forward pass."""

    def report(self, gym: GymConfig) -> dict[str, Any]:
        """Return the keys of `dojo judge --json`. Raises the error that is there in place of a verdict."""
        if not isinstance(self.outcome, Evaluation):
            raise self.outcome
        assert isinstance(self.request, JudgeRequest), "a verdict without its request"
        report = judge_report(self.outcome)
        own, run = self.request.problem.constants, self.outcome.run_sizes
        if not run.keys() <= own.keys():
            own = own | {name: with_members(self.request.problem).constants[name] for name in run}
        report["sizes"] = {**own, **run}
        report["in_place_of"] = {name: own[name] for name in run if own[name] != run[name]}
        if gym.rules == "kernelbench":
            from kernel_core.gym.judge.kernelbench_rules import result_of  # with torch, which takes seconds

            report["kernelbench"] = result_of(self.outcome)
        if isinstance(self.forward, Evaluation):
            times = judge_report(self.forward)
            report |= {f"forward_{name}": times[name] for name in _TIMES}
        return report


def judge_all(
    requests: Sequence[JudgeRequest | CallerError], device: str, judge: _Judge
) -> list[JudgedRequest]:
    """Judge each request; return the outcomes in order.

    `judge` is not asked where everything is known without it: an error, or text that is not Python. For a
    problem with gradients it is asked a second time without them.
    """
    known = [
        request if isinstance(request, CallerError) else not_python(request, device) for request in requests
    ]
    without = [_without_gradients(request) for request in requests]
    asked = [
        variant
        for request, forward, outcome in zip(requests, without, known, strict=True)
        for variant in (request, forward)
        if isinstance(variant, JudgeRequest) and outcome is None
    ]
    answers = iter(judge(asked) if asked else ())
    return [
        JudgedRequest(request, outcome or next(answers), (outcome or next(answers)) if forward else None)
        for request, forward, outcome in zip(requests, without, known, strict=True)
    ]


def judge_here(
    requests: Sequence[JudgeRequest | CallerError], gym: dict[str, str], progress: Progress = silent
) -> tuple[list[JudgedRequest], tuple[TakenOut, ...]]:
    """Judge requests with judges of this process; return the outcomes, and the judges taken out meanwhile.

    `gym` are settings of `GymConfig`. Judges start for the requests that need one, and end with the last.
    """
    opened: PooledGym | None = None
    with contextlib.ExitStack() as stack:

        def ask(asked: list[JudgeRequest]) -> list[Evaluation | DojoError]:
            nonlocal opened
            if opened is None:
                from kernel_core.gym.pool.open_gym import open_gym

                workers = _num_workers(len(asked), gym)
                opened = stack.enter_context(open_gym(build(GymConfig, gym | {"workers": workers})))
            return opened.judge_each(asked, progress)

        judged = judge_all(requests, gym["device"], ask)
        return judged, opened.taken_out if opened else ()


def _num_workers(num_requests: int, gym: dict[str, str]) -> int:
    """Return the number of judges: one for one kernel; for many, the cores or the GPUs of this host, or of
    each node."""
    if num_requests == 1 or gym["device"] == "cpu":
        return min(_MAX_CPU_JUDGES, len(os.sched_getaffinity(0)), num_requests)
    if gym["cluster"] == "ray":
        return _MAX_GPUS
    import torch

    return max(1, torch.cuda.device_count())


def _without_gradients(request: JudgeRequest | CallerError) -> JudgeRequest | None:
    """Return the same kernel for the forward pass alone: another candidate of another problem."""
    if isinstance(request, CallerError) or not wanted_gradients(request.problem.source):
        return None
    return request.model_copy(update={"problem": forward_alone(request.problem)})
