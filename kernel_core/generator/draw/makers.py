"""Placement of a drawn problem's sizes: constants of the module, numbers, tuples, lines of `get_inputs`."""

from __future__ import annotations

import ast
import operator
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernel_core.generator.draw.habits import Habits
from kernel_core.generator.draw.sizes import Axis
from kernel_core.generator.draw.sketch import Input, Sketch
from kernel_core.records import Constant

_LEAST_MEMBER = 16
"""Numbers of `get_inputs` from which `problems.source.resize` takes one for a size."""
_TUPLES = ("input_shape", "shape", "input_size", "dims", "in_shape")
_LOCAL_NAMES = ("x", "inputs", "data", "inp")


_ARITHMETIC = {"*": operator.mul, "//": operator.floordiv, "+": operator.add, "-": operator.sub}


@dataclass
class Places:
    """Placement of each size of a problem, by its name."""

    sizes: dict[str, Axis]
    spelled: list[str] = field(default_factory=list)
    """Sizes that are numbers in the text."""
    local: list[str] = field(default_factory=list)
    """Sizes that `get_inputs` assigns."""
    tuple_name: str = ""
    members: tuple[str, ...] = ()
    """Sizes that are members of that tuple."""

    def text(self, text: str, at: str = "gpu") -> str:
        """Return an expression over names of sizes as `get_inputs` writes it."""
        if self.members:
            run = ", ".join(self.members)
            text = re.sub(rf"(?<=[ (])\({run},?\)", self.tuple_name, text)
            text = re.sub(rf"(?<=[(\[ ]){run}(?=,?[)\]])", f"*{self.tuple_name}", text)
        for name in self.spelled:
            text = re.sub(
                rf"(?<![\w.]){name}\b(?!=)(?: (\*|//|[+-]) (\d+))?",
                lambda match: self._number(match, at),
                text,
            )
        for position, name in enumerate(self.members):
            text = re.sub(rf"(?<![\w.]){name}\b(?!=)", f"{self.tuple_name}[{position}]", text)
        return text

    def _number(self, match: re.Match[str], at: str) -> str:
        name = re.match(r"\w+", match[0])
        assert name is not None
        value: int = getattr(self.sizes[name[0]], at)
        if match[1] is None:
            return str(value)
        return str(_ARITHMETIC[match[1]](value, int(match[2])))


def places_of(sketch: Sketch, used: Sequence[str], habits: Habits, rng: random.Random) -> Places:
    """Return where sizes stand; `used` are those that the constructor reads."""
    places = Places(dict(sketch.sizes))
    is_derived = any(re.search(r"//|[+-]", axis.text) for given in sketch.inputs for axis in given.axes)
    if habits.sizes == "small" or (habits.sizes == "numbers" and not is_derived):
        places.spelled = list(places.sizes)
    elif habits.sizes == "mixed" and not is_derived:
        places.spelled = [name for name in places.sizes if rng.random() < 0.5]
    elif habits.sizes == "local" and not is_derived:
        places.local = [name for name in places.sizes if name not in used]
    elif habits.sizes == "tuple" and sketch.inputs:
        _join(places, sketch, rng)
    for name in (*places.spelled, *places.local):
        axis = places.sizes[name]
        if axis.gpu < _LEAST_MEMBER:
            places.sizes[name] = Axis(name, axis.gpu, axis.gpu)
    return places


def _join(places: Places, sketch: Sketch, rng: random.Random) -> None:
    """A tuple of the last sizes of an input."""
    axes = rng.choice(sketch.inputs).axes
    start = rng.choice((0, 1, 1)) if len(axes) > 1 else 0
    names = tuple(axis.text for axis in axes[start:])
    if names and len(set(names)) == len(names) and all(name in places.sizes for name in names):
        places.members = names
        places.tuple_name = next(name for name in _TUPLES if name not in sketch.taken)


def constant_lines(
    sketch: Sketch, places: Places, habits: Habits, settings: Sequence[tuple[str, str]], rng: random.Random
) -> list[str]:
    """Return the module's constants: sizes, and `settings` with their values."""
    names = [
        name
        for name in places.sizes
        if name not in places.spelled and name not in places.local and name not in places.members
    ]
    if habits.sizes == "pairs" and len(names) > 1:
        lines = [f"{', '.join(names)} = {', '.join(str(places.sizes[name].gpu) for name in names)}"]
    else:
        lines = [_assigned(sketch, places, name, habits, rng) for name in names]
    if places.members:
        values = ", ".join(str(places.sizes[name].gpu) for name in places.members)
        lines.append(f"{places.tuple_name} = ({values}{',' * (len(places.members) == 1)})")
    return lines + [f"{name} = {value}" for name, value in settings]


def _assigned(sketch: Sketch, places: Places, name: str, habits: Habits, rng: random.Random) -> str:
    value = places.sizes[name].gpu
    text = f"{name} = {_computed(value, rng) if habits.computed else value}"
    return f"{text}  # {sketch.meanings[name]}" if habits.size_notes else text


def _computed(value: int, rng: random.Random) -> str:
    """A size as a product or a power."""
    power = value.bit_length() - 1
    if value == 2**power and power > 4 and rng.random() < 0.4:
        return rng.choice((f"2 ** {power}", f"1 << {power}", f"2**{power}"))
    factor = rng.choice((2, 4, 8, 16))
    return f"{value // factor} * {factor}" if value % factor == 0 and value > 2 * factor else str(value)


def inputs_function(
    sketch: Sketch, places: Places, habits: Habits, rng: random.Random, at: str = "gpu"
) -> list[str]:
    """Return the lines of `get_inputs`."""
    lines = [f"    {name} = {getattr(places.sizes[name], at)}" for name in places.local]
    made = [(given.name, places.text(filled(given, habits), at)) for given in sketch.inputs]
    if habits.assigned:
        lines += [f"    {name} = {expression}" for name, expression in made]
        return ["def get_inputs():", *lines, f"    return [{', '.join(name for name, _ in made)}]"]
    listed = ", ".join(expression for _, expression in made)
    if len(listed) > 90 and rng.random() < 0.8:
        return [
            "def get_inputs():", *lines, "    return [", *(f"        {text}," for _, text in made), "    ]",
        ]  # fmt: skip
    return ["def get_inputs():", *lines, f"    return [{listed}]"]


def filled(given: Input, habits: Habits) -> str:
    """Return the expression that draws an input."""
    shape = ", ".join(axis.text for axis in given.axes)
    comma = "," * (len(given.axes) == 1)
    domain = given.domain
    if given.dtype == "float":
        return domain
    if domain == "randn" and (given.dtype == "float32" or "(" not in habits.filling):
        domain = habits.filling
    if "(" in domain:
        return domain.replace("{}", shape or "()").replace("{tuple}", f"({shape}{comma})")
    if habits.shape == "list" and given.axes:
        shape = f"[{shape}]"
    elif habits.shape == "tuple" and given.axes:
        shape = f"({shape}{comma})"
    more = "" if given.dtype == "float32" else f", dtype=torch.{given.dtype}"
    return f"torch.{domain}({shape or '()'}{more})"


def member_sizes(gpu: str, cpu: str) -> Iterator[tuple[str, Constant, Constant]]:
    """Yield numbers of both functions that differ, by their names in `resize`, with both values."""
    for large_function, small_function in zip(ast.parse(gpu).body, ast.parse(cpu).body, strict=True):
        assert isinstance(large_function, ast.FunctionDef)
        position = 0
        for large, small in zip(_numbers(large_function), _numbers(small_function), strict=True):
            if large >= _LEAST_MEMBER:
                if large != small:
                    yield f"{large_function.name}[{position}]", large, small
                position += 1


def _numbers(function: ast.stmt) -> list[int]:
    numbers = [
        (node.lineno, node.col_offset, node.value)
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]
    return [value for _, _, value in sorted(numbers)]
