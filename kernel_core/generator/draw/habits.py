"""An author's habits: choices of a drawn text that carry no meaning, each drawn by itself."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CHOICES: Mapping[str, Mapping[Any, int]] = {
    "sizes": {"named": 38, "numbers": 20, "small": 12, "mixed": 9, "tuple": 9, "local": 6, "pairs": 6},
    "upper": {True: 22, False: 78},
    "computed": {True: 15, False: 85},
    "square": {True: 10, False: 90},
    "filling": {
        "randn": 56, "rand": 24, "torch.rand({}) * 2 - 1": 8, "torch.randn({}) * 0.5": 4,
        "torch.empty({}).uniform_(-1, 1)": 4, "torch.rand({}) * 2.0": 4,
    },
    "shape": {"plain": 76, "tuple": 12, "list": 12},
    "assigned": {True: 30, False: 70},
    "arguments": {"listed": 50, "keyword": 12, "defaults": 14, "globals": 24},
    "settings": {"inline": 45, "constant": 12, "argument": 18, "default": 15, "module": 10},
    "kept": {True: 15, False: 85},
    "hints": {"none": 45, "inputs": 22, "full": 20, "init": 8, "Tensor": 5},
    "long_super": {True: 42, False: 58},
    "class_doc": {"none": 42, "line": 30, "paragraph": 16, "args": 12},
    "init_doc": {"none": 76, "line": 8, "args": 16},
    "forward_doc": {"none": 55, "line": 12, "args": 33},
    "doc_style": {"google": 60, "numpy": 14, "sphinx": 13, "dash": 13},
    "doc_quotes": {'"""': 94, "'''": 6},
    "notes": {"none": 66, "steps": 14, "numbered": 8, "trailing": 12},
    "size_notes": {True: 22, False: 78},
    "sections": {True: 10, False: 90},
    "quotes": {"'": 50, '"': 50},
    "spaced": {True: 10, False: 90},
    "constants_first": {True: 12, False: 88},
    "indent": {4: 95, 2: 5},
    "nn_import": {"import torch.nn as nn": 80, "from torch import nn": 20},
    "f_import": {"import torch.nn.functional as F": 88, "from torch.nn import functional as F": 12},
    "unused_import": {"": 76, "F": 16, "math": 8},
    "functional": {"F": 80, "torch.nn.functional": 10, "nn.functional": 10},
    "part": {"none": 60, "method": 8, "function": 16, "class": 16},
    "alias": {True: 60, False: 40},
    "nested": {0.0: 50, 0.5: 25, 1.0: 25},
    "naming": {"rebind": 40, "numbered": 20, "operator": 20, "word": 20},
    "drawn_names": {True: 30, False: 70},
    "dtype": {"float32": 88, "float16": 6, "bfloat16": 6},
    "options": {"[]": 88, "[[], {}]": 12},
}  # fmt: skip
"""Weights of what an author may do, by the field of `Habits`."""


@dataclass(frozen=True)
class Habits:
    """Choices of one author."""

    sizes: str
    """Form of the sizes: named constants, numbers, small numbers that the constructor repeats, and so on."""
    upper: bool
    computed: bool
    """Sizes written as products and powers."""
    square: bool
    """Sizes of one kind that are equal, or odd where nothing has to divide them."""
    filling: str
    """Expression that fills an input of any real numbers."""
    shape: str
    assigned: bool
    """`get_inputs` names its tensors before it returns them."""
    arguments: str
    settings: str
    """Form of an operator's options: in its call, or in an attribute with a source of its own."""
    kept: bool
    """Arguments of the constructor become attributes that nothing reads."""
    hints: str
    long_super: bool
    class_doc: str
    init_doc: str
    forward_doc: str
    doc_style: str
    doc_quotes: str
    notes: str
    """Comments in `forward`."""
    size_notes: bool
    sections: bool
    quotes: str
    spaced: bool
    constants_first: bool
    indent: int
    nn_import: str
    f_import: str
    unused_import: str
    functional: str
    part: str
    """Function or class that some lines of `forward` are moved to."""
    alias: bool
    """The input of a residual gets a name before the first step."""
    nested: float
    """Share of values without a name of their own."""
    naming: str
    drawn_names: bool
    dtype: str
    options: str
    """Text of `get_init_inputs` without arguments."""


def draw_habits(rng: random.Random) -> Habits:
    """Draw the habits of one author."""
    return Habits(
        **{name: rng.choices([*weights], [*weights.values()])[0] for name, weights in CHOICES.items()}
    )
