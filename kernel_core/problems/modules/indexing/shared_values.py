"""Formulas in lines with names, as for boxes, colours and losses: a later line reads a value twice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.indexing.named_lines import NamedLine, draw_lines, reference_lines
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size

_COMPONENTS: tuple[tuple[str, ...], ...] = (
    *(("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"), ("cx", "cy", "w", "h")),
    *(("r", "g", "b"), ("u", "v"), ("a", "b", "c", "d"), ("px", "py", "pz"), ("re", "im"), ("lo", "hi")),
)
_INPUTS: tuple[tuple[str, ...], ...] = (
    *(("x",), ("x", "grad_output"), ("pred", "target"), ("x", "y"), ("a", "b", "c"), ("logits", "labels")),
    *(("x", "weight", "skip"), ("mean", "log_var", "x"), ("query", "key"), ("x", "scale", "shift")),
)
_DOCS = (
    *("Combines the components of its input.", "A formula with intermediate values."),
    *("Computes new values for each element.", "Several named steps on each element."),
)


@dataclass(frozen=True)
class _Place:
    """The places of the given values and of the results."""

    inputs: tuple[str, ...]
    """The arguments of `forward`."""
    sizes: tuple[Size, ...]
    shape: str
    """Of an input."""
    joined: str
    """The reference's expression of all results; `{all}` stands for their names."""
    opening: tuple[str, ...] = ()
    """Lines of the reference that give the values their names."""


def shared_values(rng: random.Random) -> Draft:
    """Named lines over components or inputs, some of which are read more than once."""
    drawn = rng.choice((_side_by_side, _side_by_side, _planes, _parts, _inputs, _inputs))
    given = rng.choice(_INPUTS if drawn is _inputs else _COMPONENTS)
    lines, results = draw_lines(given, rng)
    place = drawn(given, rng)
    style = draw_style(rng)
    module = _module(place, lines, results, rng)
    return module.draft(tuple(line.operator for line in lines), style)


def _side_by_side(given: tuple[str, ...], rng: random.Random) -> _Place:
    """Components on the last axis, such as boxes of four numbers."""
    rows = Size(rng.choice(("num_boxes", "num_points", "n")), rng.choice((32768, 65536, 100000)), 30)
    sizes = (Size("batch_size", rng.choice((8, 16, 32)), 2), rows)
    shape = f"batch_size, {rows.name}, {len(given)}"
    opening = _opened(given, rng.choice(("-1", "dim=-1")), "...", rng)
    return _Place(("x",), sizes, shape, "torch.stack([{all}], dim=-1)", opening)


def _planes(given: tuple[str, ...], rng: random.Random) -> _Place:
    """Components on the axis of channels of an image."""
    side = rng.choice((128, 224, 256))
    batch = Size("batch_size", rng.choice((8, 16, 32)), 2)
    sizes = (batch, Size("height", side, 6), Size("width", side, 9))
    shape = f"batch_size, {len(given)}, height, width"
    opening = _opened(given, rng.choice(("1", "dim=1", "dim=-3")), ":", rng)
    return _Place(("x",), sizes, shape, "torch.stack([{all}], dim=1)", opening)


def _parts(given: tuple[str, ...], rng: random.Random) -> _Place:
    """Equal parts of a row."""
    count = len(given)
    sizes = (Size("batch_size", rng.choice((512, 1024)), 3), Size("dim", rng.choice((1024, 2048)), 10))
    opening = (f"{', '.join(given)} = x.chunk({count}, dim={rng.choice(('-1', '1'))})",)
    return _Place(("x",), sizes, f"batch_size, {count} * dim", "torch.cat([{all}], dim=-1)", opening)


def _inputs(given: tuple[str, ...], rng: random.Random) -> _Place:
    """Inputs of one shape."""
    joined = f"torch.stack([{{all}}], dim={rng.choice(('-1', '0', '1'))})"
    sizes = (
        Size("batch_size", rng.choice((16, 32, 64, 128)), 3),
        Size("dim", rng.choice((4096, 8192)), 20),
    )
    return _Place(given, sizes, "batch_size, dim", joined)


def _opened(given: Sequence[str], axis: str, before: str, rng: random.Random) -> tuple[str, ...]:
    """The names of the components: by `unbind`, or each by its index behind `before`."""
    parts = [f"x[{before}, {number}]" for number in range(len(given))]
    form = rng.choice(("unbind", "unbind", "lines", "line"))
    if form == "unbind":
        return (f"{', '.join(given)} = x.unbind({axis})",)
    if form == "lines":
        return tuple(f"{name} = {part}" for name, part in zip(given, parts, strict=True))
    return (f"{', '.join(given)} = {', '.join(parts)}",)


def _module(place: _Place, lines: Sequence[NamedLine], results: Sequence[str], rng: random.Random) -> Module:
    written = reference_lines(lines, results, rng)
    returned = place.joined.replace("{all}", ", ".join(results))
    if len(results) == 1:
        *written, (_, returned) = written
    return Module(
        doc=rng.choice(_DOCS),
        forward_args=place.inputs,
        forward_lines=(*place.opening, *(f"{name} = {text}" for name, text in written), f"return {returned}"),
        sizes=place.sizes,
        inputs=tuple(f"torch.randn({place.shape})" for _ in place.inputs),
    )
