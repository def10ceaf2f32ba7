"""The error of honest arithmetic against the exact result, by the size of the result.

The reference's own arithmetic is measured against float64. On a GPU it is measured twice, in float32 and with
TF32 products. `tl.dot` uses TF32 by default, and KernelBench's tolerance lets it pass. Products in bfloat16
err four times as much and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.torch_ops import has_products, map_tensors, tensors_in

_CHUNK = 1 << 24
"""Elements whose errors are measured at once."""
_MOST_SAMPLED = 1 << 24
"""Elements of which the typical size is the mean."""
_BINS = 258
_LANES = 256
"""Copies of the table of maxima that are filled side by side."""
_WINDOW = 5
_ENOUGH_VALUES, _ENOUGH_SHARE = 64, 1 / 16
_HONEST_ERRORS_ALLOWED = 4.0
_MOST_TERMS = 1 << 14
"""Terms that a kernel adds one after another; longer sums have parts."""
_TF32_ERRORS_ALLOWED = 2.0
_TF32_ROOM = 1.25
"""The factor by which errors of TF32 may be larger in another library's products, at some of many values."""
_TF32_BITS = -(1 << 13)
_CELLS = ("rnn", "lstm", "gru")
_ALLOWANCE_CAP = 1e-2
"""The allowance for honest errors never exceeds this share of the value, or of a typical one."""


def error_by_size(plain: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The largest error by binary exponent of the exact value, each over a factor of about four (258).

    One figure for all would let the rounding of huge values excuse small ones that are plain wrong. Every
    element counts: where a slope changes at zero, the largest error of the rarest sizes is in few of them.
    A value below its error is as good as a zero: its error is that of all values up to the size of the error.
    """
    largest = torch.zeros(_LANES * _BINS, dtype=torch.float64, device=exact.device)
    counts = torch.zeros(_BINS, dtype=torch.float64, device=exact.device)
    for mine, true in zip(plain.reshape(-1).split(_CHUNK), exact.reshape(-1).split(_CHUNK), strict=True):
        true = true.double()
        error = (mine.double() - true).abs_().nan_to_num_(0.0, 0.0, 0.0)
        sizes = _exponent(true)
        counts += torch.bincount(sizes, minlength=_BINS)
        # Threads of a GPU that raise the same maximum wait for each other.
        sizes += _BINS * (torch.arange(sizes.numel(), device=sizes.device) % _LANES)
        largest.scatter_reduce_(0, sizes, error, "amax")
    by_size = largest.view(_LANES, _BINS).amax(0)
    nearby = torch.nn.functional.max_pool1d(by_size[None], _WINDOW, stride=1, padding=_WINDOW // 2)[0]
    shares = torch.nn.functional.avg_pool1d(counts[None], _WINDOW, stride=1, padding=_WINDOW // 2)[0]
    known = torch.maximum(nearby, nearby[_well_known(_WINDOW * shares)])
    reach, own = _exponent(known), torch.arange(_BINS, device=known.device)
    return torch.where(reach > own, known.cummax(0).values[reach], known)


def _well_known(counts: torch.Tensor) -> torch.Tensor:
    """For each size the nearest well-known one, preferably larger: it has enough values to know their errors.
    A sum that happens to cancel is a small value with the error of a large one, and rare."""
    few = counts.sum() / _WINDOW * _ENOUGH_SHARE
    enough = counts >= few.clamp(1, _ENOUGH_VALUES)
    sizes = torch.arange(_BINS, device=counts.device)
    larger = torch.where(enough, sizes, _BINS).flip(0).cummin(0).values.flip(0)
    smaller = torch.where(enough, sizes, -1).cummax(0).values
    nearest = torch.where(larger < _BINS, larger, smaller)
    return torch.where(nearest >= 0, nearest, sizes)


def allowed_table(
    plain: torch.Tensor, tf32: torch.Tensor | None, exact: torch.Tensor, num_inputs: int = 0
) -> torch.Tensor:
    """The error that is allowed beyond the tolerance, by size: a few times the honest error.

    Of `num_inputs` values an output may be the sum of many. The reference adds them in a tree, where errors
    grow with the root of log2(n); a kernel may add one after another, where they grow with the root of n
    (Higham, Accuracy and Stability of Numerical Algorithms, chapter 4). A shorter output is rounded once.
    """
    is_short = plain.element_size() < torch.float32.itemsize
    terms = 1 if is_short else min(num_inputs / max(1, plain.numel()), _MOST_TERMS)
    allowed = max(_HONEST_ERRORS_ALLOWED, math.sqrt(terms) / 2) * error_by_size(plain, exact)
    if tf32 is None:
        return allowed
    return torch.maximum(allowed, _TF32_ERRORS_ALLOWED * error_by_size(tf32, exact))


def most_by_size(true: torch.Tensor, typical: float) -> torch.Tensor:
    """The most that a table allows for each value of outputs of a typical size."""
    return _ALLOWANCE_CAP * true.double().abs().clamp(min=typical)


def typical_size(true: torch.Tensor) -> float:
    """Root mean square of the finite values, of evenly spaced ones where there are more than 16 million."""
    values = true.reshape(-1)[:: max(1, -(-true.numel() // _MOST_SAMPLED))].double()
    finite = torch.isfinite(values)
    return float(torch.where(finite, values, 0.0).square().mean().sqrt()) if values.numel() else 0.0


def with_room(tf32: Sequence[Any], plain: Sequence[Any]) -> list[Any]:
    """Outputs with TF32 products, their errors larger by `_TF32_ROOM`; whole numbers as they are."""

    def farther(value: Any, other: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return torch.where(value.isfinite() & other.isfinite(), torch.lerp(other, value, _TF32_ROOM), value)

    return [farther(*pair) for pair in zip(tf32, plain, strict=True)]


def allowed_error(table: torch.Tensor | float, values: torch.Tensor) -> torch.Tensor:
    """The table's entry for each value (or the same for all)."""
    if isinstance(table, float):
        return torch.tensor(table, dtype=torch.float64, device=values.device)
    return table[_exponent(values.double())]


def _exponent(values: torch.Tensor) -> torch.Tensor:
    return values.abs().clamp(2.0**-126, 2.0**127).log2().floor().nan_to_num(0.0).long() + 128


class ProductsSeen(LightDispatchMode):
    """While active, looks for operators that may have products: by name, or because a library's recurrent
    cells and other packages' operators may do anything."""

    def __init__(self) -> None:
        super().__init__()
        self.are_there = False
        self.on_float32 = False
        """Some of them multiply float32 values."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        package, name = function.namespace, function._opname
        is_open = package not in ("aten", "prim") or any(cell in name for cell in _CELLS)
        if is_open or has_products(function):
            self.are_there = True
            self.on_float32 |= any(tensor.dtype is torch.float32 for tensor in tensors_in(list(args)))
        return function(*args, **(kwargs or {}))


_EPSILON = {torch.finfo(torch.float64).eps: torch.finfo(torch.float32).eps}


class Widened(LightDispatchMode):
    """While active, float32 that a module asks for is float64, and the epsilon that torch takes from a dtype,
    as in `nn.RMSNorm`, is float32's. A matrix without factors is no error: of many perturbed ones, some may
    have none."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if function._opname == "_to_copy" and kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        args = tuple(_EPSILON.get(value, value) if type(value) is float else value for value in args)
        return None if function._opname == "_linalg_check_errors" else function(*args, **kwargs)


Shorten = Callable[[torch.Tensor], torch.Tensor]
"""Makes operands in float32 shorter."""


class ShortenedProducts(LightDispatchMode):
    """While active, what goes into a product in float32 is made shorter first."""

    def __init__(self, shorten: Shorten) -> None:
        super().__init__()
        self.are_there = False
        self._shorten = shorten

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if has_products(function):
            args = map_tensors(tuple(args), self._shortened)
        return function(*args, **(kwargs or {}))

    def _shortened(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        self.are_there = True
        return self._shorten(value)


def truncated(value: torch.Tensor) -> torch.Tensor:
    """The value truncated to TF32. Tensor cores truncate operands that no kernel rounded before. Products of
    every size are truncated, where a library uses TF32 only for some."""
    return (value.view(torch.int32) & _TF32_BITS).view(torch.float32)


def nearest(value: torch.Tensor) -> torch.Tensor:
    """The value rounded to TF32, as kernels round operands that they convert."""
    return truncated((value.view(torch.int32) - _TF32_BITS // 2).view(torch.float32))
