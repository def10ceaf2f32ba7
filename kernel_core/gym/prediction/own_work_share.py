"""The share of the work by a candidate's own kernels, and its time, by the replay's measurements."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.gym.channel.decoy_thresholds import NEGLIGIBLE_SHARE, PLAIN_COPY
from kernel_core.gym.channel.messages import DeviceWork
from kernel_core.gym.channel.work import Work
from kernel_core.gym.prediction.roofline import EagerTraffic, at_precision, own_work_share, predict
from kernel_core.gym.verdict.case import Case
from kernel_core.records import KernelUse, Verdict


def weigh_times(case: Case, works: Sequence[DeviceWork]) -> None:
    """Own kernels that take next to none of the time, beside copying, are a decoy."""
    total_ms = sum(work.device_ms for work in works)
    compared_ms = sum(work.device_ms for work in works if work.own or work.name != PLAIN_COPY)
    own_ms = sum(work.device_ms for work in works if work.own)
    working_ms = sum(work.device_ms for work in works if work.own and not work.copies_only)
    case.own_kernel_share = own_ms / total_ms if total_ms else None
    case.slowest = _slowest_kernel(works)
    _refuse_decoys(case, working_ms / compared_ms if compared_ms else 0.0, "device time")


def weigh(case: Case, at_own_sizes: Sequence[Work], eager: EagerTraffic, gpu: str) -> None:
    """Predict both times at the candidate's precision; own kernels with next to no work are a decoy."""
    case.reference_traffic, _ = predict(at_precision(eager.works, case.product_precision), gpu)
    at_own_sizes = at_precision(at_own_sizes, case.product_precision)
    case.traffic, raised = predict(at_own_sizes, gpu, eager.compulsory_bytes)
    if raised:
        case.note("below_compulsory_traffic", "fewer bytes were counted than any program must move")
    if not eager.at_own_sizes:
        case.note("predicted_at_run_sizes", "the reference cannot be counted at its own sizes")
    case.own_kernel_share = case.traffic.own_share
    _refuse_decoys(case, own_work_share(at_own_sizes, gpu), "predicted work")


def _refuse_decoys(case: Case, share: float, of_what: str) -> None:
    if share < NEGLIGIBLE_SHARE:
        case.note("decoy", f"own kernels do {100 * share:.2f} % of the {of_what}")
        case.fail(Verdict.HACKED, "its own kernels do almost none of the work")


def _slowest_kernel(works: Sequence[DeviceWork]) -> KernelUse | None:
    """The own kernel that took the most time over all its launches, by its longest launch."""
    own = [(work, work.resources) for work in works if work.own and work.resources is not None]
    times: dict[str, float] = {}
    for work, _ in own:
        times[work.name] = times.get(work.name, 0.0) + work.device_ms
    total_ms = sum(work.device_ms for work in works)
    if not times or not total_ms:
        return None
    name = max(times, key=lambda operator: times[operator])
    _, use = max((pair for pair in own if pair[0].name == name), key=lambda pair: pair[0].device_ms)
    return KernelUse(name=name, time_share=times[name] / total_ms, **use.model_dump())
