"""A module that is being drawn: sizes, inputs, layers and lines of `forward`, in values of known axes."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_core.problems.vocabulary import WORDS

MARK = re.compile(r"⟦\d+⟧")
INPUTS = (
    *("x", "x", "x", "x", "input", "inputs", "inp", "a", "hidden", "hidden_states", "features", "tensor"),
    *("data", "t", "z", "states", "tokens", "signal", "values", "scores", "activations"),
)
SECONDS = ("y", "y", "other", "b", "w", "residual", "target", "right", "second", "v", "u", "mask_value", "c")
PARAMETERS = ("weight", "scale", "gain", "gamma", "bias", "beta", "shift", "offset", "alpha", "coef")
RESULTS = ("x", "out", "y", "h", "z", "result", "value", "res", "hidden", "o")


@dataclass(frozen=True)
class Axis:
    """A size: its text over named sizes, its value on a GPU, and a small one for a CPU."""

    text: str
    gpu: int
    cpu: int

    def times(self, factor: int) -> Axis:
        """The size times a number."""
        if factor == 1:
            return self
        text = str(self.gpu * factor) if self.text.isdigit() else f"{self.text} * {factor}"
        return Axis(text, self.gpu * factor, self.cpu * factor)

    def over(self, divisor: int) -> Axis:
        """The whole quotient by a number."""
        text = str(self.gpu // divisor) if self.text.isdigit() else f"{self.text} // {divisor}"
        return Axis(text, self.gpu // divisor, self.cpu // divisor)


ONE = Axis("1", 1, 1)


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
class Kind:
    """Names and values that a size of a kind may have."""

    names: tuple[str, ...]
    gpu: tuple[int, ...]
    cpu: tuple[int, ...]
    literal: tuple[int, ...] = (4, 8, 16, 32)


_EVEN, _SMALL = (4, 6, 8, 10, 12), (2, 3, 4, 5)
KINDS = {
    "b": Kind(
        ("batch_size", "batch", "num_samples", "bs", "B"),
        (4, 8, 16, 24, 32, 48, 64, 96, 128),
        _SMALL,
        (1, 2, 4, 4),
    ),
    "m": Kind(
        ("rows", "num_rows", "M", "num_tokens", "num_items", "n_samples"),
        (128, 256, 500, 512, 768, 1000, 1024, 2048, 3000, 4096),
        (5, 7, 9, 12, 17),
        (4, 8, 16, 64),
    ),
    "n": Kind(
        ("cols", "features", "dim", "hidden_size", "num_features", "N", "hidden_dim", "d_model", "embed_dim"),
        (128, 256, 384, 512, 640, 768, 1000, 1024, 1536, 2048, 4096, 5000),
        (8, 12, 16, 20, 24, 36),
        (4, 8, 16, 32, 64),
    ),
    "k": Kind(
        ("in_features", "input_size", "K", "in_dim", "inner", "input_dim"),
        (64, 128, 256, 384, 512, 768, 1024, 2048, 4096),
        (8, 16, 20, 24),
        (4, 8, 16, 32),
    ),
    "o": Kind(
        ("out_features", "output_size", "out_dim", "P", "output_dim"),
        (64, 128, 256, 512, 768, 1024, 2048, 4096),
        (8, 12, 16, 20),
        (4, 8, 16, 32),
    ),
    "s": Kind(
        ("seq_len", "length", "steps", "num_tokens", "T", "sequence_length"),
        (64, 100, 128, 200, 256, 384, 512, 1024),
        (6, 7, 9, 11, 14),
        (4, 8, 16),
    ),
    "l": Kind(
        ("length", "seq_length", "samples", "width", "num_points"),
        (256, 512, 1000, 2048, 4096),
        (12, 16, 20),
        (16, 32, 64),
    ),
    "c": Kind(
        ("channels", "in_channels", "num_channels", "C", "planes"),
        (16, 32, 48, 64, 96, 128),
        (4, 8, 12),
        (4, 8, 4),
    ),
    "p": Kind(
        ("out_channels", "filters", "out_planes", "num_filters"), (16, 32, 64, 96, 128), (4, 8, 12), (4, 8)
    ),
    "h": Kind(
        ("height", "H", "rows", "image_height"), (16, 24, 28, 32, 48, 56, 64, 96), _EVEN, (4, 8, 16, 64)
    ),
    "w": Kind(("width", "W", "cols", "image_width"), (16, 24, 28, 32, 48, 56, 64, 96), _EVEN, (4, 8, 16, 64)),
    "d": Kind(("depth", "frames", "D", "num_frames"), (4, 8, 12, 16, 20), (4, 6, 8), (4, 8)),
    "e": Kind(("num_heads", "heads", "n_heads"), (4, 8, 12, 16), (2, 3), (2, 4)),
    "f": Kind(("head_dim", "dim_head", "d_k"), (32, 64, 128), (8, 16), (8, 16)),
    "v": Kind(
        ("vocab_size", "num_embeddings", "table_size", "num_classes"),
        (100, 512, 1000, 5000, 32000),
        (11, 19, 30),
        (10, 20),
    ),
    "q": Kind(
        ("num_indices", "count", "num_selected", "picks"), (64, 100, 256, 1000, 4096), (5, 9, 13), (3, 5, 6)
    ),
    "z": Kind(
        ("n", "size", "numel", "length", "num_elements"),
        (65536, 100000, 262144, 1000000, 1048576, 4194304),
        (37, 70, 130),
        (64, 100, 256),
    ),
}
"""Kinds of sizes by letter; channels, widths and heights are even, so that groups and windows divide them."""
SHAPES = ("z", "mn", "mn", "mn", "bsn", "bsn", "bchw", "bchw", "besf", "bcl", "bcdhw")


@dataclass(frozen=True)
class Habits:
    """Choices of an author that carry no meaning."""

    literal: bool
    """Sizes are numbers in the text, and small."""
    upper: bool
    annotated: bool
    documented: bool
    long_super: bool
    functional: str
    nested: float
    """Share of values without a name of their own."""
    naming: str
    drawn_names: bool
    dtype: str
    options: str
    """Text of `get_init_inputs` without arguments."""


def draw_habits(rng: random.Random) -> Habits:
    """Habits of one author."""
    return Habits(
        literal=rng.random() < 0.22,
        upper=rng.random() < 0.25,
        annotated=rng.random() < 0.5,
        documented=rng.random() < 0.5,
        long_super=rng.random() < 0.35,
        functional=rng.choices(("F", "torch.nn.functional", "nn.functional"), (8, 1, 1))[0],
        nested=rng.choice((0.0, 0.0, 0.5, 1.0)),
        naming=rng.choice(("rebind", "rebind", "numbered", "operator", "word")),
        drawn_names=rng.random() < 0.5,
        dtype=rng.choices(("float32", "float16", "bfloat16"), (88, 6, 6))[0],
        options=rng.choices(("[]", "[[], {}]"), (9, 1))[0],
    )


@dataclass
class Sketch:
    """Sizes, inputs, layers and lines that are drawn so far."""

    rng: random.Random
    habits: Habits
    sizes: dict[str, Axis] = field(default_factory=dict)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    """Names and expressions of `get_inputs`."""
    constructor: list[str] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)
    """Marks of values and their expressions."""
    operators: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=lambda: {"self", "torch", "nn", "F", "math", "size", "n"})
    has_parameters: bool = False

    def chance(self, share: float) -> bool:
        """True in this share of calls."""
        return self.rng.random() < share

    # --- sizes and leaves

    def axis(self, kind: str) -> Axis:
        """A new size of a kind of `KINDS`."""
        of = KINDS[kind]
        if self.habits.literal:
            value = self.rng.choice(of.literal)
            return Axis(str(value), value, value)
        free = [name for name in of.names if name.lower() not in self.taken]
        name = self.rng.choice(free) if free else f"{of.names[0]}{len(self.sizes)}"
        self.taken.add(name.lower())
        name = name.upper() if self.habits.upper else name
        axis = Axis(name, self.rng.choice(of.gpu), self.rng.choice(of.cpu))
        self.sizes[name] = axis
        return axis

    def axes(self, kinds: str = "") -> tuple[Axis, ...]:
        """New sizes of kinds, or of a drawn shape."""
        kinds = kinds or self.rng.choice(SHAPES)
        return tuple(self.axis(kind) for kind in kinds)

    def input(self, axes: Sequence[Axis], domain: str = "randn", dtype: str = "") -> Tensor:
        """A new argument of `forward`; `domain` is a function of torch, or an expression over `{}`."""
        name = self._fresh(INPUTS if not self.inputs else SECONDS)
        dtype = dtype or self.habits.dtype
        expression = self.filled(axes, domain, dtype)
        self.inputs.append((name, expression))
        return Tensor(name, tuple(axes), dtype)

    def filled(self, axes: Sequence[Axis], domain: str, dtype: str) -> str:
        """The expression that draws a tensor."""
        shape = ", ".join(axis.text for axis in axes)
        if "(" in domain:
            return domain.replace("{}", shape).replace("{tuple}", f"({shape}{',' * (len(axes) == 1)})")
        if self.habits.literal and axes:
            shape = f"[{shape}]"
        more = "" if dtype == "float32" else f", dtype=torch.{dtype}"
        return f"torch.{domain}({shape or '()'}{more})"

    def parameter(self, axes: Sequence[Axis], domain: str = "randn") -> Tensor:
        """A new parameter of the module."""
        name = self._fresh(PARAMETERS, words=self.habits.drawn_names)
        shape = ", ".join(axis.text for axis in axes) or "()"
        self.has_parameters = True
        self.constructor.append(f"self.{name} = nn.Parameter(torch.{domain}({shape}))")
        return Tensor(f"self.{name}", tuple(axes))

    def layer(self, names: Sequence[str], call: str) -> str:
        """A new submodule; the text that calls it."""
        name = self._fresh(names, words=False)
        self.constructor.append(f"self.{name} = {call}")
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
        """A value that an expression over others makes."""
        mark = f"⟦{len(self.lines)}⟧"
        self.lines.append((mark, text))
        self.operators += operators
        return Tensor(mark, tuple(axes), dtype or self.habits.dtype)

    def number(self) -> str:
        """A number that an author may write."""
        return self.rng.choice(
            ("0.5", "2.0", "0.1", "1.5", "0.25", "3.0", "0.7", "1.25", "0.01", "4.0", "0.9")
        )


# --- text


def source_of(sketch: Sketch, results: Sequence[Tensor]) -> str:
    """The problem's text in KernelBench's format."""
    habits = sketch.habits
    body = forward_lines(sketch, results)
    arguments = [name for name, _ in sketch.inputs]
    own = "\n".join(sketch.constructor)
    used = [name for name in sketch.sizes if re.search(rf"\b{name}\b", own)]
    named = {name: name.lower() for name in used}
    typed = [f"{name}: torch.Tensor" if habits.annotated else name for name in arguments]
    lines = ["class Model(nn.Module):"]
    if habits.documented:
        lines.append(f'    """{_sentence(sketch)}"""\n')
    if sketch.constructor or habits.long_super:
        start = "super(Model, self).__init__()" if habits.long_super else "super().__init__()"
        lines += [f"    def __init__({', '.join(('self', *named.values()))}):", f"        {start}"]
        lines += [f"        {_with_names(line, named)}" for line in sketch.constructor]
        lines.append("")
    lines.append(f"    def forward({', '.join(('self', *typed))}):")
    lines += [f"        {line}" for line in body]
    text = "\n".join(lines)
    constants = "".join(f"{name} = {axis.gpu}\n" for name, axis in sketch.sizes.items())
    given = ", ".join(expression for _, expression in sketch.inputs)
    options = f"[{', '.join(used)}]" if used else habits.options
    imports = "import torch\nimport torch.nn as nn\n"
    if re.search(r"\bF\.", text):
        imports += "import torch.nn.functional as F\n"
    if re.search(r"\bmath\.", text):
        imports = "import math\n\n" + imports
    makers = f"def get_inputs():\n    return [{given}]\n\n\ndef get_init_inputs():\n    return {options}\n"
    return f"{imports}\n\n{text}\n\n\n{constants}{chr(10) * 2 if constants else ''}{makers}"


def _with_names(text: str, named: dict[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: named.get(match[0], match[0]), text)


def _sentence(sketch: Sketch) -> str:
    steps = list(dict.fromkeys(operator.replace("_", " ") for operator in sketch.operators))[:6]
    listed = steps[0] if len(steps) == 1 else f"{', '.join(steps[:-1])} and {steps[-1]}"
    start = random.Random(sketch.operators[0] + str(len(sketch.sizes))).choice(
        ("Computes", "Applies", "Module with", "Model that applies", "Performs")
    )
    return f"{start} {listed}."


def forward_lines(sketch: Sketch, results: Sequence[Tensor]) -> list[str]:
    """Lines of `forward`: some values inside others' expressions, the rest under names."""
    lines = _inlined(sketch, [str(result) for result in results])
    names: dict[str, str] = {}
    taken = {name for name, _ in sketch.inputs} | {"torch", "nn", "F", "math", "self", "input"}
    last = {mark: at for at, (_, text) in enumerate(lines) for mark in _read(text)}
    written: list[str] = []
    for at, (mark, text) in enumerate(lines):
        dying = [name for name in _read(text) if last[name] == at]
        filled = MARK.sub(lambda match: names[match[0]], text)
        if not mark:
            written.append(f"return {filled}")
            continue
        names[mark] = _name(sketch, text, [names.get(name, name) for name in dying], taken)
        taken.add(names[mark])
        written.append(f"{names[mark]} = {filled}")
    return written


def _inlined(sketch: Sketch, results: Sequence[str]) -> list[tuple[str, str]]:
    end = ", ".join(results)
    lines = [*sketch.lines, ("", end if len(results) > 1 or not sketch.lines else results[0])]
    kept: list[tuple[str, str]] = []
    for at, (mark, text) in enumerate(lines):
        uses = sum(other.count(mark) for _, other in lines[at + 1 :]) if mark else 0
        user = next((k for k in range(at + 1, len(lines)) if mark and mark in lines[k][1]), None)
        if mark and user is None:
            continue
        is_last = user == len(lines) - 1
        share = max(sketch.habits.nested, 0.4 if is_last else 0.0)
        if user is not None and uses == 1 and len(text) + len(lines[user][1]) < 80 and sketch.chance(share):
            inner = text if (is_last and len(results) == 1) or _is_atom(text) else f"({text})"
            lines[user] = (lines[user][0], lines[user][1].replace(mark, inner))
        else:
            kept.append((mark, text))
    return kept


def _is_atom(text: str) -> bool:
    node = ast.parse(MARK.sub("value", text), mode="eval").body
    return isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Subscript | ast.Constant)


def _read(text: str) -> list[str]:
    """Marks and plain names in an expression, in order."""
    return re.findall(r"⟦\d+⟧|(?<![\w.])[a-zA-Z_]\w*(?![\w(=])", text)


def _name(sketch: Sketch, text: str, dying: Sequence[str], taken: set[str]) -> str:
    naming = sketch.habits.naming
    free = [name for name in dying if name in taken and name not in ("torch", "nn", "F", "math", "self")]
    if naming == "rebind" and free:
        return free[0]
    if naming == "operator":
        calls = re.findall(r"\.(\w+)\(", text)
        if calls and f"{calls[-1]}_out" not in taken and calls[-1].isidentifier():
            return f"{calls[-1]}_out"
    if naming == "numbered":
        return next(f"h{k}" for k in range(1, 99) if f"h{k}" not in taken)
    pool = WORDS if naming == "word" and sketch.habits.drawn_names else RESULTS
    names = [name for name in pool if name not in taken and name.lower() not in sketch.taken]
    return sketch.rng.choice(names) if names else next(f"x{k}" for k in range(1, 99) if f"x{k}" not in taken)
