"""Every record that crosses a stage: frozen, typed, without torch and without I/O.

Identity is content: a `Candidate` is named by the hash of its source, and one that was judged for a
problem, a device kind and a gym version is not judged again.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Constant = int | float | bool | str
Precision = Literal["own", "float16", "bfloat16"]
"""Type of a problem's floating-point inputs and weights: its own, or all cast to one."""
ProductPrecision = Literal["ieee", "tf32x3", "tf32", "half"]
"""Lowest precision in which the matrix products on float32 values compute, from exact to coarse."""
BaselineKind = Literal["eager", "eager_tf32", "compile", "compile_tf32"]
"""Execution mode of a timed reference: eager or `torch.compile`, each with TF32 products off or allowed."""
Baseline = Literal["fair", "eager", "eager_tf32", "compile", "compile_tf32"]
"""Denominator of a speed-up; `fair` is the fastest kind at the candidate's precision or higher."""
BASELINES: tuple[Baseline, ...] = get_args(Baseline)
Tolerance = Literal["field", "measured", "strict"]
"""Error bound of a correct output: KernelBench's, measured error of honest arithmetic, IEEE float32's."""


def sha256_text(text: str) -> str:
    """Hex SHA-256 of UTF-8 text: the content address used throughout."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Record(BaseModel):
    """Base of all records: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(Record):
    """A reference `Model` with `get_inputs` and `get_init_inputs`, in KernelBench's format."""

    id: str
    """`suite/name`, unique among the problems in use."""
    suite: str
    level: int | None = None
    name: str
    family: str
    """Kind of computation (`softmax`, `matmul_epilogue`); whole families are held out."""
    source: str
    """The module's text, at its own (GPU-like) sizes."""
    sha256: str
    """Of `source`."""
    tags: tuple[str, ...] = ()
    constants: dict[str, Constant] = Field(default_factory=dict)
    """Module-level size constants of `source`."""
    cpu_constants: dict[str, Constant] = Field(default_factory=dict)
    """Overrides of `constants` at which a CPU can judge in well under a second; empty if unknown."""
    precision: Precision = "own"


class Verdict(StrEnum):
    """The judge's decision on a candidate; an infrastructure fault is never a verdict."""

    MALFORMED = "malformed"
    """No `ModelNew` could be taken from the text: not parsed, not Python, no such class."""
    NOT_COMPILED = "not_compiled"
    """The module does not import, or a launched kernel does not compile for the target GPU."""
    CRASHED = "crashed"
    """It raised, was killed by a signal or broke a resource limit while running."""
    TIMED_OUT = "timed_out"
    """It did not finish before the judge's deadline."""
    WRONG = "wrong"
    """It ran; a shape, dtype or value differs from the reference."""
    HACKED = "hacked"
    """Right outputs without honest work: no own kernel ran, or an attack was seen."""
    CORRECT = "correct"
    """Every trial passed and the candidate's own kernels did work."""


class Exemplar(Record):
    """A corpus kernel that may be shown in a prompt or learned from."""

    id: str
    source: str
    source_revision: str
    row_key: str
    licence: str
    attribution: str = ""
    language: Literal["triton", "cuda_cpp", "inductor_triton"]
    family: str = ""
    grade: str = ""
    """Grade of the kernel by its maker (the generator's grades); empty if unknown."""
    task_level: int | None = None
    task_id: int | None = None
    entry_point: str = "Model"
    cpu_sizes: str = ""
    """Sizes at which a CPU can judge kernels for the reference, as a `# cpu:` directive has them."""
    reference_code: str
    kernel_code: str
    thinking: str = ""
    """The plan behind the kernel, where its maker wrote one (the generator does)."""
    claimed_correct: bool | None = None
    claimed_speedup: float | None = None
    verified: Verdict | None = None
    """Our judge's verdict (`dojo ingest verify`); None: not judged."""
    verified_speedup: float | None = None
    """Measured by our judge on a GPU."""
    predicted_speedup: float | None = None
    """From our judge's count of memory traffic."""
    verified_by: str = ""
    """The judge's version and device."""
    reference_hash: str
    """Hash of the reference's normalised syntax tree."""
    kernel_hash: str
    split: Literal["train", "index", "blocked"] = "train"

    @property
    def best_known_speedup(self) -> float | None:
        """Our judge's measured speed-up, else its predicted one; never a claim."""
        return self.verified_speedup if self.verified_speedup is not None else self.predicted_speedup


class Candidate(Record):
    """The kernel source parsed out of a completion; it must define `ModelNew`."""

    kind: Literal["candidate"] = "candidate"
    sha256: str
    source: str
    thinking: str = ""

    @classmethod
    def from_source(cls, source: str, thinking: str = "") -> Candidate:
        """A candidate named by the hash of its source."""
        return cls(sha256=sha256_text(source), source=source, thinking=thinking)


class NoCandidate(Record):
    """A completion that held no kernel, and why."""

    kind: Literal["no_candidate"] = "no_candidate"
    reason: str
    thinking: str = ""


NOT_EXERCISED = "not_exercised"
"""The rule of the finding that a loop or a grid turned less than at the problem's own sizes."""


class Finding(Record):
    """Something a rule noticed. Findings label; they do not decide alone."""

    rule: str
    detail: str


class Timing(Record):
    """A distribution of measured run times in milliseconds."""

    median_ms: float
    ci_low_ms: float
    ci_high_ms: float
    num_calls: int
    clock: Literal["device_events", "wall"]
    sm_mhz: int | None = None
    """The GPU's clock right after the calls; None where it cannot be read."""
    throttled: tuple[str, ...] = ()
    """Reasons of clock throttling at that time, by NVML's names."""


class Traffic(Record):
    """Counted traffic and operations of one forward pass, and the predicted time on a named GPU.

    A prediction, never a measurement: roofline of each launch plus a launch cost.
    """

    bytes_accessed: int
    """Every load and store, counted each time."""
    bytes_distinct: int
    """The distinct bytes behind them."""
    flops: int
    num_launches: int
    own_share: float | None = None
    """Share of the predicted time spent in the candidate's own kernels; unknown is None, never 0."""
    gpu: str
    predicted_ms: float


class KernelUse(Record):
    """GPU resources that one of the candidate's kernels used."""

    name: str
    time_share: float
    """Share of the device time of all work of the pass, over all its launches."""
    registers: int
    """By thread."""
    spilled_bytes: int
    """Registers kept in memory instead, by thread."""
    shared_bytes: int
    """By program."""
    occupancy: float
    """Warps that fit on a multiprocessor at once, over the most it can hold."""


class Provenance(Record):
    """JIT functions that were launched, and their share of the device time."""

    launched: tuple[str, ...]
    num_launches: int
    own_kernel_share: float | None = None
    """In [0, 1]; unknown is None, never 0."""
    slowest: KernelUse | None = None
    """The own kernel that took the most device time; known on a GPU."""


class Platform(Record):
    """Software and hardware that a verdict was reached with."""

    python: str
    torch: str
    triton: str
    gpu: str | None = None
    driver: str | None = None


class BaselineTiming(Record):
    """Time of the reference in one of the ways to run it, or the reason why there is none."""

    kind: BaselineKind
    timing: Timing | None
    failure: str = ""
    """The first line of the error, such as the compiler's; empty where `timing` is known."""


class Evaluation(Record):
    """The judge's result for one candidate and one problem."""

    problem_id: str
    candidate_sha: str
    verdict: Verdict
    trials_passed: int = 0
    trials: int = 0
    timing: Timing | None = None
    reference_timing: Timing | None = None
    speedup: float | None = None
    """Measured on the device: median of `baseline` over the candidate's median."""
    baseline: BaselineKind | None = None
    """Kind of `reference_timing`."""
    baselines: tuple[BaselineTiming, ...] = ()
    """Every way that was measured, with the failed ones."""
    product_precision: ProductPrecision | None = None
    """None where no product was seen, or where its precision is not known."""
    tolerances_passed: tuple[Tolerance, ...] = ()
    """Tolerances under which every trial's outputs pass, those of the verdict included."""
    traffic: Traffic | None = None
    reference_traffic: Traffic | None = None
    predicted_speedup: float | None = None
    """From traffic; never mixed with `speedup`."""
    provenance: Provenance | None = None
    findings: tuple[Finding, ...] = ()
    feedback: str
    """Neutral, short enough for a prompt."""
    sandbox: tuple[str, ...] = ()
    """The isolation features that were in force."""
    gym_version: str
    device: str
    run_sizes: dict[str, Constant] = Field(default_factory=dict)
    """Sizes at which the candidate ran, where these are not the problem's own."""
    platform: Platform | None = None
    seconds: float
    phases_s: dict[str, float] = Field(default_factory=dict)
    """Seconds by phase; waiting for a turn counts to the phase that waits."""

    @model_validator(mode="after")
    def _measurements_match_the_verdict(self) -> Evaluation:
        measured = (self.timing, self.speedup, self.traffic, self.predicted_speedup)
        if self.verdict is not Verdict.CORRECT and any(x is not None for x in measured):
            raise ValueError(f"a {self.verdict} evaluation cannot carry speed measurements")
        if self.verdict is Verdict.CORRECT and (self.trials == 0 or self.trials_passed < self.trials):
            raise ValueError("a correct evaluation must have passed every one of at least one trial")
        if (self.speedup is None) != (self.timing is None or self.reference_timing is None):
            raise ValueError("speedup is known exactly when both timings are")
        return self

    @property
    def correct(self) -> bool:
        """True if the verdict is `correct`."""
        return self.verdict is Verdict.CORRECT

    @property
    def best_known_speedup(self) -> float | None:
        """The measured speed-up where there is one, else the predicted one."""
        return self.speedup if self.speedup is not None else self.predicted_speedup

    def speedup_over(self, baseline: Baseline) -> float | None:
        """Measured speed-up against `baseline`; None where the candidate or that baseline was not timed."""
        if self.timing is None:
            return None
        kinds = fair_kinds(self.product_precision) if baseline == "fair" else (baseline,)
        times_ms = [x.timing.median_ms for x in self.baselines if x.kind in kinds and x.timing is not None]
        return min(times_ms) / self.timing.median_ms if times_ms else None


class NotJudged(Record):
    """A request without a verdict, because its problem is none on this device: its reference fails there."""

    problem_id: str
    reason: str


def fair_kinds(precision: ProductPrecision | None) -> tuple[BaselineKind, ...]:
    """Return the baselines that compute products at `precision` or higher.

    An unknown precision counts as the lowest, so that a switch of precision earns nothing.
    """
    exact: tuple[BaselineKind, ...] = ("eager", "compile")
    return exact if precision in ("ieee", "tf32x3") else (*exact, "eager_tf32", "compile_tf32")


class RewardTerms(Record):
    """The components of one turn's reward, each in its own unit, and their weighted sum."""

    format: float = 0.0
    compile: float = 0.0
    correct: float = 0.0
    speed: float = 0.0
    own_share: float = 0.0
    thinking: float = 0.0
    length: float = 0.0
    penalty: float = 0.0
    total: float
