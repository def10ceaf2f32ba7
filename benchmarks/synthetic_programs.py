"""Invented modules: a program is a list of steps, and a text is one of many spellings of it.

Two programs are different computations when their steps differ; two texts of one program differ in names,
comments, constants and sizes, and in the order of statements that do not depend on each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from synthetic_operators import JOINS, LIBRARY, POINTWISE, SHAPES

_WORDS = (
    "Block",
    "Layer",
    "Unit",
    "Head",
    "Gate",
    "Cell",
    "Mixer",
    "Net",
    "Stage",
    "Stem",
    "Encoder",
    "Path",
)
_QUALITIES = ("Fast", "Deep", "Wide", "Tiny", "Spatial", "Dense", "Residual", "Context", "Local", "Smooth")
_VARIABLES = ("x", "h", "out", "y", "feat", "z", "hidden", "res", "val", "act", "signal", "tmp", "inner")
_ATTRIBUTES = ("fc", "proj", "norm", "body", "layer", "op", "mix", "conv", "main", "branch", "core", "sub")


@dataclass(frozen=True)
class Step:
    """One operation, or two on the same value with joined results."""

    kinds: tuple[str, ...]
    join: str = ""


@dataclass(frozen=True)
class Program:
    """What a module computes."""

    domain: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Spelling:
    """What may differ between two texts of one program, each with a seed of its own."""

    names: int
    constants: int
    order: int
    remarks: int


@dataclass(frozen=True)
class Text:
    """One spelling: the module in KernelBook's columns."""

    entry_point: str
    reference: str
    kernel: str


def draw_programs(count: int, seed: int) -> Iterator[Program]:
    """Different programs, most of a few steps; many differ from another in one step only."""
    rng = random.Random(f"programs {seed}")
    seen: set[object] = set()
    recent: list[Program] = []
    while len(seen) < count:
        program = _sibling(rng.choice(recent), rng) if recent and rng.random() < 0.3 else _fresh(rng)
        if _key(program) in seen:
            continue
        seen.add(_key(program))
        recent = [*recent[-200:], program]
        yield program


def spell(program: Program, spelling: Spelling) -> Text:
    """The module's text and a kernel as a compiler would write it."""
    return _Writer(program, spelling).text()


def _key(program: Program) -> object:
    """Equal for programs that count as one computation."""
    steps = tuple((tuple(sorted(step.kinds)), step.join) for step in program.steps)
    shapeless = all(kind in POINTWISE for step in program.steps for kind in step.kinds)
    return steps if shapeless else (program.domain, steps)


def _fresh(rng: random.Random) -> Program:
    domain = rng.choice(tuple(SHAPES))
    return Program(domain, tuple(_step(domain, rng) for _ in range(rng.choice((2, 3, 3, 4, 4, 5, 6, 7)))))


def _sibling(program: Program, rng: random.Random) -> Program:
    steps = list(program.steps)
    steps[rng.randrange(len(steps))] = _step(program.domain, rng)
    return Program(program.domain, tuple(steps))


def _step(domain: str, rng: random.Random) -> Step:
    kinds = [*POINTWISE, *LIBRARY[domain], *LIBRARY[domain]]
    if rng.random() < 0.2:
        return Step(tuple(rng.sample(sorted(set(kinds)), 2)), rng.choice(tuple(JOINS)))
    return Step((rng.choice(kinds),))


class _Writer:
    """Spells one program."""

    def __init__(self, program: Program, spelling: Spelling) -> None:
        self._program = program
        self._names = random.Random(f"names {spelling.names}")
        self._order = random.Random(f"order {spelling.order}")
        self._remarks = random.Random(f"remarks {spelling.remarks}")
        constants = random.Random(f"constants {spelling.constants}")
        self._sizes = {
            "m": constants.choice((2, 4, 8, 16)),
            "n": constants.choice((4, 8, 16, 32, 64)),
            "k": constants.choice((3, 4, 6, 8, 12)),
            "h": constants.choice((4, 8, 16, 32)),
            "e": constants.choice(("1e-05", "1e-06", "1e-12")),
        }
        self._constants = constants
        self._layers: list[tuple[str, str]] = []
        self._tiles: list[str] = []
        self._calls: list[str] = []
        self._kernels: list[str] = []

    def text(self) -> Text:
        """The module and its kernel."""
        entry = f"{self._names.choice(_QUALITIES)}{self._names.choice(_WORDS)}{self._names.randrange(1000)}"
        first = value = self._names.choice(_VARIABLES)
        lines: list[str] = []
        for step in self._program.steps:
            value = self._apply(step, value, lines)
        self._flush()
        layers = list(self._layers)
        self._order.shuffle(layers)
        return Text(entry, self._reference(entry, first, value, layers, lines), self._kernel(entry, layers))

    def _apply(self, step: Step, value: str, lines: list[str]) -> str:
        if not step.join:
            target = self._variable()
            lines.append(f"{target} = {self._expression(step.kinds[0], value)}")
            return target
        left, right = self._variable("a"), self._variable("b")
        branches = [f"{left} = {self._expression(step.kinds[0], value)}"]
        branches.append(f"{right} = {self._expression(step.kinds[1], value)}")
        self._order.shuffle(branches)
        target = self._variable()
        lines += [*branches, f"{target} = {JOINS[step.join].format(a=left, b=right)}"]
        self._tiles.append("tmp{i} = tmp{j} + tmp{k}" if step.join == "add" else "tmp{i} = tmp{j} * tmp{k}")
        return target

    def _expression(self, kind: str, value: str) -> str:
        constant = f"{self._constants.uniform(0.1, 3.0):.2f}"
        if kind in POINTWISE:
            torch, tile = POINTWISE[kind]
            self._tiles.append("tmp{i} = " + tile.replace("{t}", "tmp{j}").replace("{c}", constant))
            return torch.format(x=value, c=constant)
        layer, use = LIBRARY[self._program.domain][kind]
        attribute = ""
        if layer:
            attribute = f"{self._names.choice(_ATTRIBUTES)}{len(self._layers)}"
            self._layers.append((attribute, layer.format(**self._sizes)))
        self._flush()
        self._calls.append(f"buf{{i}} = extern_kernels.{kind}(buf{{j}}, {attribute or 'None'})")
        if layer:
            self._tiles.append(
                "tmp{i} = tmp{j} + tl.load(in_ptr1 + x0 % {n}, xmask, eviction_policy='evict_last')"
            )
        return use.format(x=value, l=f"self.{attribute}", **self._sizes)

    def _variable(self, suffix: str = "") -> str:
        return f"{self._names.choice(_VARIABLES)}{suffix}"

    def _flush(self) -> None:
        """Close the pointwise kernel that is being written, if one is."""
        if not self._tiles:
            return
        position = len(self._kernels)
        numel = self._sizes["m"] * self._sizes["n"] * self._sizes["k"] * self._sizes["h"]
        body = [
            line.format(i=index + 1, j=index, k=max(0, index - 1), n=self._sizes["n"])
            for index, line in enumerate(self._tiles)
        ]
        self._kernels.append(
            f"@triton.jit\ndef triton_poi_fused_{position}(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):"
            f"\n    xnumel = {numel}\n"
            "    xoffset = tl.program_id(0) * XBLOCK\n"
            "    xindex = xoffset + tl.arange(0, XBLOCK)[:]\n"
            "    xmask = xindex < xnumel\n    x0 = xindex\n"
            "    tmp0 = tl.load(in_ptr0 + x0, xmask)\n"
            + "".join(f"    {line}\n" for line in body)
            + f"    tl.store(out_ptr0 + x0, tmp{len(body)}, xmask)\n"
        )
        self._calls.append(
            f"buf{{i}} = empty_strided_cuda({self._shape()}, {self._strides()}, torch.float32)\n    "
            f"triton_poi_fused_{position}[grid({numel})](buf{{j}}, buf{{i}}, {numel}, XBLOCK=256)"
        )
        self._tiles = []

    def _shape(self) -> str:
        return SHAPES[self._program.domain].format(**self._sizes).replace("[", "(").replace("]", ")")

    def _strides(self) -> str:
        sizes = [int(part) for part in self._shape()[1:-1].split(",")]
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0] * size)
        return f"({', '.join(map(str, strides))})"

    def _reference(
        self, entry: str, first: str, last: str, layers: list[tuple[str, str]], lines: list[str]
    ) -> str:
        remark = f'    """{self._remarks.choice(_WORDS)} {self._remarks.randrange(10_000)}."""\n\n'
        made = "".join(f"        self.{name} = {layer}\n" for name, layer in layers)
        noted = [
            f"        # step {index}\n" if self._remarks.random() < 0.2 else "" for index in range(len(lines))
        ]
        body = "".join(f"{note}        {line}\n" for note, line in zip(noted, lines, strict=True))
        shape = SHAPES[self._program.domain].format(**self._sizes)
        return (
            "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
            f"class {entry}(nn.Module):\n{remark if self._remarks.random() < 0.7 else ''}"
            f"    def __init__(self):\n        super().__init__()\n{made}\n"
            f"    def forward(self, {first}):\n{body}        return {last}\n\n\n"
            f"def get_inputs():\n    return [torch.rand({shape})]\n\n\n"
            "def get_init_inputs():\n    return [[], {}]\n"
        )

    def _kernel(self, entry: str, layers: list[tuple[str, str]]) -> str:
        calls = "".join(f"    {line.format(i=i + 1, j=i)}\n" for i, line in enumerate(self._calls))
        made = "".join(f"        self.{name} = {layer}\n" for name, layer in layers)
        weights = ", ".join(f"self.{name}.weight" for name, _ in layers)
        return (
            "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"
            "from torch._inductor.runtime import triton_helpers\n"
            "from torch._inductor.runtime.triton_heuristics import grid\n"
            "from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math\n"
            "assert_size_stride = torch._C._dynamo.guards.assert_size_stride\n"
            "empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda\n\n\n"
            + "\n\n".join(self._kernels)
            + f"\n\ndef call(args):\n    buf0, *weights = args\n    args.clear()\n"
            f"    assert_size_stride(buf0, {self._shape()}, {self._strides()})\n"
            f"{calls}    return buf{len(self._calls)},\n\n\n"
            f"class {entry}New(nn.Module):\n    def __init__(self):\n        super().__init__()\n{made}\n"
            f"    def forward(self, input_0):\n        return call([input_0, {weights}])[0]\n"
        )
