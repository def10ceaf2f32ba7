"""Endless problems from a seed, each with kernels of graded quality.

The source of cold-start data and of RL problems. Everything is a pure function of the arguments, and a
longer draw begins with the shorter one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from kernel_core.errors import ConfigError
from kernel_core.problems import render
from kernel_core.problems.families import RESERVED, TRAINED
from kernel_core.problems.graded import Generated, GradedKernel, identity_of
from kernel_core.problems.mistakes import draw_mistakes
from kernel_core.problems.program import Program, worth_computing
from kernel_core.problems.splits import Split, split_of
from kernel_core.records import Problem

__all__ = ["FAMILIES", "Split", "generate"]

FAMILIES: tuple[str, ...] = (*TRAINED, *RESERVED)
MISTAKES_PER_PROBLEM = 4
_MOST_DRAWS = 20_000
_LAZY_PLAN = "{}.\nPyTorch for all but the last op, one launch for that."
RESERVED_FAMILY_WEIGHT = 3
"""In the held-out split a reserved family comes so many times as often as another."""


def generate(split: Split, count: int, seed: int, families: Sequence[str] = ()) -> list[Generated]:
    """`count` problems of a split, all different; `families` narrows the choice.

    Raises `ConfigError` when no family asked for has problems in the split.
    """
    names = _families_of(split, families)
    return [_generated(program, split) for program in _programs(split, count, seed, names)]


def _families_of(split: Split, families: Sequence[str]) -> list[str]:
    reserved = list(RESERVED) * RESERVED_FAMILY_WEIGHT if split == "held_out" else []
    names = [name for name in (*TRAINED, *reserved) if not families or name in families]
    if not names:
        raise ConfigError(
            f"no family of {', '.join(families)} is in split {split}; its families: {', '.join(TRAINED)}"
        )
    return names


def _programs(split: Split, count: int, seed: int, names: list[str]) -> Iterator[Program]:
    seen: set[str] = set()
    order = random.Random(f"order {split} {seed}")
    while len(seen) < count:
        for name in order.sample(names, len(names)):
            if len(seen) == count:
                return
            yield _fresh_program(name, split, random.Random(f"{split} {seed} {len(seen)}"), seen)


def _fresh_program(family: str, split: Split, rng: random.Random, seen: set[str]) -> Program:
    draw = TRAINED.get(family) or RESERVED[family]
    for _ in range(_MOST_DRAWS):
        program = draw(rng)
        if split_of(program) != split or not worth_computing(program):
            continue
        key = _key(program)
        if key not in seen:
            seen.add(key)
            return program
    raise ConfigError(
        f"family {family} gave nothing new for split {split} in {_MOST_DRAWS} draws; ask for fewer problems"
    )


def _key(program: Program) -> str:
    """The reference with its names numbered and without its sizes: equal for the same computation."""
    names = [program.v, *(argument.name for argument in program.arguments)]
    names += [name for size in program.sizes for name in (size.name, size.name.lower())]
    number = {name: f"@{position}" for position, name in enumerate(dict.fromkeys(names))}
    lines = [*program.opening.torch, *(line for step in program.steps for line in step.torch)]
    shapes = [
        f"{argument.name}({', '.join(argument.dims)}){argument.parameter:d}" for argument in program.arguments
    ]
    return re.sub(
        r"\b[A-Za-z_]\w*\b", lambda match: number.get(match[0], match[0]), "\n".join(shapes + lines)
    )


def _generated(program: Program, split: Split) -> Generated:
    problem = Problem(
        **identity_of("generated", program.family, render.reference_source(program)),
        suite="generated",
        family=program.family,
        tags=(split, *dict.fromkeys(program.kinds)),
        constants={size.name: size.gpu for size in program.sizes},
        cpu_constants={size.name: size.cpu for size in program.sizes},
    )
    return Generated(problem=problem, kernels=tuple(_kernels(program, random.Random(problem.sha256))))


def _kernels(program: Program, rng: random.Random) -> Iterator[GradedKernel]:
    yield GradedKernel(grade="naive", source=render.naive_source(program), thinking=_naive_plan(program))
    fused, source = _plan(program.words, program), render.fused_source(program)
    yield GradedKernel(grade="fused", source=source, thinking=fused)
    tuned = _plan(program.words, program, tuned=True)
    yield GradedKernel(grade="tuned", source=render.fused_source(program, tuned=True), thinking=tuned)
    for mistake in draw_mistakes(program, rng, MISTAKES_PER_PROBLEM):
        thinking = _plan(mistake.words, program)
        yield GradedKernel(grade="mistake", fault=mistake.fault, source=mistake.source, thinking=thinking)
    lazy = render.lazy_source(program)
    if lazy is not None:
        yield GradedKernel(grade="lazy", source=lazy, thinking=_LAZY_PLAN.format(program.words))


def _naive_plan(program: Program) -> str:
    launches = render.launches_of_naive(program)
    return f"{program.words}.\nOne launch per op: {launches} launches, OP picks the op."


def _plan(words: str, program: Program, *, tuned: bool = False) -> str:
    frame = program.frame
    block = frame.blocks[2 if tuned else 1]
    where = {
        "flat": f"flat blocks of {block}",
        "rows": "one program per row",
        "tiles": f"{block}x{block} tiles",
    }[frame.layout]
    warps = f", {frame.tuned_warps} warps" if tuned and frame.tuned_warps != 4 else ""
    return f"{words}.\nFuse all in one launch: {where}, masked{warps}."
