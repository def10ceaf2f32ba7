"""Ambiguous integers and booleans among a reference's outputs: several answers are right.

Examples are the order of equal values in a sort, the rounding of a quotient near a half, and the sign of a
sum that cancels. Such values are others in float64, or change when results stray by less than float32 can
tell. Exact values decide, so a half among the inputs rounds as torch says. A candidate may give what such
passes could give. Indices may be those that the values of a pass could have named. Other integers lie between
the values that the passes gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.pytree import same_bytes
from kernel_core.gym.numerics.ambiguous_indices import Call, Calls, Naming, is_discrete
from kernel_core.gym.numerics.expected import Choice
from kernel_core.gym.numerics.random_rounding import (
    Forward,
    OperatorCount,
    Straying,
    affordable,
    half_of,
    half_rounding,
    opposite_pairs,
)

_PAIRS = 12
"""Pairs of passes turn every pair of equal values. The middle one of an odd number of equals is left to
chance."""
_HALF_ROUNDINGS = 4.0
"""Rounding errors of half precision that a value may have before it is sorted."""


class ConversionsSeen(LightDispatchMode):
    """While active, looks for floating-point numbers that become integers of a type that does not hold them,
    such as NaN: what they become is not defined."""

    def __init__(self) -> None:
        super().__init__()
        self.are_defined = True

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function._opname == "_to_copy" and args[0].is_floating_point() and is_discrete(result):
            self.are_defined &= result.dtype == torch.bool or _holds(result.dtype, args[0])
        return result


def _holds(dtype: torch.dtype, values: torch.Tensor) -> bool:
    ends = torch.iinfo(dtype)
    return bool(((values > ends.min - 1.0) & (values < ends.max + 1.0)).all())


@dataclass(frozen=True, slots=True)
class AmbiguousOrder:
    """Rows of places: see `ambiguous_indices.py`."""

    naming: Naming
    rows: torch.Tensor
    """Rows with an ambiguous value; the choice does not cover other rows."""
    lowest: torch.Tensor
    highest: torch.Tensor
    """The bounds of the values of these rows."""

    def allows(self, output: torch.Tensor) -> torch.Tensor:
        """Return a mask of the rows that are allowed: all places of a row, or none."""
        places = self.naming.in_rows(output)
        fit = torch.ones(len(places), dtype=torch.bool, device=output.device)
        fit[self.rows] = self.naming.fit(places[self.rows], self.lowest, self.highest)
        return self.naming.as_output(fit, output)


@dataclass(frozen=True, slots=True)
class AmbiguousRange:
    """Anything from the lowest to the highest."""

    lowest: torch.Tensor
    highest: torch.Tensor

    def allows(self, output: torch.Tensor) -> torch.Tensor:
        """Each place by itself."""
        return (output >= self.lowest) & (output <= self.highest)


def look_for_undecided(
    masks: Sequence[torch.Tensor],
    forward: Forward,
    own: Forward,
    inputs: list[Any],
    plain: Sequence[Any],
    seed: int,
    *,
    tf32: bool,
) -> list[Choice | None]:
    """Mark in `masks`, for each output, what becomes another when results stray, and say what it may become;
    None says nothing. Of outputs of floating-point numbers the marks mean nothing. `plain` is the reference's
    own answer. With `tf32` products may be of that precision. Passes of its `own` precision round to half
    precision where it does, if it gives that answer yet."""
    with Calls() as calls, OperatorCount() as count:
        known = forward(inputs)
    if not calls.are_free and not tf32:
        return [None] * len(masks)
    rounding = 2 * half_rounding(inputs)
    is_own = rounding and all(map(same_bytes, own(inputs), plain))
    seen = [
        _Seen(mask, other, leaf, calls.named) if is_discrete(other) and mask.shape == other.shape else None
        for mask, other, leaf in zip(masks, known, plain, strict=True)
    ]
    passes = [(forward, half_of(inputs)), *([(own, None)] if is_own else [])]
    for generator, sign in opposite_pairs(affordable(_PAIRS, count), seed, masks[0].device):
        for passing, half in passes:
            with Calls() as calls, Straying(generator, sign=sign, tf32=tf32, half=half):
                leaves = passing(inputs)
            for seen_leaf, leaf in zip(seen, leaves, strict=True):
                if seen_leaf is not None:
                    seen_leaf.look(leaf, calls.named)
    return [None if seen_leaf is None else seen_leaf.choice(rounding) for seen_leaf in seen]


class _Seen:
    """The values of one output in several passes."""

    def __init__(
        self, mask: torch.Tensor, known: torch.Tensor, plain: torch.Tensor, named: list[Call]
    ) -> None:
        self._mask, self._known, self._plain = mask, known, plain
        self._lowest, self._highest = torch.minimum(known, plain), torch.maximum(known, plain)
        self._chooses = bool(named)
        naming_calls = [(number, call.naming_of(known)) for number, call in enumerate(named)]
        self._number, self._naming = next((numbered for numbered in naming_calls if numbered[1]), (0, None))
        if self._naming is not None:
            self._low = named[self._number].values.clone()
            self._high = self._low.clone()

    def look(self, leaf: torch.Tensor, named: list[Call]) -> None:
        """At another pass."""
        if leaf.shape != self._mask.shape:
            return
        self._mask |= leaf != self._known
        torch.minimum(self._lowest, leaf, out=self._lowest)
        torch.maximum(self._highest, leaf, out=self._highest)
        if self._naming is None:
            return
        call = named[self._number] if self._number < len(named) else None
        if call is None or call.naming_of(leaf) != self._naming or call.values.shape != self._low.shape:
            self._naming = None
            return
        torch.minimum(self._low, call.values, out=self._low)
        torch.maximum(self._high, call.values, out=self._high)

    def choice(self, rounding: float) -> Choice | None:
        """Return what is allowed where the passes disagree; None where they agree, and for booleans.

        `rounding` is the relative error that values may have on the way; 0 for none. A pass gives a few of
        many equal places. So in what is made of places, one that is ambiguous makes all of its row so.
        """
        if self._chooses and self._naming is None and self._mask.dim() > 1:
            self._mask |= self._mask.any(-1, keepdim=True)
        if self._known.dtype == torch.bool or not self._mask.any():
            return None
        if self._naming is not None:
            low = _moved(self._low, -_HALF_ROUNDINGS * rounding)
            high = _moved(self._high, _HALF_ROUNDINGS * rounding)
            # If strays do not explain the reference's own answer, they do not measure other answers.
            fit = self._naming.fit(self._naming.in_rows(self._plain), low, high)
            rows = (self._naming.in_rows(self._mask).any(-1) & fit).nonzero().flatten()
            return AmbiguousOrder(self._naming, rows, low[rows], high[rows])
        low, high = self._lowest.long(), self._highest.long()
        if self._chooses:
            low, high = low.min(), high.max()
        span = high - low if self._chooses or rounding else 0
        return AmbiguousRange(low - span, high + span)


def _moved(values: torch.Tensor, share: float) -> torch.Tensor:
    """Up or down by a share of each."""
    return torch.where(values.isfinite(), values + share * values.abs(), values)
