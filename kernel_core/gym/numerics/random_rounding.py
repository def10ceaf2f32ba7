"""The effect of chance in the last bits, place by place, found by random trials.

Monte Carlo arithmetic (D. S. Parker, 1997): a pass in float64 perturbs every result that float32 cannot hold.
The perturbation is several times the error of approximate division and exponentials on a GPU. Exact results
stay exact, so they decide as before to which side a half rounds, or whether a value is positive. Quotients do
not, because a GPU multiplies by a reciprocal: only by powers of two is its division exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decomposition_table

from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.torch_ops import gives_view, has_products, map_tensors, only_moves, tensors_in

HALF_PRECISION = (torch.float16, torch.bfloat16)
_SHORT = (torch.float32, *HALF_PRECISION)
_TIMES = 8.0
"""The factor over the usual stray: among millions of values, some stray farther than in any of a few passes.
"""
_STRAY = _TIMES * 2.0**-22
"""Relative: two units in the last place of float32."""
_TF32_STRAY = _TIMES * 2.0**-10
"""Relative stray of the operands of a product, as truncation to TF32 loses as much."""
_PAIRS, _FIRST_PAIRS, _AS_GIVEN = 16, 2, 4
"""All pairs of passes, those after which most honest outputs are excused, and which have the inputs as given:
every fourth. What lies at a limit by these numbers does not by others."""
_MOST_OPERATORS = 40_000
"""Operators in all passes of one search: a pass over thousands of small steps takes seconds."""
_MUCH = 1 / 8
"""A spread of more than this share of the typical size of a row is chance."""
_LAST_BIT = 2.0**-23
"""Relative: the most that two roundings to float32 do."""
_DIVISIONS = {"div.Tensor": 1, "div_.Tensor": 1, "reciprocal": 0, "reciprocal_": 0}
"""Operators that divide, and which argument they divide by. Others round the quotient to a whole number."""
_IN_STEPS = frozenset(("gelu", "gelu_backward", "silu_backward", "mish_backward", "tanh_backward"))
"""Operators of several steps, of which one may cancel most of another."""
_SORTS = frozenset(f"aten::{name}" for name in ("topk", "sort", "kthvalue", "median", "nanmedian", "mode"))

Forward = Callable[[list[Any]], list[Any]]
"""The outputs for inputs in float64, each time by a module in the same state."""


def spread_of_strays(
    forward: Forward, inputs: list[Any], seed: int, *, tf32: bool, at_bends: bool
) -> Iterator[list[torch.Tensor]]:
    """For each output and each value, the error that uncontrolled last bits may cause: the largest of a few
    differences that strays make, here or in the same row. What the first passes show comes first, and then
    what all show.

    Inputs of half precision are rounded again on their way, as kernels of attention that scale queries first
    do. Operands of products are rounded too, to `tf32`. Gradients `at_bends` may be those of either side, so
    there the last bit of inputs in float32 moves: a maximum is then of one of two equal values.
    """
    with OperatorCount() as count:
        true = forward(inputs)
    pairs = affordable(_PAIRS, count)
    stored = _TIMES * half_rounding(inputs)
    spreads = [torch.zeros_like(leaf, dtype=torch.float64) for leaf in true]
    for number, (generator, sign) in enumerate(opposite_pairs(pairs, seed, true[0].device), 1):
        again = inputs
        if (number + 1) // 2 % _AS_GIVEN:
            again = _rounded_again(inputs, generator, sign, _LAST_BIT if at_bends else 0.0)
        with Straying(generator, sign=sign, tf32=tf32, stored=stored) as straying:
            leaves = forward(again)
        for spread, leaf, known in zip(spreads, leaves, true, strict=True):
            if known.is_floating_point() and leaf.shape == known.shape:
                error = (leaf.double() - known.double()).abs().nan_to_num(0.0, 0.0, 0.0)
                torch.maximum(spread, error, out=spread)
        if number in (2 * _FIRST_PAIRS, 2 * pairs):
            pairs_of_leaves = zip(spreads, true, strict=True)
            yield [_by_rows(*pair, _largest if straying.has_sorted else _of_most) for pair in pairs_of_leaves]


class OperatorCount(LightDispatchMode):
    """While active, counts operators."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += 1
        return function(*args, **(kwargs or {}))


def affordable(pairs: int, count: OperatorCount) -> int:
    """As many pairs of passes as `_MOST_OPERATORS` allows, at least one."""
    return max(1, min(pairs, _MOST_OPERATORS // (2 * max(count.operators, 1))))


def opposite_pairs(pairs: int, seed: int, device: torch.device) -> Iterator[tuple[torch.Generator, float]]:
    """Twice the same random numbers and both signs, for each pair of passes.

    What two passes do to the difference of two nearly equal numbers is opposite: one of them turns it, if
    they stray far enough. All of eight passes that stray at will leave one of 256 such differences as it is.
    """
    for number in range(pairs):
        for sign in (1.0, -1.0):
            yield torch.Generator(device).manual_seed(seed + number), sign


def half_rounding(values: list[Any]) -> float:
    """The largest relative error of one rounding to a half precision that these tensors have; 0 without."""
    half = half_of(values)
    return 0.0 if half is None else torch.finfo(half).eps / 2


def half_of(values: list[Any]) -> torch.dtype | None:
    """The coarsest half precision that these tensors have."""
    halves = {tensor.dtype for tensor in tensors_in(values) if tensor.dtype in HALF_PRECISION}
    return max(halves, key=lambda dtype: torch.finfo(dtype).eps, default=None)


def _by_rows(spread: torch.Tensor, true: torch.Tensor, size: Callable[..., torch.Tensor]) -> torch.Tensor:
    """At least a row's typical spread. Where most of a row became something else, chance decides what (which
    of two rows an attention looks at): there twice the largest, as it may decide otherwise yet. Of equal
    values that are sorted a pass names a few: there the largest `size` of a row tells, not that of most."""
    if not spread.dim() or not spread.numel():
        return spread
    # Rows are compared separately: single large values would hide that all others belong to another row.
    is_chance = size(spread) > _MUCH * size(true.double().abs())
    typical = spread.square().mean(-1, keepdim=True).sqrt()
    least = torch.where(is_chance, 2 * spread.amax(-1, keepdim=True), typical)
    return torch.maximum(spread, least)


def _of_most(values: torch.Tensor) -> torch.Tensor:
    return values.median(-1, keepdim=True).values


def _largest(values: torch.Tensor) -> torch.Tensor:
    return values.amax(-1, keepdim=True)


def _rounded_again(
    values: list[Any], generator: torch.Generator, sign: float, of_singles: float
) -> list[Any]:
    """Copies in float64 of which those of half precision differ by what one rounding to it may do, and those
    of float32 by a share. Float32 holds them, so what is chosen among them stays one of them."""

    def change(value: torch.Tensor) -> torch.Tensor:
        if not value.is_floating_point():
            return value
        wide = value.double()
        stray = of_singles if value.dtype == torch.float32 else _TIMES * half_rounding([value])
        if stray:
            wide = wide.addcmul_(wide, signed_noise(wide, generator), value=sign * stray).float().double()
        return wide

    return [map_tensors(value, change) for value in values]


class Straying(LightDispatchMode):
    """While active, results in float64 stray; with `sign` -1, and the same generator, to the other side.
    Results of a shorter type are computed in float64, stray, and are rounded to it.

    Of equal values that are sorted, each stands before the other in one of the two. With a `half` precision
    results in float64 stray twice as far as one rounding to it goes: a kernel may round any of them, and of
    many values some stray farther than in any of a few passes.
    """

    def __init__(
        self,
        generator: torch.Generator,
        *,
        sign: float,
        tf32: bool,
        stored: float = 0.0,
        half: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._short = half or torch.float32
        self._share = _STRAY if half is None else torch.finfo(half).eps
        self._logarithms: dict[tuple[int, torch.Size], torch.Tensor] = {}
        self._of_sums = max(stored, _TF32_STRAY if tf32 else _STRAY)
        self._generator = generator
        self._sign = sign
        self._tf32 = tf32
        self.has_sorted = False
        """Numbers were sorted, of which equal ones may be in any order."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function._opname in _IN_STEPS and function in decomposition_table:
            with self:
                return decomposition_table[function](*args, **kwargs)
        if _is_short(function, args):
            return self._rounded(function, types, args, kwargs)
        if _sorts_as_it_likes(function, args, kwargs):
            self.has_sorted = True
            args = _with_doubles(args, self._beside)
        elif self._tf32 and has_products(function):
            args = _with_doubles(
                args, lambda value: self._noise(value).mul_(value).mul_(_TF32_STRAY).add_(value)
            )
        result = function(*args, **kwargs)
        self._stray_rows(function._opname, result, args)
        if not gives_view(function):
            place = _DIVISIONS.get(function.name().removeprefix("aten::"))
            for tensor in tensors_in(result):
                self._stray(tensor, None if place is None else args[place])
        return result

    def _rounded(self, function: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The result of its own type, with the values of one in float64 that strayed."""
        try:
            wide = map_tensors(tuple(args), _widened)
            strayed = tensors_in(self.__torch_dispatch__(function, types, wide, kwargs))
        except torch.cuda.OutOfMemoryError:
            raise
        except RuntimeError:
            strayed = []  # the operator takes no float64
        with torch._C._DisableTorchDispatch():
            result = function(*args, **kwargs)
            for made, other in zip(tensors_in(result), strayed, strict=False):
                if made.shape == other.shape:
                    made.copy_(other)
        return result

    def _stray_rows(self, name: str, made: Any, args: Any) -> None:
        """A kernel of attention keeps the logarithm L of a row's sum of exponentials, in float32, and makes
        each share again: p = exp(s - L). So the sum of a row's p strays as far as L does. Forward it does
        where sums of exponentials are divided by exp(L - m), m the largest: both are rounded.

        Backward it takes the sum of p * dp as that of do * o. Each o is a sum of p * v, rounded to half
        precision or made of TF32 products, while dp = do * v is rounded on its own. So the sum of p * dp
        strays alone, by both of that of |p * dp|. As terms of do * o may cancel each other, it strays at
        least by both of the root mean square of dp.
        """
        if name == "_softmax":
            sizes = args[0].logsumexp(args[1], keepdim=True).abs_()
            self._logarithms[made.data_ptr(), made.shape] = sizes
            made.addcmul_(made, self._noise(sizes).mul_(sizes), value=_LAST_BIT)
        elif name == "_softmax_backward_data":
            above, shares, dim = args[:3]
            sums = (above * shares).abs_().sum(dim, keepdim=True)
            torch.maximum(sums, above.square().mean(dim, keepdim=True).sqrt_(), out=sums)
            strays = self._logarithms.get((shares.data_ptr(), shares.shape), 0.0) * _STRAY + self._of_sums
            made.addcmul_(shares, self._noise(sums).mul_(sums).mul_(strays))

    def _stray(self, made: torch.Tensor, divisor: Any) -> None:
        if made.dtype == torch.float64 and 0 not in made.stride():
            may_stray = made != made.to(self._short)
            if divisor is not None:
                may_stray |= torch.as_tensor(divisor).double().frexp().mantissa.abs() != 1 / 2
            noise = self._noise(made).mul_(may_stray)
            made.addcmul_(made.nan_to_num(0.0, 0.0, 0.0), noise, value=self._share)

    def _beside(self, value: torch.Tensor) -> torch.Tensor:
        sizes = value.abs()
        typical = float(sizes.mean().nan_to_num(1.0, 1.0))
        return self._noise(value).mul_(sizes.clamp_(min=typical)).mul_(_STRAY).add_(value)

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        return signed_noise(like, self._generator).mul_(self._sign)


def _with_doubles(args: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return map_tensors(tuple(args), lambda value: change(value) if value.dtype == torch.float64 else value)


def _widened(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float64, copy=True) if value.dtype in (torch.float64, *_SHORT) else value


def _is_short(function: Any, args: Any) -> bool:
    """Return True if an operator computes with numbers of a type shorter than float64."""
    draws = torch.Tag.nondeterministic_seeded in function.tags
    if draws or gives_view(function) or only_moves(function._schema.name):
        return False
    return any(tensor.dtype in _SHORT for tensor in tensors_in(list(args)))


def _sorts_as_it_likes(function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if an operator puts equal numbers in any order."""
    is_stable = kwargs.get("stable") or (function._schema.overload_name == "stable" and True in args[1:2])
    return function._schema.name in _SORTS and not is_stable


def signed_noise(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Noise between -1 and 1. It is the only new tensor, because large tensors leave little memory."""
    random = torch.rand(like.shape, generator=generator, device=like.device, dtype=like.dtype)
    return random.mul_(2).sub_(1)
