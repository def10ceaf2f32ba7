"""Kernels of the compiler that the judge finds correct, as exemplars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kernel_core.compiler_teacher.capture import Captured
from kernel_core.compiler_teacher.refusal import CannotTeach
from kernel_core.compiler_teacher.written import Taught, written
from kernel_core.corpus.normalise import kernel_hash, reference_hash
from kernel_core.errors import NotAProblem
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.records import Candidate, Evaluation, Exemplar, Problem

LEAST_OWN_SHARE = 0.2
"""The least share of the work in a kernel's own launches for it to be taught; below it a kernel shows little.

Medians of 61 families measured on an H100 leave a gap from 0.11 to 0.23. A value in the gap has all grades of
a family on one side. 0.1 would teach the slowest grade of a convolution with an elementwise end."""
_JUDGED_AT_ONCE = 8


def taught_exemplars(
    found: Iterable[tuple[Problem, Captured | str]], gym: Gym
) -> Iterator[tuple[Problem, Exemplar | str]]:
    """An exemplar for each problem, or the reason why there is none."""
    waiting: list[tuple[Problem, Taught]] = []
    for problem, one in found:
        if isinstance(one, str):
            yield problem, one
            continue
        try:
            waiting.append((problem, written(problem, one)))
        except CannotTeach as reason:
            yield problem, str(reason)
        except Exception as error:  # a form that no release before had: it costs its problem alone
            yield problem, f"not read: {type(error).__name__}"
        if len(waiting) == _JUDGED_AT_ONCE:
            yield from _judged(waiting, gym)
            waiting = []
    yield from _judged(waiting, gym)


def _judged(pairs: Sequence[tuple[Problem, Taught]], gym: Gym) -> Iterator[tuple[Problem, Exemplar | str]]:
    requests = [
        JudgeRequest(
            problem=problem,
            candidate=Candidate.from_source(taught.kernel_code),
            seed=1,
            timing=False,
            fast=True,
        )
        for problem, taught in pairs
    ]
    try:
        evaluations = gym.judge(requests) if requests else []
    except NotAProblem:
        if len(pairs) > 1:
            for pair in pairs:
                yield from _judged([pair], gym)
        else:
            yield pairs[0][0], "no problem to the judge"
        return
    for (problem, taught), evaluation in zip(pairs, evaluations, strict=True):
        yield problem, outcome(problem, taught, evaluation)


def outcome(problem: Problem, taught: Taught, evaluation: Evaluation) -> Exemplar | str:
    """The exemplar where the judge found it correct and its own kernels do their share."""
    if not evaluation.correct:
        return f"judged {evaluation.verdict}"
    share = evaluation.provenance.own_kernel_share if evaluation.provenance else 0.0
    if share is None or share < LEAST_OWN_SHARE:
        return "its own kernels do next to nothing"
    return exemplar_of(problem, taught).model_copy(
        update={
            "verified": evaluation.verdict,
            "verified_by": f"{evaluation.gym_version} {evaluation.device}",
        }
    )


def exemplar_of(problem: Problem, taught: Taught) -> Exemplar:
    """An exemplar of the source `compiler`."""
    return Exemplar(
        id=f"compiler/{problem.name}",
        source="compiler",
        source_revision=problem.sha256,
        row_key=problem.name,
        licence="Apache-2.0",
        attribution="torch.compile, rewritten",
        language="triton",
        family=problem.family,
        grade="tuned",
        cpu_sizes=", ".join(f"{name}={value!r}" for name, value in problem.cpu_constants.items()),
        reference_code=problem.source,
        kernel_code=taught.kernel_code,
        thinking=taught.thinking,
        claimed_correct=True,
        reference_hash=reference_hash(problem.source),
        kernel_hash=kernel_hash(taught.kernel_code, "triton"),
    )
