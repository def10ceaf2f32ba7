"""Problems without kernels as a corpus source: the generator answers them, and the judge keeps right answers.

`problems:FOLDER` names a folder of problems, such as `dojo harvest` leaves, and `package:NAME` an installed
package, which is harvested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from kernel_core.corpus.generator_source import exemplar_of
from kernel_core.corpus.kernelbench_leaks import leak_rule
from kernel_core.corpus.normalise import kernel_hash
from kernel_core.corpus.refusal import RowRefused
from kernel_core.corpus.registry import Source
from kernel_core.errors import CallerError, DojoError, NotAProblem
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.load import load_folder
from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Evaluation, Exemplar, Problem

AT_ONCE = 16
"""Answers in a request."""


class Judges(Protocol):
    """Judges that give a reason in place of what cannot be judged."""

    def judge_each(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | DojoError]: ...


@dataclass(frozen=True, slots=True)
class Answering:
    """Judges and a harvest, by which problems without kernels are answered."""

    open_judges: Callable[[], AbstractContextManager[Judges]]
    training_problems: Callable[[str, Progress], list[Problem]]
    """Function that harvests a package by its import name."""


def answered_exemplars(
    source: Source, answering: Answering | None, progress: Progress
) -> Iterator[Exemplar | RowRefused]:
    """Yield an exemplar for each correct answer to the source's problems, a refusal for any other.

    Problems that give KernelBench away are refused first. Raises `CallerError` without judges.
    """
    if answering is None:
        raise CallerError(f"source {source.name}: its answers have to be judged, and no judge was given")
    from kernel_core.generator.graded import graded_kernels  # the table of operators needs torch

    leak = leak_rule()
    answers: list[tuple[Problem, GradedKernel]] = []
    if source.kind == "package":
        problems = answering.training_problems(source.repository, progress)
    else:
        problems = load_folder(source.repository)
    for position, problem in enumerate(problems, start=1):
        if reason := leak(problem):
            yield RowRefused(reason, problem.id)
            continue
        try:
            answers += ((problem, kernel) for kernel in graded_kernels(problem))
        except NotAProblem as error:
            yield RowRefused("no kernel written", f"{problem.id}: {str(error)[:120]}")
        progress(f"answer {source.name}", position, len(problems))
    with answering.open_judges() as judges:
        for start in range(0, len(answers), AT_ONCE):
            part = answers[start : start + AT_ONCE]
            outcomes = judges.judge_each([_request(problem, kernel) for problem, kernel in part])
            for (problem, kernel), outcome in zip(part, outcomes, strict=True):
                yield _judged(problem, kernel, outcome, source)
            progress(f"judge {source.name}", start + len(part), len(answers))


def _request(problem: Problem, kernel: GradedKernel) -> JudgeRequest:
    candidate = Candidate.from_source(kernel.source)
    return JudgeRequest(problem=problem, candidate=candidate, seed=1, timing=False, fast=True)


def _judged(
    problem: Problem, kernel: GradedKernel, outcome: Evaluation | DojoError, source: Source
) -> Exemplar | RowRefused:
    if isinstance(outcome, DojoError):
        return RowRefused("cannot be judged", f"{problem.id}: {str(outcome)[:120]}")
    if not outcome.correct:
        return RowRefused(f"judged {outcome.verdict.value}", problem.id)
    row_key = f"{problem.name}/{kernel_hash(kernel.source, 'triton')[:12]}"
    return exemplar_of(problem, kernel, source, row_key).model_copy(
        update={
            "grade": "tuned",
            "verified": outcome.verdict,
            "verified_by": f"{outcome.gym_version} {outcome.device}",
        }
    )
