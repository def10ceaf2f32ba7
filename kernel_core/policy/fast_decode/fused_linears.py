"""Linear layers that read the same input as one product rather than two or three.

In a step of decoding with one token a row it is the number of kernels that takes time. The joined weights are
copies, so this is for models that are small enough for that to be true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F

from kernel_core.policy.fast_decode.patched_modules import lent

_SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_MOST_BYTES = 1 << 30
"""Most bytes of copies. With more, reading the weights takes the time."""


class JoinedLinears:
    """Joined linear layers of a model."""

    def __init__(self, model: Any) -> None:
        groups = joinable_linears(model)
        num_bytes = sum(
            linear.weight.numel() * linear.weight.element_size() for group in groups for linear in group
        )
        self._groups = [_LinearGroup(group) for group in groups] if num_bytes <= _MOST_BYTES else []

    def refresh(self) -> None:
        """Take over the weights as they are now; recorded graphs see them."""
        for group in self._groups:
            group.refresh()

    def joined(self) -> AbstractContextManager[None]:
        """Run the model with these layers joined."""
        return lent([pair for group in self._groups for pair in group.forwards])


def joinable_linears(model: Any) -> list[list[torch.nn.Linear]]:
    """Plain siblings by the names that transformers gives to layers of one input; adapters are not plain."""
    groups = []
    for module in model.modules():
        for names in _SIBLINGS:
            group = [getattr(module, name, None) for name in names]
            plain = [linear for linear in group if type(linear) is torch.nn.Linear]
            if len(plain) == len(names) and len({_kind(linear) for linear in plain}) == 1:
                groups.append(plain)
    return groups


def _kind(linear: torch.nn.Linear) -> tuple[Any, ...]:
    return linear.in_features, linear.weight.dtype, linear.weight.device, linear.bias is None


class _LinearGroup:
    """Linear layers of one input and their replacement: the first computes all, the others return their
    share.

    A layer that is called with another input, or out of turn, computes as it always does.
    """

    def __init__(self, linears: Sequence[torch.nn.Linear]) -> None:
        self._linears = linears
        self._own = [linear.forward for linear in linears]
        self._weight = torch.cat([linear.weight.detach() for linear in linears])
        self._bias = (
            torch.cat([linear.bias.detach() for linear in linears]) if linears[0].bias is not None else None
        )
        self._input: torch.Tensor | None = None
        self._parts: list[torch.Tensor] = []

    @property
    def forwards(self) -> list[tuple[torch.nn.Linear, Callable[[torch.Tensor], Any]]]:
        """Return each layer with its replacement `forward`."""
        return [(linear, self._stand_in(index)) for index, linear in enumerate(self._linears)]

    @torch.no_grad()
    def refresh(self) -> None:
        """See `JoinedLinears`."""
        torch.cat([linear.weight for linear in self._linears], out=self._weight)
        if self._bias is not None:
            torch.cat([linear.bias for linear in self._linears], out=self._bias)

    def _stand_in(self, index: int) -> Callable[[torch.Tensor], Any]:
        def forward(hidden: torch.Tensor) -> Any:
            if index == 0:
                widths = [linear.out_features for linear in self._linears]
                self._input = hidden
                self._parts = list(F.linear(hidden, self._weight, self._bias).split(widths, dim=-1))
            elif hidden is not self._input:
                return self._own[index](hidden)
            part = self._parts[index]
            if index + 1 == len(self._linears):
                self._input, self._parts = None, []
            return part

        return forward
