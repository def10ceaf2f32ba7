"""Problems over views of an axis: the drawn parts and the reference."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.indexing import views
from kernel_core.problems.modules.indexing.formulas import Formula, draw_formula
from kernel_core.problems.modules.indexing.views import Axis, View
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size

_LEAST, _MOST = 2_000_000, 60_000_000
_ROWS = (1000, 2048, 4096, 8192, 10000, 16384)
_BATCH = (8, 16, 32, 64, 100, 128)
_MIDDLE = (16, 32, 48, 64, 100, 128, 200, 256, 512, 1024)
_NAMES: dict[int, tuple[tuple[str, ...], ...]] = {
    2: (("batch_size", "features"), ("rows", "cols"), ("num_rows", "width")),
    3: (
        ("batch_size", "seq_len", "features"),
        ("batch_size", "channels", "length"),
        ("batch", "tokens", "hidden"),
    ),
    4: (("batch_size", "channels", "height", "width"), ("batch_size", "num_heads", "seq_len", "head_dim")),
}
HIDDEN = "dropped"
"""The name of a condition; where it holds a value is a constant."""
_GEOMETRIES = (views.halves, views.halves, views.thirds, views.windows, views.moved, views.moved)


@dataclass(frozen=True)
class Program:
    """The drawn parts of a problem without its ending."""

    axis: Axis
    views: tuple[View, ...]
    sizes: tuple[Size, ...]
    shape: tuple[str, ...]
    """Names of the sizes of a tensor with a value for each position, the axis as long as the input's."""
    length: str = "{n}"
    """The length of the result's axis as an expression over the input's."""
    gated: bool = False
    paired: bool = False
    """True if the four values are combined in two pairs."""
    drawn: Mapping[str, str] = field(default_factory=dict)
    """The draws of inputs that have another shape."""
    layer: tuple[str, ...] = ()
    """The two sizes of an `nn.Embedding` that holds `x`; `x` is then no input."""
    number: str = ""
    """The name of a number of the module that changes a value; empty without one."""
    value: str = ""
    """The value of the number."""

    @property
    def names(self) -> list[str]:
        """The names of the values."""
        return [view.name for view in self.views if view.name != HIDDEN]

    @property
    def sources(self) -> tuple[str, ...]:
        """The tensors that are read, in the order of their first use."""
        used = [source for view in self.views for source in (view.index, view.source) if source]
        return tuple(dict.fromkeys(["x", *used]))

    @property
    def result_length(self) -> str:
        """The length of the result's axis, over the problem's sizes."""
        return self.length.format(n=self.shape[self.axis.place])

    @property
    def operators(self) -> tuple[str, ...]:
        """Torch's names of the ways of reading."""
        return tuple(view.operator for view in self.views if view.operator)


def draw_program(rng: random.Random) -> Program:
    """An axis of a tensor, and views of it."""
    if rng.random() < 0.15:
        drawn_views = views.square(rng)
        n = rng.choice((256, 500, 512, 768, 1000, 1024))
        square = (Size("batch_size", rng.choice((8, 16, 32)), 2), Size("n", n, rng.randint(5, 11)))
        return Program(
            Axis(3, -1),
            drawn_views,
            square,
            ("batch_size", "n", "n"),
            drawn={"v": "torch.randn(batch_size, n)"},
        )
    rank = rng.choice((2, 2, 3, 3, 4))
    place = rank - 1 if rng.random() < 0.6 or rank == 2 else rng.choice(range(1, rank - 1))
    axis = Axis(rank, place - rank if rng.random() < 0.6 else place)
    geometry = rng.choice(_GEOMETRIES)(axis, rng)
    operand = views.beside(axis, geometry.length, rng)
    if operand is None and len(geometry.views) == 1:
        operand = View("x", "x")
    drawn_views = (*geometry.views, *((operand,) if operand else ()))
    sizes = draw_sizes(axis, geometry.unit, rng)
    shape = tuple(size.name for size in sizes)
    return Program(axis, drawn_views, sizes, shape, geometry.length, gated=geometry.unit == 2)


def draw_sizes(axis: Axis, unit: int, rng: random.Random) -> tuple[Size, ...]:
    """The sizes of a tensor of that rank, of some millions of elements on a GPU."""
    names = rng.choice(_NAMES[axis.rank])
    while True:
        sizes = []
        for place, name in enumerate(names):
            if place == axis.place:
                sizes.append(views.axis_size(name, unit, rng, axis.rank, last=axis.last))
            else:
                choices = _BATCH if place == 0 and axis.rank > 2 else _MIDDLE if axis.rank > 2 else _ROWS
                sizes.append(Size(name, rng.choice(choices), rng.randint(2, 5)))
        if _LEAST <= math.prod(size.gpu for size in sizes) <= _MOST:
            return tuple(sizes)


def problem(
    rng: random.Random,
    program: Program,
    formulas: Sequence[Formula],
    *,
    result: str,
    doc: str,
    operators: tuple[str, ...] = (),
    last_lines: tuple[str, ...] = (),
) -> Draft:
    """The draft of a program: its formulas' lines, then `last_lines` and the expression `result`."""
    lines = [line for view in program.views for line in view.lines]
    for formula in formulas:
        lines += formula.torch
    lines += last_lines
    lines.append(f"return {result}")
    if any(view.source == "weight" for view in program.views):
        lines = [re.sub(r"(?<![\w.])weight\b", "self.weight", line) for line in lines]
    owned = {"weight", *(["x"] if program.layer else [])}
    inputs = {source: _input(source, program) for source in program.sources if source not in owned}
    parameters = _parameters(program)
    module = Module(
        doc=doc,
        init_args=tuple(argument for parameter in parameters for argument in parameter[0]),
        init_lines=tuple(parameter[1] for parameter in parameters),
        forward_args=tuple(inputs),
        forward_lines=tuple(lines),
        sizes=program.sizes,
        inputs=tuple(inputs.values()),
        init_inputs=tuple(value for parameter in parameters for value in parameter[2]),
    )
    names = (*program.operators, *(name for formula in formulas for name in formula.operators), *operators)
    return module.draft(names, draw_style(rng))


def _parameters(program: Program) -> list[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """The module's own parts: constructor's arguments, the line that makes it, values of the arguments."""
    axis = program.axis
    parameters: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = []
    if program.layer:
        arguments = ("num_embeddings: int", "embedding_dim: int")
        parameters.append(
            (arguments, "self.embedding = nn.Embedding(num_embeddings, embedding_dim)", program.layer)
        )
    if any(view.source == "weight" for view in program.views):
        ones = ", 1" * (axis.rank - 1 - axis.place)
        line = f"self.weight = nn.Parameter(torch.randn(size{ones}))"
        parameters.append((("size: int",), line, (program.result_length,)))
    name = program.number
    if name:
        parameters.append(((f"{name}: float",), f"self.{name} = {name}", (program.value,)))
    return parameters


def _input(source: str, program: Program) -> str:
    """The draw of an argument of `forward`."""
    place, names = program.axis.place, program.shape
    full, length = ", ".join(names), names[place]
    alike = ", ".join(program.result_length if at == place else name for at, name in enumerate(names))
    usual = {
        "x": f"torch.randn({full})",
        "y": f"torch.randn({alike})",
        "s": f"torch.randn({', '.join((*names[:-1], '1'))})",
        "table": f"torch.randn({', '.join(names[-2:])})",
        "index": f"torch.randint(0, {length}, ({full}))",
        "order": f"torch.randperm({length})",
    }
    return {**usual, **program.drawn}[source]


def formulas_of(program: Program, count: int, rng: random.Random) -> list[Formula]:
    """A formula over all values, or two over some of them that leave none out."""
    order = rng.sample(program.names, len(program.names))
    formulas = []
    for number in range(count):
        names = order if count == 1 else (order[:2], order[-2:])[number]
        if program.paired:
            names = [*rng.sample(program.names[:2], 2), *rng.sample(program.names[2:], 2)]
        ending = "" if count == 1 else f"_{number + 1}"
        formula = draw_formula(names, rng, program.number, ending, gated=program.gated, paired=program.paired)
        hides = any(view.name == HIDDEN for view in program.views)
        formulas.append(_hidden(formula, rng) if hides else formula)
    return formulas


def _hidden(formula: Formula, rng: random.Random) -> Formula:
    """The formula with a constant where the condition holds."""
    fill = rng.choice(("0.0", "-1.0", "1.0"))
    text = formula.result if formula.result.isidentifier() else f"({formula.result})"
    where = f"torch.where({HIDDEN}, {fill}, {formula.result})"
    return replace(
        formula,
        result=rng.choice((f"{text}.masked_fill({HIDDEN}, {fill})", where)),
        operators=(*formula.operators, "masked_fill"),
    )
