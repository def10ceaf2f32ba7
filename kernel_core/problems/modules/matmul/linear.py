"""A linear layer and what a problem with one has in common: names, sizes, module."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.steps import Step, joined, listed, operators
from kernel_core.problems.modules.style import draw_style, with_named_steps
from kernel_core.problems.program import Size, draw_cpu_size

_NAMES = (
    ("in_features", "out_features"),
    ("in_features", "out_features"),
    ("input_size", "hidden_size"),
    ("input_size", "output_size"),
    ("input_dim", "output_dim"),
)
_ATTRIBUTES = ("linear", "linear", "gemm", "matmul", "fc", "proj", "dense")
_BATCHES = (256, 512, 768, 1000, 1024, 1536, 2048, 4096)
_IN = (1024, 1536, 2048, 3000, 3072, 4096, 5120)
_OUT = (1024, 2048, 3072, 4096, 5000, 6144, 8192, 10000, 12288)
_FEWEST, _MOST = 4e9, 2e11
_WITH_BIAS = 0.65
"""Share of layers with a bias."""


@dataclass(frozen=True)
class Linear:
    """The product that a chain begins with."""

    inputs: str
    outputs: str
    """Names of both sizes, and of the constructor's arguments."""
    init_lines: tuple[str, ...]
    torch: str
    """The line of `forward`."""
    sizes: tuple[Size, ...]


def draw_linear(rng: random.Random, out: Size | None = None) -> Linear:
    """A layer, with or without bias, or a parameter that the input is multiplied with.

    `out` gives the sizes of the output, where something else divides them.
    """
    inputs, outputs = rng.choice(_NAMES)
    while True:
        batch, k, n = rng.choice(_BATCHES), rng.choice(_IN), out.gpu if out else rng.choice(_OUT)
        if _FEWEST <= batch * k * n <= _MOST:
            break
    few_columns = (1030, 1200) if not out and rng.random() < 0.3 else (35, 90)
    columns = out.cpu if out else draw_cpu_size(rng, *few_columns)
    sizes = (
        Size("batch_size", batch, draw_cpu_size(rng, 5, 11)),
        Size(inputs, k, draw_cpu_size(rng, 18, 30)),
        Size(outputs, n, columns),
    )
    name = rng.choice(_ATTRIBUTES)
    if rng.random() < 0.12:
        line = rng.choice(
            ("x = torch.matmul(x, self.weight.T)", "x = x @ self.weight.t()", "x = F.linear(x, self.weight)")
        )
        drawn = f"self.weight = nn.Parameter(torch.randn({outputs}, {inputs}) * {inputs} ** -0.5)"
        return Linear(inputs, outputs, (drawn,), line, sizes)
    bias = "" if rng.random() < _WITH_BIAS else ", bias=False"
    layer = f"self.{name} = nn.Linear({inputs}, {outputs}{bias})"
    return Linear(inputs, outputs, (layer,), f"x = self.{name}(x)", sizes)


_NOTHING = Step("", ())


@dataclass(frozen=True)
class Tail:
    """The part behind a linear layer: steps, one operator over rows or columns, further steps."""

    before: tuple[Step, ...]
    core: Step = _NOTHING
    """The operator over rows or columns; without a name where all is elementwise."""
    after: tuple[Step, ...] = ()
    sizes: tuple[Size, ...] = ()
    kept: str = ""
    """A name of the layer's input, which is added at the end; empty where it is not."""

    @property
    def operators(self) -> tuple[str, ...]:
        """Torch's names in order, behind the linear layer."""
        end = ("add_input",) if self.kept else ()
        return (*operators((*self.before, self.core, *self.after)), *end)

    @property
    def words(self) -> list[str]:
        """The operators in a sentence."""
        core = replace(self.core, word=self.core.operator.replace("_", " "))
        steps = [step for step in (*self.before, core, *self.after) if step.operator]
        return [step.phrase for step in steps] + ["the layer's input added"] * bool(self.kept)


def linear_module(linear: Linear, tail: Tail, rng: random.Random) -> Module:
    """The reference: a linear layer and its tail."""
    chain = joined((tail.core, *tail.before, *tail.after))
    arguments = (linear.inputs, linear.outputs, *chain.init_args)
    words = listed(tail.words)
    docs = ("A linear layer, then {}.", "Linear layer followed by {}.", "GEMM with {} behind it.")
    draw = rng.choice(("torch.rand", "torch.randn"))
    widths = ("1" if name in chain.rows else linear.outputs for name in chain.inputs)
    copied = rng.choice(("x", "x.clone()", "x.clone().detach()"))
    lines = (
        *([f"{tail.kept} = {copied}"] if tail.kept else []),
        linear.torch,
        *joined((*tail.before, tail.core, *tail.after)).torch,
        *([f"x = x + {tail.kept}"] if tail.kept else []),
        "return x",
    )
    return Module(
        doc=rng.choice(docs).format(words),
        init_args=arguments,
        init_lines=(*linear.init_lines, *chain.init_lines),
        forward_args=("x", *chain.inputs),
        forward_lines=with_named_steps(lines, rng),
        sizes=(*linear.sizes, *tail.sizes),
        inputs=(
            f"{draw}(batch_size, {linear.inputs})",
            *(f"{draw}(batch_size, {width})" for width in widths),
        ),
        init_inputs=arguments,
        constants=chain.constants,
    )


def linear_draft(linear: Linear, tail: Tail, rng: random.Random) -> Draft:
    """The problem of a linear layer and its tail."""
    module = linear_module(linear, tail, rng)
    return module.draft(("linear", *tail.operators), draw_style(rng))
