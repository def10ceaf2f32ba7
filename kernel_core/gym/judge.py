"""The trusted side: decides whether a kernel is honest, correct and, by prediction, fast.

One candidate goes through: parse · run every trial in a caged runner · compile each launched kernel ·
compare outputs · replay the trace on fresh inputs in another cage · predict times. The first thing that
fails names the verdict; a kernel that does not compile comes before anything that happened while running.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import os
import socket
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_core.config import GymConfig
from kernel_core.errors import DojoError, GymUnavailable
from kernel_core.feedback import describe
from kernel_core.gym import replay, runner, sandbox, wire, zygote
from kernel_core.gym.compare import compare_outputs
from kernel_core.gym.guard import inspect_source
from kernel_core.gym.interpret import prepare_interpreter
from kernel_core.gym.limits import Cage
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.reference import Draw, Reference, Trial, derive_seed
from kernel_core.gym.runs import (
    Conversation,
    Delivery,
    Died,
    cage_folder,
    deliver,
    input_was_changed,
    load_header,
)
from kernel_core.gym.traffic import EagerTraffic, count_eager, predict, scaled
from kernel_core.gym.version import GYM_VERSION
from kernel_core.gym.work import Work
from kernel_core.records import Evaluation, Finding, NoCandidate, Provenance, Traffic, Verdict
from kernel_core.store import digest_of

_COMPILE_DEADLINE_S = 60.0
_COMPILE_MEMORY_BYTES = 8 << 30
_KEPT_PROBLEMS = 8
_KEPT_TRIALS = 32
_MAX_CONSTANT_BYTES_OF_DATA_READERS = 4096
_NEGLIGIBLE_SHARE = 0.01
"""Below this share of predicted time, a candidate's own kernels are a decoy."""


@dataclass(slots=True)
class Case:
    """What became known about one candidate so far; `verdict` is set by the first thing that fails."""

    verdict: Verdict | None = None
    detail: str = ""
    line: int = 0
    trials_passed: int = 0
    trials: int = 0
    findings: list[Finding] = field(default_factory=list)
    sandbox: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    kernels: list[dict[str, Any]] = field(default_factory=list)
    launches: list[dict[str, Any]] = field(default_factory=list)
    trace: dict[str, Any] | None = None
    constants: bytes = b""
    traffic: Traffic | None = None
    reference_traffic: Traffic | None = None

    def fail(self, verdict: Verdict, detail: str, line: int = 0) -> None:
        """The first failure names the verdict."""
        if self.verdict is None:
            self.verdict, self.detail, self.line = verdict, detail, line

    def note(self, rule: str, detail: str) -> None:
        """Keep a finding."""
        self.findings.append(Finding(rule=rule, detail=detail))


class Judge:
    """Judges one request after another; problems, trials and compiled kernels are paid once."""

    def __init__(
        self, config: GymConfig, runners: socket.socket, compilers: socket.socket, base: str
    ) -> None:
        self._config = config
        self._runners = runners
        self._compilers = compilers
        self._base = base
        self._references: OrderedDict[str, tuple[Reference, EagerTraffic | None]] = OrderedDict()
        self._trials: OrderedDict[tuple[str, int, str], Trial] = OrderedDict()
        self._compiled: dict[str, tuple[str, int] | None] = {}

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """The verdict on one candidate. Raises `NotAProblem` or `GymUnavailable`, never for a candidate."""
        started = time.monotonic()
        case = Case()
        candidate = request.candidate
        if isinstance(candidate, NoCandidate):
            case.fail(Verdict.MALFORMED, candidate.reason)
        else:
            tree = _parse(candidate.source, case)
            if tree is not None:
                case.findings.extend(inspect_source(tree))
                reference = self._reference(request)
                self._run(reference, candidate.source, seed, case)
                if self._config.compile_gate and case.launches:
                    self._compile(candidate.source, case)
                if case.verdict is None:
                    self._check_work(reference, candidate.source, seed, case)
        return self._report(request, case, time.monotonic() - started)

    # Running --------------------------------------------------------------------------------------

    def _run(self, reference: Reference, source: str, seed: int, case: Case) -> None:
        trials = self._draw_trials(reference, seed)
        case.trials = len(trials)
        with cage_folder(self._base) as (folder, user_id):
            cage = self._cage(folder, user_id)
            talk = Conversation(self._runners, "runner", cage, self._config.deadline_s)
            try:
                self._run_in(talk, reference, source, trials, case)
            finally:
                talk.end()

    def _run_in(
        self, talk: Conversation, reference: Reference, source: str, trials: list[Trial], case: Case
    ) -> None:
        header, arena = load_header(reference, source)
        answer = talk.ask(header, arena=arena)
        arena.close()
        if isinstance(answer, Died):
            return _fail_dead(case, answer)
        self._check_cage(answer.header.get("features"), case)
        if "failed" in answer.header:
            stage = Verdict.NOT_COMPILED if answer.header["failed"] == "import" else Verdict.CRASHED
            return case.fail(stage, *_error(answer.header))
        case.unmatched = tuple(str(name)[:80] for name in _list(answer.header, "unmatched"))
        for index, trial in enumerate(trials):
            delivery = deliver(trial)
            last = index == len(trials) - 1
            answer = talk.ask(delivery.header | {"trace": last}, arena=delivery.arena)
            delivery.arena.close()
            if isinstance(answer, Died):
                return _fail_dead(case, answer)
            if not self._accept_trial(answer, delivery, trial, index, case):
                return None
            case.trials_passed += 1
        return None

    def _accept_trial(
        self, answer: wire.Message, delivery: Delivery, trial: Trial, index: int, case: Case
    ) -> bool:
        header = answer.header
        case.kernels = [kernel for kernel in _list(header, "kernels") if isinstance(kernel, dict)]
        case.launches = [launch for launch in _list(header, "launches") if isinstance(launch, dict)]
        if index == 0:
            for event in _list(header, "watched")[:4]:
                case.note("audit", str(event)[:80])
        if "failed" in header:
            case.fail(Verdict.CRASHED, *_error(header))
            return False
        leaves = _list(header, "leaves")
        values = [delivery.arena.tensor(slot).clone() for slot in delivery.output_slots]
        if len(leaves) != len(values) and header.get("nesting") == trial.nesting:
            leaves = []
        fault = compare_outputs(header.get("nesting"), leaves, values, trial.nesting, trial.expected)
        if fault is not None:
            kind = "" if trial.draw == "own" else " (normal inputs)"
            case.fail(Verdict.WRONG, fault + kind)
            return False
        changed = input_was_changed(delivery, trial)
        if changed is not None and not trial.changes_inputs:
            case.fail(Verdict.WRONG, f"input {changed} was changed in place")
            return False
        if isinstance(header.get("trace"), dict):
            case.trace, case.constants = header["trace"], bytes(answer.blob)
        return True

    def _draw_trials(self, reference: Reference, seed: int) -> list[Trial]:
        count = self._config.trials
        draws: list[Draw] = [*["own" for _ in range(max(1, count - 1))], "normal"]
        trials = [self._trial(reference, seed, f"trial {i}", draw) for i, draw in enumerate(draws)]
        if not _is_usable(trials[-1]):
            trials[-1] = self._trial(reference, seed, f"trial {len(trials)}", "own")
        return trials

    def _trial(self, reference: Reference, seed: int, label: str, draw: Draw) -> Trial:
        key = (f"{reference.problem.sha256}:{digest_of(reference.sizes)}", seed, f"{label}:{draw}")
        if key not in self._trials:
            self._trials[key] = reference.trial(derive_seed(seed, label, draw), draw)
            while len(self._trials) > _KEPT_TRIALS:
                self._trials.popitem(last=False)
        return self._trials[key]

    # Compiling ------------------------------------------------------------------------------------

    def _compile(self, source: str, case: Case) -> None:
        """Every distinct launch must compile; that fault comes before whatever happened while running."""
        distinct = {digest_of(_compile_key(launch)): _compile_key(launch) for launch in case.launches}
        keys = {digest_of([source, case.kernels, key, self._config.predict_gpu]): launch
                for key, launch in distinct.items()}  # fmt: skip
        missing = [launch for key, launch in keys.items() if key not in self._compiled]
        if missing:
            fault = self._compile_now(source, missing, case)
            for key in keys:
                self._compiled[key] = fault
        faults = [fault for key in keys if (fault := self._compiled[key]) is not None]
        if faults:
            case.verdict = None
            case.fail(Verdict.NOT_COMPILED, *faults[0])

    def _compile_now(self, source: str, launches: list[dict[str, Any]], case: Case) -> tuple[str, int] | None:
        with cage_folder(self._base) as (folder, user_id):
            cage = Cage(
                folder=folder,
                user_id=user_id,
                memory_bytes=_COMPILE_MEMORY_BYTES,
                cpu_seconds=int(_COMPILE_DEADLINE_S) + 1,
                max_processes=16,
            )
            talk = Conversation(self._compilers, "compile", cage, _COMPILE_DEADLINE_S)
            try:
                answer = talk.ask(
                    {
                        "filename": runner.CANDIDATE_FILE,
                        "source": source,
                        "kernels": case.kernels,
                        "launches": launches,
                        "gpu": self._config.predict_gpu,
                    }
                )
            finally:
                talk.end()
        if isinstance(answer, Died):
            return (f"the compiler gave up: {answer.reason}", 0)
        if "fault" in answer.header:
            raise GymUnavailable(
                f"the compiler could not work: {answer.header['fault']}; free disk space or memory, run again"
            )
        if "failed" in answer.header:
            return (str(answer.header["failed"]), int(answer.header.get("line", 0)))
        return None

    # Honesty and speed ----------------------------------------------------------------------------

    def _check_work(self, reference: Reference, source: str, seed: int, case: Case) -> None:
        if not case.launches:
            case.note("no_own_kernel", "no JIT function of the candidate's was launched")
            return case.fail(Verdict.HACKED, "no kernel of its own was launched")
        if case.trace is None:
            return case.fail(Verdict.HACKED, "its work could not be traced")
        fresh = self._trial(reference, seed, "replay", "own")
        works = self._replay(source, fresh, case)
        if works is None or case.verdict is not None:
            return None
        eager = self._eager(reference)
        large = scaled(works, eager)
        case.reference_traffic, _ = predict(eager.works, self._config.predict_gpu)
        case.traffic, raised = predict(large, self._config.predict_gpu, eager.compulsory_bytes)
        if raised:
            case.note("below_compulsory_traffic", "fewer bytes were counted than any program must move")
        if not eager.at_own_sizes:
            case.note("predicted_at_run_sizes", "the reference cannot be counted at its own sizes")
        own = [work for work in works if work.own]
        share = case.traffic.own_share or 0.0
        if share < _NEGLIGIBLE_SHARE:
            case.note("decoy", f"own kernels do {100 * share:.2f} % of the predicted work")
            case.fail(Verdict.HACKED, "its own kernels do almost none of the work")
        elif len(own) < len(works) and own and all(work.copies_only for work in own):
            case.note("decoy", "own kernels only copy what library operators computed")
            case.fail(Verdict.HACKED, "its own kernels only copy what other operators computed")
        return None

    def _replay(self, source: str, fresh: Trial, case: Case) -> list[Work] | None:
        """The works of the trace on inputs the candidate never saw; None when it is not honest."""
        delivery = deliver(fresh, mute=True)
        try:
            answer = self._ask_replay(source, delivery, case)
        finally:
            delivery.arena.close()
        if isinstance(answer, Died) or "failed" in answer.header:
            reason = answer.reason if isinstance(answer, Died) else str(answer.header["failed"])
            case.note("not_reproduced", f"replay: {reason[:200]}")
            case.fail(Verdict.HACKED, "its recorded work does not run on other inputs")
            return None
        values = [delivery.arena.tensor(slot).clone() for slot in delivery.output_slots]
        forms = [["tensor", one.dtype, list(one.shape)] for one in fresh.expected]
        if compare_outputs(fresh.nesting, forms, values, fresh.nesting, fresh.expected) is not None:
            case.note("not_reproduced", "the recorded kernels and operators give other outputs on new inputs")
            case.fail(Verdict.HACKED, "its recorded work gives other outputs on other inputs")
            return None
        mute = [delivery.arena.tensor(slot).clone() for slot in delivery.mute_slots]
        if compare_outputs(fresh.nesting, forms, mute, fresh.nesting, fresh.expected) is None:
            case.note("decoy", "the outputs are right without the candidate's kernels")
            case.fail(Verdict.HACKED, "the outputs do not depend on its kernels")
            return None
        return [Work.from_json(value) for value in answer.header["works"]]

    def _ask_replay(self, source: str, delivery: Delivery, case: Case) -> wire.Message | Died:
        with cage_folder(self._base) as (folder, user_id):
            cage = self._cage(folder, user_id)
            talk = Conversation(self._runners, "replay", cage, self._config.deadline_s)
            try:
                header = {
                    **delivery.header,
                    "inputs": [slot.to_json() for slot in delivery.input_slots],
                    "mute_outputs": [slot.to_json() for slot in delivery.mute_slots],
                    "source": source,
                    "kernels": case.kernels,
                    "trace": case.trace,
                }
                return talk.ask(header, blob=case.constants, arena=delivery.arena)
            finally:
                talk.end()

    # Small things ---------------------------------------------------------------------------------

    def _cage(self, folder: str, user_id: int) -> Cage:
        return Cage(
            folder=folder,
            user_id=user_id,
            memory_bytes=self._config.memory_mb << 20,
            cpu_seconds=int(self._config.deadline_s) + 2,
            max_processes=1,
        )

    def _check_cage(self, features: Any, case: Case) -> None:
        case.sandbox = tuple(str(name) for name in features) if isinstance(features, list) else ()
        missing = sandbox.missing_features(case.sandbox)
        if missing and self._config.sandbox == "require":
            raise GymUnavailable(
                f"this kernel cannot isolate candidates (missing: {', '.join(missing)}); "
                "use a newer Linux kernel or run as root, or set gym.sandbox=best-effort"
            )

    def _reference(self, request: JudgeRequest) -> Reference:
        return self._prepared(request)[0]

    def _prepared(self, request: JudgeRequest) -> tuple[Reference, EagerTraffic | None]:
        key = f"{request.problem.sha256}:{digest_of(request.sizes)}"
        if key not in self._references:
            self._references[key] = (Reference(request.problem, request.sizes), None)
            while len(self._references) > _KEPT_PROBLEMS:
                self._references.popitem(last=False)
        self._references.move_to_end(key)
        return self._references[key]

    def _eager(self, reference: Reference) -> EagerTraffic:
        for key, (known, eager) in self._references.items():
            if known is reference:
                eager = eager or count_eager(reference)
                self._references[key] = (reference, eager)
                return eager
        return count_eager(reference)

    def _report(self, request: JudgeRequest, case: Case, seconds: float) -> Evaluation:
        verdict = case.verdict or Verdict.CORRECT
        correct = verdict is Verdict.CORRECT
        traffic = case.traffic if correct else None
        speedup = None
        if correct and case.traffic is not None and case.reference_traffic is not None:
            speedup = case.reference_traffic.predicted_ms / case.traffic.predicted_ms
        launched = tuple(dict.fromkeys(str(kernel.get("name"))[:80] for kernel in case.kernels))
        provenance = Provenance(
            launched=launched,
            num_launches=len(case.launches),
            own_kernel_share=case.traffic.own_share if case.traffic else None,
        )
        candidate = request.candidate
        return Evaluation(
            problem_id=request.problem.id,
            candidate_sha="" if isinstance(candidate, NoCandidate) else candidate.sha256,
            verdict=verdict,
            trials_passed=case.trials_passed,
            trials=case.trials,
            traffic=traffic,
            reference_traffic=case.reference_traffic if correct else None,
            predicted_speedup=speedup,
            provenance=provenance if case.launches else None,
            findings=tuple(case.findings),
            feedback=describe(
                verdict,
                case.detail,
                line=case.line,
                predicted_speedup=speedup,
                traffic=traffic,
                unmatched=case.unmatched,
            ),
            sandbox=case.sandbox,
            gym_version=GYM_VERSION,
            device="cpu",
            seconds=seconds,
        )


def _is_usable(trial: Trial) -> bool:
    return all(
        bool(torch.isfinite(one.value).all()) for one in trial.expected if one.value.is_floating_point()
    )


def _parse(source: str, case: Case) -> ast.Module | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        case.fail(Verdict.MALFORMED, str(getattr(error, "msg", error)), getattr(error, "lineno", 0) or 0)
        return None
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "ModelNew" not in names | assigned:
        case.fail(Verdict.MALFORMED, "no class ModelNew")
        return None
    return tree


def _compile_key(launch: dict[str, Any]) -> dict[str, Any]:
    """A launch without what a compiler does not see: the grid, addresses, shapes and plain numbers."""
    args = {name: _kind(value) for name, value in launch.get("args", {}).items()}
    return {"launch": launch.get("launch"), "args": args, "options": launch.get("options", {})}


def _kind(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("t"), list):
        return {"t": [0, *value["t"][1:2]]}
    return value


def _error(header: dict[str, Any]) -> tuple[str, int]:
    name, message = str(header.get("error", "")), str(header.get("message", ""))
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    line = header.get("line", 0)
    text = f"{name}: {lines[-1]}" if lines else name
    return text, line if isinstance(line, int) else 0


def _list(header: dict[str, Any], key: str) -> list[Any]:
    value = header.get(key)
    return value if isinstance(value, list) else []


def _fail_dead(case: Case, died: Died) -> None:
    case.fail(Verdict.TIMED_OUT if died.timed_out else Verdict.CRASHED, died.reason)


def warm_up() -> None:
    """Touch what the first candidate would otherwise pay for: operators, one interpreted launch, and the
    meta device, whose first operator imports several hundred modules."""

    @triton.jit  # type: ignore[untyped-decorator]
    def copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.arange(0, BLOCK)
        tl.store(target + offsets, tl.load(source + offsets))

    torch.set_num_threads(1)
    prepare_interpreter()
    source, target = torch.ones(16, 16), torch.empty(16, 16)
    copy[(1,)](source, target, BLOCK=256)
    torch.nn.functional.conv2d(source @ target.reshape(1, 1, 16, 16), torch.ones(1, 1, 3, 3))
    with torch.device("meta"), torch.no_grad():
        torch.softmax(torch.nn.Linear(4, 4)(torch.rand(2, 4)), dim=-1)


def judge_main(pool: socket.socket, compilers: socket.socket) -> None:
    """The life of a judge process: first its own zygote, then requests until the pool goes away."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        with contextlib.suppress(BaseException):
            for other in (pool, compilers, ours):
                other.close()
            zygote.serve(theirs, {"runner": runner.run, "replay": replay.replay})
        os._exit(0)
    theirs.close()
    gc.freeze()
    hello = wire.receive(pool).header
    base = hello["base"]
    with tempfile.TemporaryDirectory(prefix="judge-", dir=base) as folder:
        Path(folder).chmod(0o711)
        judge = Judge(GymConfig.model_validate(hello["config"]), ours, compilers, folder)
        while True:
            try:
                message = wire.receive(pool)
            except wire.ChannelClosed:
                return
            wire.send(pool, _answer(judge, message.header))


def _answer(judge: Judge, header: dict[str, Any]) -> dict[str, Any]:
    request = JudgeRequest.model_validate(header["request"])
    try:
        evaluation = judge.evaluate(request, int(header["seed"]))
    except DojoError as error:
        return {"error": type(error).__name__, "message": str(error)}
    return {"evaluation": evaluation.model_dump(mode="json")}
