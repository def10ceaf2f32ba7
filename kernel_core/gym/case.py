"""What became known about one candidate so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kernel_core.feedback import describe
from kernel_core.gym.claims import Kernel, Launch
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.version import GYM_VERSION
from kernel_core.records import Evaluation, Finding, NoCandidate, Provenance, Traffic, Verdict


@dataclass(slots=True)
class Case:
    """`verdict` is set by the first thing that fails, and stays None for a correct candidate."""

    request: JudgeRequest
    verdict: Verdict | None = None
    detail: str = ""
    line: int = 0
    trials_passed: int = 0
    trials: int = 0
    findings: list[Finding] = field(default_factory=list)
    sandbox: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    launches: tuple[Launch, ...] = ()
    trace: dict[str, Any] | None = None
    constants: bytes = b""
    traffic: Traffic | None = None
    reference_traffic: Traffic | None = None

    @property
    def source(self) -> str:
        """The candidate's text."""
        candidate = self.request.candidate
        return "" if isinstance(candidate, NoCandidate) else candidate.source

    def fail(self, verdict: Verdict, detail: str, line: int = 0) -> None:
        """The first failure names the verdict."""
        if self.verdict is None:
            self.verdict, self.detail, self.line = verdict, detail, line

    def note(self, rule: str, detail: str) -> None:
        """Keep a finding."""
        self.findings.append(Finding(rule=rule, detail=detail))

    def evaluation(self, seconds: float) -> Evaluation:
        """The record of it."""
        verdict = self.verdict or Verdict.CORRECT
        speedup = None
        if verdict is Verdict.CORRECT and self.traffic is not None and self.reference_traffic is not None:
            speedup = self.reference_traffic.predicted_ms / self.traffic.predicted_ms
        candidate = self.request.candidate
        known = verdict is Verdict.CORRECT
        return Evaluation(
            problem_id=self.request.problem.id,
            candidate_sha="" if isinstance(candidate, NoCandidate) else candidate.sha256,
            verdict=verdict,
            trials_passed=self.trials_passed,
            trials=self.trials,
            traffic=self.traffic if known else None,
            reference_traffic=self.reference_traffic if known else None,
            predicted_speedup=speedup,
            provenance=self._provenance(),
            findings=tuple(self.findings),
            feedback=describe(
                verdict,
                self.detail,
                line=self.line,
                predicted_speedup=speedup,
                traffic=self.traffic,
                unmatched=self.unmatched,
            ),
            sandbox=self.sandbox,
            gym_version=GYM_VERSION,
            device="cpu",
            seconds=seconds,
        )

    def _provenance(self) -> Provenance | None:
        if not self.launches:
            return None
        names = (self.kernels[launch.launch].name for launch in self.launches)
        return Provenance(
            launched=tuple(dict.fromkeys(names)),
            num_launches=len(self.launches),
            own_kernel_share=self.traffic.own_share if self.traffic else None,
        )
