"""Endless problems of the suite `graphs` from a seed, each with the kernel that the generator writes for it.

A longer draw begins with the shorter one. A problem is kept if the table covers all of it, and if its results
at small sizes are finite and differ. Operators of `held_out_operators` occur in no problem of training;
the others' longer compositions are split by a hash of their operators.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_flatten

from kernel_core.errors import ConfigError
from kernel_core.generator.draw.chains import CHAINS
from kernel_core.generator.draw.choice import operator_families, single, split_of
from kernel_core.generator.draw.convolutions import CONVOLUTIONS, single_convolution
from kernel_core.generator.draw.habits import draw_habits
from kernel_core.generator.draw.networks import NETWORKS, WEIGHTS
from kernel_core.generator.draw.singles import single_layer, single_operator
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.text import source_of
from kernel_core.generator.graded import taught_answers, with_mistake, worker_processes
from kernel_core.generator.read import Unreadable, load_module, model_and_inputs
from kernel_core.problems.evaluation_sizes import has_evaluation_sizes
from kernel_core.problems.graded import Generated, identity_of
from kernel_core.problems.source import resize
from kernel_core.problems.splits import Split
from kernel_core.records import Problem

LEVELS = {"operators": 0.45, "chains": 0.33, "networks": 0.22}
"""Shares of the levels where no setting changes them."""
_MOST_DRAWS = 200
_LEAST_SHARED, _CHUNK = 64, 16
"""Problems from which processes share a draw, and that one takes at once."""
_MOST_REPEATED = 8
_FEW_VALUES, _DRAWS = 2, 6
_WITHOUT_HALF = (
    "convolution", "product", "norm", "layer", "loss", "attention", "indexing", "scan", "pooling", "bits",
    "resampling",
)  # fmt: skip
"""Kinds of operators that are drawn in float32 alone."""


@dataclass(frozen=True)
class Draft:
    """A drawn problem before its kernel is written."""

    family: str
    operators: tuple[str, ...]
    problem: Problem


@functools.cache
def families() -> tuple[str, ...]:
    """All families: kinds of operators, of chains and of networks."""
    return (*operator_families(), *CHAINS, *NETWORKS)


def generate_graphs(
    split: Split,
    count: int,
    seed: int,
    wanted: Sequence[str] = (),
    levels: Mapping[str, float] = LEVELS,
    processes: int = 1,
) -> list[Generated]:
    """`count` problems of a split, all different; `wanted` narrows the families.

    A problem takes some 40 ms of one core; `processes` share the draw and do not change it. Raises
    `ConfigError` where the families have too few problems in the split.
    """
    kept: dict[str, Generated] = {}
    draw = functools.partial(_numbered, split, seed, tuple(wanted), dict(levels or LEVELS))
    with ExitStack() as stack:
        run: Callable[[Iterable[int]], Iterable[Generated]] = functools.partial(map, draw)
        if processes > 1 and count >= _LEAST_SHARED:
            workers = stack.enter_context(worker_processes(processes))
            run = functools.partial(workers.map, draw, chunksize=_CHUNK)
        number = 0
        while len(kept) < count:
            wanting = count - len(kept)
            before = len(kept)
            for made in run(range(number, number + wanting)):
                kept.setdefault(made.problem.sha256, made)
            number += wanting
            if len(kept) == before and wanting >= min(count, _MOST_REPEATED):
                raise ConfigError(
                    f"the families {', '.join(wanted) or 'of graphs'} gave {before} problems of "
                    f"split {split}, not {count}; ask for fewer, or for more families"
                )
    return list(kept.values())


def _numbered(
    split: Split, seed: int, wanted: tuple[str, ...], levels: Mapping[str, float], number: int
) -> Generated:
    """A problem of a split with its kernels. Raises `ConfigError` where the families have none in it."""
    for attempt in range(_MOST_DRAWS):
        rng = random.Random(f"graphs {split} {seed} {number} {attempt}")
        draft = drawn(rng, wanted, levels, split)
        if draft is None or split_of(draft.family, draft.operators) != split:
            continue
        made = answered(draft, split, rng)
        if made is not None:
            return made
    raise ConfigError(
        f"{_MOST_DRAWS} draws gave no problem of split {split} from {', '.join(wanted) or 'all families'}; "
        "ask for other families"
    )


def drawn(
    rng: random.Random,
    wanted: Sequence[str] = (),
    levels: Mapping[str, float] = LEVELS,
    split: Split = "train",
) -> Draft | None:
    """One problem, or None for sizes of an evaluation problem."""
    family, sketch, results = sketched(rng, wanted, levels, split)
    written = source_of(sketch, results)
    problem = Problem(
        **identity_of("graphs", family, written.source), suite="graphs", family=family,
        tags=(split, *dict.fromkeys(sketch.operators)), constants=written.constants,
        cpu_constants=written.cpu_constants,
    )  # fmt: skip
    if has_evaluation_sizes(problem.constants.values()):
        return None
    return Draft(family, tuple(sketch.operators), problem)


def sketched(
    rng: random.Random, wanted: Sequence[str], levels: Mapping[str, float], split: Split
) -> tuple[str, Sketch, list[Tensor]]:
    """Draw a family and a module of it, before its text is written."""
    family, grammar = _grammar(rng, wanted, levels, split)
    habits = draw_habits(rng)
    if family in _WITHOUT_HALF or family in NETWORKS or family in CHAINS:
        habits = replace(habits, dtype="float32")
    if family in (*CHAINS, "convolution") and habits.settings == "inline" and rng.random() < 0.65:
        habits = replace(habits, settings=rng.choice(("argument", "argument", "default")))
    sketch = Sketch(rng, habits)
    return family, sketch, grammar(sketch)


def _grammar(
    rng: random.Random, wanted: Sequence[str], levels: Mapping[str, float], split: Split
) -> tuple[str, Callable[[Sketch], list[Tensor]]]:
    """Return a family and what draws a problem of it; `choice.SHARES` choose a single operator."""
    kinds = operator_families()
    groups: dict[str, list[str]] = {"operators": [*kinds], "chains": [*CHAINS], "networks": [*NETWORKS]}
    open_groups = {
        level: [name for name in names if not wanted or name in wanted] for level, names in groups.items()
    }
    choices = [
        level for level, names in open_groups.items() if names and (wanted or levels.get(level, 0.0) > 0)
    ]
    if not choices:
        raise ConfigError(
            f"graphs has no family of {', '.join(wanted)}; its families: {', '.join(families())}"
        )
    level = rng.choices(choices, [levels.get(level, 0.0) or 0.1 for level in choices])[0]
    if level != "operators":
        names = open_groups[level]
        family = rng.choices(names, [WEIGHTS.get(name, 1) for name in names])[0]
        return family, (CHAINS | NETWORKS)[family]
    family, name = single(rng, open_groups[level], split)
    if name in CONVOLUTIONS:
        return family, lambda sketch: single_convolution(sketch, name)
    if family == "layer":
        return family, lambda sketch: single_layer(sketch, name)
    return family, lambda sketch: single_operator(sketch, name)


def answered(draft: Draft, split: Split, rng: random.Random) -> Generated | None:
    """The problem with its kernel and mistakes; None where something stays with PyTorch or is not finite."""
    if not is_sound(draft.problem):
        return None
    try:
        written, *_ = taught_answers(draft.problem, on_meta=True)
    except Unreadable:
        return None
    if written.reasons:
        return None
    return Generated(problem=draft.problem, kernels=with_mistake(written, rng))


def is_sound(problem: Problem) -> bool:
    """True where the reference runs at small sizes with finite results that are not all the same.

    A result of one or two values has to differ between some draws of the inputs.
    """
    try:
        module = load_module(resize(problem, problem.cpu_constants))
        model, inputs = model_and_inputs(module)
        with torch.no_grad():
            first = tree_flatten(model(*inputs))[0]
            if not first or not all(map(_varies, first)):
                return False
            few = [at for at, result in enumerate(first) if result.numel() <= _FEW_VALUES]
            seeds = range(1, _DRAWS) if few else ()
            others = [tree_flatten(model(*_inputs(module, seed)))[0] for seed in seeds]
    except Exception:  # a form that torch refuses in this spelling
        return False
    return all(any(not torch.equal(first[at], other[at]) for other in others) for at in few)


def _inputs(module: ModuleType, seed: int) -> list[Any]:
    torch.manual_seed(seed)
    return list(module.get_inputs())


def _varies(result: object) -> bool:
    if not isinstance(result, torch.Tensor) or result.numel() == 0:
        return False
    values = result.double()
    if result.dtype.is_floating_point and not bool(values.isfinite().all()) and bool(values.isnan().any()):
        return False
    spread = bool((values != values.flatten()[0]).any()) or result.numel() <= _FEW_VALUES
    return spread and float(values[values.isfinite()].abs().max() if values.isfinite().any() else 0) < 1e6
