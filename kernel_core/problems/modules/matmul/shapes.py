"""Shapes of elementwise problems: one to four dimensions, at sizes that people write."""

from __future__ import annotations

import math
import random

from kernel_core.problems.program import Size, draw_cpu_size

SMALLEST, LARGEST, HUGEST = 2_000_000, 100_000_000, 1_610_612_736
_HUGE_SHARE = 0.05
_HUGE = ((4096, 262144), (2048, 500000), (6144, 262144), (3000, 400000), (8192, 131072), (1024, 1000000))
_NAMES: dict[int, tuple[tuple[str, ...], ...]] = {
    1: (("length",), ("num_elements",), ("size",)),
    2: (("batch_size", "dim"), ("batch_size", "features"), ("rows", "cols"), ("batch_size", "hidden_size")),
    3: (("batch_size", "seq_len", "dim"), ("batch_size", "channels", "length")),
    4: (("batch_size", "channels", "height", "width"),),
}
_CHOICES: dict[str, tuple[int, ...]] = {
    "length": (2_000_000, 4_194_304, 10_000_000, 50_000_000),
    "num_elements": (3_000_000, 8_388_608, 33_554_432),
    "size": (5_000_000, 16_777_216, 67_108_864),
    "batch_size": (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    "rows": (512, 1000, 2048, 4096, 6000),
    "cols": (1024, 3000, 4096, 8192, 10000),
    "dim": (512, 768, 1000, 4096, 5000, 12288, 16384, 65536, 100000, 262144),
    "features": (1024, 3072, 8000, 16384, 32768, 50000),
    "hidden_size": (2048, 4096, 11008, 14336, 28672),
    "seq_len": (128, 300, 512, 1024, 2048),
    "channels": (16, 32, 48, 64, 96, 128),
    "height": (32, 56, 64, 112, 128, 200, 224),
    "width": (32, 56, 64, 112, 128, 200, 224),
}
_CHANNEL_LENGTHS = (512, 1000, 4096, 8192, 16000)


def draw_shape(rng: random.Random, rank: int = 0, *, huge: bool = True) -> tuple[Size, ...]:
    """A shape of that rank, or of one to four dimensions, with at least two million elements."""
    if huge and rank in (0, 2) and rng.random() < _HUGE_SHARE:
        rows, cols = rng.choice(_HUGE)
        return Size("batch_size", rows, 5), Size("dim", cols, draw_cpu_size(rng, 40, 150))
    rank = rank or rng.choices((1, 2, 3, 4), (10, 50, 15, 25))[0]
    while True:
        names = rng.choice(_NAMES[rank])
        sizes = tuple(_size(rng, name, names) for name in names)
        if SMALLEST <= math.prod(size.gpu for size in sizes) <= LARGEST:
            return sizes


def _size(rng: random.Random, name: str, names: tuple[str, ...]) -> Size:
    if len(names) == 1:
        return Size(name, rng.choice(_CHOICES[name]), draw_cpu_size(rng, 700, 1500))
    choices = _CHANNEL_LENGTHS if name == "length" else _CHOICES[name]
    low, high = {2: (5, 40), 3: (3, 14), 4: (3, 9)}[len(names)]
    return Size(name, rng.choice(choices), draw_cpu_size(rng, low, high))
