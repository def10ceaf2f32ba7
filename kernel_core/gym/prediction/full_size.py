"""A candidate's work at its problem's own sizes, by a dry run of its host code (docs/decisions/0014)."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernel_core.gym.channel.loop_coverage import Turns, turns_of
from kernel_core.gym.channel.messages import Failure, Kernel, Launch, Rehearsed, RehearsedPass
from kernel_core.gym.channel.shared_arena import lay_out, like_these, slots_to_json
from kernel_core.gym.channel.torch_ops import only_moves
from kernel_core.gym.channel.work import Work
from kernel_core.gym.oracle.problem_module import ProblemModule, own_seeds
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.prediction.roofline import (
    EagerTraffic,
    as_much_as_all,
    least_time_ms,
    predict,
    scaled,
    work_time_ms,
)
from kernel_core.gym.verdict.case import Case
from kernel_core.gym.workers.child import Answer, describe
from kernel_core.gym.workers.payload import pack
from kernel_core.gym.workers.workers import Workers
from kernel_core.problems.source import resize
from kernel_core.records import Constant, Verdict

_NO_DOUBT = "predicted with no more programs than ran"
_USUAL_GROWTH = 16
"""The factor by which an honest candidate's use of one operator may grow faster than the reference's works.
Parts of a reference grow by different powers of its sizes."""
_SMALL_PART = 0.5
KernelLine = tuple[str, int]
"""A kernel's name and line."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A pass at the problem's own sizes: each launch's kernel and number of programs, and the library's
    works."""

    launches: tuple[tuple[str, int], ...]
    works: tuple[Work, ...]
    works_at_run_sizes: tuple[Work, ...] = ()
    other_kernels: tuple[str, ...] = ()
    """Launched there only."""
    kernels: tuple[Kernel, ...] = ()
    distinct: tuple[Launch, ...] = ()
    """The launches that differ."""
    turns: Turns = field(default_factory=dict)


def rehearse(case: Case, reference: Reference, workers: Workers) -> Rehearsal | None:
    """Have host code run without data. None, with a finding, where that tells nothing of the candidate."""
    rehearsed = run_without_data(case, reference, (reference.sizes, {}), workers)
    if isinstance(rehearsed, str):
        case.note("not_rehearsed", f"{rehearsed[:150]}; {_NO_DOUBT}")
        return None
    for failure in rehearsed.passes:
        if isinstance(failure, Failure):
            case.note("not_rehearsed", f"{describe(failure)[:150]}; {_NO_DOUBT}")
            return None
    control, own = (tried for tried in rehearsed.passes if isinstance(tried, RehearsedPass))
    kernels = rehearsed.kernels
    if Counter(_launches(kernels, control)) != _launched(case):
        case.note("not_rehearsed", f"without data, its host code launches otherwise; {_NO_DOUBT}")
        return None
    programs, own_programs = (num_programs(kernels, some) for some in (control, own))
    launches = [(name, math.prod(grid)) for name, grid in _launches(kernels, own)]
    return Rehearsal(
        launches=tuple(launches),
        works=_works(own),
        works_at_run_sizes=_works(control),
        other_kernels=tuple(sorted({name for name, _ in own_programs.keys() - programs.keys()})),
        kernels=kernels,
        distinct=own.distinct,
        turns=turns_of(own.turns, kernels, own.distinct),
    )


def run_without_data(
    case: Case, reference: Reference, sizes: Sequence[Mapping[str, Constant]], workers: Workers
) -> Rehearsed | str:
    """The launches of host code at each of these sizes of the problem, or the reason why they are unknown."""
    header = {
        "configuration": case.configuration,
        "precision": reference.problem.precision,
        "gradients": reference.gradients,
        "sizes": [_describe_size(case, reference, run_sizes) for run_sizes in sizes],
    }
    with workers.open_child("rehearse") as talk:
        answer = talk.ask(header, (Rehearsed, Failure))
    claim = answer.claim if isinstance(answer, Answer) else None
    return claim if isinstance(claim, Rehearsed) and len(claim.passes) == len(sizes) else describe(answer)


def num_programs(kernels: Sequence[Kernel], some: RehearsedPass) -> dict[KernelLine, int]:
    """The number of programs in the largest launch, by kernel."""
    most: dict[KernelLine, int] = {}
    for launch in some.distinct:
        kernel = (kernels[launch.launch].name, kernels[launch.launch].line)
        most[kernel] = max(math.prod(launch.grid), most.get(kernel, 0))
    return most


def check_at_own_sizes(case: Case, rehearsal: Rehearsal, eager: EagerTraffic, gpu: str) -> None:
    """At the problem's own sizes own kernels are launched, and the library does no work in their place."""
    if not rehearsal.launches:
        case.note("no_own_kernel", "at the problem's own sizes, no JIT function of its own is launched")
        case.fail(Verdict.HACKED, "at the problem's own sizes, no kernel of its own is launched")
    elif rehearsal.other_kernels:
        names = ", ".join(rehearsal.other_kernels)
        case.note("other_kernels_at_own_sizes", f"not judged: {names[:200]}")
    if operators := taken_over(rehearsal, eager, gpu):
        case.note("library_at_own_sizes", f"not at the sizes that were judged: {', '.join(operators)[:200]}")
        case.fail(Verdict.HACKED, f"at the problem's own sizes, the library does the work: {operators[0]}")


def taken_over(rehearsal: Rehearsal, eager: EagerTraffic, gpu: str) -> list[str]:
    """Library operators that compute at the problem's own sizes but next to nothing at the run sizes. A small
    part is allowed: less than half of the compulsory time is no replacement for a kernel."""
    usual: defaultdict[str, float] = defaultdict(float)
    for work in scaled(rehearsal.works_at_run_sizes, eager):
        usual[work.name] += work_time_ms(work, gpu)
    times: defaultdict[str, float] = defaultdict(float)
    for work in rehearsal.works:
        if not only_moves(work.name):
            times[work.name] += work_time_ms(as_much_as_all(work, eager), gpu)
    new = {name: time for name, time in times.items() if time > _USUAL_GROWTH * usual[name]}
    return sorted(new) if sum(new.values()) > _SMALL_PART * least_time_ms(eager, gpu) else []


def works_at_own_sizes(
    works: Sequence[Work],
    eager: EagerTraffic,
    rehearsal: Rehearsal | None,
    gpu: str,
    ran: Sequence[tuple[str, int]] = (),
) -> list[Work]:
    """Works counted at the run sizes, scaled to the problem's own sizes. Own kernels are scaled and spread
    over the launches there, and the library's works are taken from there. They never count for less than the
    scaled counts. Without a dry run only the launches that `ran` are known."""
    counted = scaled(works, eager, _growth(ran, rehearsal.launches) if rehearsal is not None else None)
    own = [work for work in counted if work.own]
    if rehearsal is None:
        is_known = bool(ran) and eager.at_own_sizes
        return [*_spread_by_kernel(own, ran), *_of_library(counted)] if is_known else counted
    rehearsed = _spread_by_kernel(own, rehearsal.launches)
    rehearsed += [as_much_as_all(work, eager) for work in rehearsal.works]
    return max(rehearsed, counted, key=lambda some: predict(some, gpu)[0].predicted_ms)


def _growth(ran: Sequence[tuple[str, int]], there: Sequence[tuple[str, int]]) -> dict[str, float]:
    """Return the factor by which the programs of each kernel grow, over all its launches."""
    before, after = (Counter[str](), Counter[str]())
    for programs, launches in ((before, ran), (after, there)):
        for name, number in launches:
            programs[name] += number
    return {name: after[name] / number for name, number in before.items() if number}


def ran_as(case: Case) -> list[tuple[str, int]]:
    """Each launch's kernel and number of programs at the run sizes."""
    return [(case.kernels[launch.launch].name, math.prod(launch.grid)) for launch in case.launches]


def _of_library(works: Sequence[Work]) -> list[Work]:
    return [work for work in works if not work.own]


def _spread_by_kernel(own: Sequence[Work], launches: Sequence[tuple[str, int]]) -> list[Work]:
    """Each kernel's works over its own launches, where names tell which they are."""
    by_kernel: dict[str, list[int]] = {}
    for name, programs in launches:
        by_kernel.setdefault(name, []).append(programs)
    if by_kernel.keys() == {work.name for work in own}:
        parts = [([work for work in own if work.name == name], grids) for name, grids in by_kernel.items()]
    else:
        parts = [(list(own), [programs for _, programs in launches])]
    return [work for part in parts for work in _spread(*part)]


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


def _describe_size(case: Case, reference: Reference, sizes: Mapping[str, Constant]) -> dict[str, Any]:
    """The candidate's text, and arguments and inputs without contents, laid out as a candidate gets them."""
    problem = resize(reference.problem, sizes) if sizes else reference.problem
    program = ProblemModule(problem.source, problem.id, problem.precision, "meta")
    described: dict[str, Any] = {"source": case.source_at(sizes)}
    with own_seeds("meta"):
        for part, values in (("arguments", program.arguments()), ("inputs", program.inputs())):
            tensors: list[torch.Tensor] = []
            packed = pack(values, tensors)
            slots, _ = lay_out([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
            described[part] = packed, slots_to_json(like_these(slots, tensors))
    return described


def _launched(case: Case) -> Counter[tuple[str, tuple[int, ...]]]:
    return Counter((case.kernels[launch.launch].name, launch.grid) for launch in case.launches)


def _launches(kernels: Sequence[Kernel], some: RehearsedPass) -> list[tuple[str, tuple[int, ...]]]:
    named = [(kernels[launch.launch].name, launch.grid) for launch in some.distinct]
    return [named[place] for place in some.launches]


def _works(some: RehearsedPass) -> tuple[Work, ...]:
    return tuple(Work(**work.model_dump()) for work in some.works)
