"""`torch.autocast` and `torch.Generator` for a GPU, on a host that has none."""

from __future__ import annotations

from typing import Any

import torch

_ENTERED = [0]


class HostGenerator(torch.Generator):
    """A generator that says that it is on the device it was asked for, and draws on this host."""

    def __new__(cls, device: Any = "cpu") -> HostGenerator:
        """See `torch.Generator`."""
        made = super().__new__(cls)
        made._named = torch.device(device)  # type: ignore[attr-defined]
        return made

    def __init__(self, device: Any = "cpu") -> None:
        """Nothing more: `__new__` has made it."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device it was asked for."""
        return self._named  # type: ignore[attr-defined]


def take_gpu_for_host() -> None:
    """Let `torch.autocast("cuda")` cast, and generators for a GPU draw, on this host, in this process.

    Torch switches autocast off where no GPU is, and outputs would have another dtype than on a GPU. The lists
    of operators differ: on a GPU softmax and norms give float32, on a processor the narrow type.
    """
    torch.Generator = HostGenerator  # type: ignore[misc]
    kind: Any = torch.amp.autocast_mode.autocast
    original, enter = kind.__init__, kind.__enter__
    if getattr(original, "is_on_the_host", False):
        return

    def begin(self: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, *rest, **named)

    def count_and_enter(self: Any) -> Any:
        _ENTERED[0] += 1
        return enter(self)

    begin.is_on_the_host = True  # type: ignore[attr-defined]
    kind.__init__, kind.__enter__ = begin, count_and_enter


def autocasts_entered() -> int:
    """Return how often code of this process has entered autocast, on a host without a GPU."""
    return _ENTERED[0]
