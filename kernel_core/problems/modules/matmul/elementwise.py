"""Families of elementwise chains over any rank: further inputs, parameters of channels, a number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.problems.graded import Grade, GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.matmul import chains, operations
from kernel_core.problems.modules.matmul.flat import COLUMNS, Layout, flat_kernel, flat_launch
from kernel_core.problems.modules.matmul.probe import worth_computing
from kernel_core.problems.modules.matmul.shapes import draw_shape
from kernel_core.problems.modules.matmul.steps import Step, broken, operators, values
from kernel_core.problems.modules.matmul.wording import draw_names, listed, renamed
from kernel_core.problems.modules.style import Style, draw_style
from kernel_core.problems.program import Size, draw_cpu_size

_CHANNELS = Layout("offs // inner % channels", (("channels", "x.shape[1]"), ("inner", "x[0, 0].numel()")))
_KERNEL_NAMES = ("fused_kernel", "elementwise_kernel", "pointwise_kernel")


@dataclass(frozen=True)
class Flat:
    """A drawn problem that one flat kernel answers."""

    family: str
    module: Module
    style: Style
    steps: tuple[Step, ...]
    layout: Layout = COLUMNS
    first: str = "x"
    """The name of the first input in `forward`."""
    why: str = ""
    """A sentence on what is particular about the layout."""


def elementwise_chain(rng: random.Random) -> Draft:
    """Two to four elementwise operators in a row."""
    steps = chains.draw_chain(rng, rng.randint(2, 4), "", set(), vectors=False)
    return flat_draft(_over_any_rank("elementwise_chain", steps, rng), rng)


def tensor_pair(rng: random.Random) -> Draft:
    """Two or three inputs of one shape, combined, with an activation before or after."""
    while True:
        taken: set[str] = set()
        steps = [operations.second_input(rng, taken)]
        if rng.random() < 0.7:
            steps.insert(rng.randint(0, 1), operations.activation(rng, taken))
        if rng.random() < 0.3:
            steps.append(operations.second_input(rng, taken))
        elif rng.random() < 0.4:
            steps.append(operations.number(rng, taken))
        if broken(steps, rng) is not None and worth_computing(values(steps)):
            return flat_draft(_over_any_rank("tensor_pair", steps, rng), rng)


def channel_parameter(rng: random.Random) -> Draft:
    """A bias or scale with one value a channel, of shape (C, 1, 1), and up to two further operators."""
    rank = rng.choice((3, 4, 4, 5))
    sizes = _feature_map(rng, rank)
    length = ("1, " if rng.random() < 0.3 else "") + "channels" + ", 1" * (rank - 2)
    why = "A flat offset over the size of a channel, modulo the number of channels, finds the parameter."
    return _with_vector("channel_parameter", length, sizes, _CHANNELS, why, rng)


def feature_parameter(rng: random.Random) -> Draft:
    """A bias or scale with one value for each entry of the last dimension, and up to two operators more."""
    sizes = draw_shape(rng, rng.choice((2, 2, 3)), huge=False).sizes
    why = "The flat offset modulo the last dimension finds the parameter."
    return _with_vector("feature_parameter", sizes[-1].name, sizes, COLUMNS, why, rng)


def _with_vector(
    family: str, length: str, sizes: tuple[Size, ...], layout: Layout, why: str, rng: random.Random
) -> Draft:
    while True:
        taken = {size.name for size in sizes}
        steps = [operations.vector(rng, taken, length)]
        for _ in range(rng.randint(0, 2)):
            make = rng.choice((operations.activation, operations.activation, operations.number))
            steps.insert(rng.randint(0, len(steps)), make(rng, taken))
        if rng.random() < 0.25:
            steps.append(operations.vector(rng, taken, length))
        if broken(steps, rng) is not None and worth_computing(values(steps)):
            break
    by_size = any(step.vectors and not step.init_args for step in steps)
    leading = (length.replace("1, ", "").split(",")[0],) if by_size else ()
    drawn = _draws(steps, sizes, rng)
    module = _module(steps, sizes, drawn, rng, leading)
    return flat_draft(Flat(family, module, draw_style(rng), tuple(steps), layout, why=why), rng)


def scalar_product(rng: random.Random) -> Draft:
    """A matrix and a number, which `forward` takes."""
    name = rng.choice(("s", "scale", "alpha", "value"))
    kind, sign, wrong = rng.choice(
        (("mul", "*", "+"), ("mul", "*", "-"), ("add", "+", "*"), ("div", "/", "*"))
    )
    step = Step(
        kind, (f"x = x {sign} {name}",), (f"x = x {sign} {name}",), (f"x = x {wrong} {name}",),
        scalars=((name, name, 2.5),), word={"mul": "product", "add": "sum", "div": "quotient"}[kind],
    )  # fmt: skip
    shape = draw_shape(rng, rng.choice((2, 2, 2, 3)))
    first = rng.choice(("A", "x", "matrix"))
    random_values = rng.choice(("torch.randn", "torch.rand"))
    module = Module(
        doc=rng.choice(("A tensor combined with one number.", "Arithmetic of a matrix and a scalar.")),
        init_args=(),
        init_lines=(),
        forward_args=(first, name),
        forward_lines=(f"return {first} {sign} {name}",),
        sizes=shape.sizes,
        inputs=(f"{random_values}({shape.dims})", rng.choice(("2.5", "0.35", "1.7", "4.2"))),
        init_inputs=(),
    )
    style = replace(draw_style(rng), annotations=False)
    return flat_draft(Flat("scalar_product", module, style, (step,), first=first), rng)


def _feature_map(rng: random.Random, rank: int) -> tuple[Size, ...]:
    spatial = {
        3: (("length", (512, 1000, 4096, 8000)),),
        4: (("height", (56, 64, 112, 128, 200)), ("width", (56, 64, 112, 128, 200))),
        5: (("depth", (8, 16, 20)), ("height", (32, 56, 64)), ("width", (32, 56, 64))),
    }[rank]
    return (
        Size("batch_size", rng.choice((16, 32, 64)), rng.randint(2, 3)),
        Size("channels", rng.choice((16, 32, 48, 64, 96)), draw_cpu_size(rng, 3, 7)),
        *(Size(name, rng.choice(choices), draw_cpu_size(rng, 3, 7)) for name, choices in spatial),
    )


def _over_any_rank(family: str, steps: Sequence[Step], rng: random.Random) -> Flat:
    shape = draw_shape(rng)
    drawn = _draws(steps, shape.sizes, rng)
    return Flat(family, _module(steps, shape.sizes, drawn, rng), draw_style(rng), tuple(steps))


def _draws(steps: Sequence[Step], sizes: tuple[Size, ...], rng: random.Random) -> str:
    uniform = rng.random() < 0.4 and broken(steps, rng, uniform=True) is not None
    uniform = uniform and worth_computing(values(steps, uniform=True))
    return f"torch.{'rand' if uniform else 'randn'}({', '.join(size.name for size in sizes)})"


def _module(
    steps: Sequence[Step],
    sizes: tuple[Size, ...],
    drawn: str,
    rng: random.Random,
    leading: tuple[str, ...] = (),
) -> Module:
    further = chains.further_inputs(steps)
    words = listed([step.said for step in steps if step.operator])
    arguments = (*leading, *chains.init_args(steps))
    return Module(
        doc=rng.choice(("Elementwise: {}.", "Applies {} to a tensor.", "A chain of {}.")).format(words),
        init_args=arguments,
        init_lines=chains.init_lines(steps),
        forward_args=("x", *further),
        forward_lines=(*chains.torch_lines(steps), "return x"),
        sizes=sizes,
        inputs=(drawn,) * (1 + len(further)),
        init_inputs=arguments,
        constants=chains.constants(steps),
    )


def flat_draft(flat: Flat, rng: random.Random) -> Draft:
    """The problem and its kernels: one launch, and for chains a naive one with two."""
    name, names = rng.choice(_KERNEL_NAMES), draw_names(rng)
    steps = list(flat.steps)
    uniform = "torch.rand(" in flat.module.inputs[0]
    fault = broken(steps, rng, uniform=uniform) or (
        "wrong_op",
        [replace(steps[0], tile=steps[0].wrong), *steps[1:]],
    )
    kernels = [
        _kernel(flat, "fused", _source(flat, name, [steps], 1024, 4, names), rng),
        _kernel(flat, "tuned", _source(flat, name, [steps], 4096, 8, names), rng),
    ]
    parts = [steps[:1], steps[1:]] if _separable(steps) else [steps]
    kernels.insert(0, _kernel(flat, "naive", _source(flat, name, parts, 256, 4, names), rng))
    mistake = _kernel(flat, "mistake", _source(flat, name, [fault[1]], 1024, 4, names), rng, fault[0])
    return Draft(
        family=flat.family,
        operators=operators(steps),
        reference=reference_source(flat.module, flat.style),
        sizes=draft_sizes(flat.module, flat.style),
        kernels=(*kernels, mistake),
    )


def _separable(steps: Sequence[Step]) -> bool:
    return len(steps) > 1 and all(step.operator for step in steps)


def _source(
    flat: Flat, name: str, parts: Sequence[Sequence[Step]], block: int, warps: int, names: dict[str, str]
) -> str:
    functions: list[str] = []
    host = [f"x = {flat.first}.contiguous()"]
    for number, steps in enumerate(parts):
        one = name if len(parts) == 1 else f"{('first', 'second')[number]}_{name}"
        functions.append(renamed(flat_kernel(one, steps, flat.layout), names))
        host += [f"{other} = {other}.contiguous()" for step in steps for other in step.inputs]
        host += [
            renamed(line, names) for line in flat_launch(one, steps, block, warps=warps, layout=flat.layout)
        ]
        if number < len(parts) - 1:
            host.append(renamed("x = out", names))
    return kernel_source(flat.module, functions, [*host, renamed("return out", names)])


def _kernel(flat: Flat, grade: Grade, source: str, rng: random.Random, fault: str = "") -> GradedKernel:
    return GradedKernel(grade=grade, fault=fault, source=source, thinking=_thinking(flat, grade, rng))


def _thinking(flat: Flat, grade: Grade, rng: random.Random) -> str:
    words = listed([step.said for step in flat.steps if step.operator])
    if grade == "naive" and _separable(flat.steps):
        first = f"Two flat kernels: the first does {flat.steps[0].said}, the second does the rest."
    elif len(flat.steps) == 1:
        first = f"The {words} needs one value at a time, so memory traffic decides."
    else:
        first = rng.choice(
            (
                f"In torch {words} are a pass over memory each; one kernel keeps the value in registers.",
                f"One kernel does {words}, so the tensor is read once and written once.",
            )
        )
    last = rng.choice(
        (
            "The tensor is one flat array, split into blocks with 64-bit offsets.",
            "Each program takes one block of the flattened tensor; a mask covers the end.",
        )
    )
    return " ".join(part for part in (first, flat.why, last) if part)
