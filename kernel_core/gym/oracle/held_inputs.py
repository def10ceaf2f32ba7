"""A problem of which the small inputs are held: all draws have the same values there."""

from __future__ import annotations

import copy
from typing import Any

from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.oracle.input_families import Draw
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial

_SMALL = 1 / 4
"""An input is small if it has at most this share of the elements of the largest."""


class HoldingReference(Reference):
    """The same problem, but each draw has a trial's small inputs."""

    def __init__(self, whole: Reference, trial: Trial) -> None:
        self.__dict__.update(whole.__dict__)
        inputs = whole.inputs_of(trial)
        counts = [[tensor.numel() for tensor in tensors_in([value])] for value in inputs]
        most = _SMALL * max(map(sum, counts), default=0)
        self._held = {place: inputs[place] for place, own in enumerate(counts) if sum(own) <= most}
        self.is_redrawn = [place not in self._held for place, own in enumerate(counts) for _ in own]
        """True for each input tensor of which draws differ."""

    def draw(self, seed: int, draw: Draw) -> list[Any]:
        """Inputs under a seed, on the reference's device."""
        held = copy.deepcopy(self._held)
        return [held.get(place, value) for place, value in enumerate(super().draw(seed, draw))]
