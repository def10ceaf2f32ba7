"""Reductions, softmax, norms, and losses, each written with pointwise operators and reductions."""

from __future__ import annotations

from typing import Any

import torch

from kernel_core.generator.build import (
    add,
    as_float,
    cast,
    count,
    div,
    mean,
    mul,
    point,
    reduce,
    reshape,
    sub,
)  # fmt: skip
from kernel_core.generator.ir import Unsupported, Value
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.sizes import Number, product


def _typed(x: Value, dtype: torch.dtype | None) -> Value:
    return x if dtype is None else cast(x, dtype)


operator("sum")(
    lambda x, dim=None, keepdim=False, *, dtype=None: reduce(_typed(x, dtype), "sum", dim, keepdim)
)
operator("mean")(lambda x, dim=None, keepdim=False, *, dtype=None: mean(_typed(x, dtype), dim, keepdim))
operator("prod")(
    lambda x, dim=None, keepdim=False, *, dtype=None: reduce(_typed(x, dtype), "prod", dim, keepdim)
)
operator("nansum")(
    lambda x, dim=None, keepdim=False: reduce(point("where", point("isnan", x), 0.0, x), "sum", dim, keepdim)
)
operator("amax")(lambda x, dim=(), keepdim=False: reduce(x, "amax", dim, keepdim))
operator("amin")(lambda x, dim=(), keepdim=False: reduce(x, "amin", dim, keepdim))
operator("aminmax")(
    lambda x, *, dim=None, keepdim=False: tuple(reduce(x, kind, dim, keepdim) for kind in ("amin", "amax"))
)


def _extreme(kind: str, pair: str) -> Any:
    def build(x: Value, dim: Any = None, keepdim: bool = False, other: Any = None) -> Any:
        if other is not None or isinstance(dim, Value):
            return point(pair, x, dim if other is None else other)
        if dim is None:
            return reduce(x, f"a{kind}")
        return reduce(x, f"a{kind}", dim, keepdim), reduce(x, f"arg{kind}", dim, keepdim)

    return build


operator("max")(_extreme("max", "maximum"))
operator("min")(_extreme("min", "minimum"))
operator("argmax")(lambda x, dim=None, keepdim=False: _arg(x, "argmax", dim, keepdim))
operator("argmin")(lambda x, dim=None, keepdim=False: _arg(x, "argmin", dim, keepdim))


def _arg(x: Value, kind: str, dim: Any, keepdim: bool) -> Value:
    if dim is None:
        flat = reduce(reshape(x, (product(x.shape),)), kind, 0)
        return reshape(flat, (1,) * x.rank) if keepdim else flat
    return reduce(x, kind, dim, keepdim)


operator("any")(lambda x, dim=None, keepdim=False: reduce(point("ne", x, 0), "any", dim, keepdim))
operator("all")(lambda x, dim=None, keepdim=False: reduce(point("ne", x, 0), "all", dim, keepdim))
operator("count_nonzero")(lambda x, dim=None: reduce(cast(point("ne", x, 0), torch.int64), "sum", dim))


def _moments(
    x: Value, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *, correction: Any = None
) -> tuple[Value, Value]:
    """Variance and mean."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 0 if unbiased is False else 1
    center = mean(x, dim, True)
    squares = reduce(point("square", sub(x, center)), "sum", dim, keepdim)
    below = count(x, dim) - correction if correction else count(x, dim)
    return div(squares, below), (center if keepdim else mean(x, dim, False))


def _std_mean(*given: Any, **how: Any) -> tuple[Value, Value]:
    variance, center = _moments(*given, **how)
    return point("sqrt", variance), center


operator("var_mean")(_moments)
operator("std_mean")(_std_mean)
operator("var")(lambda *given, **how: _moments(*given, **how)[0])
operator("std")(lambda *given, **how: _std_mean(*given, **how)[0])


@operator("logsumexp")
def _logsumexp(x: Value, dim: Any, keepdim: bool = False) -> Value:
    x = as_float(x)
    top = reduce(x, "amax", dim, True)
    total = reduce(point("exp", sub(x, top)), "sum", dim, keepdim)
    return add(point("log", total), reshape(top, total.shape))


def _shifted(x: Value, dim: Any, dtype: Any) -> tuple[Value, int]:
    """Elements minus the maximum, with the axis."""
    if dim is None:
        dim = 0 if x.rank in (0, 1, 3) else 1
    x = _typed(x, dtype)
    return sub(x, reduce(x, "amax", dim, True)), dim


@operator("softmax")
def softmax(x: Value, dim: Any = None, dtype: Any = None, _stacklevel: int = 3) -> Value:
    """Shifted by the maximum."""
    shifted, dim = _shifted(x, dim, dtype)
    raised = point("exp", shifted)
    return div(raised, reduce(raised, "sum", dim, True))


operator("softmin")(
    lambda x, dim=None, dtype=None, _stacklevel=3: softmax(point("neg", _typed(x, dtype)), dim)
)


@operator("log_softmax")
def log_softmax(x: Value, dim: Any = None, dtype: Any = None, _stacklevel: int = 3) -> Value:
    """Shifted by the maximum."""
    shifted, dim = _shifted(x, dim, dtype)
    return sub(shifted, point("log", reduce(point("exp", shifted), "sum", dim, True)))


@operator("norm", "vector_norm", "linalg_vector_norm", "linalg_norm")
def norm(
    x: Value, ord: Any = None, dim: Any = None, keepdim: bool = False, *, p: Any = None, dtype: Any = None
) -> Value:
    """A p-norm of the elements; the Frobenius norm is that of two."""
    power = 2 if (ord, p) in ((None, None), (None, "fro"), ("fro", None)) else ord if p is None else p
    if isinstance(power, str):
        raise Unsupported(f"norm {power}")
    x = as_float(_typed(x, dtype))
    if power == 2:
        return point("sqrt", reduce(point("square", x), "sum", dim, keepdim))
    size = point("abs", x)
    if power == 1:
        return reduce(size, "sum", dim, keepdim)
    if power in (float("inf"), float("-inf")):
        return reduce(size, "amax" if power > 0 else "amin", dim, keepdim)
    if power == 0:
        return reduce(cast(point("ne", x, 0), x.dtype), "sum", dim, keepdim)
    return point(
        "power", reduce(point("power", size, float(power)), "sum", dim, keepdim), Number(1.0, "1.0") / power
    )


operator("normalize")(
    lambda x, p=2.0, dim=1, eps=1e-12, out=None: div(x, point("maximum", norm(x, p, dim, True), eps))
)


@operator("cosine_similarity")
def _cosine_similarity(x1: Value, x2: Value, dim: int = 1, eps: float = 1e-8) -> Value:
    dot = reduce(mul(x1, x2), "sum", dim)
    lengths = [point("maximum", norm(x, 2, dim), eps) for x in (x1, x2)]
    return div(dot, mul(*lengths))


@operator("pairwise_distance")
def pairwise_distance(
    x1: Value, x2: Value, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Value:
    """A p-norm of the difference of rows."""
    return norm(add(sub(x1, x2), eps), p, -1, keepdim)


def _standard(x: Value, dims: tuple[int, ...], eps: Any) -> Value:
    center = sub(x, mean(x, dims, True))
    variance = mean(point("square", center), dims, True)
    return mul(center, point("rsqrt", add(variance, eps)))


def _affine(x: Value, weight: Value | None, bias: Value | None) -> Value:
    x = x if weight is None else mul(x, weight)
    return x if bias is None else add(x, bias)


@operator("layer_norm")
def _layer_norm(
    x: Value, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5
) -> Value:
    dims = tuple(range(x.rank - len(normalized_shape), x.rank))
    return _affine(_standard(x, dims, eps), weight, bias)


@operator("rms_norm")
def _rms_norm(x: Value, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Value:
    dims = tuple(range(x.rank - len(normalized_shape), x.rank))
    eps = Number(torch.finfo(x.dtype).eps, f"torch.finfo({x.dtype}).eps") if eps is None else eps
    scale = point("rsqrt", add(mean(point("square", x), dims, True), eps))
    return _affine(mul(x, scale), weight, None)


def _per_channel(v: Value | None, x: Value) -> Value | None:
    return v if v is None else reshape(v, [v.shape[0], *([1] * (x.rank - 2))])


@operator("group_norm")
def _group_norm(x: Value, num_groups: int, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Value:
    n, c, *space = x.shape
    grouped = reshape(x, [n, num_groups, c // num_groups, *space])
    result = _standard(grouped, tuple(range(2, grouped.rank)), eps)
    per_group = [
        None if v is None else reshape(v, [num_groups, c // num_groups, *([1] * len(space))])
        for v in (weight, bias)
    ]
    return reshape(_affine(result, *per_group), x.shape)


@operator("instance_norm")
def _instance_norm(
    x: Value, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: Any = 1e-5,
) -> Value:  # fmt: skip
    if not use_input_stats or x.rank < 3:
        raise Unsupported("instance_norm with kept statistics")
    result = _standard(x, tuple(range(2, x.rank)), eps)
    return _affine(result, _per_channel(weight, x), _per_channel(bias, x))


@operator("batch_norm")
def _batch_norm(
    x: Value, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: Any = 0.1, eps: Any = 1e-5,
) -> Value:  # fmt: skip
    if training:
        result = _standard(x, (0, *range(2, x.rank)), eps)
    else:
        scale = point("rsqrt", add(running_var, eps))
        result = mul(sub(x, _per_channel(running_mean, x)), _per_channel(scale, x))
    return _affine(result, _per_channel(weight, x), _per_channel(bias, x))


@operator("local_response_norm")
def _local_response_norm(x: Value, size: int, alpha: Any = 1e-4, beta: Any = 0.75, k: Any = 1.0) -> Value:
    raise Unsupported("local_response_norm")
