"""Problems that ask for gradients say so: `# backward: inputs, parameters`, or `# backward: q, k`."""

from __future__ import annotations

import re

from kernel_core.records import Problem, sha256_text

_COMMENT = re.compile(r"^#\s*backward:\s*(.*\S)\s*$", re.MULTILINE)


def wanted_gradients(source: str) -> tuple[str, ...]:
    """Targets of a problem's gradients: `inputs` for all, `parameters`, or names of inputs of `forward`.

    Empty where a problem asks for none.
    """
    return tuple(word.strip() for line in _COMMENT.findall(source) for word in line.split(","))


def forward_alone(problem: Problem) -> Problem:
    """The problem without its gradients."""
    source = _COMMENT.sub("#", problem.source)
    return problem.model_copy(update={"source": source, "sha256": sha256_text(source)})
