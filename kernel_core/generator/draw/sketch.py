"""A module that is being drawn: sizes, inputs, layers and lines of `forward`, in values of known axes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_core.generator.draw.habits import Habits
from kernel_core.generator.draw.sizes import KINDS, ODD, SHAPES, Axis
from kernel_core.problems.vocabulary import WORDS

INPUTS = (
    *["x"] * 14,
    *("input", "inputs", "inp", "a", "hidden", "hidden_states", "features", "tensor"),
    *("data", "t", "z", "states", "tokens", "signal", "values", "scores", "activations"),
)
NUMBERS = ("s", "s", "scalar", "factor", "alpha", "scale", "value", "k")
SECONDS = ("y", "y", "other", "b", "w", "residual", "target", "right", "second", "v", "u", "mask_value", "c")
PARAMETERS = ("weight", "scale", "gain", "gamma", "bias", "beta", "shift", "offset", "alpha", "coef")
MOST_ELEMENTS = 2**27
"""Elements of one tensor on a GPU."""


@dataclass(frozen=True)
class Tensor:
    """A value in `forward`; its text is a name, or a mark until names are given."""

    text: str
    axes: tuple[Axis, ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        return self.text

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.axes)


@dataclass(frozen=True)
class Input:
    """An argument of `forward`, and what fills it."""

    name: str
    domain: str
    """A function of torch, an expression over `{}` and `{tuple}`, which are the shape, or a number."""
    axes: tuple[Axis, ...]
    dtype: str


@dataclass(frozen=True)
class Line:
    """A line of `forward`: the mark of its value, its expression, and the operators in it."""

    mark: str
    text: str
    operators: tuple[str, ...] = ()


@dataclass
class Sketch:
    """Sizes, inputs, layers and lines that are drawn so far."""

    rng: random.Random
    habits: Habits
    sizes: dict[str, Axis] = field(default_factory=dict)
    meanings: dict[str, str] = field(default_factory=dict)
    """Meaning of each size, by its name."""
    inputs: list[Input] = field(default_factory=list)
    constructor: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """Numbers that `forward` reads from attributes of that name, and `options`."""
    options: dict[str, str] = field(default_factory=dict)
    """Arguments of a layer that have a name, with the default that authors give them; empty without one."""
    lines: list[Line] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=lambda: {"self", "torch", "nn", "F", "math", "size", "n"})

    def chance(self, share: float) -> bool:
        """Return True in this share of calls."""
        return self.rng.random() < share

    def pick(self, *choices: Any) -> Any:
        """Return one of some choices."""
        return self.rng.choice(choices)

    # --- sizes and leaves

    def axis(self, kind: str, gpu: int = 0) -> Axis:
        """Return a new size of a kind of `KINDS`."""
        of = KINDS[kind]
        free = [name for name in of.names if name.lower() not in self.taken]
        name = self.rng.choice(free) if free else f"{of.names[0]}{len(self.sizes)}"
        self.taken.add(name.lower())
        name = name.upper() if self.habits.upper else name
        if self.habits.sizes == "small":
            value = gpu or self.rng.choice(of.literal)
            axis = Axis(name, value, value)
        else:
            axis = Axis(name, gpu or self.rng.choice(of.gpu), self.rng.choice(of.cpu))
        self.sizes[name], self.meanings[name] = axis, of.meaning
        return axis

    def axes(self, kinds: str = "") -> tuple[Axis, ...]:
        """Return new sizes of kinds, or of a drawn shape."""
        is_free = not kinds
        kinds = kinds or self.rng.choice(SHAPES)
        while True:
            values = [self._value(kind, is_free) for kind in kinds]
            if math.prod(values) <= MOST_ELEMENTS:
                return tuple(map(self.axis, kinds, values))

    def _value(self, kind: str, is_free: bool) -> int:
        of = KINDS[kind]
        if is_free and self.habits.square:
            return self.rng.choice(ODD[:7] if self.habits.sizes == "small" else ODD)
        return self.rng.choice(of.literal if self.habits.sizes == "small" else of.gpu)

    def input(
        self, axes: Sequence[Axis], domain: str = "randn", dtype: str = "", names: Sequence[str] = ()
    ) -> Tensor:
        """Return a new argument of `forward`; `domain` is as in `Input`, `names` are usual ones for it."""
        words = False if names and self.chance(0.7) else None
        name = self._fresh(names or (INPUTS if not self.inputs else SECONDS), words)
        dtype = dtype or self.habits.dtype
        self.inputs.append(Input(name, domain, tuple(axes), dtype))
        return Tensor(name, tuple(axes), dtype)

    def indices(self, axes: Sequence[Axis], below: Axis, names: Sequence[str] = ()) -> Tensor:
        """Return a new argument of `forward` with indices of an axis."""
        return self.input(axes, f"torch.randint(0, {below.text}, {{tuple}})", "int64", names)

    def scalar(self, value: str) -> str:
        """Return the name of a new argument of `forward` that is a number."""
        name = self._fresh(NUMBERS, words=False)
        self.inputs.append(Input(name, value, (), "float"))
        return name

    def parameter(self, axes: Sequence[Axis], domain: str = "randn", is_given: bool = False) -> Tensor:
        """Return a new parameter of the module; its shape may be an argument where `is_given`."""
        name = self._fresh(PARAMETERS, words=self.habits.drawn_names)
        shape = ", ".join(axis.text for axis in axes) or "()"
        if is_given and self.habits.settings == "argument" and self.chance(0.5):
            shape = self.option(f"{name}_shape", f"({shape})")
        self.constructor.append(f"self.{name} = nn.Parameter(torch.{domain}({shape}))")
        return Tensor(f"self.{name}", tuple(axes))

    def layer(self, names: Sequence[str], call: str) -> str:
        """Add a submodule and return the text that calls it."""
        name = self._fresh(names, words=False)
        self.constructor.append(f"self.{name} = {call}")
        return f"self.{name}"

    def setting(self, name: str, value: str) -> str:
        """Return a number's text: the number, or an attribute that holds it, by the author's habits."""
        if self.habits.settings == "inline" or (name in self.taken and self.settings.get(name) != value):
            return value
        self.taken.add(name)
        self.settings[name] = value
        return f"self.{name}"

    def option(self, name: str, value: str, default: str = "") -> str:
        """Return the name of a layer's argument; the author's habits make it a number or an argument.

        A second layer has numbers, and so has one whose class may be a part, which takes sizes alone.
        """
        if name in self.taken or self.habits.part == "class":
            return value
        self.taken.add(name)
        self.settings[name], self.options[name] = value, default
        return name

    def stored_size(self, name: str, axis: Axis) -> str:
        """Store a size in an attribute and return the text that reads it."""
        self.constructor.append(f"self.{name} = {axis.text}")
        return f"self.{name}"

    def _fresh(self, names: Sequence[str], words: bool | None = None) -> str:
        pool = WORDS if (self.habits.drawn_names if words is None else words) else names
        for _ in range(20):
            name = self.rng.choice(pool)
            if name.lower() not in self.taken:
                break
        else:
            name = next(f"{names[0]}{k}" for k in range(2, 99) if f"{names[0]}{k}" not in self.taken)
        self.taken.add(name.lower())
        return name

    # --- lines

    def emit(self, text: str, axes: Sequence[Axis], *operators: str, dtype: str = "") -> Tensor:
        """Add a line and return its value."""
        mark = f"⟦{len(self.lines)}⟧"
        self.lines.append(Line(mark, text, operators))
        self.operators += operators
        return Tensor(mark, tuple(axes), dtype or self.habits.dtype)

    def sizes_of(self, x: Tensor) -> list[str]:
        """Return texts of a value's sizes in `forward`: names that a line unpacks, or reads of each."""
        letters = {2: "bn", 3: "bsd", 4: "bchw", 5: "bcdhw"}.get(x.rank, "")
        names = [letter for letter in letters if letter not in self.taken]
        if len(names) == x.rank and self.chance(0.7):
            if self.chance(0.4):
                names = [name.upper() for name in names]
            if not {*names} & ({*self.sizes} | {"F"}):
                self.taken.update(name.lower() for name in names)
                read = "shape" if self.chance(0.7) else "size()"
                self.lines.append(Line(", ".join(names), f"{x}.{read}"))
                return names
        read = self.rng.choice(("shape[{}]", "size({})"))
        return [f"{x}.{read.format(at)}" for at in range(x.rank)]

    def parts(self, text: str, axes: Sequence[Axis], names: Sequence[str], *operators: str) -> list[Tensor]:
        """Add a line that unpacks several values of the same axes, under names that are free."""
        free = [name if name not in self.taken else f"{name}_{len(self.lines)}" for name in names]
        self.taken.update(free)
        self.lines.append(Line(", ".join(free), text, operators))
        self.operators += operators
        return [Tensor(name, tuple(axes)) for name in free]

    def number(self) -> str:
        """Return a number that an author may write."""
        return self.rng.choice(
            ("0.5", "2.0", "0.1", "1.5", "0.25", "3.0", "0.7", "1.25", "0.01", "4.0", "0.9")
        )
