"""Whether a candidate's own kernels did the work, and how much work it is: by replaying what it claims."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_core.gym.case import Case
from kernel_core.gym.claims import Claim, DeviceWork, Echoed, Failure, Replayed, ReplayedOnDevice
from kernel_core.gym.compare import compare_outputs
from kernel_core.gym.echo import library_works
from kernel_core.gym.kernel_use import slowest_kernel
from kernel_core.gym.reference import Reference, Trial
from kernel_core.gym.runs import Answer, Conversation, Delivery, Died, deliver, refill
from kernel_core.gym.traffic import EagerTraffic, own_work_share, predict, scaled
from kernel_core.gym.work import Work
from kernel_core.records import Verdict

NEGLIGIBLE_SHARE = 0.01
"""Below this share of the time, a candidate's own kernels are a decoy."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What a trace is replayed on: a trial that the candidate had not seen when it made the trace."""

    trial: Trial
    draw_others: Callable[[], list[Any]]
    """Other inputs of the same family."""


Turn = contextlib.AbstractContextManager[None]


def replay_counts(case: Case, reference: Reference, unseen: Unseen, talk: Conversation) -> list[Work] | None:
    """The counted works of the trace on inputs the candidate never saw; None when it is not honest."""
    no_turns = contextlib.nullcontext(), contextlib.nullcontext()
    replayed = _replay(case, reference, unseen, talk, Replayed, no_turns)
    return (
        None if not isinstance(replayed, Replayed) else [Work(**one.model_dump()) for one in replayed.works]
    )


def replay_times(
    case: Case,
    reference: Reference,
    unseen: Unseen,
    talk: Conversation,
    turns: tuple[Turn, Turn],
    alone: Turn,
) -> tuple[DeviceWork, ...] | None:
    """The same on a GPU, with device times; `turns` are what to wait for after compiling, and before the
    question whether the kernels were needed, `alone` what to wait for before the passes that are timed."""
    if _replay(case, reference, unseen, talk, ReplayedOnDevice, turns) is None:
        return None
    with alone:
        answer = talk.ask({"time": True}, (ReplayedOnDevice, Failure))
    if isinstance(answer, Answer) and isinstance(answer.claim, ReplayedOnDevice):
        return answer.claim.works
    _fail_to_reproduce(case, answer)
    return None


def _replay(
    case: Case,
    reference: Reference,
    unseen: Unseen,
    talk: Conversation,
    kind: type[Claim],
    turns: tuple[Turn, Turn],
) -> Claim | None:
    """Ask for the replay, and look at what it gave while nobody else can have the memory."""
    header = {
        "source": case.source,
        "kernels": [kernel.model_dump() for kernel in case.kernels],
        "trace": case.trace,
    }
    delivered: list[Delivery] = []

    @contextlib.contextmanager
    def deliver_in_turn() -> Iterator[Delivery]:
        with turns[0]:
            delivered.append(deliver(reference, unseen.trial, mute=True, arena=case.arena))
            yield delivered[0]

    @contextlib.contextmanager
    def deliver_others() -> Iterator[None]:
        with turns[1]:
            refill(delivered[0], unseen.draw_others(), reference.device)
            yield

    try:
        answer = talk.ask(
            header, (kind, Failure), blob=case.constants, descriptors=case.memory, turn=deliver_in_turn()
        )
        claim = _weigh_answer(case, unseen.trial, answer, delivered)
        if claim is not None and case.trace is not None and library_works(case.trace):
            answer = talk.ask({"needed": True}, (Echoed, Failure), turn=deliver_others())
            claim = claim if _kernels_are_needed(case, answer) else None
        return claim
    finally:
        for delivery in delivered:
            delivery.close()


def _weigh_answer(case: Case, fresh: Trial, answer: Answer | Died, delivered: list[Delivery]) -> Claim | None:
    if isinstance(answer, Died) or isinstance(answer.claim, Failure) or not delivered:
        _fail_to_reproduce(case, answer)
        return None
    if not _gives_expected(delivered[0], fresh, mute=False):
        case.note("not_reproduced", "the recorded kernels and operators give other outputs on new inputs")
        case.fail(Verdict.HACKED, "its recorded work gives other outputs on other inputs")
        return None
    if _gives_expected(delivered[0], fresh, mute=True):
        case.note("decoy", "the outputs are right without the candidate's kernels")
        case.fail(Verdict.HACKED, "the outputs do not depend on its kernels")
        return None
    return answer.claim


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
    reason = _reason(answer)
    case.ran_out_of_memory = reason.startswith("OutOfMemoryError")
    case.note("not_reproduced", f"replay: {reason[:200]}")
    case.fail(Verdict.HACKED, "its recorded work does not run on other inputs")


def _reason(answer: Answer | Died) -> str:
    if isinstance(answer, Died):
        return answer.reason
    claim = answer.claim
    return f"{claim.error}: {claim.message}" if isinstance(claim, Failure) else "it asked for nothing"


def _gives_expected(delivery: Delivery, trial: Trial, mute: bool) -> bool:
    slots = delivery.mute_slots if mute else delivery.output_slots
    values = [delivery.arena.tensor(slot) for slot in slots]
    forms = [["tensor", one.dtype, list(one.shape)] for one in trial.expected]
    return compare_outputs(trial.nesting, forms, values, trial.nesting, trial.expected) is None


def weigh_times(case: Case, works: Sequence[DeviceWork]) -> float:
    """Own kernels that take next to none of the time, or only copy, are a decoy; gives all works' time in
    milliseconds."""
    total_ms = sum(work.device_ms for work in works)
    own_ms = sum(work.device_ms for work in works if work.own)
    case.own_kernel_share = own_ms / total_ms if total_ms else None
    case.slowest = slowest_kernel(works)
    _refuse_decoys(case, works, case.own_kernel_share or 0.0, "device time")
    return total_ms


def weigh(case: Case, works: Sequence[Work], eager: EagerTraffic, gpu: str) -> None:
    """Predict both times; own kernels that do next to nothing, or only copy, are a decoy."""
    case.reference_traffic, _ = predict(eager.works, gpu)
    at_own_sizes = scaled(works, eager)
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
