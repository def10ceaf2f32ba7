"""The verdict on a candidate on which several judges died."""

from __future__ import annotations

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.judge import Judge
from kernel_core.gym.verdict.case import Case
from kernel_core.records import Candidate, Evaluation, Verdict

_IDLE = """
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, *arguments, **settings):
        super().__init__()

    def forward(self, *inputs):
        return None
"""


def idle_request(request: JudgeRequest) -> JudgeRequest:
    """A candidate that does nothing for the same problem: a judge that dies on it dies of the problem."""
    return request.model_copy(update={"candidate": Candidate.from_source(_IDLE), "seed": None})


def blame(judge: Judge, request: JudgeRequest, seed: int, reason: str) -> Evaluation:
    """`crashed`, if this judge lives after a candidate that does nothing. If it dies, the problem is the
    cause, and there is no verdict. Raises as `Judge.evaluate` does."""
    idle = judge.evaluate(idle_request(request), seed)
    case = Case(request, seed=seed)
    detail = f"{reason}, and none on a candidate that does nothing"
    case.note("judge_died", detail)
    case.fail(Verdict.CRASHED, detail)
    return case.evaluation(idle.device, idle.platform, idle.seconds)
