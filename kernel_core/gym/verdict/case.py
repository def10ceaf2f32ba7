"""The findings about one candidate so far, and the ruling on it."""

from __future__ import annotations

import ast
import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernel_core.gym.channel.loop_coverage import Turns
from kernel_core.gym.channel.messages import Kernel, Launch
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.oracle.input_families import Draw
from kernel_core.gym.oracle.repeated_constants import at_sizes
from kernel_core.gym.verdict.feedback import describe
from kernel_core.gym.verdict.recorded_pass import Recorded, joined
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import (
    BaselineKind,
    BaselineTiming,
    Constant,
    Evaluation,
    Finding,
    KernelUse,
    NoCandidate,
    Platform,
    ProductPrecision,
    Provenance,
    Timing,
    Tolerance,
    Traffic,
    Verdict,
)

if TYPE_CHECKING:
    from kernel_core.gym.channel.cuda_arena import DeviceArena


UNKNOWN = "provenance_unknown"
"""The rule of the finding that the work cannot be shown to be the candidate's."""


@dataclass(slots=True, kw_only=True)
class Ruling:
    """A verdict with its reason, and findings. `verdict` is set by the first thing that fails, and stays None
    for a correct candidate."""

    verdict: Verdict | None = None
    detail: str = ""
    line: int = 0
    findings: list[Finding] = field(default_factory=list)
    ran_out_of_memory: bool = False
    """True if the GPU's memory was full, maybe with other processes' data."""
    exceeds_gpu: bool = False
    """True if the verdict is that a program takes more than the GPU has."""

    def fail(self, verdict: Verdict, detail: str, line: int = 0, *, exceeds_gpu: bool = False) -> None:
        """The first failure names the verdict. Only a compiler's refusal comes before what happened while a
        kernel was interpreted."""
        if self.verdict is None or (verdict is Verdict.NOT_COMPILED and self.verdict is not verdict):
            self.verdict, self.detail, self.line, self.exceeds_gpu = verdict, detail, line, exceeds_gpu

    def note(self, rule: str, detail: str) -> None:
        """Keep a finding."""
        self.findings.append(Finding(rule=rule, detail=detail))

    def adopt(self, other: Ruling) -> None:
        """Take over the ruling on a part of the case."""
        self.findings += other.findings
        self.ran_out_of_memory |= other.ran_out_of_memory
        if other.verdict is not None:
            self.fail(other.verdict, other.detail, other.line, exceeds_gpu=other.exceeds_gpu)


@dataclass(slots=True)
class Case(Ruling):
    """One candidate before the judge."""

    request: JudgeRequest
    seed: int = 0
    """The seed of all draws for the candidate."""
    configuration: int = 0
    """The place of the configuration that each autotuner takes where Triton interprets."""
    trials_passed: int = 0
    trials: int = 0
    sandbox: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    launches: tuple[Launch, ...] = ()
    turns: Turns = field(default_factory=dict)
    recorded: list[Recorded] = field(default_factory=list)
    """The recorded passes; passes with equal work are merged."""
    products: set[str] = field(default_factory=set)
    """Kinds of the products in its compiled kernels: see `compiled_products.py`."""
    product_precision: ProductPrecision | None = None
    tolerances: set[Tolerance] = field(default_factory=set)
    """Tolerances that all trials passed so far."""
    images: dict[str, bytes] = field(default_factory=dict)
    """Device code of what was built for this candidate, by its name."""
    arena: DeviceArena | None = None
    """Lent to this candidate for all its inputs and outputs; None where each delivery makes its own."""
    room: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Given back when the candidate is done."""
    arena_bytes: int = 0
    needs_bytes: int = 0
    """GPU memory that the case needs: for an arena, and with all else."""
    own_kernel_share: float | None = None
    slowest: KernelUse | None = None
    bandwidth_share: float | None = None
    """Inputs and outputs, moved once in the measured time, over the peak of the GPU's memory."""
    timing: Timing | None = None
    phases_s: dict[str, float] = field(default_factory=dict)
    reference_timing: Timing | None = None
    baseline: BaselineKind | None = None
    """Kind of `reference_timing`."""
    baselines: tuple[BaselineTiming, ...] = ()
    traffic: Traffic | None = None
    reference_traffic: Traffic | None = None

    @property
    def source(self) -> str:
        """The candidate's text."""
        candidate = self.request.candidate
        return "" if isinstance(candidate, NoCandidate) else candidate.source

    @property
    def code(self) -> str:
        """The candidate's text without comments."""
        return ast.unparse(syntax_tree(self.source))

    def _own_sizes_in_text(self, sizes: Mapping[str, Constant]) -> str:
        """Return which of the problem's own sizes the candidate's text repeats, where the run had others."""
        own, numbers = self.request.problem.constants, set(re.findall(r"\b\d+\b", self.source))
        words = [
            f"{name} = {size} in place of {own[name]}"
            for name, size in sizes.items()
            if size != own[name] and own[name] not in (0, 1) and f"{own[name]}" in numbers
        ]
        return f"judged at {', '.join(words[:3])}, a number of its text" if words else ""

    def source_at(self, sizes: Mapping[str, Constant]) -> str:
        """The candidate's text for a run at these sizes of the problem."""
        return at_sizes(self.source, self.request.problem, sizes)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the time that this takes to a phase."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.phases_s[name] = self.phases_s.get(name, 0.0) + time.monotonic() - started

    def keep_recorded(self, recorded: Recorded) -> None:
        """Take over what a pass recorded, with its memory."""
        self.recorded = joined(self.recorded, recorded)

    def forget_recorded(self) -> None:
        """Give back the memory of all."""
        for recorded in self.recorded:
            recorded.close()
        self.recorded = []

    def begin_again(self, configuration: int, findings: tuple[Finding, ...]) -> None:
        """Forget all but these findings, for a run with another configuration of its autotuners."""
        self.forget_recorded()
        self.verdict, self.detail, self.line, self.exceeds_gpu = None, "", 0, False
        self.findings = [*findings]
        self.trials_passed, self.kernels, self.launches = 0, (), ()
        self.products, self.tolerances, self.turns = set(), set(), {}
        self.configuration = configuration

    def to_replay(self) -> list[Recorded]:
        """The recorded passes. The last one is of the last trial with the problem's own draws, and it
        counts."""
        return sorted(self.recorded, key=lambda recorded: max(recorded.trials_of("own"), default=-1))

    def is_measured(self, recorded: Recorded) -> bool:
        """Return True if this is what it did last on inputs of some family. What came before may have
        prepared for all passes to come, and need only be right."""
        trials = sorted(trial for recorded in self.recorded for trial in recorded.trials.items())
        last = {draw: number for number, draw in trials}
        return any(last[draw] == number for number, draw in recorded.trials.items())

    def measured_draw(self, recorded: Recorded) -> Draw:
        """The family of inputs to measure it on: the problem's own, if it was recorded on those."""
        return "own" if recorded.trials_of("own") else recorded.last_draw

    @property
    def is_of_unknown_provenance(self) -> bool:
        """True if the outputs are right, but not by work that was shown to be its own: no speed is given."""
        return any(finding.rule == UNKNOWN for finding in self.findings)

    def evaluation(self, device: str, platform: Platform | None, seconds: float) -> Evaluation:
        """The record of it."""
        verdict = self.verdict or Verdict.CORRECT
        predicted = speedup = None
        candidate = self.request.candidate
        known = verdict is Verdict.CORRECT and not (self.request.fast or self.is_of_unknown_provenance)
        if known and self.traffic is not None and self.reference_traffic is not None:
            predicted = self.reference_traffic.predicted_ms / self.traffic.predicted_ms
        if known and self.timing is not None and self.reference_timing is not None:
            speedup = self.reference_timing.median_ms / self.timing.median_ms
        return Evaluation(
            problem_id=self.request.problem.id,
            candidate_sha="" if isinstance(candidate, NoCandidate) else candidate.sha256,
            verdict=verdict,
            trials_passed=self.trials_passed,
            trials=self.trials,
            traffic=self.traffic if known else None,
            reference_traffic=self.reference_traffic if known else None,
            predicted_speedup=predicted,
            timing=self.timing if known else None,
            reference_timing=self.reference_timing if known else None,
            speedup=speedup,
            baseline=self.baseline if known and self.reference_timing else None,
            baselines=self.baselines if known else (),
            product_precision=self.product_precision if verdict is Verdict.CORRECT else None,
            tolerances_passed=tuple(sorted(self.tolerances)) if verdict is Verdict.CORRECT else (),
            provenance=self._provenance(),
            findings=tuple(self.findings),
            feedback=describe(
                verdict,
                self.detail,
                line=self.line,
                predicted_speedup=predicted,
                speedup=speedup,
                baseline=self.baseline,
                own_share=self.own_kernel_share,
                num_launches=len(self.launches),
                traffic=None if self.request.fast else self.traffic,
                unmatched=self.unmatched,
                slowest=self.slowest,
                bandwidth_share=self.bandwidth_share,
                is_unknown=self.is_of_unknown_provenance,
                resized=self._own_sizes_in_text(self.request.run_sizes(device)),
            ),
            sandbox=self.sandbox,
            gym_version=GYM_VERSION,
            device=device,
            run_sizes=self.request.run_sizes(device),
            platform=platform,
            seconds=seconds,
            phases_s=self.phases_s,
        )

    def _provenance(self) -> Provenance | None:
        if not self.launches:
            return None
        names = (self.kernels[launch.launch].name for launch in self.launches)
        return Provenance(
            launched=tuple(dict.fromkeys(names)),
            num_launches=len(self.launches),
            own_kernel_share=self.own_kernel_share,
            slowest=self.slowest,
        )
