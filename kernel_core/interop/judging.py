"""Many requests for a judge, some of which may stay without an evaluation."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kernel_core.errors import GymUnavailable
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.records import Evaluation, NotJudged

_log = logging.getLogger(__name__)


def judge_or_none(gym: Gym, requests: Sequence[JudgeRequest]) -> list[Evaluation | None]:
    """Judge each request, in order; None where the gym failed twice or its problem is none there.

    A fault of the gym is never an evaluation, and so never a reward. Raises `GymUnavailable` when every
    request failed.
    """
    try:
        return [_evaluation_or_none(outcome) for outcome in gym.judge(requests)]
    except GymUnavailable as error:
        _log.warning("a judgement failed and is tried again: %s", error)
    evaluations = [_judge_one(gym, request) for request in requests]
    if requests and not any(evaluations):
        raise GymUnavailable(f"the gym left all of {len(requests)} candidates without an evaluation")
    return evaluations


def _judge_one(gym: Gym, request: JudgeRequest) -> Evaluation | None:
    try:
        return _evaluation_or_none(gym.judge([request])[0])
    except GymUnavailable as error:
        _log.warning("left out: %s", error)
        return None


def _evaluation_or_none(outcome: Evaluation | NotJudged) -> Evaluation | None:
    if isinstance(outcome, Evaluation):
        return outcome
    _log.warning("left out: %s", outcome.reason)
    return None
