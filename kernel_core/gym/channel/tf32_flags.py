"""Torch's switches for TF32 in products on float32: one for cuBLAS, one for cuDNN's convolutions and cells.

Torch ships with cuBLAS's off and cuDNN's on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

SHIPPED = (False, True)
"""`(cuBLAS, cuDNN)` as torch starts."""


def tf32_flags() -> tuple[bool, bool]:
    """Return whether cuBLAS and cuDNN may use TF32 now.

    Torch's legacy getters raise where a program has mixed the two interfaces, so its own getter by backend is
    asked first.
    """
    try:
        by_backend = torch._C._get_fp32_precision_getter
    except AttributeError:
        return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    cells = [by_backend("cuda", name) for name in ("conv", "rnn")]
    return _is_short(by_backend("cuda", "matmul")), any(map(_is_short, cells))


def _is_short(precision: str) -> bool:
    """Return True if a name of torch's for a precision stands for less than float32."""
    return precision not in ("ieee", "none")


def set_tf32(cublas: bool, cudnn: bool) -> None:
    """Set both switches."""
    torch.backends.cuda.matmul.allow_tf32 = cublas
    torch.backends.cudnn.allow_tf32 = cudnn


@contextlib.contextmanager
def tf32(flags: Sequence[bool]) -> Iterator[None]:
    """Set `(cuBLAS, cuDNN)` for as long as this lasts."""
    before = tf32_flags()
    set_tf32(*flags)
    try:
        yield
    finally:
        set_tf32(*before)
