"""`torch.autocast` for a GPU, on a host that has none."""

from __future__ import annotations

from typing import Any

import torch


def autocast_on_the_host() -> None:
    """Let `torch.autocast("cuda")` cast on this host's processor, for good in this process.

    Torch switches it off where no GPU is, and outputs would have another dtype than on a GPU. The lists of
    operators differ: on a GPU softmax and norms give float32, on a processor the narrow type.
    """
    kind: Any = torch.amp.autocast_mode.autocast
    original = kind.__init__
    if getattr(original, "is_on_the_host", False):
        return

    def begin(self: Any, device_type: str, dtype: Any = None, *rest: Any, **named: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.float16
        original(self, device_type, dtype, *rest, **named)

    begin.is_on_the_host = True  # type: ignore[attr-defined]
    kind.__init__ = begin
