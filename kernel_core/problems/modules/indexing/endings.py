"""Endings of formulas over views: one value a position, two side by side, or a reduction of the axis."""

from __future__ import annotations

import random
from collections.abc import Callable

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.indexing.draws import Program, formulas_of, problem

DrawProgram = Callable[[random.Random], Program]

_DOCS = (
    "Combines pieces of a tensor along one dimension.", "Elementwise operations on views of the input.",
    "Mixes positions of one dimension.", "A formula over several views of its input.",
)  # fmt: skip
_REDUCTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("sum", ("torch.sum({v}, dim={d}{k})", "({v}).sum(dim={d}{k})")),
    ("mean", ("torch.mean({v}, dim={d}{k})", "({v}).mean(dim={d}{k})")),
    ("max", ("torch.amax({v}, dim={d}{k})", "torch.max({v}, dim={d}{k}).values", "({v}).amax({d}{k})")),
    ("min", ("torch.amin({v}, dim={d}{k})", "torch.min({v}, dim={d}{k})[0]")),
    ("norm", ("torch.norm({v}, dim={d}{k})", "({v}).norm(dim={d}{k})")),
    ("logsumexp", ("torch.logsumexp({v}, dim={d}{k})",)),
    ("softmax", ("torch.softmax({v}, dim={d})", "F.softmax({v}, dim={d})")),
    ("log_softmax", ("torch.log_softmax({v}, dim={d})", "F.log_softmax({v}, dim={d})")),
    ("center", ("{v} - ({v}).mean(dim={d}, keepdim=True)",)),
    ("normalize", ("{v} / (({v}).norm(dim={d}, keepdim=True) + 1e-6)",)),
)
"""Names, and spellings over a value and a dimension; `{k}` is `, keepdim=True` or nothing."""


def mapped(rng: random.Random, draw: DrawProgram) -> Draft:
    """A formula over views, one result for each position."""
    program = draw(rng)
    formula = formulas_of(program, 1, rng)[0]
    return problem(rng, program, [formula], result=formula.result, doc=rng.choice(_DOCS))


def joined(rng: random.Random, draw: DrawProgram) -> Draft:
    """Two formulas over the same views, joined by `cat` or `stack`."""
    program = draw(rng)
    while len(program.names) < 2:
        program = draw(rng)
    axis = program.axis
    formulas = formulas_of(program, 2, rng)
    both = ", ".join(formula.result for formula in formulas)
    if rng.random() < 0.35:
        word, dim = "stack", rng.choice((-1, axis.rank))
    else:
        word, dim = "cat", axis.dim
    doc = f"Two formulas over views of the input, {'stacked' if word == 'stack' else 'joined'}."
    result = f"torch.{word}(({both}), dim={dim})"
    return problem(rng, program, formulas, result=result, doc=doc, operators=(word,))


def reduced(rng: random.Random, draw: DrawProgram) -> Draft:
    """A formula over views with a reduction or a normalisation along the axis."""
    name, spellings = rng.choice(_REDUCTIONS)
    program = draw(rng)
    while "softmax" in name and "table" in program.operators:
        program = draw(rng)  # a softmax of scores under a table is a family held out whole
    formula = formulas_of(program, 1, rng)[0]
    value = formula.result
    lines: tuple[str, ...] = ()
    text = rng.choice(spellings)
    if text.count("{v}") > 1 or (not value.isidentifier() and rng.random() < 0.5):
        lines, value = (f"value = {value}",), "value"
    keep = rng.random() < 0.5
    result = text.format(v=value, d=program.axis.dim, k=", keepdim=True" if keep else "")
    result = result.replace(f"({value}).", f"{value}.") if value.isidentifier() else result
    doc = f"Takes the {name.replace('_', ' ')} of a formula along one dimension."
    return problem(rng, program, [formula], result=result, doc=doc, operators=(name,), last_lines=lines)
