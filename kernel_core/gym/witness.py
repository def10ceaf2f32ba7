"""Whether a candidate's own kernels did the work, and how much work it is: by replaying what it claims."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from kernel_core.gym.case import Case
from kernel_core.gym.claims import Failure, Replayed
from kernel_core.gym.compare import compare_outputs
from kernel_core.gym.limits import Cage
from kernel_core.gym.reference import Trial
from kernel_core.gym.runs import Conversation, Delivery, Died, deliver
from kernel_core.gym.traffic import EagerTraffic, predict, scaled
from kernel_core.gym.work import Work
from kernel_core.records import Verdict

NEGLIGIBLE_SHARE = 0.01
"""Below this share of predicted time, a candidate's own kernels are a decoy."""


def replay_works(
    case: Case, fresh: Trial, runners: socket.socket, cage: Cage, deadline_s: float
) -> list[Work] | None:
    """The works of the trace on inputs the candidate never saw; None when it is not honest."""
    delivery = deliver(fresh, mute=True)
    try:
        answer = _ask(case, delivery, runners, cage, deadline_s)
    finally:
        delivery.arena.close()
    if isinstance(answer, Died) and answer.timed_out:
        case.fail(Verdict.TIMED_OUT, answer.reason)
        return None
    if isinstance(answer, Died):
        answer = answer.reason
    if not isinstance(answer, Replayed):
        case.note("not_reproduced", f"replay: {answer[:200]}")
        case.fail(Verdict.HACKED, "its recorded work does not run on other inputs")
        return None
    if not _gives_expected(delivery, fresh, mute=False):
        case.note("not_reproduced", "the recorded kernels and operators give other outputs on new inputs")
        case.fail(Verdict.HACKED, "its recorded work gives other outputs on other inputs")
        return None
    if _gives_expected(delivery, fresh, mute=True):
        case.note("decoy", "the outputs are right without the candidate's kernels")
        case.fail(Verdict.HACKED, "the outputs do not depend on its kernels")
        return None
    return [Work(**counted.model_dump()) for counted in answer.works]


def _ask(
    case: Case, delivery: Delivery, runners: socket.socket, cage: Cage, deadline_s: float
) -> Replayed | Died | str:
    header = {
        **delivery.header,
        "inputs": [slot.to_json() for slot in delivery.input_slots],
        "mute_outputs": [slot.to_json() for slot in delivery.mute_slots],
        "source": case.source,
        "kernels": [kernel.model_dump() for kernel in case.kernels],
        "trace": case.trace,
    }
    talk = Conversation(runners, "replay", cage, deadline_s)
    try:
        answer = talk.ask(header, (Replayed, Failure), blob=case.constants, arena=delivery.arena)
    finally:
        talk.end()
    match answer:
        case Died():
            return answer
        case (Replayed() as replayed, _):
            return replayed
        case (Failure() as failure, _):
            return f"{failure.error}: {failure.message}"
    raise AssertionError(answer)


def _gives_expected(delivery: Delivery, trial: Trial, mute: bool) -> bool:
    slots = delivery.mute_slots if mute else delivery.output_slots
    values = [delivery.arena.tensor(slot).clone() for slot in slots]
    forms = [["tensor", one.dtype, list(one.shape)] for one in trial.expected]
    return compare_outputs(trial.nesting, forms, values, trial.nesting, trial.expected) is None


def weigh(case: Case, works: Sequence[Work], eager: EagerTraffic, gpu: str) -> None:
    """Predict both times; own kernels that do next to nothing, or only copy, are a decoy."""
    case.reference_traffic, _ = predict(eager.works, gpu)
    case.traffic, raised = predict(scaled(works, eager), gpu, eager.compulsory_bytes)
    if raised:
        case.note("below_compulsory_traffic", "fewer bytes were counted than any program must move")
    if not eager.at_own_sizes:
        case.note("predicted_at_run_sizes", "the reference cannot be counted at its own sizes")
    share = case.traffic.own_share or 0.0
    own = [work for work in works if work.own]
    if share < NEGLIGIBLE_SHARE:
        case.note("decoy", f"own kernels do {100 * share:.2f} % of the predicted work")
        case.fail(Verdict.HACKED, "its own kernels do almost none of the work")
    elif len(own) < len(works) and all(work.copies_only for work in own):
        case.note("decoy", "own kernels only copy what library operators computed")
        case.fail(Verdict.HACKED, "its own kernels only copy what other operators computed")
