"""Ways to read an input along one axis: pieces, moved positions, indices, vectors, tables, transposes."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.program import Size


@dataclass(frozen=True)
class Axis:
    """The axis that a problem works along, and its spelling."""

    rank: int
    dim: int
    """As written in the problem; may be negative."""

    @property
    def place(self) -> int:
        """Counted from the front."""
        return self.dim % self.rank

    @property
    def last(self) -> bool:
        """True if neighbours along the axis lie next to each other."""
        return self.place == self.rank - 1

    def cut(self, inside: str) -> str:
        """An index that cuts this axis alone, such as `[..., :half]` or `[:, 1:]`."""
        return f"[..., {inside}]" if self.last else f"[{':, ' * self.place}{inside}]"


@dataclass(frozen=True)
class View:
    """One value of the formula and where it comes from."""

    name: str
    source: str
    """The argument of `forward` or the parameter that it reads."""
    lines: tuple[str, ...] = ()
    """Lines of the reference that assign the value; one line may assign several views."""
    operator: str = ""
    """Torch's name of the way of reading; empty for the tensor as it is."""
    index: str = ""
    """An argument that holds positions."""


@dataclass(frozen=True)
class Geometry:
    """Views that fit each other, and how long the axis of the result is, compared with the input's."""

    views: tuple[View, ...]
    unit: int = 1
    """The input's axis is a multiple of it."""
    length: str = "{n}"
    """The length of the result as an expression over the input's."""


_NAMES = (("a", "b", "c"), ("u", "v", "w"), ("first", "second", "third"), ("left", "right", "rest"))


def halves(axis: Axis, rng: random.Random) -> Geometry:
    """The two halves of an axis, or its even and odd positions."""
    a, b, _ = rng.choice(_NAMES)
    if rng.random() < 0.4:
        lines: tuple[str, ...] = (f"{a}, {b} = x{axis.cut('0::2')}, x{axis.cut('1::2')}",)
        operator = "strided_slice"
    else:
        size = f"x.shape[{axis.dim}] // 2"
        narrow = [f"{v} = x.narrow({axis.dim}, {at}, half)" for v, at in ((a, "0"), (b, "half"))]
        lines = rng.choice(
            (
                (f"{a}, {b} = x.chunk(2, dim={axis.dim})",),
                (f"{a}, {b} = torch.chunk(x, 2, dim={axis.dim})",),
                (f"{a}, {b} = torch.split(x, {size}, dim={axis.dim})",),
                (f"half = {size}", f"{a}, {b} = x{axis.cut(':half')}, x{axis.cut('half:')}"),
                (f"half = {size}", *narrow),
            )
        )
        operator = "chunk"
    return Geometry((View(a, "x", lines, operator), View(b, "x")), 2, "{n} // 2")


def thirds(axis: Axis, rng: random.Random) -> Geometry:
    """Three pieces of equal length."""
    a, b, c = rng.choice(_NAMES)
    line = rng.choice(
        (
            f"{a}, {b}, {c} = x.chunk(3, dim={axis.dim})",
            f"{a}, {b}, {c} = torch.split(x, x.shape[{axis.dim}] // 3, dim={axis.dim})",
        )
    )
    return Geometry((View(a, "x", (line,), "chunk"), View(b, "x"), View(c, "x")), 3, "{n} // 3")


def windows(axis: Axis, rng: random.Random) -> Geometry:
    """Two or three neighbours along the axis, which is shorter by one or two afterwards."""
    count = rng.choice((2, 2, 3))
    names = rng.choice(_NAMES)[:count]
    less = count - 1
    views = []
    for k, name in enumerate(names):
        end = f"{k - less}" if k < less else ""
        begin = str(k) if k else ""
        text = f"x{axis.cut(f'{begin}:{end}')}"
        if rng.random() < 0.3:
            text = f"x.narrow({axis.dim}, {k}, x.shape[{axis.dim}] - {less})"
        views.append(View(name, "x", (f"{name} = {text}",), "slice"))
    return Geometry(tuple(views), 1, f"{{n}} - {less}")


def moved(axis: Axis, rng: random.Random) -> Geometry:
    """The tensor and one or two moved copies of it: rolled, flipped, delayed, taken by index."""
    kinds = rng.sample(("roll", "flip", "delay", "gather", "order"), rng.choice((1, 1, 2)))
    names = rng.choice(_NAMES)
    views = [_moved(kind, name, axis, rng) for kind, name in zip(kinds, names[1:], strict=False)]
    if rng.random() < 0.75:
        views.insert(0, View("x", "x"))
    return Geometry(tuple(views))


def _moved(kind: str, name: str, axis: Axis, rng: random.Random) -> View:
    d, step = axis.dim, rng.randint(1, 3)
    operator, index = kind, ""
    if kind == "roll":
        shift = step * rng.choice((1, -1))
        text = rng.choice((f"torch.roll(x, shifts={shift}, dims={d})", f"x.roll({shift}, dims={d})"))
    elif kind == "flip":
        text = rng.choice((f"torch.flip(x, dims=({d},))", f"x.flip({d})"))
    elif kind == "delay":
        operator = "pad"
        head = f"torch.zeros_like(x{axis.cut(f':{step}')})"
        text = f"torch.cat(({head}, x{axis.cut(f':-{step}')}), dim={d})"
        if axis.last and rng.random() < 0.6:
            text = f"F.pad(x, ({step}, 0)){axis.cut(f':-{step}')}"
    elif kind == "gather":
        index = "index"
        method = f"x.gather({d}, index)"
        text = rng.choice(
            (f"torch.gather(x, {d}, index)", f"torch.take_along_dim(x, index, dim={d})", method)
        )
    else:
        index, text = "order", f"x{axis.cut('order')}"
    return View(name, "x", (f"{name} = {text}",), operator, index)


def beside(axis: Axis, length: str, rng: random.Random) -> View | None:
    """A further operand of the result's shape or broadcast to it, or none."""
    kind = rng.choice(("none", "none", "tensor", "vector", "row", "table"))
    if kind == "tensor":
        return View("y", "y", operator="tensor")
    if kind == "vector":
        return View("weight", "weight", operator="vector")
    if kind == "row" and axis.last:
        return View("s", "s", operator="row_value")
    if kind == "table" and axis.last and axis.rank > 2 and length == "{n}":
        return View("table", "table", operator="table")
    return None


def square(rng: random.Random) -> tuple[View, ...]:
    """Views of square matrices: as they are, transposed, with a value for each row or column."""
    views = [View("x", "x")]
    text = f"t = x.{rng.choice(('transpose(-1, -2)', 'mT', 'transpose(1, 2)'))}"
    if rng.random() < 0.6:
        views.append(View("t", "x", (text,), "transpose"))
    if len(views) == 1 or rng.random() < 0.4:
        dim, operator = rng.choice((("-1", "row_value"), ("1", "column_value")))
        views.append(View("p", "v", (f"p = v.unsqueeze({dim})",), operator))
    return tuple(views)


def axis_size(name: str, unit: int, rng: random.Random, rank: int, *, last: bool) -> Size:
    """The size of the axis, a multiple of the unit on a CPU and on a GPU."""
    if last:
        gpu = rng.choice((256, 500, 512, 768, 1000, 1024, 1500, 2048, 3000, 4096, 5000))
    else:
        gpu = rng.choice((32, 48, 64, 96, 100, 128, 200, 256))
    return Size(name, gpu // unit * unit, unit * rng.randint(4, 9) if rank > 2 else unit * rng.randint(6, 14))
