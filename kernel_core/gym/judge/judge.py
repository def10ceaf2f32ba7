"""The trusted side: decides whether a kernel is honest, correct and fast.

A candidate is parsed, runs every trial in a sandboxed runner, has its trace replayed on fresh inputs in
another sandbox, and is timed. The first failure decides the verdict. This module is shared by the judges of
all devices; `cpu_judge` predicts times, `cuda_judge` measures them.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import time
from typing import Any

from kernel_core.config import GymConfig
from kernel_core.errors import GymUnavailable, NotAProblem
from kernel_core.gym.channel import framing
from kernel_core.gym.channel.loop_coverage import merged, turns_of
from kernel_core.gym.channel.messages import Loaded, NotLoaded, Raised, Ran
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.not_python import parse_python
from kernel_core.gym.judge.output_check import (
    kernelbench_fault,
    output_fault,
    outputs_pass,
    tolerances_passed,
)
from kernel_core.gym.judge.problem_cache import REPLAY, Prepared
from kernel_core.gym.judge.replay_check import Unseen
from kernel_core.gym.judge.static_findings import inspect_source
from kernel_core.gym.judge.unknown_provenance import is_work_of_its_numbers
from kernel_core.gym.oracle.input_families import Draw, turned
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.sandbox import sandbox
from kernel_core.gym.timing.nvml import describe_platform
from kernel_core.gym.verdict.case import Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.child import NO_ANSWER, Answer, ChildSession, Died
from kernel_core.gym.workers.payload import TrialPayload, deliver, load_header
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import Evaluation, NoCandidate, Tolerance, Verdict

NO_OWN_KERNEL = "no_own_kernel"
"""The rule of the finding that a candidate launched none."""


class Judge:
    """Judges one request after another; what a problem needs is `prepared` once."""

    _measured_label = "measured"
    """The label of the trial on which recorded work is measured."""

    def __init__(self, config: GymConfig, workers: Workers, prepared: Prepared) -> None:
        self._config = config
        self.platform = describe_platform()
        self._strict = config.rules == "kernelbench"
        self._decisive: Tolerance = "field" if self._strict else config.tolerance
        self._workers = workers
        self._prepared = prepared

    def evaluate(self, request: JudgeRequest, seed: int) -> Evaluation:
        """The verdict on one candidate. Raises `NotAProblem` or `GymUnavailable`, never for a candidate."""
        started = time.monotonic()
        case = Case(request, seed=seed)
        if isinstance(request.candidate, NoCandidate):
            case.fail(Verdict.MALFORMED, request.candidate.reason)
        elif (tree := _parse(case)) is not None:
            case.findings.extend(inspect_source(tree))
            try:
                self._decide(request, seed, case)
            finally:
                case.forget_recorded()
        return case.evaluation(self._workers.device, self.platform, time.monotonic() - started)

    def _decide(self, request: JudgeRequest, seed: int, case: Case) -> None:
        raise NotImplementedError

    def _try_all(self, talk: ChildSession, reference: Reference, seed: int, case: Case) -> bool:
        """Load the candidate and run every trial in one sandboxed process; whether all passed."""
        with case.phase("expected"):
            draws = self._prepared.draws(reference, seed)
        case.trials = len(draws)
        case.tolerances = {"field", "measured", "strict"}
        with case.phase("load"):
            loaded = self._load(talk, reference, case)
        for label, draw in draws if loaded else ():
            self._lay_table(case)
            with case.phase("expected"):
                trial = self._prepared.trial(reference, seed, label, draw)
            with case.phase("runs" if case.trials_passed else "first run"):
                if not self._try(talk, reference, trial, case):
                    return False
            case.trials_passed += 1
        return loaded

    def _load(self, talk: ChildSession, reference: Reference, case: Case) -> bool:
        poison = derive_seed(case.seed, "poison")
        with self._workers.share():
            header, arena = load_header(
                reference,
                case.source_at(reference.sizes),
                poison,
                case.configuration,
                copy_state=not self._strict,
            )
        descriptors = (arena.descriptor,)
        answer = talk.ask(header, (Loaded, NotLoaded), descriptors=descriptors, turn=self._workers.share)
        arena.close()
        match answer:
            case Died():
                self._fail_dead(case, answer)
                return False
            case Answer(claim=NotLoaded() as failure):
                self._check_cage(failure.features, case)
                refused = failure.failed == "import" or failure.by_compiler
                stage = Verdict.NOT_COMPILED if refused else Verdict.CRASHED
                case.ran_out_of_memory = failure.ran_out_of_memory
                case.fail(stage, failure.told, failure.line)
                return False
            case Answer(claim=Loaded() as loaded):
                self._check_cage(loaded.features, case)
                case.unmatched = loaded.unmatched
                return True
        raise AssertionError(answer)

    def _fail_dead(self, case: Case, died: Died) -> None:
        sizes = {**case.request.problem.constants, **case.request.run_sizes(self._workers.device)}
        words = ", ".join(f"{name} = {value}" for name, value in list(sizes.items())[:6])
        if died.timed_out:
            case.fail(Verdict.TIMED_OUT, f"{died.reason} at {words}" if words else died.reason)
        else:
            case.fail(Verdict.CRASHED, died.reason)

    def _try(self, talk: ChildSession, reference: Reference, trial: Trial, case: Case) -> bool:
        with self._workers.share() if trial.inputs else self._workers.draw():
            delivery = deliver(reference, trial, arena=case.arena)
        try:
            answer = talk.ask(
                delivery.header,
                (Ran, Raised),
                descriptors=(delivery.arena.descriptor,),
                turn=self._workers.share,
                take_descriptors=True,
            )
            if isinstance(answer, Answer):
                return self._hear(answer, delivery, reference, trial, case)
        finally:
            delivery.close()
        self._fail_dead(case, answer)
        return False

    def _hear(
        self, answer: Answer, delivery: TrialPayload, reference: Reference, trial: Trial, case: Case
    ) -> bool:
        claim = answer.claim
        if not isinstance(claim, Ran | Raised) or any(
            launch.launch >= len(claim.kernels) for launch in claim.launches
        ):
            framing.close_all(answer.descriptors)
            self._fail_dead(case, Died(timed_out=False, reason=NO_ANSWER))
            return False
        case.kernels, case.launches = claim.kernels, claim.launches
        case.turns = merged(case.turns, turns_of(claim.turns, claim.kernels, claim.launches))
        if case.trials_passed == 0:
            for event in claim.watched:
                case.note("audit", event)
        if isinstance(claim, Raised):
            framing.close_all(answer.descriptors)
            # On a CPU nothing compiles here; the compile gate checks each launch.
            refused = claim.by_compiler and self._workers.device == "cuda"
            stage = Verdict.NOT_COMPILED if refused else Verdict.CRASHED
            case.ran_out_of_memory = claim.ran_out_of_memory
            case.fail(stage, claim.told, claim.line)
            return False
        case.keep_recorded(
            Recorded(
                trials={case.trials_passed: trial.draw},
                kernels=claim.kernels,
                launches=claim.launches,
                trace=claim.trace,
                constants=bytes(answer.blob),
                memory=answer.descriptors,
            )
        )
        fault = self._fault(claim, delivery, reference, trial)
        if fault is not None:
            case.fail(Verdict.WRONG, fault)
        elif case.tolerances:
            with self._workers.draw():
                case.tolerances &= tolerances_passed(delivery, reference, trial, self._decisive)
        return fault is None

    def _fault(self, claim: Ran, delivery: TrialPayload, reference: Reference, trial: Trial) -> str | None:
        """Return the fault of a trial's outputs by the tolerance that decides."""
        if trial.has_values and not self._strict:
            with self._workers.share():
                if outputs_pass(claim, delivery, reference, trial):
                    return None
        with self._workers.draw():
            check = kernelbench_fault if self._strict else output_fault
            return check(claim, delivery, reference, trial)

    def _try_beyond(self, talk: ChildSession, reference: Reference, seed: int, case: Case) -> None:
        """Passes on inputs beyond the contract, up to the first fault, which is a finding."""
        if case.verdict is not None or case.request.fast:
            return
        beyond = Case(case.request, seed=seed, arena=case.arena)
        with case.phase("beyond"):
            all(self._try(talk, reference, trial, beyond) for trial in self._prepared.beyond(reference, seed))
        beyond.forget_recorded()
        if beyond.verdict in (Verdict.WRONG, Verdict.CRASHED):
            case.note("narrow_domain", beyond.detail)

    def _lay_table(self, case: Case) -> None:
        """Prepare what a candidate needs before its first pass; nothing by default."""

    def _has_traces(self, case: Case) -> bool:
        """Return True if each pass launched kernels of its own and can be replayed; if not, it is a hack."""
        for recorded in case.recorded:
            if not recorded.launches:
                case.note(NO_OWN_KERNEL, "no JIT function of the candidate's was launched")
                sizes = case.request.run_sizes(self._workers.device)
                own = case.request.problem.constants
                words = ", ".join(
                    f"{name} = {value} in place of {own[name]}" for name, value in sizes.items()
                )
                where = f" at {words}" if words else ""
                case.fail(Verdict.HACKED, f"no kernel of its own was launched{where}")
            elif recorded.trace is None:
                case.fail(Verdict.HACKED, "its work could not be traced")
        return case.verdict is None

    def _unseen(
        self, reference: Reference, seed: int, recorded: Recorded, case: Case, draw: Draw | None = None
    ) -> Unseen:
        """The inputs for the replay of a recorded pass, of the family `draw` if given.

        If host code looked at no tensor, it cannot have chosen this work for these inputs. A candidate that
        counts its calls must not know which trial has hostile inputs.
        """
        if draw is None:
            draws = self._prepared.draws(reference, seed)
            draw = recorded.last_draw if recorded.knows_its_inputs else draws[-1][1]

        def make_trial(label: str, draw: Draw) -> Trial:
            self._lay_table(case)
            with case.phase("expected"):
                return self._prepared.trial(reference, seed, label, draw)

        def make_replayed() -> Trial:
            for tried in (turned(draw), draw):
                with contextlib.suppress(NotAProblem):
                    trial = make_trial(REPLAY, tried)
                    if trial.is_usual:
                        return trial
            return make_trial(REPLAY, "own")

        def draw_others(number: int) -> list[Any]:
            return reference.draw(self._prepared.number(seed, f"others {number}", draw), draw)

        return Unseen(
            make_trial=make_replayed,
            draw_others=draw_others,
            make_measured=functools.partial(make_trial, self._measured_label, case.measured_draw(recorded)),
            exactly=reference.exactly,
            fault_on=functools.partial(self._fault_on, reference, case),
        )

    def _fault_on(self, reference: Reference, case: Case, trial: Trial) -> str | None:
        """The fault of the candidate's own outputs for a trial in another process; None if they are right."""
        again = self._try_again(reference, case, trial)
        return again.detail if again.verdict is Verdict.WRONG else None

    def _try_again(
        self,
        reference: Reference,
        case: Case,
        trial: Trial,
        *others: Trial,
        job: str = "runner",
        most_s: float | None = None,
        configuration: int | None = None,
        keep: bool = False,
    ) -> Case:
        """The findings about the candidate in another process, maybe with a shorter deadline or another
        configuration. `others` are tried after the first trial. The caller may `keep` the records of two
        passes, the first with tuning, to forget."""
        place = case.configuration if configuration is None else configuration
        again = Case(case.request, seed=case.seed, arena=case.arena, configuration=place)
        with self._runner(again, reference, job) as talk:
            if most_s is not None:
                talk.allow(min(0.0, most_s - self._config.deadline_s))
            if self._load(talk, reference, again):
                passes = (trial, *others, *(trial,) * keep)
                all(self._try(talk, reference, tried, again) for tried in passes)
        if not keep:
            again.forget_recorded()
        return again

    def _is_excused(
        self, ruling: Ruling, recorded: Recorded, reference: Reference, seed: int, case: Case
    ) -> bool:
        """Return True if a record that did not reproduce may be honest; see `unknown_provenance.py`."""
        run_again = functools.partial(self._try_again, reference, case, keep=True)
        unseen_of = functools.partial(self._unseen, reference, seed, case=case)
        return is_work_of_its_numbers(ruling, recorded, unseen_of, reference, case, self._workers, run_again)

    def _runner(
        self, case: Case, reference: Reference, job: str = "runner"
    ) -> contextlib.AbstractContextManager[ChildSession]:
        """A process for the candidate."""
        return self._workers.open_child(job, weight_bytes=reference.weight_bytes)

    def _check_cage(self, features: tuple[str, ...], case: Case) -> None:
        case.sandbox = features
        missing = sandbox.missing_features(features)
        if missing and self._config.sandbox == "require":
            raise GymUnavailable(
                f"this kernel cannot isolate candidates (missing: {', '.join(missing)}); "
                "use a newer Linux kernel or run as root, or set gym.sandbox=best-effort"
            )


def _parse(case: Case) -> ast.Module | None:
    tree = parse_python(case)
    if tree is None:
        return None
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "ModelNew" not in names:
        case.fail(Verdict.MALFORMED, "no class ModelNew")
        return None
    return tree
