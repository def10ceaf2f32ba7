"""The bodies of requests and answers of the judge service."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from kernel_core.dialogue.parse import parse_completion
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.problems.source import at_precision, parse_problem, resize
from kernel_core.records import Candidate, Constant, Evaluation, NoCandidate, Precision, Record


class JudgeCall(Record):
    """One candidate for one problem, both as text.

    The service computes every hash itself: hashes name cached verdicts, so a client must not choose them.
    """

    id: str = Field(min_length=8, max_length=64)
    """Made by the client, new for each request. A repeated call with the same id gets the same answer."""
    problem: str
    """A module in KernelBench's format."""
    problem_id: str = Field("call/problem", max_length=200)
    kernel: str | None = None
    """The text of a candidate with `ModelNew`."""
    completion: str | None = None
    """In place of `kernel`: a policy's whole answer, from which the service takes the kernel."""
    no_kernel: str | None = None
    """In place of `kernel`: the reason for a completion without one. The verdict is `malformed`."""
    sizes: dict[str, Constant] | None = None
    cpu_sizes: dict[str, Constant] = Field(default_factory=dict)
    """Sizes for judges on a CPU where `sizes` is not given, beside those of the problem's `# cpu:` line."""
    precision: Precision = "own"
    seed: int | None = Field(None, ge=0, lt=1 << 63)
    timing: bool = True
    rejudge: bool = False

    @model_validator(mode="after")
    def _one_candidate(self) -> Self:
        if sum(text is not None for text in (self.kernel, self.completion, self.no_kernel)) != 1:
            raise ValueError("give exactly one of kernel, completion and no_kernel")
        return self

    def request(self) -> JudgeRequest:
        """Build the request for the pool.

        Raises `CallerError` for a text that is no problem or an unknown size.
        """
        problem = at_precision(parse_problem(self.problem, id=self.problem_id, suite="call"), self.precision)
        if self.cpu_sizes:
            sizes = {**problem.cpu_constants, **self.cpu_sizes}
            problem = problem.model_copy(update={"cpu_constants": sizes})
        for named in (problem.cpu_constants, self.sizes or {}):
            resize(problem, named)  # refuses an unknown name before a judge sees it
        return JudgeRequest(
            problem=problem,
            candidate=self._candidate(),
            sizes=self.sizes,
            seed=self.seed,
            timing=self.timing,
            rejudge=self.rejudge,
        )

    def _candidate(self) -> Candidate | NoCandidate:
        if self.no_kernel is not None:
            return NoCandidate(reason=self.no_kernel)
        if self.completion is not None:
            return parse_completion(self.completion, "stop")
        assert self.kernel is not None
        return Candidate.from_source(self.kernel)


def call_of(request: JudgeRequest, id: str) -> JudgeCall:
    """Build the call that makes a service judge this request."""
    candidate = request.candidate
    is_kernel = isinstance(candidate, Candidate)
    return JudgeCall(
        id=id,
        problem=request.problem.source,
        problem_id=request.problem.id.removesuffix(f"@{request.problem.precision}"),
        kernel=candidate.source if isinstance(candidate, Candidate) else None,
        no_kernel=None if is_kernel else getattr(candidate, "reason", ""),
        sizes=request.sizes,
        cpu_sizes=request.problem.cpu_constants,
        precision=request.problem.precision,
        seed=request.seed,
        timing=request.timing,
        rejudge=request.rejudge,
    )


class Judged(Record):
    """The answer to a call."""

    id: str
    evaluation: Evaluation


class Refusal(Record):
    """The answer to a call without an evaluation."""

    error: str
    """A name of the error tree in `kernel_core.errors`, or `Busy`, `Conflict` or `WrongKey`."""
    message: str


class Health(Record):
    """The state of the service."""

    status: str
    """`ok`, or `unavailable` when no judge is left."""
    gym_version: str
    device: str
    judges: tuple[str, ...]
    """Names of the judges in service."""
    taken_out: tuple[dict[str, Any], ...] = ()
    in_work: int
    """Calls without an answer yet."""
    capacity: int
