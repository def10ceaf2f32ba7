"""Text that Python cannot parse has its verdict without a judge: no process starts for it."""

from __future__ import annotations

import ast
import re

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.verdict.case import Case
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Evaluation, NoCandidate, Verdict

_FENCE = re.compile(r"^\s*(```|~~~)|</?KERNEL>", re.MULTILINE)


def parse_python(case: Case) -> ast.Module | None:
    """The candidate's syntax tree; None, and a failed case, for text that Python cannot parse."""
    try:
        return syntax_tree(case.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = str(getattr(error, "msg", error))
        if _FENCE.search(case.source):
            reason += " (this is an answer with a fenced block: give only the Python inside the fence)"
        case.fail(Verdict.MALFORMED, reason, getattr(error, "lineno", 0) or 0)
        return None


def not_python(request: JudgeRequest, device: str) -> Evaluation | None:
    """The verdict on text that Python cannot parse, as the judge gives it; None for any other."""
    if isinstance(request.candidate, NoCandidate):
        return None
    case = Case(request, seed=0)
    return case.evaluation(device, None, 0.0) if parse_python(case) is None else None
