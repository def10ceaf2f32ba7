"""Problems over views of an axis: drawn parts, the reference, and the kernels of each grade."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.indexing import views
from kernel_core.problems.modules.indexing.formulas import Formula, draw_formula
from kernel_core.problems.modules.indexing.kernels import Reading
from kernel_core.problems.modules.indexing.views import Axis
from kernel_core.problems.modules.reduction.answer import Answer, draft
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

    reading: Reading
    sizes: tuple[Size, ...]
    shape: tuple[str, ...]
    """Names of the sizes of a tensor with a value for each position, the axis as long as the input's."""
    gated: bool = False
    paired: bool = False
    """Whether the four values are combined in two pairs."""
    drawn: Mapping[str, str] = field(default_factory=dict)
    """How inputs are drawn that have another shape."""
    layer: tuple[str, ...] = ()
    """The two sizes of an `nn.Embedding` that holds `x`; `x` is then no input."""
    number: str = ""
    """The value of the module's number that `reading` names."""

    @property
    def names(self) -> list[str]:
        """The names of the values."""
        return [view.name for view in self.reading.views if view.name != HIDDEN]

    @property
    def length(self) -> str:
        """The length of the result's axis, over the problem's sizes."""
        return self.reading.geometry.gpu.format(n=self.shape[self.reading.axis.place])

    @property
    def operators(self) -> tuple[str, ...]:
        """Torch's names of the ways of reading."""
        return tuple(view.operator for view in self.reading.views if view.operator)


DrawProgram = Callable[[random.Random], Program]


def draw_program(rng: random.Random) -> Program:
    """An axis of a tensor, and views of it."""
    if rng.random() < 0.15:
        axis, geometry = Axis(3, -1), views.square(rng)
        n = rng.choice((256, 500, 512, 768, 1000, 1024))
        square = (Size("batch_size", rng.choice((8, 16, 32)), 2), Size("n", n, rng.randint(5, 11)))
        drawn = {"v": "torch.randn(batch_size, n)"}
        return Program(Reading(axis, geometry, geometry.views), square, ("batch_size", "n", "n"), drawn=drawn)
    rank = rng.choice((2, 2, 3, 3, 4))
    place = rank - 1 if rng.random() < 0.6 or rank == 2 else rng.choice(range(1, rank - 1))
    axis = Axis(rank, place - rank if rng.random() < 0.6 else place)
    geometry = rng.choice(_GEOMETRIES)(axis, rng)
    operand = views.beside(axis, geometry, rng)
    if operand is None and len(geometry.views) == 1:
        operand = views.whole("x", "x", axis)
    found = (*geometry.views, *((operand,) if operand else ()))
    sizes = draw_sizes(axis, geometry.unit, rng)
    gated = geometry.unit == 2
    return Program(Reading(axis, geometry, found), sizes, tuple(size.name for size in sizes), gated)


def draw_sizes(axis: Axis, unit: int, rng: random.Random) -> tuple[Size, ...]:
    """The sizes of a tensor of that rank, of some millions of elements on a GPU."""
    names = rng.choice(_NAMES[axis.rank])
    while True:
        found = []
        for place, name in enumerate(names):
            if place == axis.place:
                found.append(views.axis_size(name, unit, rng, axis.rank, last=axis.last))
            else:
                choices = _BATCH if place == 0 and axis.rank > 2 else _MIDDLE if axis.rank > 2 else _ROWS
                found.append(Size(name, rng.choice(choices), rng.randint(2, 5)))
        numel = 1
        for size in found:
            numel *= size.gpu
        if _LEAST <= numel <= _MOST:
            return tuple(found)


Launch = tuple[Grade, str, tuple[str, ...], str]
"""Grade, Triton function, lines that launch it, and a sentence on the split of the work."""


@dataclass(frozen=True)
class Ending:
    """What becomes of the formulas' values."""

    operators: tuple[str, ...]
    result: str
    """The expression of the reference over its formulas' expressions."""
    shape: str
    """The output's shape in the host, over `x`."""
    doc: str
    answers: Sequence[Launch]
    lines: tuple[str, ...] = ()
    """Lines of the reference in front of the result."""


def problem(
    rng: random.Random, family: str, program: Program, formulas: Sequence[Formula], ending: Ending
) -> Draft:
    """The draft of a program with its formulas and ending."""
    reading = program.reading
    lines = [line for view in reading.views for line in view.lines]
    for formula in formulas:
        lines += formula.torch
    lines += ending.lines
    weight = any(view.source == "weight" for view in reading.views)
    forward = [_with_parameter(line) if weight else line for line in (*lines, f"return {ending.result}")]
    owned = {"weight", *(["x"] if program.layer else [])}
    inputs = {source: _input(source, program) for source in reading.sources if source not in owned}
    parameters = _parameters(program)
    module = Module(
        doc=ending.doc,
        init_args=tuple(argument for one in parameters for argument in one[0]),
        init_lines=tuple(one[1] for one in parameters),
        forward_args=tuple(inputs),
        forward_lines=tuple(forward),
        sizes=program.sizes,
        inputs=tuple(inputs.values()),
        init_inputs=tuple(value for one in parameters for value in one[2]),
    )
    operators = (*program.operators, *(name for one in formulas for name in one.operators), *ending.operators)
    host = _host(program, ending.shape)
    answers = [
        Answer(grade, (function,), (*host, *launch, "return out"), _why(program, formulas, said))
        for grade, function, launch, said in ending.answers
    ]
    return draft(rng, family, operators, module, [*answers, _mistake(program, formulas, answers)])


def _parameters(program: Program) -> list[tuple[tuple[str, ...], str, tuple[str, ...]]]:
    """What the module owns: arguments of its constructor, the line that makes it, values of the arguments."""
    axis = program.reading.axis
    found: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = []
    if program.layer:
        arguments = ("num_embeddings: int", "embedding_dim: int")
        found.append(
            (arguments, "self.embedding = nn.Embedding(num_embeddings, embedding_dim)", program.layer)
        )
    if any(view.source == "weight" for view in program.reading.views):
        ones = ", 1" * (axis.rank - 1 - axis.place)
        line = f"self.weight = nn.Parameter(torch.randn(size{ones}))"
        found.append((("size: int",), line, (program.length,)))
    name, value = program.reading.number, program.number
    if name:
        found.append(((f"{name}: float",), f"self.{name} = {name}", (value,)))
    return found


def _with_parameter(line: str) -> str:
    return re.sub(r"(?<![\w.])weight\b", "self.weight", line)


def _input(source: str, program: Program) -> str:
    """The draw of an argument of `forward`."""
    place, names = program.reading.axis.place, program.shape
    full, length = ", ".join(names), names[place]
    alike = ", ".join(program.length if at == place else name for at, name in enumerate(names))
    usual = {
        "x": f"torch.randn({full})",
        "y": f"torch.randn({alike})",
        "s": f"torch.randn({', '.join((*names[:-1], '1'))})",
        "table": f"torch.randn({', '.join(names[-2:])})",
        "index": f"torch.randint(0, {length}, ({full}))",
        "order": f"torch.randperm({length})",
    }
    return {**usual, **program.drawn}[source]


def _host(program: Program, shape: str) -> list[str]:
    reading = program.reading
    geometry, axis = reading.geometry, reading.axis
    contiguous = [f"{source} = {source}.contiguous()" for source in reading.sources if source != "weight"]
    if program.layer:
        contiguous[0] = "x = self.embedding.weight"
    usual = [f"n = x.shape[{axis.dim}]", *([] if axis.last else [f"inner = x.stride({axis.place})"])]
    extra = dict.fromkeys(line for view in reading.views for line in view.host)
    return [
        *contiguous,
        *(geometry.measures or usual),
        *([geometry.host] if geometry.host else []),
        *extra,
        f"out = torch.empty({shape}, device=x.device, dtype=x.dtype)",
    ]


def _why(program: Program, formulas: Sequence[Formula], said: str) -> str:
    places = ". ".join(view.why for view in program.reading.views)
    steps = "; ".join(one.said for one in formulas)
    where = "the last dimension" if program.reading.axis.last else f"dimension {program.reading.axis.place}"
    return f"j runs along {where}. {places}. Then in registers: {steps}. {said}"


def _mistake(program: Program, formulas: Sequence[Formula], answers: Sequence[Answer]) -> Answer:
    """The first answer with one value read from another place, or with another operator."""
    right = answers[0]
    function = right.functions[0]
    wrong = ""
    for view in program.reading.views:
        if view.wrong:
            wrong, fault = function.replace(f"_ptr + {view.offset},", f"_ptr + {view.wrong},"), "wrong_place"
            break
    if not wrong or wrong == function:
        old, new = formulas[0].triton, formulas[0].wrong
        fault = "wrong_op"
        for line, other in zip(old, new, strict=False):
            if line != other:
                wrong = function.replace(line, other)
                break
    return replace(right, grade="mistake", functions=(wrong,), fault=fault)


def output_shape(program: Program, length: str) -> str:
    """The shape of the result with that length of the axis; empty for a result without the axis."""
    axis, around = program.reading.axis, program.reading.geometry.around
    if around != ("", ""):
        parts = [part for part in (around[0], length, around[1]) if part]
        return f"({', '.join(parts)})" if len(parts) > 1 else f"({parts[0]},)"
    if length == "n":
        return "x.shape"
    if axis.last:
        return f"(*x.shape[:-1], {length})" if length else "x.shape[:-1]"
    return f"(*x.shape[:{axis.place}], {length + ', ' * bool(length)}*x.shape[{axis.place + 1}:])"


def formulas_of(program: Program, count: int, rng: random.Random) -> list[Formula]:
    """A formula over all values, or two over some of them that leave none out."""
    order = rng.sample(program.names, len(program.names))
    found = []
    for number in range(count):
        names = order if count == 1 else (order[:2], order[-2:])[number]
        if program.paired:
            names = [*rng.sample(program.names[:2], 2), *rng.sample(program.names[2:], 2)]
        ending = "" if count == 1 else f"_{number + 1}"
        formula = draw_formula(
            names,
            rng,
            gated=program.gated,
            paired=program.paired,
            number=program.reading.number,
            ending=ending,
        )
        hides = any(view.name == HIDDEN for view in program.reading.views)
        found.append(_hidden(formula, f"value{ending}", rng) if hides else formula)
    return found


def _hidden(formula: Formula, value: str, rng: random.Random) -> Formula:
    """The formula with a constant where the condition holds."""
    fill = rng.choice(("0.0", "-1.0", "1.0"))
    text = formula.result if formula.result.isidentifier() else f"({formula.result})"
    where = f"torch.where({HIDDEN}, {fill}, {formula.result})"
    line = f"{value} = tl.where({HIDDEN}, {fill}, {value})"
    return replace(
        formula,
        result=rng.choice((f"{text}.masked_fill({HIDDEN}, {fill})", where)),
        triton=(*formula.triton, line),
        operators=(*formula.operators, "masked_fill"),
        wrong=(*formula.wrong, line) if formula.wrong else (),
    )
