"""The trusted side: decides whether a kernel is honest, correct and, by prediction, fast.

One candidate goes through: parse · run every trial in a caged runner · compile each launched kernel ·
replay the trace on fresh inputs in another cage · predict times. The first thing that fails names the
verdict; a kernel that does not compile comes before anything that happened while running.
"""

from __future__ import annotations

import ast
import socket
import time
from collections import OrderedDict
from typing import TypeVar

import torch

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable
from kernel_core.gym import kernelbench, sandbox
from kernel_core.gym.case import Case
from kernel_core.gym.claims import Loaded, NotLoaded, Raised, Ran
from kernel_core.gym.compare import compare_outputs
from kernel_core.gym.gate import CompileGate
from kernel_core.gym.guard import inspect_source
from kernel_core.gym.inputs import Draw
from kernel_core.gym.limits import Cage
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.reference import Reference, Trial, derive_seed
from kernel_core.gym.runs import (
    Conversation,
    Delivery,
    Died,
    cage_folder,
    deliver,
    input_was_changed,
    load_header,
)
from kernel_core.gym.traffic import EagerTraffic, count_eager
from kernel_core.gym.witness import replay_works, weigh
from kernel_core.records import Evaluation, NoCandidate, Verdict
from kernel_core.store import digest_of

_KEPT_PROBLEMS = 8
_KEPT_TRIALS = 32
_K = TypeVar("_K")
_V = TypeVar("_V")


class Judge:
    """Judges one request after another; problems, trials and compiled kernels are paid once."""

    def __init__(
        self, config: GymConfig, runners: socket.socket, compilers: socket.socket, base: str
    ) -> None:
        self._config = config
        self._strict = config.rules == "kernelbench"
        self._runners = runners
        self._base = base
        self._gate = CompileGate(compilers, base, config.predict_gpu)
        self._references: OrderedDict[str, Reference] = OrderedDict()
        self._eager: OrderedDict[str, EagerTraffic] = OrderedDict()
        self._trials: OrderedDict[tuple[str, int, str], Trial] = OrderedDict()

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """The verdict on one candidate. Raises `NotAProblem` or `GymUnavailable`, never for a candidate."""
        started = time.monotonic()
        case = Case(request)
        if isinstance(request.candidate, NoCandidate):
            case.fail(Verdict.MALFORMED, request.candidate.reason)
        elif (tree := _parse(case)) is not None:
            case.findings.extend(inspect_source(tree))
            reference = self._reference(request)
            self._run(reference, seed, case)
            if self._config.compile_gate and case.launches:
                self._gate.check(case)
            if case.verdict is None and not self._strict:
                self._check_work(reference, seed, case)
        return case.evaluation(time.monotonic() - started)

    def _run(self, reference: Reference, seed: int, case: Case) -> None:
        trials = self._draw_trials(reference, seed)
        case.trials = len(trials)
        with cage_folder(self._base) as (folder, user_id):
            cage = self._cage(folder, user_id)
            talk = Conversation(self._runners, "runner", cage, self._config.deadline_s)
            try:
                if self._load(talk, reference, case):
                    for trial in trials:
                        if not self._try(talk, trial, trial is trials[-1], case):
                            break
                        case.trials_passed += 1
            finally:
                talk.end()

    def _load(self, talk: Conversation, reference: Reference, case: Case) -> bool:
        header, arena = load_header(reference, case.source, copy_state=not self._strict)
        answer = talk.ask(header, (Loaded, NotLoaded), arena=arena)
        arena.close()
        match answer:
            case Died():
                _fail_dead(case, answer)
                return False
            case (NotLoaded() as failure, _):
                self._check_cage(failure.features, case)
                stage = Verdict.NOT_COMPILED if failure.failed == "import" else Verdict.CRASHED
                case.fail(stage, _last_line(failure.error, failure.message), failure.line)
                return False
            case (Loaded() as loaded, _):
                self._check_cage(loaded.features, case)
                case.unmatched = loaded.unmatched
                return True
        raise AssertionError(answer)

    def _try(self, talk: Conversation, trial: Trial, last: bool, case: Case) -> bool:
        delivery = deliver(trial)
        answer = talk.ask(delivery.header | {"trace": last}, (Ran, Raised), arena=delivery.arena)
        delivery.arena.close()
        if isinstance(answer, Died):
            _fail_dead(case, answer)
            return False
        claim, blob = answer
        if not isinstance(claim, Ran | Raised) or any(
            launch.launch >= len(claim.kernels) for launch in claim.launches
        ):
            _fail_dead(case, Died(timed_out=False, reason="it wrote to a channel that is not its own"))
            return False
        case.kernels, case.launches = claim.kernels, claim.launches
        if case.trials_passed == 0:
            for event in claim.watched:
                case.note("audit", event)
        if isinstance(claim, Raised):
            case.fail(Verdict.CRASHED, _last_line(claim.error, claim.message), claim.line)
            return False
        case.trace, case.constants = claim.trace, bytes(blob)
        return self._accept(claim, delivery, trial, case)

    def _accept(self, claim: Ran, delivery: Delivery, trial: Trial, case: Case) -> bool:
        """Compare the outputs that lie in the judge's own memory, and the inputs with what was delivered."""
        values = [delivery.arena.tensor(slot).clone() for slot in delivery.output_slots]
        if self._strict:
            fault = kernelbench.accepts(claim.nesting, claim.leaves, values, trial)
        else:
            fault = compare_outputs(claim.nesting, claim.leaves, values, trial.nesting, trial.expected)
            changed = input_was_changed(delivery, trial)
            if fault is None and changed is not None and not trial.changes_inputs:
                fault = f"input {changed} was changed in place"
        if fault is not None:
            case.fail(Verdict.WRONG, fault + ("" if trial.draw == "own" else " (normal inputs)"))
        return fault is None

    def _draw_trials(self, reference: Reference, seed: int) -> list[Trial]:
        """The problem's own draws, and last one of normal numbers where the reference can take them."""
        if self._strict:
            return [self._trial(reference, seed, f"{number}", "own") for number in kernelbench.SEEDS]
        count = max(1, self._config.trials - 1)
        trials = [self._trial(reference, seed, f"trial {i}", "own") for i in range(count)]
        hostile = self._trial(reference, seed, f"trial {count}", "normal")
        if not _is_finite(hostile):
            hostile = self._trial(reference, seed, f"trial {count}", "own")
        return [*trials, hostile]

    def _check_work(self, reference: Reference, seed: int, case: Case) -> None:
        if not case.launches:
            case.note("no_own_kernel", "no JIT function of the candidate's was launched")
            return case.fail(Verdict.HACKED, "no kernel of its own was launched")
        if case.trace is None:
            return case.fail(Verdict.HACKED, "its work could not be traced")
        fresh = self._trial(reference, seed, "replay", "normal")
        if not _is_finite(fresh):
            fresh = self._trial(reference, seed, "replay", "own")
        with cage_folder(self._base) as (folder, user_id):
            cage = self._cage(folder, user_id)
            works = replay_works(case, fresh, self._runners, cage, self._config.deadline_s)
        if works is not None:
            weigh(case, works, self._eager_traffic(reference), self._config.predict_gpu)
        return None

    def _cage(self, folder: str, user_id: int) -> Cage:
        return Cage(
            folder=folder,
            user_id=user_id,
            memory_bytes=self._config.memory_mb << 20,
            cpu_seconds=int(self._config.deadline_s) + 2,
            max_processes=1,
        )

    def _check_cage(self, features: tuple[str, ...], case: Case) -> None:
        case.sandbox = features
        missing = sandbox.missing_features(features)
        if missing and self._config.sandbox == "require":
            raise GymUnavailable(
                f"this kernel cannot isolate candidates (missing: {', '.join(missing)}); "
                "use a newer Linux kernel or run as root, or set gym.sandbox=best-effort"
            )

    # What is paid once ----------------------------------------------------------------------------

    def _reference(self, request: JudgeRequest) -> Reference:
        key = f"{request.problem.sha256}:{digest_of(request.sizes)}"
        if key not in self._references:
            _keep(self._references, key, Reference(request.problem, request.sizes), _KEPT_PROBLEMS)
        return self._references[key]

    def _eager_traffic(self, reference: Reference) -> EagerTraffic:
        if reference.key not in self._eager:
            _keep(self._eager, reference.key, count_eager(reference), _KEPT_PROBLEMS)
        return self._eager[reference.key]

    def _trial(self, reference: Reference, seed: int, label: str, draw: Draw) -> Trial:
        key = (reference.key, seed, f"{label}:{draw}")
        if key not in self._trials:
            number = int(label) if self._strict else derive_seed(seed, label, draw)
            trial = reference.trial(number, draw, exact=not self._strict)
            _keep(self._trials, key, trial, _KEPT_TRIALS)
        return self._trials[key]


def _keep(known: OrderedDict[_K, _V], key: _K, value: _V, count: int) -> None:
    known[key] = value
    while len(known) > count:
        known.popitem(last=False)


def _is_finite(trial: Trial) -> bool:
    floats = (one.value for one in trial.expected if one.value.is_floating_point())
    return all(bool(torch.isfinite(value).all()) for value in floats)


def _parse(case: Case) -> ast.Module | None:
    try:
        tree = ast.parse(case.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        case.fail(Verdict.MALFORMED, str(getattr(error, "msg", error)), getattr(error, "lineno", 0) or 0)
        return None
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "ModelNew" not in names:
        case.fail(Verdict.MALFORMED, "no class ModelNew")
        return None
    return tree


def _last_line(name: str, message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f"{name}: {lines[-1]}" if lines else name


def _fail_dead(case: Case, died: Died) -> None:
    case.fail(Verdict.TIMED_OUT if died.timed_out else Verdict.CRASHED, died.reason)
