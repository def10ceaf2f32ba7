"""What `dojo judge --json` prints: a contract that others build on."""

from __future__ import annotations

from typing import Any

from kernel_core.records import Evaluation


def judge_report(evaluation: Evaluation) -> dict[str, Any]:
    """The keys of the contract, in order; unknown is None.

    `runtime_ms` and `reference_ms` are measured medians; on a machine without a GPU they are None and
    `predicted_speedup` is all there is.
    """
    provenance = evaluation.provenance
    timing, reference = evaluation.timing, evaluation.reference_timing
    return {
        "verdict": str(evaluation.verdict),
        "findings": [finding.model_dump() for finding in evaluation.findings],
        "trials_passed": evaluation.trials_passed,
        "trials": evaluation.trials,
        "speedup": evaluation.speedup,
        "predicted_speedup": evaluation.predicted_speedup,
        "runtime_ms": timing.median_ms if timing else None,
        "reference_ms": reference.median_ms if reference else None,
        "own_kernel_share": provenance.own_kernel_share if provenance else None,
        "feedback": evaluation.feedback,
        "seconds": evaluation.seconds,
        "gym_version": evaluation.gym_version,
    }
