"""Matrix products, convolutions, pooling, scans, attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernel_core.generator.build import (
    add,
    as_float,
    broadcast,
    cast,
    expand,
    iota,
    mul,
    permute,
    point,
    reduce,
    reshape,
    sub,
    unsqueeze,
)  # fmt: skip
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.names import unify
from kernel_core.generator.operators.layout import repeat_interleave, transpose
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.operators.reductions import softmax
from kernel_core.generator.sizes import product


def dot(a: Value, b: Value) -> Value:
    """Product over the last axis of `a` and the last but one of `b`; the first axes are broadcast."""
    if not a.dtype.is_floating_point or a.dtype is torch.float64 or a.dtype != b.dtype:
        raise Unsupported(f"a product of {a.dtype} and {b.dtype}")
    batch = broadcast([a.shape[:-2], b.shape[:-2]])
    unify(a.shape[-1], b.shape[-2])
    shape = [*batch, a.shape[-2], b.shape[-1]]
    for operand, other, axis in ((a, b, -2), (b, a, -1)):
        if operand.op == "full":  # such as the first state of a recurrent layer
            return expand(mul(reduce(other, "sum", axis, keepdim=True), operand.inputs[0]), shape)
    return make("dot", (a, b), shape, a.dtype)


@operator("matmul", "mm", "bmm")
def matmul(x: Value, other: Value, **_: Any) -> Value:
    """Products of all ranks; a vector is a reduction of products."""
    if x.rank == 1 and other.rank == 1:
        return reduce(mul(x, other), "sum")
    if other.rank == 1:
        return reduce(mul(x, other), "sum", -1)
    if x.rank == 1:
        return reduce(mul(unsqueeze(x, 1), other), "sum", -2)
    return dot(x, other)


operator("rmatmul")(lambda x, other: matmul(other, x))
operator("mv")(lambda x, vec: matmul(x, vec))


@operator("dot", "vdot", "inner")
def _dot(x: Value, other: Value) -> Value:
    if x.rank == 1 and other.rank == 1:
        return matmul(x, other)
    return matmul(x, transpose(other, -1, -2)) if other.rank <= 2 else _refuse("inner of higher ranks")


def _refuse(reason: str) -> Any:
    raise Unsupported(reason)


@operator("linear")
def _linear(input: Value, weight: Value, bias: Any = None) -> Value:
    value = matmul(input, permute(weight, (1, 0))) if weight.rank == 2 else matmul(input, weight)
    return value if bias is None else add(value, bias)


@operator("bilinear")
def _bilinear(input1: Value, input2: Value, weight: Value, bias: Any = None) -> Value:
    if input1.rank != 2:
        raise Unsupported("bilinear of higher ranks")
    o, i, j = weight.shape
    left = matmul(input1, reshape(permute(weight, (1, 0, 2)), [i, o * j]))
    value = reduce(mul(reshape(left, [input1.shape[0], o, j]), unsqueeze(input2, 1)), "sum", -1)
    return value if bias is None else add(value, bias)


def _added(x: Value, value: Value, beta: Any, alpha: Any) -> Value:
    value = value if alpha == 1 else mul(value, alpha)
    if beta == 0:
        return value
    return add(x if beta == 1 else mul(x, beta), value)


operator("addmm", "baddbmm")(
    lambda x, mat1, mat2, *, beta=1, alpha=1: _added(x, dot(mat1, mat2), beta, alpha)
)
operator("addmv")(lambda x, mat, vec, *, beta=1, alpha=1: _added(x, matmul(mat, vec), beta, alpha))
operator("addr")(
    lambda x, vec1, vec2, *, beta=1, alpha=1: _added(x, mul(unsqueeze(vec1, 1), vec2), beta, alpha)
)


@operator("addbmm")
def _addbmm(x: Value, batch1: Value, batch2: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    b, m, k = batch1.shape
    left = reshape(permute(batch1, (1, 0, 2)), [m, b * k])
    return _added(x, dot(left, reshape(batch2, [b * k, batch2.shape[-1]])), beta, alpha)


@operator("einsum")
def _einsum(equation: str, *operands: Any) -> Value:
    parts = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    left, _, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if "." in equation or not _ or len(parts) > 2 or any(len(set(term)) != len(term) for term in terms):
        raise Unsupported(f"einsum {equation}")
    if len(parts) == 1:
        summed = tuple(k for k, letter in enumerate(terms[0]) if letter not in right)
        kept = [letter for letter in terms[0] if letter in right]
        value = reduce(parts[0], "sum", summed) if summed else parts[0]
        return permute(value, [kept.index(letter) for letter in right])
    return _pair_sum(terms, right, parts)


def _pair_sum(terms: list[str], right: str, parts: Any) -> Value:
    sizes = {
        a: s for term, part in zip(terms, parts, strict=True) for a, s in zip(term, part.shape, strict=True)
    }
    for k, (term, other) in enumerate(((terms[0], terms[1]), (terms[1], terms[0]))):
        if any(letter not in other and letter not in right for letter in term):
            raise Unsupported(f"einsum with an axis that only {'ab'[k]} has")
    batch = [x for x in right if x in terms[0] and x in terms[1]]
    rows = [x for x in right if x in terms[0] and x not in terms[1]]
    cols = [x for x in right if x in terms[1] and x not in terms[0]]
    summed = [x for x in terms[0] if x not in right]
    a = permute(parts[0], [terms[0].index(x) for x in (*batch, *rows, *summed)])
    b = permute(parts[1], [terms[1].index(x) for x in (*batch, *summed, *cols)])
    m, n, k = (product(sizes[x] for x in group) for group in (rows, cols, summed))
    lead = [sizes[x] for x in batch]
    if not rows and not cols:  # a sum of products for each of the batch
        value = (
            reduce(mul(a, b), "sum", tuple(range(len(batch), len(batch) + len(summed))))
            if summed
            else mul(a, b)
        )
    elif not summed:
        value = mul(reshape(a, [*lead, m, 1]), reshape(b, [*lead, 1, n]))
    else:
        value = dot(reshape(a, [*lead, m, k]), reshape(b, [*lead, k, n]))
    order = [*batch, *rows, *cols]
    return permute(reshape(value, [sizes[x] for x in order]), [order.index(x) for x in right])


@operator("scaled_dot_product_attention")
def _attention(
    query: Value, key: Value, value: Value, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Any = None, enable_gqa: bool = False,
) -> Value:  # fmt: skip
    if float(dropout_p):
        raise Unsupported("dropout in attention")
    if enable_gqa and int(key.shape[-3]) != int(query.shape[-3]):
        key, value = (
            repeat_interleave(heads, query.shape[-3] // key.shape[-3], -3) for heads in (key, value)
        )
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = mul(dot(query, transpose(key, -1, -2)), factor)
    if is_causal:
        rows, cols = (iota(scores.shape[-2:], dim, torch.int64) for dim in (0, 1))
        scores = point("where", point("le", cols, rows), scores, float("-inf"))
    if attn_mask is not None:
        if attn_mask.dtype is torch.bool:
            scores = point("where", attn_mask, scores, float("-inf"))
        else:
            scores = add(scores, attn_mask)
    return dot(softmax(scores, -1), value)


def _scan(x: Value, kind: str, dim: int) -> Value:
    if x.rank == 0:
        return x
    return make("scan", (x,), x.shape, x.dtype, kind=kind, dim=x.axis(dim))


@operator("cumsum")
def cumsum(x: Value, dim: int, *, dtype: Any = None) -> Value:
    """Running sum."""
    x = x if dtype is None else cast(x, dtype)
    return _scan(x if x.dtype.is_floating_point else cast(x, torch.int64), "sum", dim)


@operator("cumprod")
def _cumprod(x: Value, dim: int, *, dtype: Any = None) -> Value:
    x = x if dtype is None else cast(x, dtype)
    return _scan(x if x.dtype.is_floating_point else cast(x, torch.int64), "prod", dim)


@operator("logcumsumexp")
def _logcumsumexp(x: Value, dim: int) -> Value:
    x = as_float(x)
    if x.rank == 0:
        return x
    return _scan(x, "logaddexp", dim)


@operator("cdist")
def _cdist(x1: Value, x2: Value, p: float = 2.0, compute_mode: Any = None) -> Value:
    apart = sub(unsqueeze(x1, -2), unsqueeze(x2, -3))
    if p == 1:
        return reduce(point("abs", apart), "sum", -1)
    if p != 2:
        raise Unsupported(f"cdist of p = {p}")
    return point("sqrt", reduce(point("square", apart), "sum", -1))
