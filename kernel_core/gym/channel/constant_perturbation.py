"""Constant initial weights, such as the ones and zeros of a normalisation, are varied before a judge.

In a weight that begins as an identity or a diagonal, the most frequent number is varied.

A kernel that leaves such weights out is right only for an untrained module. So the judge constructs the
problem's module with numbers around the constants. The candidate's module is constructed in the same way, so
a constructor that packs weights finds the same numbers. The draws are public, as all weights are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import torch
from torch.nn import init

from kernel_core.gym.channel.seeds import CONSTRUCTION_SEED, derive_seed

_SPREAD = 0.5
"""Numbers are drawn from the constant minus this share of it to the constant plus this share. Around a small
constant the spread is absolute."""
_SMALL = 0.1
"""A branch that is scaled by less than this hardly shows in a result."""
_MANY = 0.25
"""The share of a weight's numbers that are one number where that begins as such, and was not drawn."""
_FEWEST, _SAMPLE = 16, 4096
_NUM_DRAWN = 65_537
"""Larger weights repeat their numbers with this period. It is prime, so no row and no block has this length.
"""
_PLAIN = frozenset((0.0, 1.0))
"""The scalar constants that are varied; other scalars may have been drawn, or be a constructor's default."""
_FILLS = {"ones_": 1.0, "zeros_": 0.0, "constant_": None}
"""The functions of `torch.nn.init` that fill with one number; for None the caller gives the number."""


class VariedConstants:
    """While active, what `torch.nn.init` fills with one number gets numbers around it instead."""

    def __init__(self) -> None:
        self._originals: dict[str, Any] = {}
        self._seen: Counter[tuple[tuple[int, ...], float]] = Counter()
        self._varied: dict[int, tuple[torch.Tensor, float, torch.Tensor]] = {}

    def __enter__(self) -> VariedConstants:
        for name, constant in _FILLS.items():
            self._originals[name] = getattr(init, name)
            setattr(init, name, self._filler(self._originals[name], constant))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, original in self._originals.items():
            setattr(init, name, original)

    def vary(self, module: Any, arguments: Sequence[Any]) -> dict[str, float]:
        """Vary what is still one number, or mostly one, among a module's parameters, and say of all that are
        varied, by name, that number. A single number among the `arguments` of its constructor is for kernels
        to know."""
        if not isinstance(module, torch.nn.Module):
            return {}
        given = {float(value) for value in arguments if isinstance(value, int | float)}
        constants = {}
        for name, weight in module.named_parameters():
            constant = self._varied_from(weight)
            if constant is None:
                constant = _frequent_number(weight)
                if constant is None or (weight.numel() == 1 and constant in given):
                    continue
                self._vary(weight, constant)
            constants[name] = constant
        return constants

    def constant_of(self, tensor: torch.Tensor) -> float | None:
        """The number that this would be filled with, or mostly is; None where there is none."""
        constant = self._varied_from(tensor)
        return _frequent_number(tensor) if constant is None else constant

    def _filler(self, original: Any, constant: float | None) -> Any:
        def fill(tensor: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
            filled: torch.Tensor = original(tensor, *given, **named)
            value = constant if constant is not None else float(named.get("val", *given))
            is_weight = isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point()
            if is_weight and not tensor.is_meta and math.isfinite(value):
                self._vary(tensor, value)
            return filled

        return fill

    def _vary(self, tensor: torch.Tensor, constant: float) -> None:
        """The same numbers for the same shape and constant, in the order in which they are asked for. Where
        others stand beside the constant, they stay, and sums along a row grow no more than by one number."""
        key = (tuple(tensor.shape), constant)
        seed = derive_seed(CONSTRUCTION_SEED, str(key), self._seen[key])
        self._seen[key] += 1
        with torch.device("cpu"), torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.empty(min(_NUM_DRAWN, tensor.numel()))
            drawn.uniform_(-_SPREAD, _SPREAD, generator=generator)
            times = -(-tensor.numel() // _NUM_DRAWN)
            values = drawn.repeat(times)[: tensor.numel()].reshape(tensor.shape)
            values_now = tensor.detach().cpu()
            others = values_now != constant
            if others.any():
                values = torch.where(others, values_now, constant + values / math.sqrt(values_now.shape[-1]))
            elif abs(constant) < _SMALL:
                values += constant
            else:
                values = (1.0 + values) * constant
            values = values.to(tensor.dtype)
            tensor.detach().copy_(values)
        self._varied[id(tensor)] = (tensor, constant, values)

    def _varied_from(self, tensor: torch.Tensor) -> float | None:
        """The constant that would fill the tensor, if it still has the numbers that were given to it here."""
        _, constant, values = self._varied.get(id(tensor), (None, None, None))
        if values is None or not torch.equal(tensor.detach().cpu(), values.to(tensor.dtype)):
            return None
        return constant


def _frequent_number(tensor: torch.Tensor) -> float | None:
    """The number that many of its elements are."""
    count = tensor.numel()
    if not tensor.is_floating_point() or tensor.is_meta or not count:
        return None
    flat = tensor.detach().reshape(-1)
    numbers, counts = flat[:: -(-count // _SAMPLE)].float().unique(return_counts=True)
    number = float(numbers[counts.argmax()])
    if not math.isfinite(number) or int(counts.max()) < _MANY * int(counts.sum()):
        return None
    if count == 1:
        return number if number in _PLAIN else None
    is_one_number = bool((flat == number).all())
    return number if is_one_number or count >= _FEWEST else None


def copy_state(
    model: Any, state: dict[str, torch.Tensor], constants: dict[str, float], varied: VariedConstants
) -> list[str]:
    """Give a candidate the reference's weights where name and shape match; and what is varied in the
    reference also where the candidate has that constant in that shape under another name, in the order in
    which both have them. The names of those that nothing matched."""
    if not isinstance(model, torch.nn.Module):
        return sorted(state)
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    matched = {name for name, value in state.items() if name in own and own[name].shape == value.shape}
    others = [tensor for name, tensor in own.items() if name not in matched]
    with torch.no_grad():
        for name in matched:
            own[name].copy_(state[name])
        for name in [name for name in constants if name not in matched]:
            for place, tensor in enumerate(others):
                if tensor.shape == state[name].shape and varied.constant_of(tensor) == constants[name]:
                    others.pop(place).copy_(state[name])
                    matched.add(name)
                    break
    return sorted(state.keys() - matched)
