"""What a candidate does at its problem's own sizes, by a rehearsal of its host code (docs/decisions/0014)."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernel_core.gym.arena import lay_out
from kernel_core.gym.bench import Bench
from kernel_core.gym.case import Case
from kernel_core.gym.claims import Failure, Rehearsed
from kernel_core.gym.delivery import fill, pack
from kernel_core.gym.problem_module import ProblemModule, own_seeds
from kernel_core.gym.reference import Reference
from kernel_core.gym.runs import Answer, describe
from kernel_core.gym.traffic import EagerTraffic, as_much_as_all, predict, scaled
from kernel_core.gym.work import Work
from kernel_core.records import Verdict


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A pass at the problem's own sizes: each launch's kernel and number of programs, and the library's
    works."""

    launches: tuple[tuple[str, int], ...]
    works: tuple[Work, ...]


def rehearse(case: Case, reference: Reference, bench: Bench) -> Rehearsal | None:
    """Have host code run without data. None, with a finding, where that tells nothing of the candidate."""
    problem = reference.problem
    header = {
        "source": case.source,
        "precision": problem.precision,
        "sizes": [_describe_size(reference, source) for source in (reference.source, problem.source)],
    }
    with bench.converse("rehearse") as talk:
        answer = talk.ask(header, (Rehearsed, Failure))
    if not isinstance(answer, Answer) or not isinstance(answer.claim, Rehearsed):
        case.note("not_rehearsed", describe(answer)[:200])
        return None
    control, own = answer.claim.passes
    if Counter(control.launches) != _launched(case):
        case.note("not_rehearsed", "without data, its host code launches other kernels or grids")
        return None
    if not own.launches:
        case.note("no_own_kernel", "at the problem's own sizes, no JIT function of its own is launched")
        case.fail(Verdict.HACKED, "at the problem's own sizes, no kernel of its own is launched")
    elif missing := sorted({name for name, _ in own.launches} - {name for name, _ in control.launches}):
        case.note("other_kernels_at_own_sizes", f"not judged: {', '.join(missing)[:200]}")
    return Rehearsal(own.launches, tuple(Work(**work.model_dump()) for work in own.works))


def works_at_own_sizes(
    works: Sequence[Work], eager: EagerTraffic, rehearsal: Rehearsal | None, gpu: str
) -> list[Work]:
    """Works counted at the run sizes, as they would be at the problem's own: own kernels' scaled and spread
    over the launches there, and the library's as they are there. They are not believed to be less than what
    was counted and scaled."""
    counted = scaled(works, eager)
    if rehearsal is None:
        return counted
    own = [work for work in counted if work.own]
    by_kernel: dict[str, list[int]] = {}
    for name, programs in rehearsal.launches:
        by_kernel.setdefault(name, []).append(programs)
    if by_kernel.keys() == {work.name for work in own}:
        parts = [([work for work in own if work.name == name], grids) for name, grids in by_kernel.items()]
    else:
        parts = [(own, [programs for _, programs in rehearsal.launches])]
    rehearsed = [work for part in parts for work in _spread(*part)]
    rehearsed += [as_much_as_all(work, eager) for work in rehearsal.works]
    return max(rehearsed, counted, key=lambda some: predict(some, gpu)[0].predicted_ms)


def _spread(works: Sequence[Work], programs: Sequence[int]) -> list[Work]:
    """The works, done by one launch for each of these numbers of programs: each its own where there are as
    many, and else all alike."""
    if len(works) == len(programs):
        return [replace(work, programs=count) for work, count in zip(works, programs, strict=True)]
    operations: Counter[str] = Counter()
    for work in works:
        operations.update(work.operations)
    return [
        Work(
            name=works[0].name,
            own=True,
            bytes_accessed=sum(work.bytes_accessed for work in works) // len(programs),
            bytes_distinct=sum(work.bytes_distinct for work in works) // len(programs),
            operations={kind: total // len(programs) for kind, total in operations.items()},
            programs=count,
            balance=statistics.fmean(work.balance for work in works),
            copies_only=all(work.copies_only for work in works),
        )
        for count in programs
    ]


def _describe_size(reference: Reference, source: str) -> dict[str, Any]:
    """Arguments and inputs without contents, laid out as a candidate gets them."""
    problem = reference.problem
    program = ProblemModule(source, problem.id, problem.precision, "meta")
    described = {}
    with own_seeds("meta"):
        for part, values in (("arguments", program.arguments()), ("inputs", program.inputs())):
            tensors: list[torch.Tensor] = []
            packed = pack(values, tensors)
            slots, _ = lay_out([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
            described[part] = fill(packed, slots)
    return described


def _launched(case: Case) -> Counter[tuple[str, int]]:
    return Counter((case.kernels[one.launch].name, math.prod(one.grid)) for one in case.launches)
