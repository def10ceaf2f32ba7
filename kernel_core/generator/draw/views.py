"""Formulas over views of tensors: parts, shifts, lookups and pairs, whose values results may share."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.generator.draw.heads import normalised, reduction
from kernel_core.generator.draw.inputs import narrowed
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.steps import activated, clamped, scaled, shifted, written_out

_NAMES = (("a", "b", "c", "d"), ("x1", "x2", "x3", "x4"), ("first", "second", "third", "fourth"))
_FORMULAS = (
    ("{a} + {b}", "add"), ("{a} - {b}", "sub"), ("{a} * {b}", "mul"), ("({a} - {b}) ** 2", "pow"),
    ("torch.maximum({a}, {b})", "maximum"), ("torch.minimum({a}, {b})", "minimum"),
    ("torch.where({a} > {b}, {a}, {n} * {b})", "where"), ("{a} / (1.0 + {b}.abs())", "div"),
    ("torch.sqrt({a} * {a} + {b} * {b} + 1e-6)", "sqrt"), ("{n} * ({a} + {b})", "add"),
    ("{a} * torch.sigmoid({b})", "mul"), ("torch.abs({a} - {b})", "abs"), ("{a} + {n} * {b}", "add"),
    ("torch.lerp({a}, {b}, {n})", "lerp"), ("{a} * torch.exp(-torch.abs({b}))", "exp"),
)  # fmt: skip


def formula(sketch: Sketch) -> list[Tensor]:
    """Draw views, a formula of them, and its end: one result, several, joined ones or a reduction."""
    values = sketch.pick(_parts, _parts, _components, _shifts, _shifts, _lookups, _pairs, _several)(sketch)
    full = values[0].axes
    if sketch.chance(0.4):
        narrow = narrowed(sketch, full)
        values.append(sketch.parameter(narrow) if sketch.chance(0.3) else sketch.input(narrow))
    unread = [*values]
    for _ in range(sketch.rng.randint(max(1, len(values) - 2), len(values) + 2)):
        a = sketch.rng.choice(_with_axes(full, unread) or _with_axes(full, values))
        others = [value for value in values if value is not a]
        unread_others = [value for value in unread if value is not a]
        b = sketch.rng.choice(others if sketch.chance(0.4) or not unread_others else unread_others)
        values.append(_mixed(sketch, a, b, full))
        unread = [value for value in unread if value not in (a, b)] + values[-1:]
    return _ended(sketch, _with_axes(full, unread), full)


def _with_axes(axes: tuple[Axis, ...], values: Sequence[Tensor]) -> list[Tensor]:
    return [value for value in values if value.axes == axes]


def _mixed(sketch: Sketch, a: Tensor, b: Tensor, axes: tuple[Axis, ...]) -> Tensor:
    """Draw a formula of two values, at times with a step before or behind it."""
    step = sketch.pick(activated, activated, scaled, clamped, written_out)
    if sketch.chance(0.25):
        a = step(sketch, a)
    text, name = sketch.rng.choice(_FORMULAS)
    y = sketch.emit(text.format(a=a, b=b, n=sketch.pick("0.1", "0.3", "0.5")), axes, name)
    return step(sketch, y) if sketch.chance(0.25) else y


def _ended(sketch: Sketch, results: list[Tensor], axes: tuple[Axis, ...]) -> list[Tensor]:
    """Draw what becomes of the values that nothing has read."""
    kind = sketch.pick("mapped", "mapped", "joined", "joined", "reduced", "reduced", "several")
    if kind == "several" and len(results) > 1:
        return results
    if kind == "joined" and sketch.chance(0.6):
        results.append(_mixed(sketch, results[0], results[-1], axes))
    if kind == "joined" and len(results) > 1:
        name, at = sketch.pick("cat", "stack"), sketch.rng.randrange(len(axes))
        listed = sketch.pick("[{}]", "({})").format(", ".join(map(str, results)))
        dim = at if name == "stack" or sketch.chance(0.3) else at - len(axes)
        return [sketch.emit(f"torch.{name}({listed}, dim={sketch.pick(dim, dim, -1)})", (), name)]
    while len(results) > 1:
        a, b, *others = results
        results = [*others, _mixed(sketch, a, b, axes)]
    (x,) = results
    if kind == "reduced":
        return [sketch.pick(normalised, reduction, reduction)(sketch, x)]
    return [shifted(sketch, x) if sketch.chance(0.3) else x]


# --- views


def _of_axis(at: int, rank: int, index: str) -> str:
    """Return an index of one axis and all of the others."""
    if at == rank - 1 and rank > 1:
        return f"..., {index}"
    return ", ".join([":"] * at + [index])


def _dim(sketch: Sketch, at: int, rank: int) -> str:
    return str(sketch.pick(at, at - rank))


def _drawn(sketch: Sketch) -> tuple[tuple[Axis, ...], int]:
    """Return a shape with an axis of it, more often the last."""
    axes = sketch.axes(sketch.pick("mn", "bn", "bsn", "bsn", "bchw", "bcl"))
    return axes, sketch.pick(len(axes) - 1, sketch.rng.randrange(1, len(axes)))


def _parts(sketch: Sketch) -> list[Tensor]:
    """Two to four equal parts of an axis: neighbours, or each second place."""
    axes, at = _drawn(sketch)
    count = sketch.pick(2, 2, 2, 3, 4)
    x = sketch.input((*axes[:at], axes[at].times(count), *axes[at + 1 :]))
    dim, rank = _dim(sketch, at, len(axes)), len(axes)
    kind = sketch.pick("chunk", "chunk", "split", "narrow", "slice", "step")
    if kind in ("chunk", "split"):
        size = count if kind == "chunk" else f"{x}.shape[{dim}] // {count}"
        call = sketch.pick(f"{x}.{kind}({size}, dim={dim})", f"torch.{kind}({x}, {size}, dim={dim})")
        return sketch.parts(call, axes, sketch.rng.choice(_NAMES)[:count], kind)
    if kind == "step":
        texts = [f"{x}[{_of_axis(at, rank, f'{start}::{count}')}]" for start in range(count)]
        return [sketch.emit(text, axes, "getitem") for text in texts]
    size = f"{x}.shape[{dim}] // {count}"
    if count == 2 and sketch.chance(0.7):
        (half,) = sketch.parts(size, (), (sketch.pick("half", "mid", "middle"),))
        size = str(half)
    starts = ["0", size, *(f"{k} * ({size})" for k in range(2, count))]
    if kind == "narrow":
        return [sketch.emit(f"{x}.narrow({dim}, {start}, {size})", axes, kind) for start in starts]
    ends = zip(["", *starts[1:]], [*starts[1:], ""], strict=True)
    return [sketch.emit(f"{x}[{_of_axis(at, rank, f'{a}:{b}')}]", axes, "getitem") for a, b in ends]


def _components(sketch: Sketch) -> list[Tensor]:
    """Two to four components that the last axis holds, such as a box or a complex number."""
    axes, count = sketch.axes(sketch.pick("m", "bn", "bsn", "bs")), sketch.pick(2, 3, 4, 4)
    x = sketch.input((*axes, Axis(str(count), count, count)))
    if sketch.chance(0.4):
        return sketch.parts(f"{x}.unbind(-1)", axes, sketch.rng.choice(_NAMES)[:count], "unbind")
    ones = sketch.chance(0.2)
    parts = [f"{x}[..., {k}:{k + 1}]" if ones else f"{x}[..., {k}]" for k in range(count)]
    return [sketch.emit(text, (*axes, ONE) if ones else axes, "getitem") for text in parts]


def _shifts(sketch: Sketch) -> list[Tensor]:
    """A tensor beside itself: rolled, flipped, one place later, or permuted."""
    axes, at = _drawn(sketch)
    x, rank = sketch.input(axes), len(axes)
    dim = _dim(sketch, at, rank)
    if sketch.chance(0.2):
        shorter = (*axes[:at], axes[at].plus(-1), *axes[at + 1 :])
        return [
            sketch.emit(f"{x}[{_of_axis(at, rank, index)}]", shorter, "getitem") for index in ("1:", ":-1")
        ]
    if sketch.chance(0.2):
        names, drawn = ("order", "perm", "index"), f"torch.randperm({axes[at].text})"
        order = sketch.input((axes[at],), drawn, "int64", names)
        return [x, sketch.emit(f"{x}[{_of_axis(at, rank, str(order))}]", axes, "index")]
    first, before = (f"{x}[{_of_axis(at, rank, index)}]" for index in (":1", ":-1"))
    texts = [
        (f"torch.roll({x}, {sketch.pick('1', '-1', '2')}, dims={dim})", "roll"),
        (f"{x}.roll({sketch.pick('1', '-1', '3')}, {dim})", "roll"),
        (sketch.pick(f"{x}.flip({dim})", f"torch.flip({x}, dims=({dim},))"), "flip"),
        (f"torch.cat([torch.zeros_like({first}), {before}], dim={dim})", "cat"),
    ]
    if at == rank - 1:
        texts.append((f"F.pad({before}, (1, 0))", "pad"))
    moved = sketch.rng.sample(texts, sketch.pick(1, 1, 2))
    return [x, *(sketch.emit(text, axes, name) for text, name in moved)]


def _lookups(sketch: Sketch) -> list[Tensor]:
    """Rows of a table, of two tables at the same places, or of one table at two."""
    rows, width = sketch.axis("t"), sketch.axis("n", sketch.pick(64, 100, 128, 256, 512))
    places = sketch.axes(sketch.pick("q", "bq"))
    table = sketch.input((rows, width))
    kind = sketch.pick("places", "places", "tables", "weights")
    names = ("index", "idx", "ids", "src", "neighbors")
    index = sketch.indices(places, rows, names)
    axes = (*places, width)
    text = sketch.pick("{}[{}]", "{}[{}]", "F.embedding({1}, {0})")
    values = [sketch.emit(text.format(table, index), axes, "index")]
    if kind == "weights":
        wide = sketch.emit(f"{sketch.input(places)}.unsqueeze(-1)", (*places, ONE), "unsqueeze")
        return [*values, wide]
    other = table if kind == "places" else sketch.input((rows, width))
    at = sketch.indices(places, rows, names) if kind == "places" else index
    return [*values, sketch.emit(text.format(other, at), axes, "index")]


def _pairs(sketch: Sketch) -> list[Tensor]:
    """All pairs of rows of two tensors, as their differences and something else."""
    b, p, q, n = sketch.axes("bqqn")
    x, y = sketch.input((b, p, n)), sketch.input((b, q, n))
    left = sketch.pick(f"{x}.unsqueeze(2)", f"{x}[:, :, None]"), (b, p, ONE, n)
    right = sketch.pick(f"{y}.unsqueeze(1)", f"{y}[:, None]"), (b, ONE, q, n)
    u, v = (sketch.emit(text, axes, "unsqueeze") for text, axes in (left, right))
    return [sketch.emit(f"{u} - {v}", (b, p, q, n), "sub"), sketch.pick(u, v)]


def _several(sketch: Sketch) -> list[Tensor]:
    """Two to four tensors of one shape."""
    axes = sketch.axes()
    return [sketch.input(axes) for _ in range(sketch.pick(2, 3, 3, 4))]
