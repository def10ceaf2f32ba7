"""A generated problem and kernels for it, each of a quality that is known by construction."""

from __future__ import annotations

from typing import Any, Literal

from kernel_core.records import Problem, Record, sha256_text

Grade = Literal["naive", "fused", "tuned", "mistake", "lazy"]


class GradedKernel(Record):
    """A kernel for a generated problem and how good it is by construction."""

    grade: Grade
    fault: str = ""
    """Fault of a mistaken kernel."""
    source: str
    thinking: str


class Generated(Record):
    """A problem and the kernels that were drawn or written with it, if any."""

    problem: Problem
    kernels: tuple[GradedKernel, ...] = ()


def identity_of(suite: str, family: str, source: str) -> dict[str, Any]:
    """The fields of a generated problem that its text decides: text, hash, name and id."""
    sha256 = sha256_text(source)
    name = f"{family}-{sha256[:12]}"
    return {"id": f"{suite}/{name}", "name": name, "source": source, "sha256": sha256}
