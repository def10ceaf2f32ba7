"""Families of exactly one activation, as a layer, as a function, or written out by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.graded import Grade, GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.matmul.activation_forms import FORMULAS, Form, configured, plain_form
from kernel_core.problems.modules.matmul.flat import flat_kernel, flat_launch
from kernel_core.problems.modules.matmul.shapes import Shape, draw_shape
from kernel_core.problems.modules.matmul.steps import broken
from kernel_core.problems.modules.matmul.wording import draw_names, renamed
from kernel_core.problems.modules.style import draw_style

_LAUNCHES: tuple[tuple[Grade, int, int], ...] = (("naive", 256, 4), ("fused", 1024, 4), ("tuned", 4096, 8))
_DOCS = (
    "Applies {name} to every element.",
    "Elementwise {name} of a tensor of any shape.",
    "One elementwise operator: {name}.",
    "Computes the {name} of its input.",
)


@dataclass(frozen=True)
class _Drawn:
    form: Form
    shape: Shape
    kernel: str
    names: dict[str, str]


def activation(rng: random.Random) -> Draft:
    """One activation as torch's layer or function, over a tensor of one to four dimensions."""
    form = configured(rng) if rng.random() < 0.3 else plain_form(rng)
    return _draft("activation", form, rng)


def activation_formula(rng: random.Random) -> Draft:
    """One activation that `forward` writes out with simpler operators."""
    return _draft("activation_formula", rng.choice(FORMULAS), rng)


def _draft(family: str, form: Form, rng: random.Random) -> Draft:
    shape, style = draw_shape(rng), draw_style(rng)
    step = form.step
    uniform = rng.random() < 0.5 and broken([step], rng, uniform=True) is not None
    module = Module(
        doc=rng.choice(_DOCS).format(name=form.title),
        init_args=step.init_args,
        init_lines=step.init_lines,
        forward_args=("x",),
        forward_lines=form.forward,
        sizes=shape.sizes,
        inputs=(f"torch.{'rand' if uniform else 'randn'}({shape.dims})",),
        init_inputs=tuple(name for name, _ in step.constants),
        constants=step.constants,
    )
    kernel = rng.choice((f"{step.operator}_kernel", f"{step.operator}_kernel", "elementwise_kernel"))
    drawn = _Drawn(form, shape, kernel, draw_names(rng))
    kernels = [_kernel(module, drawn, grade, block, warps, rng) for grade, block, warps in _LAUNCHES]
    return Draft(
        family=family,
        operators=(step.operator,),
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=(*kernels, _mistake(module, drawn)),
    )


def _source(module: Module, drawn: _Drawn, block: int, warps: int, *, wrong: bool = False) -> str:
    step = drawn.form.wrong_step if wrong else drawn.form.step
    host = ["x = x.contiguous()", *flat_launch(drawn.kernel, [step], block, warps=warps), "return out"]
    functions = [renamed(flat_kernel(drawn.kernel, [step]), drawn.names)]
    return kernel_source(module, functions, [renamed(line, drawn.names) for line in host])


def _kernel(
    module: Module, drawn: _Drawn, grade: Grade, block: int, warps: int, rng: random.Random
) -> GradedKernel:
    return GradedKernel(
        grade=grade,
        source=_source(module, drawn, block, warps),
        thinking=_thinking(drawn, block, rng),
    )


def _mistake(module: Module, drawn: _Drawn) -> GradedKernel:
    return GradedKernel(
        grade="mistake",
        fault="wrong_op",
        source=_source(module, drawn, 1024, 4, wrong=True),
        thinking=f"One flat kernel reads each element once and applies {drawn.form.title}.",
    )


def _thinking(drawn: _Drawn, block: int, rng: random.Random) -> str:
    first = rng.choice(
        (
            f"Every element is read once and written once, so memory traffic decides the time of this "
            f"{drawn.form.title}.",
            f"{drawn.form.title} needs no neighbouring element, so the tensor is one flat array "
            "whatever its shape.",
            f"{drawn.form.title} is bound by memory: 4 bytes in and 4 bytes out for each element.",
        )
    )
    second = f"One program takes {block} elements and a mask covers the last block."
    third = rng.choice(
        (
            "Offsets are 64-bit, so large tensors are safe.",
            "The block's start is computed in 64 bits because a flat index may pass 2^31.",
        )
    )
    text = " ".join(part for part in (first, second, third, drawn.form.remark) if part)
    return text[0].upper() + text[1:]
