"""Kernels that fail, each in the way of one typical fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest

from kernel_core.problems.ops import UNARY
from kernel_core.problems.program import Program, differs
from kernel_core.problems.render import fused_source, kernel_imports, reference_source
from kernel_core.problems.steps import Step

_ROW_COUPLED = {
    *("softmax", "log_softmax", "layer_norm", "group_norm", "instance_norm", "rms_norm", "cumsum"),
    *("sum", "mean", "amax", "amin"),
}


_NEED_PADDING = ("missing_mask", "wrong_count")
"""Faults that do no harm where a row fills its tile."""


@dataclass(frozen=True)
class Mistake:
    """A wrong kernel, the fault in it, and the operations its plan claims."""

    fault: str
    source: str
    words: str


def draw_mistakes(program: Program, rng: random.Random, count: int) -> list[Mistake]:
    """So many mistakes with different faults; about half compute the wrong thing, half do not work."""
    meaning, text = rng.sample(_MEANING, len(_MEANING)), rng.sample(_TEXT, len(_TEXT))
    order = [make for pair in zip_longest(meaning, text) for make in pair if make is not None]
    by_fault: dict[str, Mistake] = {}
    for make in order:
        mistake = make(program, rng)
        if mistake is not None:
            by_fault.setdefault(mistake.fault, mistake)
        if len(by_fault) == count:
            break
    return list(by_fault.values())


Maker = Callable[[Program, random.Random], "Mistake | None"]


def _dropped(program: Program, rng: random.Random) -> Mistake | None:
    bent = [position for position, step in enumerate(program.steps) if step.must_change]
    for position in rng.sample(bent, len(bent)):
        steps = program.steps[:position] + program.steps[position + 1 :]
        wrong = _with_steps(program, steps, position)
        if steps and differs(program, wrong):
            return Mistake("dropped_op", fused_source(wrong), wrong.words)
    return None


def _with_steps(program: Program, steps: tuple[Step, ...], removed: int) -> Program:
    at = program.reduced_at
    return replace(program, steps=steps, reduced_at=at - 1 if at is not None and removed < at else at)


def _swapped(program: Program, rng: random.Random) -> Mistake | None:
    steps = program.steps
    pairs = [
        position for position in range(len(steps) - 1) if program.reduced_at not in (position, position + 1)
    ]
    for position in rng.sample(pairs, len(pairs)):
        swapped = (*steps[:position], steps[position + 1], steps[position], *steps[position + 2 :])
        wrong = replace(program, steps=swapped)
        if differs(program, wrong):
            return Mistake("wrong_order", fused_source(wrong), wrong.words)
    return None


def _rival(program: Program, rng: random.Random) -> Mistake | None:
    options = [(at, rival) for at, step in enumerate(program.steps) for rival in step.rivals]
    for position, rival in rng.sample(options, len(options)):
        fault, step = rival(rng)
        if fault in _NEED_PADDING and not program.padded:
            continue
        wrong = replace(program, steps=(*program.steps[:position], step, *program.steps[position + 1 :]))
        if differs(program, wrong):
            return Mistake(fault, fused_source(wrong), wrong.words)
    return None


def _rowwise_rival(program: Program, rng: random.Random) -> Mistake | None:
    """A mistake in what makes the family: a reduction, a norm, a second tensor."""
    steps = tuple(replace(step, rivals=()) if step.kind in UNARY else step for step in program.steps)
    return _rival(replace(program, steps=steps), rng)


def _opening_rival(program: Program, rng: random.Random) -> Mistake | None:
    if not program.opening.rivals:
        return None
    fault, tile = rng.choice(program.opening.rivals)
    return Mistake(fault, fused_source(program, opening_tile=tile), program.words)


def _wrong_axis(program: Program, rng: random.Random) -> Mistake | None:
    if program.opening.kind != "load" or not _ROW_COUPLED.intersection(program.kinds):
        return None
    return _edited(program, "wrong_axis", "i = row * cols + j", "i = j * tl.num_programs(0) + row")


def _first_block_lost(program: Program, rng: random.Random) -> Mistake | None:
    if program.frame.layout == "flat":
        return _edited(program, "off_by_one", "i = tl.program_id(0) *", "i = (tl.program_id(0) + 1) *")
    if program.frame.layout == "rows":
        return _edited(program, "off_by_one", "kernel[(rows,)]", "kernel[(rows - 1,)]")
    return _edited(program, "off_by_one", "range(0, inner, BLOCK)", "range(BLOCK, inner, BLOCK)")


def _bad_block(program: Program, rng: random.Random) -> Mistake | None:
    if program.frame.layout == "rows":
        if not program.padded:
            return None
        return _edited(program, "bad_block", "BLOCK=triton.next_power_of_2(cols)", "BLOCK=cols")
    block = program.frame.blocks[1]
    return _edited(program, "bad_block", f"BLOCK={block}", f"BLOCK={block - block // 8}")


def _unknown_function(program: Program, rng: random.Random) -> Mistake | None:
    source = fused_source(program)
    present = [(right, wrong) for right, wrong in _UNKNOWN_FUNCTIONS if right in source]
    return _edited(program, "unknown_function", *rng.choice(present))


_SYNTAX_ERRORS = (
    ("class ModelNew(nn.Module):", "class ModelNew(nn.Module)"),
    ("tl.program_id(0)", "tl.program_id(0"),
    ("        out = ", "       out = "),
)
_UNKNOWN_FUNCTIONS = (
    ("tl.sigmoid(", "tl.logistic("),
    ("tl.maximum(", "tl.relu("),
    ("tl.exp(", "tl.expf("),
    ("tl.sum(", "tl.add_all("),
    ("tl.store(", "tl.save("),
    ("tl.load(", "tl.read("),
    ("tl.abs(", "tl.fabs("),
)


def _in_half_precision(allocation: str) -> tuple[str, str]:
    return allocation, f"{allocation[:-1]}, dtype=torch.float16)"


def _torch_decoy(program: Program, rng: random.Random) -> Mistake:
    """The kernel is there, but PyTorch does the work."""
    source, reference = fused_source(program), reference_source(program)
    kernel = source[source.index("\n\n@triton.jit") : source.index("class ModelNew")]
    model = reference[
        reference.index("class Model(") : reference.index("\n\n\n", reference.index("class Model("))
    ]
    model = model.replace("class Model(", "class ModelNew(")
    return Mistake("torch_decoy", f"{kernel_imports(model.splitlines())}{kernel}{model}\n", program.words)


def _edit(fault: str, replaced: Callable[[Program, random.Random], tuple[str, str]]) -> Maker:
    """The mistake of a kernel's text with one part replaced by another."""
    return lambda program, rng: _edited(program, fault, *replaced(program, rng))


def _edited(program: Program, fault: str, right: str, wrong: str) -> Mistake | None:
    source = fused_source(program)
    return Mistake(fault, source.replace(right, wrong, 1), program.words) if right in source else None


_MEANING: tuple[Maker, ...] = (
    _dropped,
    _swapped,
    _rival,
    _rowwise_rival,
    _opening_rival,
    _wrong_axis,
    _first_block_lost,
)
_TEXT: tuple[Maker, ...] = (
    _edit("undefined_name", lambda _, rng: ("    mask = ", f"    {rng.choice(('valid', 'keep', 'm'))} = ")),
    _edit("missing_constexpr", lambda _, rng: ("BLOCK: tl.constexpr", "BLOCK")),
    _bad_block,
    _edit("missing_allocation", lambda program, _: (f"        out = {program.frame.allocation}\n", "")),
    _edit("missing_return", lambda _, rng: ("        return out\n", "")),
    _edit("syntax_error", lambda _, rng: rng.choice(_SYNTAX_ERRORS)),
    _unknown_function,
    _edit("wrong_dtype", lambda program, _: _in_half_precision(program.frame.allocation)),
    _torch_decoy,
)
