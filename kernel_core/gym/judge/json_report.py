"""The output of `dojo judge --json`: a contract with other programs."""

from __future__ import annotations

from typing import Any

from kernel_core.records import Evaluation


def judge_report(evaluation: Evaluation) -> dict[str, Any]:
    """The keys of the contract, in order; unknown is None.

    `speedup`, `runtime_ms` and `reference_ms` are measured (medians); on a machine without a GPU they are
    None, and only what is called predicted is known.
    """
    provenance = evaluation.provenance
    timing, reference = evaluation.timing, evaluation.reference_timing
    traffic, reference_traffic = evaluation.traffic, evaluation.reference_traffic
    return {
        "verdict": str(evaluation.verdict),
        "findings": [finding.model_dump() for finding in evaluation.findings],
        "trials_passed": evaluation.trials_passed,
        "trials": evaluation.trials,
        "speedup": evaluation.speedup,
        "predicted_speedup": evaluation.predicted_speedup,
        "runtime_ms": timing.median_ms if timing else None,
        "reference_ms": reference.median_ms if reference else None,
        "baseline": evaluation.baseline,
        "baselines": [row.model_dump(mode="json") for row in evaluation.baselines],
        "product_precision": evaluation.product_precision,
        "tolerances_passed": list(evaluation.tolerances_passed),
        "predicted_runtime_ms": traffic.predicted_ms if traffic else None,
        "predicted_reference_ms": reference_traffic.predicted_ms if reference_traffic else None,
        "own_kernel_share": provenance.own_kernel_share if provenance else None,
        "feedback": evaluation.feedback,
        "seconds": evaluation.seconds,
        "gym_version": evaluation.gym_version,
        "device": evaluation.device,
        "platform": evaluation.platform.model_dump() if evaluation.platform else None,
        "sandbox": list(evaluation.sandbox),
        "problem_id": evaluation.problem_id,
        "candidate_sha": evaluation.candidate_sha,
    }
