"""Shares of operators in drawn problems, and the operators that training never shows."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

from kernel_core.generator.draw.convolutions import CONVOLUTIONS
from kernel_core.generator.draw.forms import forms
from kernel_core.generator.draw.singles import layer_names
from kernel_core.generator.operators import BUILDERS, pointwise
from kernel_core.problems.splits import Split, hashed_split
from kernel_core.records import sha256_text

CORE = frozenset(
    {
        "add", "sub", "mul", "true_divide", "div", "square", "sqrt", "exp", "log", "abs", "neg",
        "maximum", "where", "relu", "gelu", "sigmoid", "silu", "tanh", "sum", "mean", "amax", "max",
        "softmax", "layer_norm", "rms_norm", "batch_norm", "group_norm", "linear", "matmul", "conv1d",
        "conv2d", "conv3d", "transpose", "permute", "cat", "clamp", "embedding", "mse_loss",
        "cross_entropy", "max_pool2d", "avg_pool2d", "cumsum", "rsqrt", "pow", "elu", "softplus",
        "hardswish", "hardshrink", "sign", "var", "any", "lerp", "leaky_relu", "mish", "selu",
    }
)  # fmt: skip
"""Operators that no draw can do without."""
SHARES = {
    "layer": 12, "convolution": 24, "product": 13, "reduction": 11, "arithmetic": 8, "pointwise": 8,
    "layout": 5, "indexing": 6, "loss": 6, "pooling": 6, "resampling": 3, "norm": 5, "softmax": 4, "scan": 4,
    "order": 2, "comparison": 2, "attention": 1, "bits": 1,
}  # fmt: skip
"""Weights of single operators by kind.

Programs call layout, arithmetic and layers most (`benchmarks/operator_calls.py`), but kernels of layout and
arithmetic differ by one line. Kinds with a schedule of their own get more than their share of calls.
Kernels of convolutions are the longest, and a model needs most examples of them.
"""
MOST_USED = frozenset(
    {
        "Linear", "transpose", "unsqueeze", "reshape", "cat", "sum", "LayerNorm", "expand", "permute",
        "matmul", "squeeze", "flatten", "split", "Embedding", "softmax", "stack", "Conv2d", "clamp",
        "where", "mean", "norm", "repeat", "max", "sigmoid", "pad", "sin", "cos", "interpolate",
        "masked_fill", "repeat_interleave", "all", "Conv1d", "exp", "gather", "pow", "cumsum", "topk",
        "linear", "rsqrt", "argmax", "log", "chunk", "prod", "einsum", "any", "unbind", "min", "div", "sub",
        "tanh", "BatchNorm2d", "add", "one_hot", "abs",
    }
)  # fmt: skip
"""Operators that transformers 5.23 calls most, without casts: `python benchmarks/operator_calls.py`."""
HELD_OUT_PERCENT = 22
"""Share of names outside `CORE`; about 12 % of drawn problems have such an operator."""
_SHORTEST_SPLIT_CHAIN = 3
_MOST_FORMS, _LAYER_FORMS, _SEVERAL_FORMS = 20, 8, 3


@functools.cache
def operator_families() -> dict[str, tuple[str, ...]]:
    """Names of operators by the kind that is their family; layers with parameters are `layer`."""
    kinds: dict[str, list[str]] = {}
    for name, of_name in forms().items():
        kinds.setdefault(of_name[0].family, []).append(name)
    kinds["convolution"] += CONVOLUTIONS
    return {kind: tuple(names) for kind, names in kinds.items()} | {"layer": layer_names()}


def single(rng: random.Random, kinds: Sequence[str], split: Split) -> tuple[str, str]:
    """Draw a kind by `SHARES`, and an operator of it that the split may show."""
    families = operator_families()
    wants_held = split == "held_out"
    names = {
        kind: [name for name in families[kind] if (canonical(name) in held_out_operators()) == wants_held]
        for kind in kinds
    }
    names = {kind: listed for kind, listed in names.items() if listed} or {
        kind: [*families[kind]] for kind in kinds
    }
    kind = rng.choices([*names], [SHARES[kind] for kind in names])[0]
    return kind, rng.choices(names[kind], [_weight(name) for name in names[kind]])[0]


@functools.cache
def _weight(name: str) -> int:
    """Return the weight of an operator in its kind: its forms, threefold for those of `CORE` and `MOST_USED`.

    A form with a drawn axis, or with tensors that broadcast, counts as several. A layer of convolution,
    whose options are drawn, has more forms than any function.
    """
    others = _MOST_FORMS if name in CONVOLUTIONS else _LAYER_FORMS
    count = sum(_SEVERAL_FORMS if form.varies else 1 for form in forms().get(name, ())) or others
    return min(count, _MOST_FORMS) * (3 if name in CORE | MOST_USED else 1)


@functools.cache
def canonical(name: str) -> str:
    """The table's name of an operator: all spellings of one operator are held out together."""
    if name in BUILDERS:
        return next(other for other, builder in BUILDERS.items() if builder is BUILDERS[name])
    entry = pointwise().get(name)
    return name if entry is None else entry.name


@functools.cache
def held_out_operators() -> frozenset[str]:
    """Operators that training never shows, by a hash of their names."""
    names = {canonical(name) for name in forms()} - CORE
    return frozenset(
        name for name in names if int(sha256_text(f"operator {name}")[:8], 16) % 100 < HELD_OUT_PERCENT
    )


def split_of(family: str, operators: Sequence[str]) -> Split:
    """The split of a problem, by its operators alone."""
    if any(canonical(name) in held_out_operators() for name in operators):
        return "held_out"
    if len(operators) < _SHORTEST_SPLIT_CHAIN:
        return "train"
    return hashed_split(">".join((family, *operators)))
