"""The contents of inputs after a pass that writes to them, compared as outputs are."""

from __future__ import annotations

import copy
from typing import Any

from kernel_core.gym.numerics.expected import Expected
from kernel_core.gym.oracle.reference_outputs import ReferenceOutputs


def inputs_left(answers: ReferenceOutputs, inputs: list[Any], seed: int) -> tuple[Expected, ...]:
    """Each input tensor after the pass, with the largest tolerance that these inputs justify: a cache of
    whole numbers, or the state of a recurrence, is rounded as an output is."""
    answers.gives_inputs = True
    try:
        plain = answers.plain(copy.deepcopy(inputs), seed)[1]
        wide = answers.double()
        exact = answers.exact(wide, inputs, seed, plain)
        expected, _ = answers.expected(wide, inputs, seed, plain, exact, strictly=False)
        return answers.blurred(expected, inputs, seed, lambda allowed: False)
    finally:
        answers.gives_inputs = False
