"""Names and sentences that vary between draws while the skeleton of a kernel stays."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

_VARIANTS: dict[str, tuple[str, ...]] = {
    "offs": ("offs", "offs", "idx"),
    "BLOCK": ("BLOCK", "BLOCK", "BLOCK_SIZE"),
    "out": ("out", "out", "output"),
    "out_ptr": ("out_ptr", "out_ptr", "output_ptr"),
}


def draw_names(rng: random.Random) -> dict[str, str]:
    """The names that one draw's kernels share."""
    return {name: rng.choice(choices) for name, choices in _VARIANTS.items()}


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with those names, wherever they stand as whole words."""
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: names.get(found[0], found[0]), text)


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
