"""Ambiguous indices of a sort or of a search for the largest: several answers are right.

Values stray, so each is known as an interval, from its lowest to its highest value in any pass. Indices are
right if values within these intervals stand in that order, and no omitted value is surely larger. So
ambiguity does not permit every answer: an index appears once, and no other index has a better claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.torch_ops import tensors_in

_FIRST_OF_EQUALS = frozenset(
    f"aten::{name}" for name in ("argmax", "argmin", "max", "min", "cummax", "cummin")
)
"""For the largest or smallest of equal values torch promises the first."""
_SORTED = frozenset(("aten::topk", "aten::sort"))
_SEARCHED = {"aten::argmax": True, "aten::max": True, "aten::argmin": False, "aten::min": False}
"""True for an operator that looks for the largest."""
_COUNTED = frozenset(("aten::kthvalue", "aten::median"))


def is_discrete(leaf: Any) -> bool:
    """Return True if it is a tensor of integers or booleans."""
    return isinstance(leaf, torch.Tensor) and not (leaf.is_floating_point() or leaf.is_complex())


@dataclass(frozen=True, slots=True)
class Naming:
    """The indices in an output: the places that belong to a row, and their promised order."""

    shape: tuple[int, ...]
    dim: int
    """Along which the places of a row lie, in an output of this shape."""
    is_ordered: bool
    num_smaller: int | None
    """The one place is that of the value with so many smaller ones; else the first is the largest's."""

    def in_rows(self, output: torch.Tensor) -> torch.Tensor:
        """The named places, one row for each row of values."""
        moved = output.reshape(self.shape).movedim(self.dim, -1)
        return moved.reshape(-1, moved.shape[-1]).long()

    def as_output(self, rows: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
        """Answers for rows, at each place of the output."""
        moved = output.reshape(self.shape).movedim(self.dim, -1)
        wide = rows[:, None].expand(-1, moved.shape[-1]).reshape(moved.shape)
        return wide.movedim(-1, self.dim).reshape(output.shape)

    def fit(self, places: torch.Tensor, lowest: torch.Tensor, highest: torch.Tensor) -> torch.Tensor:
        """Return a mask of the rows that are right for some values between the lowest and the highest."""
        width = lowest.shape[-1]
        inside = ((places >= 0) & (places < width)).all(-1)
        places = places.clamp(0, width - 1)
        low, high = lowest.gather(-1, places), highest.gather(-1, places)
        if self.num_smaller is not None:
            smaller, larger = (highest < low).sum(-1), (lowest > high).sum(-1)
            return inside & (smaller <= self.num_smaller) & (larger < width - self.num_smaller)
        times_named = torch.zeros_like(lowest).scatter_add_(-1, places, torch.ones_like(low))
        reach = high.cummin(-1).values
        is_in_order = (low <= reach).all(-1) | (not self.is_ordered)
        left_out = lowest.masked_fill(times_named > 0, -torch.inf).amax(-1)
        return inside & (times_named <= 1).all(-1) & is_in_order & (left_out <= reach[:, -1])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator that gave indices of values."""

    naming: Naming
    values: torch.Tensor
    """The values in rows, in float64, with the sought value largest."""
    places: torch.Tensor

    def naming_of(self, output: torch.Tensor) -> Naming | None:
        """The naming if an output has these indices, or the first ones of each row; else None."""
        naming, places = self.naming, self.places
        if output.dim() == places.dim() and output.numel() < places.numel():
            places = places.narrow(naming.dim, 0, min(output.shape[naming.dim], places.shape[naming.dim]))
            naming = Naming(tuple(places.shape), naming.dim, naming.is_ordered, naming.num_smaller)
        is_same = output.numel() == places.numel() and bool((output.reshape(-1) == places.reshape(-1)).all())
        return naming if is_same and output.numel() else None


class Calls(LightDispatchMode):
    """While active, keeps the calls that name places, and looks for operators that make something else
    discrete of floating-point numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.are_free = False
        """Some operator may choose freely."""
        self.named: list[Call] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        made = [tensor for tensor in tensors_in(result) if is_discrete(tensor)]
        if made and any(tensor.is_floating_point() for tensor in tensors_in(list(args))):
            self.are_free |= function._schema.name not in _FIRST_OF_EQUALS
            if function._schema.name in _SORTED | _SEARCHED.keys() | _COUNTED:
                self.named.append(_call(function._schema, args, kwargs or {}, made[-1]))
        return result


def _call(schema: Any, args: Any, kwargs: dict[str, Any], places: torch.Tensor) -> Call:
    given = {argument.name: argument.default_value for argument in schema.arguments}
    given |= dict(zip(given, args, strict=False)) | kwargs
    values, dim, num_smaller = given["self"], given["dim"], None
    if dim is None or not values.dim():
        values, dim = values.reshape(-1), 0
    along = values.movedim(dim, -1)
    # Torch sorts NaN behind all numbers.
    rows = along.reshape(-1, along.shape[-1]).double().nan_to_num(torch.inf, torch.inf, -torch.inf)
    if schema.name in _COUNTED:
        num_smaller = given.get("k", (rows.shape[-1] + 1) // 2) - 1
    elif not given.get("largest", given.get("descending", _SEARCHED.get(schema.name))):
        rows = -rows
    if schema.name not in _SORTED:
        places, dim = places.reshape(-1, 1), 1
    elif not places.dim():
        places = places.reshape(1)
    naming = Naming(tuple(places.shape), dim, given.get("sorted", True), num_smaller)
    return Call(naming, rows, places)
