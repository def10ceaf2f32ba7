"""Problems that ask for gradients say so in a comment: `# backward: inputs, parameters`."""

from __future__ import annotations

import re

from kernel_core.errors import NotAProblem
from kernel_core.records import Problem, sha256_text

KINDS = ("inputs", "parameters")
_COMMENT = re.compile(r"^#\s*backward:\s*(.*\S)\s*$", re.MULTILINE)


def wanted_gradients(source: str) -> tuple[str, ...]:
    """What a problem's gradients are of: of `inputs`, of `parameters`, of both, or of nothing. Raises
    `NotAProblem`."""
    found = [word.strip() for line in _COMMENT.findall(source) for word in line.split(",")]
    if unknown := sorted({*found} - {*KINDS}):
        raise NotAProblem(f"# backward: names {unknown[0]!r}; there is: {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in found)


def forward_alone(problem: Problem) -> Problem:
    """The problem without its gradients."""
    source = _COMMENT.sub("#", problem.source)
    return problem.model_copy(update={"source": source, "sha256": sha256_text(source)})
