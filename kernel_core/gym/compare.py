"""Whether an output is what the reference gives: shape and type, then non-finite masks, then values.

A value passes when `|got - expected| <= rtol·|expected| + atol`, where `atol` is `rtol` times the size of
a typical expected value (at most 1), so that an output of tiny numbers cannot be answered with zeros,
plus a few times the error that the reference's own arithmetic makes against float64 on values of that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernel_core.gym.reference import Expected

RELATIVE_TOLERANCE = {"float64": 1e-4, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""As in KernelBench, by the type of the output."""
_HONEST_ERRORS_ALLOWED = 4.0
_HONEST_ERROR_CAP = 1e-2
"""The honest-error term never exceeds this share of a typical value."""
_SMALLEST_TOLERANCE = 1e-6


def compare_outputs(
    nesting: Any,
    leaves: Sequence[Any],
    values: Sequence[torch.Tensor],
    want: Any,
    expected: Sequence[Expected],
) -> str | None:
    """None when every output passes, else one clause for a person: where, what came, what was wanted."""
    if nesting != want:
        return f"the outputs are nested as {_shorten(nesting)}, expected {_shorten(want)}"
    if len(leaves) != len(expected):
        return f"there are {len(leaves)} outputs, expected {len(expected)}"
    for index, (leaf, value, wanted) in enumerate(zip(leaves, values, expected, strict=True)):
        name = "output" if len(expected) == 1 else f"output {index}"
        fault = _check_form(leaf, wanted) or compare_values(value, wanted)
        if fault is not None:
            return f"{name} {fault}"
    return None


def _check_form(leaf: Any, wanted: Expected) -> str | None:
    match leaf:
        case ["tensor", str(dtype), list(shape)]:
            if shape != list(wanted.shape):
                return f"has shape {_shorten(shape)}, expected {list(wanted.shape)}"
            if dtype != wanted.dtype:
                return f"has dtype {_shorten(dtype)}, expected {wanted.dtype}"
            return None
        case ["other", str(kind)]:
            return f"is a {_shorten(kind)}, expected a tensor"
    return "cannot be read"


def compare_values(got: torch.Tensor, wanted: Expected) -> str | None:
    """None when all elements pass, else the worst one and the share that fails."""
    true = wanted.value
    if true.numel() == 0:
        return None
    if wanted.dtype not in RELATIVE_TOLERANCE:
        bad = got != true.to(got.dtype)
        return _worst(got, true, bad, bad.double()) if bool(bad.any()) else None
    got64, true64 = got.double(), true.to(got.dtype).double()
    finite = torch.isfinite(true64)
    # Compared before subtracting, because inf - inf is NaN.
    same_special = (got64 == true64) | (torch.isnan(got64) & torch.isnan(true64))
    exact64 = torch.where(finite, true.double(), torch.zeros_like(true64))
    relative = RELATIVE_TOLERANCE[wanted.dtype]
    scale = float(exact64.square().mean().sqrt())
    honest = _HONEST_ERRORS_ALLOWED * torch.as_tensor(wanted.honest_error, dtype=torch.float64)
    floor = max(relative * min(1.0, scale), _SMALLEST_TOLERANCE) + honest.clamp(max=_HONEST_ERROR_CAP * scale)
    error = torch.where(finite, (got64 - exact64).abs(), torch.zeros_like(true64))
    excess = error - relative * exact64.abs() - floor
    bad = torch.where(finite, ~(excess <= 0), ~same_special)
    if not bool(bad.any()):
        return None
    return _worst(got, true, bad, torch.where(torch.isnan(excess), torch.inf, excess))


def _worst(got: torch.Tensor, true: torch.Tensor, bad: torch.Tensor, badness: torch.Tensor) -> str:
    masked = torch.where(bad, badness.expand_as(bad).double(), torch.tensor(-torch.inf, dtype=torch.float64))
    position = int(masked.reshape(-1).argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(position), got.shape)] if got.dim() else []
    share = 100 * float(bad.double().mean())
    percent = f"{share:.0f}" if share >= 1 else "<1"
    got_text, true_text = _number(got.reshape(-1)[position]), _number(true.reshape(-1)[position])
    place = f"at {index} " if index else ""
    return f"{place}is {got_text}, expected {true_text}; {percent} % of values differ"


def _number(value: torch.Tensor) -> str:
    item = value.item()
    return f"{item:.4g}" if isinstance(item, float) else str(item)


def _shorten(value: Any) -> str:
    text = str(value).replace("'*'", "tensor")
    return text if len(text) <= 60 else text[:57] + "…"
