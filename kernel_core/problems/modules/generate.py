"""Endless problems of the suite `modules` from a seed.

A longer draw begins with the shorter one. The split is a function of family and operators alone: a reserved
family is held out whole; within the others, tuples of operators are hashed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from kernel_core.errors import ConfigError
from kernel_core.problems.evaluation_sizes import has_evaluation_sizes
from kernel_core.problems.graded import Generated, identity_of
from kernel_core.problems.modules import convolution, indexing, matmul, reduction
from kernel_core.problems.modules.draft import Draft, Draw
from kernel_core.problems.renaming import with_drawn_names
from kernel_core.problems.source import parse_problem
from kernel_core.problems.splits import Split, hashed_split
from kernel_core.records import Problem

FAMILIES: dict[str, Draw] = {
    **matmul.FAMILIES,
    **convolution.FAMILIES,
    **reduction.FAMILIES,
    **indexing.FAMILIES,
}
RESERVED = frozenset({"embedding_bag", "gated", "masked_softmax", "rotary", "row_gather"})
"""Families that are held out as a whole: operators that training never shows."""
SHORT = frozenset(
    {
        *("activation", "activation_formula", "scalar_product"),
        *("matmul", "matmul_transposed", "matmul_large_k"),
        *("matmul_triangular", "batched_matmul", "heads_matmul", "tensor_matmul", "matrix_vector"),
        *("diagonal_matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d"),
        *("conv_transpose3d", "conv_depthwise", "conv_pointwise", "conv_depthwise_separable", "reduce_dim"),
        *("arg_extreme", "logsumexp", "softmax_row", "softmax_dim", "scan", "vector_norm", "frobenius_norm"),
        *("batch_norm", "window_pool", "global_pool", "adaptive_pool", "pair_loss", "row_loss", "embedding"),
    }
)
"""Families with problems for training alone: none has `_SHORTEST_SPLIT_CHAIN` operators."""
_MOST_DRAWS = 300
_SHORTEST_SPLIT_CHAIN = 3
"""Problems with fewer operators are never held out by their operators: there are too few of them."""


def generate_modules(split: Split, count: int, seed: int, families: Sequence[str] = ()) -> Iterator[Problem]:
    """Yield `count` problems of a split, all different; `families` narrows the choice.

    Raises `ConfigError` when no family asked for has problems in the split, or too few.
    """
    names = [name for name in FAMILIES if not families or name in families]
    names = [name for name in names if name not in RESERVED or split == "held_out"]
    if not names:
        raise ConfigError(
            f"no family of {', '.join(families)} is in split {split}; its families: {', '.join(FAMILIES)}"
        )
    seen: set[str] = set()
    barren = set() if split == "train" else set(SHORT.intersection(names))
    order = random.Random(f"modules {split} {seed}")
    while len(seen) < count:
        for name in order.sample(names, len(names)):
            if len(seen) == count:
                return
            if name in barren:
                continue
            draft = _fresh(name, split, random.Random(f"modules {split} {seed} {len(seen)} {name}"), seen)
            if draft is None:
                barren.add(name)
                continue
            seen.add(draft.reference)
            problem = _problem(name, draft, split)
            yield with_drawn_names(Generated(problem=problem)).problem if split == "train" else problem
        if len(barren) == len(names):
            raise ConfigError(
                f"the families {', '.join(names)} gave {len(seen)} problems of split {split}, not {count}; "
                "ask for fewer, or for more families"
            )


def split_of(family: str, draft: Draft) -> Split:
    """The split of a problem: by its family if reserved, else by a hash of its operators."""
    if family in RESERVED:
        return "held_out"
    if len(draft.operators) < _SHORTEST_SPLIT_CHAIN:
        return "train"
    return hashed_split(">".join((family, *draft.operators)))


def _fresh(family: str, split: Split, rng: random.Random, seen: set[str]) -> Draft | None:
    for _ in range(_MOST_DRAWS):
        draft = FAMILIES[family](rng)
        if split_of(family, draft) == split and draft.reference not in seen and not _is_for_evaluation(draft):
            return draft
    return None


def _is_for_evaluation(draft: Draft) -> bool:
    """True if its sizes, alone or with its other named numbers, are an evaluation problem's."""
    sizes = [size.gpu for size in draft.sizes]
    constants = parse_problem(draft.reference, id="modules/drawn", suite="modules").constants
    return has_evaluation_sizes(sizes) or has_evaluation_sizes(constants.values())


def _problem(family: str, draft: Draft, split: Split) -> Problem:
    return Problem(
        **identity_of("modules", family, draft.reference),
        suite="modules",
        family=family,
        tags=(split, *dict.fromkeys(draft.operators)),
        constants={size.name: size.gpu for size in draft.sizes},
        cpu_constants={size.name: size.cpu for size in draft.sizes},
    )
