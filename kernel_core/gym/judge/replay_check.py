"""A replay of what a candidate claims: do its own kernels do the work, and how much work is it?"""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import torch

from kernel_core.gym.channel.decoy_thresholds import ECHOES, library_works
from kernel_core.gym.channel.messages import Echoed, Failure, Muted, Played, Replayed, ReplayedOnDevice
from kernel_core.gym.channel.pytree import Fingerprint
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.numerics.compare import Spots, each_passes
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.reference_outputs import IsEnough
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.verdict.case import Case, Ruling
from kernel_core.gym.verdict.recorded_pass import Recorded
from kernel_core.gym.workers.child import Answer, ChildSession, Died, describe
from kernel_core.gym.workers.gpu_locks import Drawn
from kernel_core.gym.workers.payload import TrialPayload, changed_inputs, deliver, gave, refill, settle_device
from kernel_core.gym.workers.workers import Workers
from kernel_core.records import Verdict

_Measured = TypeVar("_Measured", Replayed, ReplayedOnDevice)
NOT_NEEDED = "the outputs do not depend on its kernels"
"""The reason for a refusal by the test that leaves out the candidate's kernels."""
TakeGpu = Callable[[], contextlib.AbstractContextManager[Drawn]]


@dataclass(frozen=True, slots=True)
class Unseen:
    """The trials on which a recorded pass is replayed. The candidate had not seen them when it recorded the
    pass. They are made when there is memory for them."""

    make_trial: Callable[[], Trial]
    """Makes a trial of the family of the last trial in which this pass was recorded, or of that family
    turned."""
    draw_others: Callable[[int], list[Any]]
    """Other inputs of the same family, by their number."""
    make_measured: Callable[[], Trial]
    """Makes inputs like those that it is timed on: the amount of work may depend on the values."""
    exactly: Callable[[Trial, IsEnough], Trial]
    """The same trial with expected values and tolerances by float64's answer to its own inputs. The caller
    holds the drawing turn."""
    fault_on: Callable[[Trial], str | None]
    """The fault of the candidate's own outputs for a trial."""


class ReplayCheck:
    """The replay of one recorded pass in another process. What it finds goes into `ruling`."""

    def __init__(
        self,
        case: Case,
        ruling: Ruling,
        recorded: Recorded,
        reference: Reference,
        unseen: Unseen,
        talk: ChildSession,
        workers: Workers,
    ) -> None:
        self._case = case
        self._ruling = ruling
        self._recorded = recorded
        self._reference = reference
        self._unseen = unseen
        self._talk = talk
        self._workers = workers
        self._delivery: TrialPayload | None = None
        self._measured_seed = -1
        self._spots: list[Spots] = []
        """Secret places of the outputs that were right last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._delivery is not None:
            self._delivery.close()

    def is_convinced(self, *, other_inputs: bool = True) -> bool:
        """Return True if the recorded work gives the right outputs on inputs that the candidate never saw,
        and not without its kernels, nor with what these make of `other_inputs`; if not, there is a
        verdict."""
        self._case.kernels, self._case.launches = self._recorded.kernels, self._recorded.launches
        trial = self._first_pass()
        if trial is None or not self._kernels_do_something(trial):
            return False
        return not other_inputs or self._echoes_differ()

    def measure(self, kind: type[_Measured], turn: TakeGpu) -> _Measured | None:
        """The cost of the same work on inputs like those that the candidate is timed on. None, and a verdict,
        when its outputs are wrong there."""
        trial = self._unseen.make_measured()
        self._measured_seed = trial.seed
        question = {"measure": True, "once": trial.changes_inputs or bool(self._reference.mutable)}
        asked = functools.partial(self._lay_trial, trial, turn)
        answer = self._talk.ask(question, (kind, Failure), turn=asked)
        if not isinstance(answer, Answer) or not isinstance(answer.claim, kind):
            self._fail_to_reproduce(answer)
            return None
        return answer.claim if self._is_right_on(trial) else None

    def gave(self, outputs: Mapping[int, Sequence[Fingerprint]]) -> bool:
        """Return True if what was measured last gave, bit for bit, the outputs that are known of its trial,
        by the trials' seeds; true where none are."""
        known = outputs.get(self._measured_seed)
        if known is None:
            return True
        with self._workers.share():
            return gave(self._laid_out, known)

    # Questions --------------------------------------------------------------------------------------

    def _first_pass(self) -> Trial | None:
        """The trial, when its outputs are right."""
        case, recorded = self._case, self._recorded
        header = {
            "source": case.source_at(self._reference.sizes),
            "kernels": [kernel.model_dump() for kernel in recorded.kernels],
            "trace": recorded.trace,
            "poison": derive_seed(case.seed, "poison of replays"),
            "images": {name: base64.b64encode(image).decode() for name, image in case.images.items()},
        }
        laid: list[Trial] = []

        @contextlib.contextmanager
        def deliver_in_turn() -> Iterator[TrialPayload]:
            laid.append(self._unseen.make_trial())
            with self._workers.draw() as drawn:
                self._delivery = deliver(self._reference, laid[0], arena=case.arena)
                drawn()
                yield self._delivery

        answer = self._talk.ask(
            header,
            (Played, Failure),
            blob=recorded.constants,
            descriptors=recorded.memory,
            turn=deliver_in_turn,
        )
        if not isinstance(answer, Answer) or not isinstance(answer.claim, Played) or not laid:
            self._fail_to_reproduce(answer)
            return None
        case.products |= {*answer.claim.products}
        return laid[0] if self._is_right_on(laid[0]) else None

    def _kernels_do_something(self, trial: Trial) -> bool:
        asked = functools.partial(self._lay_again, trial)
        answer = self._talk.ask({"mute": True}, (Muted, Failure), turn=asked)
        if not isinstance(answer, Answer) or not isinstance(answer.claim, Muted):
            self._fail_to_reproduce(answer)
        elif self._may_give_the_same() and self._gives(trial):
            if answer.claim.moving:
                finding = "own kernels only move data beside library operators"
                reason = "its own kernels only move data that other operators compute with"
            else:
                finding = "the outputs are right without the candidate's kernels"
                reason = NOT_NEEDED
            self._ruling.note("decoy", finding)
            self._ruling.fail(Verdict.HACKED, reason)
        return self._ruling.verdict is None

    def _echoes_differ(self) -> bool:
        for number in range(ECHOES if library_works(self._recorded.trace) else 0):
            asked = functools.partial(self._lay_others, number)
            answer = self._talk.ask({"needed": True}, (Echoed, Failure), turn=asked)
            if isinstance(answer, Died) or not isinstance(answer.claim, Echoed):
                self._fail_to_reproduce(answer)
                return False
            if not answer.claim.needed:
                self._ruling.note(
                    "decoy", "the outputs are right with what the candidate's kernels made of other inputs"
                )
                self._ruling.fail(
                    Verdict.HACKED, "the outputs do not depend on what its kernels make of the inputs"
                )
                return False
        return True

    # Inputs laid out before each replay ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _lay_trial(self, trial: Trial, turn: TakeGpu) -> Iterator[None]:
        """The trial's inputs, to which an earlier pass may have written, and poison where its outputs will
        be."""
        with turn() as drawn:
            delivery = self._laid_out
            refill(delivery, functools.partial(self._reference.inputs_of, trial), self._reference.device)
            drawn()
            self._poison()
            yield

    @contextlib.contextmanager
    def _lay_again(self, trial: Trial) -> Iterator[None]:
        """Lay out the trial as before. The inputs were not changed, or a change was noticed. Only torch's
        operators could be misled by an unnoticed change, so otherwise the inputs are not drawn again."""
        if library_works(self._recorded.trace) or trial.changes_inputs or self._reference.mutable:
            with self._lay_trial(trial, self._workers.draw):
                yield
            return
        with self._workers.share():
            self._poison()
            yield

    @contextlib.contextmanager
    def _lay_others(self, number: int) -> Iterator[None]:
        with self._workers.draw() as drawn:
            others = functools.partial(self._unseen.draw_others, number)
            refill(self._laid_out, others, self._reference.device)
            drawn()
            yield

    def _poison(self) -> None:
        self._laid_out.arena.poison(self._laid_out.output_slots)
        settle_device(self._reference.device)

    @property
    def _laid_out(self) -> TrialPayload:
        assert self._delivery is not None, "the first pass comes first"
        return self._delivery

    # Results of a replay ----------------------------------------------------------------------------------

    def _is_right_on(self, trial: Trial) -> bool:
        if not self._gives(trial) and not self._gives(trial, exactly=True):
            self._blame(trial)
        elif not trial.changes_inputs and self._changed_inputs():
            self._ruling.note("input_changed", "replayed, its recorded work writes to the inputs")
            self._ruling.fail(
                Verdict.HACKED, "its recorded work writes to its inputs, where the candidate did not"
            )
        return self._ruling.verdict is None

    def _gives(self, trial: Trial, *, exactly: bool = False) -> bool:
        outputs = self._outputs()
        with self._workers.draw() if exactly or not trial.has_values else self._workers.share():
            is_right = functools.partial(each_passes, outputs)
            known = self._unseen.exactly(trial, is_right) if exactly else self._reference.with_values(trial)
            if not is_right(known.expected):
                return False
            self._spots = [Spots.of(leaf) for leaf in known.expected]
            return True

    def _may_give_the_same(self) -> bool:
        """False where outputs are wrong at a few places. Then the whole expected outputs need not be made
        again."""
        with self._workers.share():
            return all(
                spots.all_pass(output) for spots, output in zip(self._spots, self._outputs(), strict=True)
            )

    def _outputs(self) -> list[torch.Tensor]:
        return [self._laid_out.arena.tensor(slot) for slot in self._laid_out.output_slots]

    def _changed_inputs(self) -> bool:
        with self._workers.share():
            return bool(set(changed_inputs(self._laid_out)) - self._reference.mutable)

    def _blame(self, trial: Trial) -> None:
        """The recorded work is wrong on new inputs. The candidate is wrong there too, or its record is
        false."""
        fault = self._unseen.fault_on(trial)
        if fault is not None:
            self._ruling.fail(Verdict.WRONG, f"{fault} (inputs that it had not seen)")
            return
        self._ruling.note(
            "not_reproduced", "the recorded kernels and operators give other outputs on new inputs"
        )
        self._ruling.fail(Verdict.HACKED, "its recorded work gives other outputs on other inputs")

    def _fail_to_reproduce(self, answer: Answer | Died) -> None:
        if isinstance(answer, Died) and answer.timed_out:
            self._ruling.fail(Verdict.TIMED_OUT, answer.reason)
            return
        reason = describe(answer)
        claim = answer.claim if isinstance(answer, Answer) else None
        self._ruling.ran_out_of_memory = isinstance(claim, Failure) and claim.ran_out_of_memory
        self._ruling.note("not_reproduced", f"replay: {reason[:200]}")
        self._ruling.fail(Verdict.HACKED, "its recorded work does not run on other inputs")
