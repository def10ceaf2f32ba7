"""How a reference is written down: names of sizes, annotations, docstrings. Nothing here changes a value."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Style:
    """Choices that people make differently and that carry no meaning."""

    upper_sizes: bool = False
    """`BATCH_SIZE = 16` in place of `batch_size = 16`."""
    annotations: bool = True
    """`def forward(self, x: torch.Tensor) -> torch.Tensor`."""
    docstring: Literal["none", "short", "full"] = "short"
    """One sentence, or a section for arguments and result as well."""
    long_super: bool = False
    """`super(Model, self).__init__()`."""
    size_comments: bool = False
    """A comment behind some constants."""

    def size_name(self, name: str) -> str:
        """The name of a size constant in this style."""
        return name.upper() if self.upper_sizes else name.lower()


def draw_style(rng: random.Random) -> Style:
    """A style; the forms that published problems use most are the most frequent."""
    return Style(
        upper_sizes=rng.random() < 0.25,
        annotations=rng.random() < 0.7,
        docstring=rng.choices(("none", "short", "full"), (25, 40, 35))[0],
        long_super=rng.random() < 0.4,
        size_comments=rng.random() < 0.15,
    )
