"""A formula over views, reduced along the axis or scaled by what the axis holds."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.indexing import kernels
from kernel_core.problems.modules.indexing.draws import (
    DrawProgram,
    Ending,
    Launch,
    Program,
    draw_program,
    formulas_of,
    output_shape,
    problem,
)
from kernel_core.problems.modules.indexing.mapped import row_launch

_ROW = "A program takes one row: it walks over it in blocks with a running value for each lane."
_COLUMN = "Positions lie `inner` apart, so a program takes a block of neighbouring columns and steps along j."
_AGAIN = " A second walk makes the values anew and writes them, so nothing is stored in between."


@dataclass(frozen=True)
class _Kind:
    """What happens along the axis."""

    name: str
    running: str
    """A name of `kernels.RUNNING`, or `online` for exponentials under their maximum."""
    texts: tuple[str, ...]
    """Spellings over `{v}` and `{d}`; `{k}` is `, keepdim=True` or nothing."""
    ending: tuple[str, ...] = ()
    """Lines that make `value` the result at its position; none where one number is left."""


_KINDS = (
    _Kind("sum", "sum", ("torch.sum({v}, dim={d}{k})", "({v}).sum(dim={d}{k})")),
    _Kind("mean", "mean", ("torch.mean({v}, dim={d}{k})", "({v}).mean(dim={d}{k})")),
    _Kind("max", "amax",
          ("torch.amax({v}, dim={d}{k})", "torch.max({v}, dim={d}{k}).values", "({v}).amax({d}{k})")),
    _Kind("min", "amin", ("torch.amin({v}, dim={d}{k})", "torch.min({v}, dim={d}{k})[0]")),
    _Kind("norm", "norm", ("torch.norm({v}, dim={d}{k})", "({v}).norm(dim={d}{k})")),
    _Kind("logsumexp", "online", ("torch.logsumexp({v}, dim={d}{k})",)),
    _Kind("softmax", "online", ("torch.softmax({v}, dim={d})", "F.softmax({v}, dim={d})"),
          ("value = tl.exp(value - m_i) / s_i",)),
    _Kind("log_softmax", "online", ("torch.log_softmax({v}, dim={d})", "F.log_softmax({v}, dim={d})"),
          ("value = value - m_i - tl.log(s_i)",)),
    _Kind("center", "mean", ("{v} - ({v}).mean(dim={d}, keepdim=True)",), ("value = value - total",)),
    _Kind("normalize", "norm", ("{v} / (({v}).norm(dim={d}, keepdim=True) + 1e-6)",),
          ("value = value / (total + 1e-6)",)),
)  # fmt: skip


def axis_reduced(rng: random.Random, draw: DrawProgram = draw_program, family: str = "axis_reduced") -> Draft:
    """A formula over views with a reduction or a normalisation along the axis."""
    kind = rng.choice(_KINDS)
    program = draw(rng)
    while "softmax" in kind.name and "table" in program.operators:
        program = draw(rng)  # a softmax of scores under a table is a family held out whole
    reading = program.reading
    axis, length = reading.axis, reading.geometry.length
    formula = formulas_of(program, 1, rng)[0]
    value = formula.result
    lines: tuple[str, ...] = ()
    text = rng.choice(kind.texts)
    if text.count("{v}") > 1 or (not value.isidentifier() and rng.random() < 0.5):
        lines, value = (f"value = {value}",), "value"
    keep = rng.random() < 0.5
    result = text.format(v=value, d=axis.dim, k=", keepdim=True" if keep else "")
    result = result.replace(f"({value}).", f"{value}.") if value.isidentifier() else result
    shape = output_shape(program, length if kind.ending else "1" if keep else "")
    again = _AGAIN if kind.ending else ""
    if axis.last:
        answers = _row_answers(program, formula.triton, kind, again)
    else:
        answers = _column_answers(program, formula.triton, kind, again)
    said = kind.name.replace("_", " ")
    doc = f"Takes the {said} of a formula along one dimension."
    ending = Ending((kind.name,), result, shape, doc, answers, lines)
    return problem(rng, family, program, [formula], ending)


def _row_answers(program: Program, body: tuple[str, ...], kind: _Kind, again: str) -> list[Launch]:
    reading, length = program.reading, program.reading.geometry.length
    text = kernels.reduced_rows("reduced_kernel", reading, body, kind.running, kind.ending)
    fixed = kernels.call(reading, (), text)
    count = f"out.numel() // {length}" if kind.ending else "out.numel()"
    wide = row_launch("reduced_kernel", fixed, length, count)
    narrow = (f"reduced_kernel[({count},)]({fixed}, BLOCK=256)",)
    return [("naive", text, narrow, _ROW + again), ("fused", text, wide, _ROW + again)]


def _column_answers(program: Program, body: tuple[str, ...], kind: _Kind, again: str) -> list[Launch]:
    reading, length = program.reading, program.reading.geometry.length
    text = kernels.reduced_columns("reduced_kernel", reading, body, kind.running, kind.ending)
    fixed = kernels.call(reading, ("columns",), text)
    count = f"columns = out.numel() // {length}" if kind.ending else "columns = out.numel()"
    narrow, wide = (
        f"reduced_kernel[(triton.cdiv(columns, {block}),)]({fixed}, BLOCK={block})" for block in (64, 256)
    )
    return [
        ("naive", text, (count, narrow), _COLUMN + again),
        ("fused", text, (count, wide), _COLUMN + again),
    ]
