"""One elementwise operator of a chain: torch's lines, constructor and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.probe import Array, differ, points, value_of


@dataclass(frozen=True)
class Step:
    """Every line is over the variable `x`."""

    operator: str
    """Torch's name; empty for a line that computes nothing, such as the copy of a residual."""
    torch: tuple[str, ...]
    value: str = ""
    """The same as a line of torch's functions, where `torch` calls a layer or takes numbers of `self`."""
    init_args: tuple[str, ...] = ()
    init_lines: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    """Named constants that the constructor is given, in the order of `init_args`."""
    vectors: tuple[str, ...] = ()
    """Parameters of the module with one value a column."""
    points: tuple[str, ...] = ()
    """Parameters of a single value."""
    inputs: tuple[str, ...] = ()
    """Further inputs of `forward`, as large as the chain's variable."""
    rows: tuple[str, ...] = ()
    """Further inputs of `forward` with one value a row, of shape (rows, 1)."""
    word: str = ""
    """A name for sentences; the operator unless given."""

    @property
    def phrase(self) -> str:
        """The operator in a sentence."""
        return self.word or self.operator


def joined(steps: Sequence[Step]) -> Step:
    """The lines, arguments and inputs of a chain in one step; `inputs` are those with one value a row too."""
    return Step(
        operator="",
        torch=tuple(line for step in steps for line in step.torch),
        init_args=tuple(name for step in steps for name in step.init_args),
        init_lines=tuple(line for step in steps for line in step.init_lines),
        constants=tuple(pair for step in steps for pair in step.constants),
        inputs=tuple(name for step in steps for name in (*step.inputs, *step.rows)),
        rows=tuple(name for step in steps for name in step.rows),
    )


def operators(steps: Sequence[Step]) -> tuple[str, ...]:
    """Torch's names in order."""
    return tuple(step.operator for step in steps if step.operator)


def values(steps: Sequence[Step], spread: float = 1.0, *, uniform: bool = False) -> Array:
    """The chain's values at some points."""
    return values_from(steps, points(spread, uniform=uniform))


def values_from(steps: Sequence[Step], start: Array) -> Array:
    """The chain's values from given ones."""
    names: dict[str, float | None] = {}
    for step in steps:
        names.update(dict.fromkeys((*step.vectors, *step.points, *step.inputs, *step.rows)))
        names.update({name: float(text) for name, text in step.constants if "(" not in text})
    lines = [line for step in steps for line in ((step.value,) if step.value else step.torch)]
    return value_of([line.replace("self.", "") for line in lines], names, start)


def is_visible(steps: Sequence[Step], *, uniform: bool = False) -> bool:
    """True if a chain changes most values; a ReLU of uniform ones changes none."""
    return differ(points(uniform=uniform), values(steps, uniform=uniform))


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
