"""Formulas in lines with names, as people write boxes, colours and losses: a later line reads a value twice.

A kernel has the same lines under the same names, so nothing is overwritten that a later line reads.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.problems.graded import Grade, GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.indexing.named_lines import (
    NamedLine,
    another_value,
    draw_lines,
    reads_of,
    reference_lines,
)
from kernel_core.problems.modules.matmul.flat import FLAT_LAUNCHES, function, warps_option
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
    """Where the given values lie and where the results go. Addresses are Triton text over `offs`."""

    given: tuple[str, ...]
    results: tuple[str, ...]
    sizes: tuple[Size, ...]
    shape: str
    """Of an input."""
    opening: tuple[str, ...]
    """Lines of the reference that give the values their names."""
    joined: str
    """The reference's expression of all results; `{all}` stands for their names."""
    why: str
    out_shape: str
    loads: tuple[tuple[str, str], ...] = ()
    """A pointer and an address for each given value."""
    stores: tuple[str, ...] = ()
    """An address for each result."""
    count: str = ""
    """The number of elements of one value, as the host computes it."""
    inner: tuple[str, str] = ("", "")
    """Name and host expression of a length that addresses mention."""
    before: tuple[str, ...] = ()
    """Lines of the kernel that addresses need."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The arguments of `forward`."""
        return tuple(dict.fromkeys(pointer.removesuffix("_ptr") for pointer, _ in self.loads))


def shared_values(rng: random.Random) -> Draft:
    """Named lines over components or inputs, some of which are read more than once."""
    drawn = rng.choice((_side_by_side, _side_by_side, _planes, _parts, _inputs, _inputs))
    given = rng.choice(_INPUTS if drawn is _inputs else _COMPONENTS)
    lines, results = draw_lines(given, rng)
    place = drawn(given, tuple(results), rng)
    style = draw_style(rng)
    module = _module(place, lines, rng)
    return Draft(
        family="shared_values",
        operators=tuple(line.operator for line in lines),
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=(
            *(_kernel(module, place, lines, *one) for one in FLAT_LAUNCHES),
            _mistake(module, place, lines, rng),
        ),
    )


def _side_by_side(given: tuple[str, ...], results: tuple[str, ...], rng: random.Random) -> _Place:
    """Components on the last axis, such as boxes of four numbers."""
    count, made = len(given), len(results)
    rows = Size(rng.choice(("num_boxes", "num_points", "n")), rng.choice((32768, 65536, 100000)), 30)
    return _Place(
        given=given,
        results=results,
        sizes=(Size("batch_size", rng.choice((8, 16, 32)), 2), rows),
        shape=f"batch_size, {rows.name}, {count}",
        opening=_opened(given, rng.choice(("-1", "dim=-1")), "...", rng),
        joined="torch.stack([{all}], dim=-1)",
        why=f"{count} components stand side by side, so those of element i begin at i * {count}",
        loads=tuple(("x_ptr", _next_to(f"offs * {count}", number)) for number in range(count)),
        stores=tuple(_next_to(f"offs * {made}", number) for number in range(made)),
        count=f"x.numel() // {count}",
        out_shape="x.shape[:-1]" if made == 1 else f"(*x.shape[:-1], {made})",
    )


def _planes(given: tuple[str, ...], results: tuple[str, ...], rng: random.Random) -> _Place:
    """Components on the axis of channels of an image."""
    count, made = len(given), len(results)
    side = rng.choice((128, 224, 256))
    place = _Place(
        given=given,
        results=results,
        sizes=(
            Size("batch_size", rng.choice((8, 16, 32)), 2),
            Size("height", side, 6),
            Size("width", side, 9),
        ),
        shape=f"batch_size, {count}, height, width",
        opening=_opened(given, rng.choice(("1", "dim=1", "dim=-3")), ":", rng),
        joined="torch.stack([{all}], dim=1)",
        why=f"components are planes of an image: plane c of image i begins at (i * {count} + c) * length",
        out_shape="(x.shape[0], *x.shape[2:])" if made == 1 else f"(x.shape[0], {made}, *x.shape[2:])",
    )
    return _in_blocks(place, "x.shape[2] * x.shape[3]")


def _parts(given: tuple[str, ...], results: tuple[str, ...], rng: random.Random) -> _Place:
    """Equal parts of a row."""
    count, made = len(given), len(results)
    place = _Place(
        given=given,
        results=results,
        sizes=(Size("batch_size", rng.choice((512, 1024)), 3), Size("dim", rng.choice((1024, 2048)), 10)),
        shape=f"batch_size, {count} * dim",
        opening=(f"{', '.join(given)} = x.chunk({count}, dim={rng.choice(('-1', '1'))})",),
        joined="torch.cat([{all}], dim=-1)",
        why=f"a row has {count} equal parts: part c of row i begins at (i * {count} + c) * length",
        out_shape="(x.shape[0], length)" if made == 1 else f"(x.shape[0], {made} * length)",
    )
    return _in_blocks(place, f"x.shape[1] // {count}")


def _in_blocks(place: _Place, length: str) -> _Place:
    """The place with the addresses of components that lie in blocks of one length."""
    count, made = len(place.given), len(place.results)
    return replace(
        place,
        loads=tuple(("x_ptr", f"(i * {count} + {number}) * length + s") for number in range(count)),
        stores=tuple(f"(i * {made} + {number}) * length + s" for number in range(made)),
        before=("i = offs // length", "s = offs % length"),
        count=f"x.numel() // {count}",
        inner=("length", length),
    )


def _inputs(given: tuple[str, ...], results: tuple[str, ...], rng: random.Random) -> _Place:
    """Inputs of one shape."""
    first, made = given[0], len(results)
    axis = rng.choice(("-1", "0", "1"))
    stores, out_shape = {
        "-1": ([_next_to(f"offs * {made}", number) for number in range(made)], f"(*{first}.shape, {made})"),
        "0": (
            ["offs", *(f"{number} * numel + offs" for number in range(1, made))],
            f"({made}, *{first}.shape)",
        ),
        "1": (
            [f"(offs // dim * {made} + {number}) * dim + offs % dim" for number in range(made)],
            f"({first}.shape[0], {made}, {first}.shape[1])",
        ),
    }[axis]
    return _Place(
        given=given,
        results=results,
        sizes=(
            Size("batch_size", rng.choice((16, 32, 64, 128)), 3),
            Size("dim", rng.choice((4096, 8192)), 20),
        ),
        shape="batch_size, dim",
        opening=(),
        joined=f"torch.stack([{{all}}], dim={axis})",
        why="inputs have one shape, so all are read at the same place",
        loads=tuple((f"{name}_ptr", "offs") for name in given),
        stores=("offs",) if made == 1 else tuple(stores),
        count=f"{first}.numel()",
        out_shape=f"{first}.shape" if made == 1 else out_shape,
        inner=("dim", f"{first}.shape[1]") if made > 1 and axis == "1" else ("", ""),
    )


def _next_to(address: str, number: int) -> str:
    return f"{address} + {number}" if number else address


def _opened(given: Sequence[str], axis: str, before: str, rng: random.Random) -> tuple[str, ...]:
    """The names of the components: by `unbind`, or each by its index behind `before`."""
    parts = [f"x[{before}, {number}]" for number in range(len(given))]
    form = rng.choice(("unbind", "unbind", "lines", "line"))
    if form == "unbind":
        return (f"{', '.join(given)} = x.unbind({axis})",)
    if form == "lines":
        return tuple(f"{name} = {part}" for name, part in zip(given, parts, strict=True))
    return (f"{', '.join(given)} = {', '.join(parts)}",)


def _module(place: _Place, lines: Sequence[NamedLine], rng: random.Random) -> Module:
    written = reference_lines(lines, place.results, rng)
    returned = place.joined.replace("{all}", ", ".join(place.results))
    if len(place.results) == 1:
        *written, (_, returned) = written
    return Module(
        doc=rng.choice(_DOCS),
        init_args=(),
        init_lines=(),
        forward_args=place.inputs,
        forward_lines=(*place.opening, *(f"{name} = {text}" for name, text in written), f"return {returned}"),
        sizes=place.sizes,
        inputs=tuple(f"torch.randn({place.shape})" for _ in place.inputs),
        init_inputs=(),
    )


def _kernel(
    module: Module, place: _Place, lines: Sequence[NamedLine], grade: Grade, block: int, warps: int
) -> GradedKernel:
    reads = reads_of(lines)
    repeated = [name for name in (*place.given, *(line.name for line in lines)) if reads[name] > 1]
    return GradedKernel(
        grade=grade,
        source=_source(module, place, lines, block, warps),
        thinking=(
            f"Elementwise; {place.why}. {', '.join(place.given)}: each is loaded once. "
            f"Read by more than one line: {', '.join(repeated)}. So each value keeps its own name, "
            "and no line overwrites another's. "
            f"Stored: {', '.join(place.results)}."
        ),
    )


def _mistake(module: Module, place: _Place, lines: Sequence[NamedLine], rng: random.Random) -> GradedKernel:
    """The last line reads another value than the reference's."""
    return GradedKernel(
        grade="mistake",
        fault="wrong_value",
        source=_source(module, place, [*lines[:-1], another_value(place.given, lines, rng)], 1024, 4),
        thinking="A program takes 1024 elements, loads their values and computes line by line.",
    )


def _source(module: Module, place: _Place, lines: Sequence[NamedLine], block: int, warps: int) -> str:
    length, length_text = place.inner
    arguments = [*place.inputs, "out", "numel", *([length] if length else [])]
    pointers = [f"{name}_ptr" for name in (*place.inputs, "out")]
    body = [
        "offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "mask = offs < numel",
        *place.before,
        *(
            f"{name} = tl.load({pointer} + {address}, mask=mask, other=0.0)"
            for name, (pointer, address) in zip(place.given, place.loads, strict=True)
        ),
        *(f"{line.name} = {line.triton}" for line in lines),
        *(
            f"tl.store(out_ptr + {address}, {name}, mask=mask)"
            for name, address in zip(place.results, place.stores, strict=True)
        ),
    ]
    parameters = [*pointers, *arguments[len(pointers) :], "BLOCK: tl.constexpr"]
    first = place.inputs[0]
    more = warps_option(warps)
    host = [
        *(f"{name} = {name}.contiguous()" for name in place.inputs),
        *([f"{length} = {length_text}"] if length else []),
        f"out = torch.empty({place.out_shape}, device={first}.device, dtype={first}.dtype)",
        f"numel = {place.count}",
        f"formula_kernel[(triton.cdiv(numel, {block}),)]({', '.join(arguments)}, BLOCK={block}{more})",
        "return out",
    ]
    return kernel_source(module, [function("formula_kernel", parameters, body)], host)
