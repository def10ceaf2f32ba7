"""Losses, from elements to their mean or sum."""

from __future__ import annotations

from typing import Any

from kernel_core.generator.build import add, count, div, mean, mul, point, reduce, reshape, sub, unsqueeze
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.operators.pointwise import operator
from kernel_core.generator.operators.reductions import log_softmax, pairwise_distance


def _reduced(values: Value, reduction: str) -> Value:
    if reduction == "none":
        return values
    return mean(values) if reduction == "mean" else reduce(values, "sum")


def _loss(
    values: Value, reduction: str = "mean", size_average: Any = None, reduce: Any = None, weight: Any = None
) -> Value:
    if size_average is not None or reduce is not None or weight is not None:
        raise Unsupported("size_average, reduce or weights of elements")
    return _reduced(values, reduction)


operator("mse_loss")(lambda input, target, **how: _loss(point("square", sub(input, target)), **how))
operator("l1_loss")(lambda input, target, **how: _loss(point("abs", sub(input, target)), **how))


@operator("smooth_l1_loss")
def _smooth_l1_loss(
    input: Value, target: Value, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    beta: Any = 1.0,
) -> Value:  # fmt: skip
    if float(beta) == 0.0:
        return _loss(point("abs", sub(input, target)), reduction)
    return _loss(point("smooth_", sub(input, target), beta), reduction, size_average, reduce)


operator("huber_loss")(
    lambda input, target, reduction="mean", delta=1.0, weight=None: _loss(
        point("huber_", sub(input, target), delta), reduction, weight=weight
    )
)


@operator("binary_cross_entropy")
def _binary_cross_entropy(input: Value, target: Value, weight: Any = None, **how: Any) -> Value:
    present = mul(target, point("maximum", point("log", input), -100.0))
    absent = mul(sub(1, target), point("maximum", point("log1p", point("neg", input)), -100.0))
    values = point("neg", add(present, absent))
    return _loss(values if weight is None else mul(values, weight), **how)


@operator("binary_cross_entropy_with_logits")
def _bce_logits(
    input: Value, target: Value, weight: Any = None, size_average: Any = None, reduce: Any = None,
    reduction: str = "mean", pos_weight: Any = None,
) -> Value:  # fmt: skip
    if pos_weight is None:
        values = sub(mul(sub(1, target), input), point("logsigmoid", input))
    else:
        factor = add(mul(sub(pos_weight, 1), target), 1)
        values = sub(mul(sub(1, target), input), mul(factor, point("logsigmoid", input)))
    return _loss(values if weight is None else mul(values, weight), reduction, size_average, reduce)


@operator("kl_div")
def _kl_div(
    input: Value, target: Value, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    log_target: bool = False,
) -> Value:  # fmt: skip
    if log_target:
        values = mul(point("exp", target), sub(target, input))
    else:
        values = sub(point("xlogy", target, target), mul(target, input))
    if reduction == "batchmean":
        return div(_loss(values, "sum", size_average, reduce), input.shape[0])
    return _loss(values, reduction, size_average, reduce)


operator("soft_margin_loss")(
    lambda input, target, **how: _loss(point("log1p", point("exp", mul(point("neg", target), input))), **how)
)


@operator("hinge_embedding_loss")
def _hinge_embedding_loss(input: Value, target: Value, margin: Any = 1.0, **how: Any) -> Value:
    apart = point("where", point("ne", target, 1), point("relu", sub(margin, input)), 0.0)
    return _loss(add(apart, point("where", point("ne", target, -1), input, 0.0)), **how)


@operator("margin_ranking_loss")
def _margin_ranking_loss(input1: Value, input2: Value, target: Value, margin: Any = 0, **how: Any) -> Value:
    return _loss(point("relu", add(mul(point("neg", target), sub(input1, input2)), margin)), **how)


@operator("poisson_nll_loss")
def _poisson_nll_loss(
    input: Value, target: Value, log_input: bool = True, full: bool = False, size_average: Any = None,
    eps: Any = 1e-8, reduce: Any = None, reduction: str = "mean",
) -> Value:  # fmt: skip
    if full:
        raise Unsupported("Stirling's term")
    if log_input:
        values = sub(point("exp", input), mul(target, input))
    else:
        values = sub(input, mul(target, point("log", add(input, eps))))
    return _loss(values, reduction, size_average, reduce)


@operator("gaussian_nll_loss")
def _gaussian_nll_loss(
    input: Value, target: Value, var: Value, full: bool = False, eps: Any = 1e-6, reduction: str = "mean"
) -> Value:
    if not isinstance(var, Value):
        raise Unsupported("a variance that is a number")
    if var.rank == input.rank - 1:
        var = unsqueeze(var, -1)
    var = point("maximum", var, eps)
    loss = mul(add(point("log", var), div(point("square", sub(input, target)), var)), 0.5)
    return _loss(add(loss, 0.9189385332046727) if full else loss, reduction)


@operator("cosine_embedding_loss")
def _cosine_embedding_loss(input1: Value, input2: Value, target: Value, margin: Any = 0, **how: Any) -> Value:
    eps = 1e-12
    dot = reduce(mul(input1, input2), "sum", -1)
    squares = [add(reduce(point("square", x), "sum", -1), eps) for x in (input1, input2)]
    cosine = div(dot, point("sqrt", mul(*squares)))
    near = point("where", point("eq", target, 1), sub(1, cosine), 0.0)
    far = point("where", point("eq", target, -1), point("relu", sub(cosine, margin)), 0.0)
    return _loss(add(near, far), **how)


@operator("triplet_margin_loss")
def _triplet_margin_loss(
    anchor: Value, positive: Value, negative: Value, margin: Any = 1.0, p: Any = 2, eps: Any = 1e-6,
    swap: bool = False, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
) -> Value:  # fmt: skip
    near, far = (pairwise_distance(anchor, other, p, eps) for other in (positive, negative))
    if swap:
        far = point("minimum", far, pairwise_distance(positive, negative, p, eps))
    return _loss(point("relu", add(sub(near, far), margin)), reduction, size_average, reduce)


@operator("cross_entropy")
def _cross_entropy(
    input: Value, target: Value, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: Any = 0.0,
) -> Value:  # fmt: skip
    if weight is not None or float(label_smoothing) or int(ignore_index) != -100:
        raise Unsupported("weights of classes, ignored classes or smoothed labels")
    dim = 0 if input.rank == 1 else 1
    logs = log_softmax(input, dim)
    if target.dtype.is_floating_point:
        values = point("neg", _plain_sum(mul(logs, target), dim))
        if reduction == "mean":
            return div(_reduced(values, "sum"), count(values, None))
        return _reduced(values, reduction)
    return _nll(logs, target, dim, reduction)


def _plain_sum(x: Value, dim: int) -> Value:
    return reduce(x, "sum", dim)


def _nll(logs: Value, target: Value, dim: int, reduction: str) -> Value:
    index = unsqueeze(target, dim)
    picked = make("gather", (logs, index), index.shape, logs.dtype, dim=dim)
    values = point("neg", reshape(picked, target.shape))
    return _reduced(values, reduction)


@operator("nll_loss")
def _nll_loss(
    input: Value, target: Value, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean",
) -> Value:  # fmt: skip
    if weight is not None or int(ignore_index) != -100:
        raise Unsupported("weights of classes or ignored classes")
    return _nll(input, target, 0 if input.rank == 1 else 1, reduction)
