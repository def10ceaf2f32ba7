"""Tensors of a call: a drawn axis, shapes that broadcast, and what fills them."""

from __future__ import annotations

import math
import re

from kernel_core.generator.draw.forms import FILLS, Form, Given
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import MOST_ELEMENTS, Sketch, Tensor

TWO_SIDED = 0.3
"""Share of operators on tensors that broadcast in which each tensor lacks an axis."""
_LONG = 4


def inputs_of(sketch: Sketch, form: Form) -> tuple[dict[str, Tensor], int]:
    """Return the tensors of a form and the axis that it names.

    The tensors are arguments of `forward`, or parameters where the form says so.
    """
    first, *others = form.inputs
    letters: dict[str, Axis] = {}
    axes = _shape(sketch, first, letters, {}, 0)
    while len(axes) < 2 and re.search("@(pair|order)", form.arguments):
        axes = sketch.axes()
    has_half = any("r" in given.shape for given in others)
    at = _drawn_axis(sketch, axes, _LONG if "@long" in form.arguments else 2 if has_half else 1)
    if axes:
        letters |= {"a": axes[at], "r": axes[at].over(2)}
    partners = [given.name for given in others if given.shape[0] == "~"]
    shapes = dict(zip((first.name, *partners), broadcast_shapes(sketch, axes, len(partners)), strict=True))
    made: dict[str, Tensor] = {}
    for given in form.inputs:
        own = shapes.get(given.name)
        own = _shape(sketch, given, letters, made, at) if own is None else own
        made[given.name] = _spread(sketch, given, own, letters, at)
    return made, at


def _drawn_axis(sketch: Sketch, axes: tuple[Axis, ...], least: int) -> int:
    """Draw an axis, evenly over those with at least so many elements, or over all if none has."""
    long = [at for at, axis in enumerate(axes) if min(axis.gpu, axis.cpu) >= least]
    return sketch.rng.choice(long or range(len(axes)) or [0])


def _spread(
    sketch: Sketch, given: Given, axes: tuple[Axis, ...], letters: dict[str, Axis], at: int
) -> Tensor:
    """Return a tensor with these axes; where one is not 1, it may be a vector that `forward` reshapes."""
    places = [place for place, axis in enumerate(axes) if axis is not ONE]
    if given.shape[0] not in "~*" or len(places) != 1 or len(axes) < 2 or sketch.chance(0.3):
        return _filled(sketch, given, axes, letters, at)
    vector = _filled(sketch, given, (axes[places[0]],), letters, at)
    sizes = ", ".join("-1" if place in places else "1" for place in range(len(axes)))
    indices = ", ".join(":" if place in places else "None" for place in range(len(axes)))
    text = sketch.pick(f".view({sizes})", f".reshape({sizes})", f"[{indices}]")
    return sketch.emit(f"{vector}{text}", axes, dtype=vector.dtype)


def _shape(
    sketch: Sketch, given: Given, letters: dict[str, Axis], made: dict[str, Tensor], at: int
) -> tuple[Axis, ...]:
    """Return the axes of an input that is read by itself; `letters` are kinds that have an axis."""
    if given.shape == "*":
        return sketch.axes()
    if given.shape[0] == "=":
        return made[given.shape[1]].axes
    is_changed = given.shape[0] == "@"
    axes: list[Axis] = []
    for factor, letter, size in re.findall(r"(\d?)([a-z])|(\d)", given.shape):
        if size:
            axes.append(Axis(size, int(size), int(size)))
            continue
        if factor == "1":
            axes.append(ONE)
        if letter not in letters:
            letters[letter] = sketch.axis(letter)
        axes.append(letters[letter].times(int(factor or 1)))
    if not is_changed:
        return tuple(axes)
    whole = next(iter(made.values())).axes
    changed = (*whole[:at], *axes, *whole[at + 1 :])
    return changed if math.prod(axis.gpu for axis in changed) <= MOST_ELEMENTS else whole


def broadcast_shapes(sketch: Sketch, axes: tuple[Axis, ...], others: int) -> list[tuple[Axis, ...]]:
    """Return shapes of a tensor and others that broadcast to `axes` together.

    In part of the draws each lacks an axis that another has, as in an outer sum; else the first has all.
    """
    if not others or len(axes) < 2 or sketch.chance(1 - TWO_SIDED):
        return [axes, *(narrowed(sketch, axes) for _ in range(others))]
    owners: list[list[bool]] = []
    while not all(map(any, zip(*owners, strict=True))) or sum(map(all, owners)) or not owners:
        owners = [[sketch.chance(0.5) for _ in axes] for _ in range(others + 1)]
    shapes = [tuple(axis if has else ONE for axis, has in zip(axes, owner, strict=True)) for owner in owners]
    return [_without_lead(shape) if sketch.chance(0.5) else shape for shape in shapes]


def _without_lead(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return a shape without the leading axes of size 1, which broadcasting adds."""
    return next((axes[at:] for at, axis in enumerate(axes) if axis is not ONE), ())


def narrowed(sketch: Sketch, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """Return the same axes, or some that broadcast to them."""
    if sketch.chance(0.5) or not axes:
        return axes
    start = sketch.rng.randrange(len(axes))
    kind = sketch.pick("last", "last", "one", "one", "channel", "channel", "scalar")
    if kind == "scalar":
        return () if sketch.chance(0.5) else (ONE,)
    if kind == "last":
        return axes[start:]
    if kind == "one":
        return tuple(ONE if at == start else axis for at, axis in enumerate(axes))
    kept = tuple(axis if at == start else ONE for at, axis in enumerate(axes))
    return kept[start:] if sketch.chance(0.5) else kept


def _filled(
    sketch: Sketch, given: Given, axes: tuple[Axis, ...], letters: dict[str, Axis], at: int
) -> Tensor:
    fill = given.fill
    if fill in ("param", "buffer", "var"):
        if fill == "param" and sketch.chance(0.6) and sketch.habits.dtype == "float32":
            return sketch.parameter(axes)
        return sketch.input(axes, FILLS["pos"] if fill == "var" else "randn", "float32")
    if indices := re.fullmatch(r"(below|once)\((\w)\)", fill):
        kind, letter = indices[1], indices[2]
        if letter not in letters:
            letters[letter] = sketch.axis(letter)
        if kind == "below":
            return sketch.indices(axes, letters[letter])
        return sketch.input(axes, f"torch.randperm({letters[letter].text})[:{{}}]", "int64")
    if not fill or fill == "randn":
        return sketch.input(axes)
    return sketch.input(axes, FILLS.get(fill, fill).replace("{at}", str(at)), "float32")
