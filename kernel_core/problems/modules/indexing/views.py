"""Ways to read an input along one axis: pieces, moved positions, indices, vectors, tables, transposes.

A view gives each position `j` of the result's axis the place of its value in memory. In kernels the axis is
the last one, so that a place is a function of `row` and `j`, or one in the middle: `outer`, `j` and `q`.
"""

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
        """Whether neighbours along the axis lie next to each other."""
        return self.place == self.rank - 1

    def cut(self, inside: str) -> str:
        """An index that cuts this axis alone, such as `[..., :half]` or `[:, 1:]`."""
        return f"[..., {inside}]" if self.last else f"[{':, ' * self.place}{inside}]"

    def offset(self, position: str, length: str) -> str:
        """The offset of a position in a tensor with that length of the axis and the same other axes."""
        if self.last:
            return f"row * {length} + {position}"
        return f"(outer * {length} + {position}) * inner + q"


@dataclass(frozen=True)
class View:
    """One value of the formula: where it comes from, in torch and in a kernel."""

    name: str
    source: str
    """The argument of `forward` or the parameter that it reads."""
    lines: tuple[str, ...]
    """Lines of the reference that assign the value; one line may assign several views."""
    offset: str
    """The place in memory, over `row` and `j`, or `outer`, `j` and `q`."""
    why: str
    """A sentence on the place."""
    operator: str
    """Torch's name of the way of reading; empty for the tensor as it is."""
    valid: str = ""
    """A condition over `j`; where it fails the value is 0."""
    other: str = "0.0"
    """What a lane without a place has."""
    index: str = ""
    """An argument that holds positions; `offset` has the position as `at`."""
    index_offset: str = ""
    """The place of the position in it."""
    host: tuple[str, ...] = ()
    """Lines of the host that assign further arguments of the kernel."""
    arguments: tuple[str, ...] = ()
    """Those arguments."""
    wrong: str = ""
    """A place that a careless reader would take."""


@dataclass(frozen=True)
class Geometry:
    """How long the axis of the result is, compared with the input's, and the views that fit."""

    views: tuple[View, ...]
    unit: int = 1
    """The input's axis is a multiple of it."""
    length: str = "n"
    """The name of the result's length in kernel and host."""
    host: str = ""
    """The line of the host that assigns the length; empty where it is the input's."""
    gpu: str = "{n}"
    """The length of the result as an expression over the input's."""
    measures: tuple[str, ...] = ()
    """Lines of the host that assign `n` and `inner`, where these are no lengths of `x`."""
    around: tuple[str, str] = ("", "")
    """The result's shape before and after the axis, where it is not that of `x`."""


_NAMES = (("a", "b", "c"), ("u", "v", "w"), ("first", "second", "third"), ("left", "right", "rest"))


def halves(axis: Axis, rng: random.Random) -> Geometry:
    """The two halves of an axis, or its even and odd positions."""
    a, b, _ = rng.choice(_NAMES)
    if rng.random() < 0.4:
        lines: tuple[str, ...] = (f"{a}, {b} = x{axis.cut('0::2')}, x{axis.cut('1::2')}",)
        places, said, operator = ("2 * j", "2 * j + 1"), ("an even", "an odd"), "strided_slice"
        whys = [f"{v} takes {word} position: {p}" for v, word, p in zip((a, b), said, places, strict=True)]
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
        )  # fmt: skip
        places, operator = ("j", "j + half"), "chunk"
        whys = [f"{a} is the first half: position j", f"{b} is the second half: position j + half"]
    views = (
        View(a, "x", lines, axis.offset(places[0], "n"), whys[0], operator),
        View(b, "x", (), axis.offset(f"({places[1]})", "n"), whys[1], "", wrong=axis.offset("j", "n")),
    )
    return Geometry(views, 2, "half", "half = n // 2", "{n} // 2")


def thirds(axis: Axis, rng: random.Random) -> Geometry:
    """Three pieces of equal length."""
    a, b, c = names = rng.choice(_NAMES)
    lines = rng.choice(
        (
            (f"{a}, {b}, {c} = x.chunk(3, dim={axis.dim})",),
            (f"{a}, {b}, {c} = torch.split(x, x.shape[{axis.dim}] // 3, dim={axis.dim})",),
        )
    )
    places = ("j", "(j + part)", "(j + 2 * part)")
    views = tuple(
        View(
            name, "x", lines * (not k), axis.offset(place, "n"),
            f"{name} is piece {k + 1} of three: position {place.strip('()')}", "chunk" * (not k),
            wrong=axis.offset("j", "n") if k else "",
        )
        for k, (name, place) in enumerate(zip(names, places, strict=True))
    )  # fmt: skip
    return Geometry(views, 3, "part", "part = n // 3", "{n} // 3")


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
        place = f"(j + {k})" if k else "j"
        views.append(
            View(
                name, "x", (f"{name} = {text}",), axis.offset(place, "n"),
                f"{name} is {k} positions further: {place.strip('()')}" if k else f"{name} is position j",
                "slice", wrong=axis.offset("j", "n") if k else "",
            )
        )  # fmt: skip
    return Geometry(tuple(views), 1, "m", f"m = n - {less}", f"{{n}} - {less}")


def moved(axis: Axis, rng: random.Random) -> Geometry:
    """The tensor and one or two moved copies of it: rolled, flipped, delayed, taken by index."""
    kinds = rng.sample(("roll", "flip", "delay", "gather", "order"), rng.choice((1, 1, 2)))
    names = rng.choice(_NAMES)
    views = [_moved(kind, name, axis, rng) for kind, name in zip(kinds, names[1:], strict=False)]
    if rng.random() < 0.75:
        views.insert(0, whole("x", "x", axis))
    return Geometry(tuple(views))


def whole(name: str, source: str, axis: Axis) -> View:
    """The tensor as it is."""
    return View(name, source, (), axis.offset("j", "n"), f"{source} is read at position j", "")


def _moved(kind: str, name: str, axis: Axis, rng: random.Random) -> View:
    d, step = axis.dim, rng.randint(1, 3)
    plain = axis.offset("j", "n")
    if kind == "roll":
        shift = step * rng.choice((1, -1))
        place = f"((j + n - {step}) % n)" if shift > 0 else f"((j + {step}) % n)"
        other = f"((j + {step}) % n)" if shift > 0 else f"((j + n - {step}) % n)"
        text = rng.choice((f"torch.roll(x, shifts={shift}, dims={d})", f"x.roll({shift}, dims={d})"))
        why = f"{name} is rolled by {shift}: its position j was {place[1:-1]}"
        return View(name, "x", (f"{name} = {text}",), axis.offset(place, "n"), why, "roll",
                    wrong=axis.offset(other, "n"))  # fmt: skip
    if kind == "flip":
        text = rng.choice((f"torch.flip(x, dims=({d},))", f"x.flip({d})"))
        why = f"{name} is flipped: its position j was n - 1 - j"
        return View(
            name, "x", (f"{name} = {text}",), axis.offset("(n - 1 - j)", "n"), why, "flip", wrong=plain
        )
    if kind == "delay":
        head = f"torch.zeros_like(x{axis.cut(f':{step}')})"
        text = f"torch.cat(({head}, x{axis.cut(f':-{step}')}), dim={d})"
        if axis.last and rng.random() < 0.6:
            text = f"F.pad(x, ({step}, 0)){axis.cut(f':-{step}')}"
        why = f"{name} comes {step} later: position j - {step}, and 0 in front"
        return View(name, "x", (f"{name} = {text}",), axis.offset(f"(j - {step})", "n"), why, "pad",
                    valid=f"j >= {step}", wrong=plain)  # fmt: skip
    if kind == "gather":
        texts = (
            f"torch.gather(x, {d}, index)",
            f"torch.take_along_dim(x, index, dim={d})",
            f"x.gather({d}, index)",
        )
        why = f"{name} is taken by index: the index at position j names the position in x"
        return View(name, "x", (f"{name} = {rng.choice(texts)}",), axis.offset("at", "n"), why, "gather",
                    index="index", index_offset=plain, wrong=plain)  # fmt: skip
    why = f"{name} has another order: order[j] names the position in x"
    return View(name, "x", (f"{name} = x{axis.cut('order')}",), axis.offset("at", "n"), why, "order",
                index="order", index_offset="j", wrong=plain)  # fmt: skip


def beside(axis: Axis, geometry: Geometry, rng: random.Random) -> View | None:
    """A further operand of the result's shape or broadcast to it, or none."""
    length = geometry.length
    kind = rng.choice(("none", "none", "tensor", "vector", "row", "table"))
    if kind == "tensor":
        offset = axis.offset("j", length)
        return View("y", "y", (), offset, "y has the result's shape", "tensor")
    if kind == "vector":
        return View("weight", "weight", (), "j", "weight has one value for each position j", "vector")
    if kind == "row" and axis.last:
        return View("s", "s", (), "row", "s has one value a row", "row_value")
    if kind == "table" and axis.last and axis.rank > 2 and length == "n":
        return View(
            "table", "table", (), "(row % S) * n + j",
            "table repeats over the leading dimensions: its row is row % S", "table",
            host=("S = x.shape[-2]",), arguments=("S",), wrong="j",
        )  # fmt: skip
    return None


def square(rng: random.Random) -> Geometry:
    """Views of square matrices: as they are, transposed, with a value for each row or column."""
    views = [View("x", "x", (), "row * n + j", "x is read at its row and column", "")]
    turned = View(
        "t", "x", (f"t = x.{rng.choice(('transpose(-1, -2)', 'mT', 'transpose(1, 2)'))}",),
        "(row // n * n + j) * n + row % n",
        "t is transposed: row i = row % n and column j change places within a matrix", "transpose",
        wrong="row * n + j",
    )  # fmt: skip
    if rng.random() < 0.6:
        views.append(turned)
    if len(views) == 1 or rng.random() < 0.4:
        views.append(
            rng.choice(
                (
                    View("p", "v", ("p = v.unsqueeze(-1)",), "row", "p has one value a row", "row_value",
                         wrong="row // n * n + j"),
                    View("p", "v", ("p = v.unsqueeze(1)",), "row // n * n + j",
                         "p has one value a column of each matrix", "column_value",
                         wrong="row // n * n + n - 1 - j"),
                )
            )
        )  # fmt: skip
    return Geometry(tuple(views))


def axis_size(name: str, unit: int, rng: random.Random, rank: int, *, last: bool) -> Size:
    """The size of the axis, a multiple of the unit on a CPU and on a GPU."""
    if last:
        gpu = rng.choice((256, 500, 512, 768, 1000, 1024, 1500, 2048, 3000, 4096, 5000))
    else:
        gpu = rng.choice((32, 48, 64, 96, 100, 128, 200, 256))
    return Size(name, gpu // unit * unit, unit * rng.randint(4, 9) if rank > 2 else unit * rng.randint(6, 14))
