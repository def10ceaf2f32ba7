"""One elementwise operator of a chain: torch's lines, Triton's lines, constructor and parameters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.problems.modules.matmul.probe import Array, differ, points, value_of


@dataclass(frozen=True)
class Step:
    """Every line is over the variable `x`, in torch and in Triton alike."""

    operator: str
    """Torch's name; empty for a line that computes nothing, such as the copy of a residual."""
    torch: tuple[str, ...]
    tile: tuple[str, ...]
    wrong: tuple[str, ...] = ()
    """A plausible wrong version of `tile`."""
    init_args: tuple[str, ...] = ()
    init_lines: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    """Named constants that the constructor is given, in the order of `init_args`."""
    scalars: tuple[tuple[str, str, float], ...] = ()
    """Kernel argument, the host's expression, and its value."""
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
    def said(self) -> str:
        """The operator in a sentence."""
        return self.word or self.operator


@dataclass(frozen=True)
class Loads:
    """Triton's expressions for a value of a vector, of a further input, of a row's and a single parameter."""

    vector: str
    full: str
    row: str
    point: str = "tl.load({name}_ptr)"


def tile_lines(steps: Sequence[Step], loads: Loads) -> list[str]:
    """The kernel's lines for a chain, each operand being loaded where it is used."""
    lines: list[str] = []
    for step in steps:
        lines += [f"{one} = {loads.vector.format(name=one)}" for one in step.vectors]
        lines += [f"{one} = {loads.point.format(name=one)}" for one in step.points]
        lines += [f"{one} = {loads.full.format(name=one)}" for one in step.inputs]
        lines += [f"{one} = {loads.row.format(name=one)}" for one in step.rows]
        lines += step.tile
    return lines


def pointers(steps: Sequence[Step]) -> list[str]:
    """Kernel arguments for everything that the chain loads."""
    return [
        f"{name}_ptr" for step in steps for name in (*step.vectors, *step.points, *step.inputs, *step.rows)
    ]


def tensors(steps: Sequence[Step]) -> list[str]:
    """The host's expressions for `pointers`."""
    found: list[str] = []
    for step in steps:
        found += [f"self.{name}" for name in (*step.vectors, *step.points)]
        found += (*step.inputs, *step.rows)
    return found


def scalar_names(steps: Sequence[Step]) -> list[str]:
    """Kernel arguments for the numbers of the constructor."""
    return [name for step in steps for name, _, _ in step.scalars]


def scalar_values(steps: Sequence[Step]) -> list[str]:
    """The host's expressions for `scalar_names`."""
    return [text for step in steps for _, text, _ in step.scalars]


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
        names.update({name: float(text) for name, text in step.constants if name in step.points})
        names.update({name: number for name, _, number in step.scalars})
    return value_of([line for step in steps for line in step.tile], names, start)


def broken(
    steps: Sequence[Step], rng: random.Random, spread: float = 1.0, *, uniform: bool = False
) -> tuple[str, list[Step]] | None:
    """The chain with a fault that shows in most values, and the fault's name."""
    right = values(steps, spread, uniform=uniform)
    found: list[tuple[str, list[Step]]] = []
    for index, step in enumerate(steps):
        if not step.operator:
            continue
        before, after = steps[:index], steps[index + 1 :]
        if step.wrong:
            found.append(("wrong_op", [*before, replace(step, tile=step.wrong), *after]))
        if len(steps) > 1:
            found.append(("dropped_op", [*before, replace(step, tile=()), *after]))
    visible = [one for one in found if differ(right, values(one[1], spread, uniform=uniform))]
    return rng.choice(visible) if visible else None
