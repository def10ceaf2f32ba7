"""Styles of a reference: names of sizes, annotations, docstrings. Nothing here changes a value."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_NAMED_STEPS = 0.2
"""Share of chains with a name for each value."""


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
    spaced_gap: bool = False
    """Spaces in the empty line behind the constructor; an answer that copied them would go on in it."""
    line_comments: bool = False
    """A comment behind lines of `forward` that call something."""
    open_docstring: bool = False
    """The class docstring begins on a line of its own."""
    heading: str = ""
    """A comment above the constants."""

    def size_name(self, name: str) -> str:
        """The name of a size constant in this style."""
        return name.upper() if self.upper_sizes else name.lower()


@dataclass(frozen=True)
class Argument:
    """An argument of a constructor, as the class docstring describes it."""

    name: str
    kind: str
    """Its type, such as `int`."""
    meaning: str
    """A phrase without a full stop, such as `Step between output positions`."""
    default: str = ""
    """As written in the signature; empty for an argument that must be given."""


def draw_style(rng: random.Random) -> Style:
    """A style; the forms that published problems use most are the most frequent."""
    return Style(
        upper_sizes=rng.random() < 0.25,
        annotations=rng.random() < 0.7,
        docstring=rng.choices(("none", "short", "full"), (25, 40, 35))[0],
        long_super=rng.random() < 0.4,
        size_comments=rng.random() < 0.15,
        spaced_gap=rng.random() < 0.3,
        line_comments=rng.random() < 0.2,
        open_docstring=rng.random() < 0.5,
        heading=rng.choice(("", "", "# Sizes", "# Test sizes", "# Example")),
    )


def with_named_steps(lines: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """Lines of `forward` over `x`, at times with a name of its own for each value; the last is `return x`."""
    if rng.random() >= _NAMED_STEPS:
        return tuple(lines)
    stem = rng.choice(("h", "t", "x", "x_"))
    current, named = "x", [""]
    renamed: list[str] = []
    for line in lines[:-1]:
        target, _, value = line.partition(" = ")
        if target == "x":
            called = re.search(r"\.([a-z]\w+)\(", value)
            target = f"x_{called[1]}" if stem == "x_" and called else f"{stem.rstrip('_')}{len(named)}"
            target = f"{target}_{len(named)}" if target in named else target
            named.append(target)
            renamed.append(f"{target} = {_over(value, current)}")
            current = target
        else:
            renamed.append(f"{target} = {_over(value, current)}")
    return (*renamed, _over(lines[-1], current))


def _over(text: str, name: str) -> str:
    return re.sub(r"(?<![.\w])x\b", name, text)


def unused(names: Sequence[str], rng: random.Random, taken: set[str]) -> str:
    """One of the names that is not taken yet; it is taken afterwards."""
    free = [name for name in names if name not in taken]
    name = rng.choice(free) if free else f"{names[0]}{len(taken)}"
    taken.add(name)
    return name


def class_docstring(sentence: str, arguments: Sequence[Argument], rng: random.Random) -> str:
    """A sentence and a section `Args:` with types and defaults, without the quotes around it."""
    typed = rng.random() < 0.85
    tick = rng.choice(("", "", "`"))
    ending = rng.choice(("Defaults to @.", "Defaults to @.", "Default: @.", "The default is @."))
    optional = rng.choice((", optional", ", optional", ""))
    rows = []
    for argument in arguments:
        kind = f" ({argument.kind}{optional if argument.default else ''})" if typed else ""
        value = f" {ending.replace('@', f'{tick}{argument.default}{tick}')}" if argument.default else ""
        rows.append(f"        {argument.name}{kind}: {argument.meaning}.{value}\n")
    return f"\n    {sentence}\n\n    Args:\n{''.join(rows)}    "
