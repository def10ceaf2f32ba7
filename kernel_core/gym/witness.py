"""Whether a candidate's own kernels did the work, and how much work it is: by replaying what it claims."""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kernel_core.gym.case import Case
from kernel_core.gym.claims import DeviceWork, Echoed, Failure, Muted, Replayed, ReplayedOnDevice
from kernel_core.gym.compare import all_pass
from kernel_core.gym.delivery import Delivery, deliver, input_was_changed, refill, settle_device
from kernel_core.gym.echo import ECHOES, library_works
from kernel_core.gym.kernel_use import slowest_kernel
from kernel_core.gym.reference import Reference, Trial
from kernel_core.gym.runs import Answer, Conversation, Died, describe
from kernel_core.gym.traffic import EagerTraffic, own_work_share, predict
from kernel_core.gym.work import Work
from kernel_core.records import Verdict

NEGLIGIBLE_SHARE = 0.01
"""Below this share of the time, a candidate's own kernels are a decoy."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What a trace is replayed on: a trial that the candidate had not seen when it made the trace, made when
    there is room for it."""

    make_trial: Callable[[], Trial]
    draw_others: Callable[[int], list[Any]]
    """Other inputs of the same family, by their number."""
    draw_own: Callable[[], list[Any]]
    """Inputs like those that it was timed on: how long a kernel takes may depend on what it reads."""
    fault_on: Callable[[Trial], str | None]
    """What is wrong with the candidate's own outputs for a trial."""


_Works = TypeVar("_Works", Replayed, ReplayedOnDevice)
Turn = Callable[[], contextlib.AbstractContextManager[None]]
Doubt = Callable[[Sequence[DeviceWork]], bool]


def replay_counts(case: Case, reference: Reference, unseen: Unseen, talk: Conversation) -> list[Work] | None:
    """The counted works of the trace on inputs the candidate never saw; None when it is not honest."""
    replayed = _replay(case, reference, unseen, talk, Replayed, contextlib.nullcontext)
    return None if replayed is None else [Work(**one.model_dump()) for one in replayed[0].works]


def replay_times(
    case: Case,
    reference: Reference,
    unseen: Unseen,
    talk: Conversation,
    turns: tuple[Turn, Turn],
    in_doubt: Doubt,
) -> tuple[DeviceWork, ...] | None:
    """The same on a GPU, with device times. `turns` are on the device beside others, who can only make times
    longer, and alone: that is waited for where the times are `in_doubt`."""
    share, alone = turns
    replayed = _replay(case, reference, unseen, talk, ReplayedOnDevice, share)
    if replayed is None:
        return None

    @contextlib.contextmanager
    def deliver_own(turn: Turn) -> Iterator[None]:
        with turn():
            refill(replayed[1], unseen.draw_own, reference.device)
            yield

    for turn in (share, alone):
        asked = functools.partial(deliver_own, turn)
        answer = talk.ask({"time": True}, (ReplayedOnDevice, Failure), turn=asked)
        if not isinstance(answer, Answer) or not isinstance(answer.claim, ReplayedOnDevice):
            _fail_to_reproduce(case, answer)
            return None
        works = answer.claim.works
        if not in_doubt(works):
            break
    return works


def _replay(
    case: Case, reference: Reference, unseen: Unseen, talk: Conversation, kind: type[_Works], share: Turn
) -> tuple[_Works, Delivery] | None:
    """Ask for the replay with and without the launches, and look at what each gave: its works, and what it
    was delivered, which can be refilled where the arena was lent."""
    header = {
        "source": case.source,
        "kernels": [kernel.model_dump() for kernel in case.kernels],
        "trace": case.trace,
        "images": {name: base64.b64encode(image).decode() for name, image in case.images.items()},
    }
    laid: list[tuple[Delivery, Trial]] = []
    delivery: Delivery

    @contextlib.contextmanager
    def deliver_in_turn() -> Iterator[Delivery]:
        trial = unseen.make_trial()
        with share():
            laid.append((deliver(reference, trial, arena=case.arena), trial))
            yield laid[0][0]

    @contextlib.contextmanager
    def poison_in_turn() -> Iterator[None]:
        with share():
            # The first pass may have written to the inputs.
            refill(delivery, functools.partial(reference.inputs_of, laid[0][1]), reference.device)
            delivery.arena.poison(delivery.output_slots)
            settle_device(reference.device)
            yield

    @contextlib.contextmanager
    def deliver_others(number: int) -> Iterator[None]:
        with share():
            refill(delivery, functools.partial(unseen.draw_others, number), reference.device)
            yield

    try:
        answer = talk.ask(
            header, (kind, Failure), blob=case.constants, descriptors=case.memory, turn=deliver_in_turn
        )
        if not isinstance(answer, Answer) or not isinstance(answer.claim, kind) or not laid:
            _fail_to_reproduce(case, answer)
            return None
        delivery, trial = laid[0]
        if not _gives_expected(delivery, trial, share):
            _blame(case, unseen.fault_on(trial))
            return None
        if not trial.changes_inputs and _changes_inputs(delivery, share):
            case.note("input_changed", "replayed, its recorded work writes to the inputs")
            case.fail(Verdict.HACKED, "its recorded work writes to its inputs, where the candidate did not")
            return None
        muted = talk.ask({"mute": True}, (Muted, Failure), turn=poison_in_turn)
        if not isinstance(muted, Answer) or not isinstance(muted.claim, Muted):
            _fail_to_reproduce(case, muted)
            return None
        if _gives_expected(delivery, trial, share):
            case.note("decoy", "the outputs are right without the candidate's kernels")
            case.fail(Verdict.HACKED, "the outputs do not depend on its kernels")
            return None
        for number in range(ECHOES if library_works(case.trace) else 0):
            turn = functools.partial(deliver_others, number)
            if not _kernels_are_needed(case, talk.ask({"needed": True}, (Echoed, Failure), turn=turn)):
                return None
        return answer.claim, delivery
    finally:
        for delivery, _ in laid:
            delivery.close()


def _blame(case: Case, fault: str | None) -> None:
    """Its recorded work is wrong on new inputs: so is the candidate, or it does not do what it showed."""
    if fault is not None:
        case.fail(Verdict.WRONG, f"{fault} (inputs that it had not seen)")
        return
    case.note("not_reproduced", "the recorded kernels and operators give other outputs on new inputs")
    case.fail(Verdict.HACKED, "its recorded work gives other outputs on other inputs")


def _kernels_are_needed(case: Case, answer: Answer | Died) -> bool:
    if isinstance(answer, Died) or not isinstance(answer.claim, Echoed):
        _fail_to_reproduce(case, answer)
    elif not answer.claim.needed:
        case.note("decoy", "the outputs are right with what the candidate's kernels made of other inputs")
        case.fail(Verdict.HACKED, "the outputs do not depend on what its kernels make of the inputs")
    return case.verdict is None


def _fail_to_reproduce(case: Case, answer: Answer | Died) -> None:
    if isinstance(answer, Died) and answer.timed_out:
        case.fail(Verdict.TIMED_OUT, answer.reason)
        return
    reason = describe(answer)
    claim = answer.claim if isinstance(answer, Answer) else None
    case.ran_out_of_memory = isinstance(claim, Failure) and claim.ran_out_of_memory
    case.note("not_reproduced", f"replay: {reason[:200]}")
    case.fail(Verdict.HACKED, "its recorded work does not run on other inputs")


def _gives_expected(delivery: Delivery, trial: Trial, share: Turn) -> bool:
    with share():
        values = [delivery.arena.tensor(slot) for slot in delivery.output_slots]
        return all(all_pass(*one) for one in zip(values, trial.expected, strict=True))


def _changes_inputs(delivery: Delivery, share: Turn) -> bool:
    with share():
        return input_was_changed(delivery) is not None


def weigh_times(case: Case, works: Sequence[DeviceWork]) -> float:
    """Own kernels that take next to none of the time, or only copy, are a decoy; gives all works' time in
    milliseconds."""
    total_ms = sum(work.device_ms for work in works)
    own_ms = sum(work.device_ms for work in works if work.own)
    case.own_kernel_share = own_ms / total_ms if total_ms else None
    case.slowest = slowest_kernel(works)
    _refuse_decoys(case, works, case.own_kernel_share or 0.0, "device time")
    return total_ms


def weigh(
    case: Case, works: Sequence[Work], at_own_sizes: Sequence[Work], eager: EagerTraffic, gpu: str
) -> None:
    """Predict both times; own kernels that do next to nothing, or only copy, are a decoy."""
    case.reference_traffic, _ = predict(eager.works, gpu)
    case.traffic, raised = predict(at_own_sizes, gpu, eager.compulsory_bytes)
    if raised:
        case.note("below_compulsory_traffic", "fewer bytes were counted than any program must move")
    if not eager.at_own_sizes:
        case.note("predicted_at_run_sizes", "the reference cannot be counted at its own sizes")
    case.own_kernel_share = case.traffic.own_share
    _refuse_decoys(case, works, own_work_share(at_own_sizes, gpu), "predicted work")


def _refuse_decoys(case: Case, works: Sequence[Work | DeviceWork], share: float, of_what: str) -> None:
    own = [work for work in works if work.own]
    if share < NEGLIGIBLE_SHARE:
        case.note("decoy", f"own kernels do {100 * share:.2f} % of the {of_what}")
        case.fail(Verdict.HACKED, "its own kernels do almost none of the work")
    elif len(own) < len(works) and all(work.copies_only for work in own):
        case.note("decoy", "own kernels only copy what library operators computed")
        case.fail(Verdict.HACKED, "its own kernels only copy what other operators computed")
