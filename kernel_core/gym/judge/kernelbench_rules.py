"""KernelBench's own rules, for comparable figures: `gym.rules: kernelbench`.

Its seeds, its five draws and its tolerance are used, and no more. Weights agree only because both
constructors begin with the same seed. The reference runs with torch's switches for TF32 as torch ships
them: off for matrix products, on for cuDNN's convolutions. Every answer that `torch.allclose` accepts is
right, by whatever work, and inputs may be written to. The sandbox still limits the candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_core.gym.oracle.trial import Trial
from kernel_core.records import Evaluation, Verdict

SEEDS = (734796314, 576165995, 2197670066, 839703249, 2584932063)
"""The seeds of the five trials. KernelBench draws them from a generator seeded with 42."""
TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2}
"""Absolute and relative alike, by the type of the output; 1e-4 for every other."""


def accepts(nesting: Any, leaves: Sequence[Any], values: Sequence[torch.Tensor], trial: Trial) -> str | None:
    """None when the output is one tensor that is close to the reference's own, else its fault."""
    match (nesting, trial.nesting, list(leaves)):
        case ("*", "*", [["tensor", str(dtype), list(shape)]]):
            [want] = trial.expected
        case _:
            return "output and reference must be one tensor each"
    if tuple(shape) != want.shape:
        return f"output has shape {shape}, expected {list(want.shape)}"
    if dtype != want.dtype:
        return f"output has dtype {dtype}, expected {want.dtype}"
    got, true = values[0], want.value.to(values[0].dtype)
    if is_close(true, got):
        return None
    difference = (got.double() - true.double()).abs()
    return f"output differs by up to {difference.max().item():.4g}, {difference.mean().item():.4g} on average"


def is_close(true: torch.Tensor, got: torch.Tensor) -> bool:
    """Return whether an output is close to the reference's own by KernelBench's tolerance for its type.

    Source: `get_tolerance_for_precision` and `run_and_check_correctness` of KernelBench's `eval.py` at
    423217d.
    """
    if true.shape != got.shape or true.dtype != got.dtype:
        return False
    if not true.is_floating_point() and not true.is_complex():
        return torch.equal(true, got)
    tolerance = TOLERANCE.get(str(true.dtype).removeprefix("torch."), 1e-4)
    if true.itemsize == 1:  # torch has no arithmetic on 8-bit floats
        true, got = true.float(), got.float()
    return torch.allclose(true, got, atol=tolerance, rtol=tolerance)


def result_of(evaluation: Evaluation) -> dict[str, Any]:
    """KernelBench's `KernelExecResult`: times in ms, -1 where nothing was measured."""
    compiled = evaluation.verdict not in (Verdict.MALFORMED, Verdict.NOT_COMPILED)
    metadata: dict[str, Any] = {
        "hardware": evaluation.device,
        "device": evaluation.device,
        "correctness_trials": f"({evaluation.trials_passed} / {evaluation.trials})",
    }
    if not compiled:
        metadata["compilation_error"] = evaluation.feedback
    elif evaluation.verdict is Verdict.WRONG:
        metadata["correctness_issue"] = evaluation.feedback
    elif not evaluation.correct:
        metadata["runtime_error"] = evaluation.feedback
    timing, reference = evaluation.timing, evaluation.reference_timing
    return {
        "compiled": compiled,
        "correctness": evaluation.correct,
        "metadata": metadata,
        "runtime": timing.median_ms if timing else -1.0,
        "runtime_stats": timing.model_dump() if timing else {},
        "ref_runtime": reference.median_ms if reference else -1.0,
        "ref_runtime_stats": reference.model_dump() if reference else {},
    }
