"""The contents of inputs after a pass that writes to them, compared as outputs are."""

from __future__ import annotations

import copy
from typing import Any

import torch.nn as nn

from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.numerics.expected import Expected
from kernel_core.gym.oracle.reference_outputs import ReferenceOutputs


class LeavesInputs(nn.Module):
    """A module with another's inputs as its outputs, as that one leaves them."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> list[Any]:
        """All tensors among the inputs, after a pass."""
        self.module(*inputs)
        return tensors_in(list(inputs))


def inputs_left(answers: ReferenceOutputs, inputs: list[Any], seed: int) -> tuple[Expected, ...]:
    """Return the expected outputs of a module that `LeavesInputs`, with the largest tolerance that these
    inputs justify: a cache of whole numbers, or the state of a recurrence, is rounded as an output is."""
    plain = answers.plain(copy.deepcopy(inputs), seed)[1]
    wide = answers.double()
    exact = answers.exact(wide, inputs, seed, plain)
    expected, _ = answers.expected(wide, inputs, seed, plain, exact, strictly=False)
    return answers.blurred(expected, inputs, seed, lambda allowed: False)
