"""Rewrites a graph before its values are fused: long reductions, products with a vector, and attention."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.generator.build import add, mul, reduce, reshape, unsqueeze
from kernel_core.generator.channels_last import with_channels_last
from kernel_core.generator.ir import ORIGIN, Value, is_point, make, readers_of, rebuilt, walk
from kernel_core.generator.names import bind
from kernel_core.generator.operators.layout import transpose
from kernel_core.generator.schedules.conv import tiled
from kernel_core.generator.sizes import ceil_div, product

_STAGES = ("sum", "amax", "amin", "prod")
_FEW_RESULTS, _LONG, _PART = 48, 32768, 16384
"""Results below which, and elements beyond which, a reduction is split; elements of a part."""


def rewritten(outputs: Sequence[Value], for_speed: bool) -> list[Value]:
    """The outputs in the form in which they are fused; `for_speed` as in `with_channels_last`."""
    rewritten = with_attention(with_vector_products(in_two_stages(with_bias_behind(outputs))))
    rewritten = rebuilt(rewritten, lambda value, new, made: tiled(new) if new.op == "conv" else new)
    return with_channels_last(rewritten, for_speed)


def with_bias_behind(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with biases of torch's convolutions added by the kernels that read the results.

    cuDNN adds a bias in a pass of its own over the result.
    """
    readers = readers_of(walk(tuple(outputs)))
    returned = {*map(id, outputs)}

    def is_added_behind(value: Value) -> bool:
        return id(value) not in returned and all(
            is_added_behind(reader) if reader.op == "reshape" else reader.op in _ADDS_BIAS
            for reader in readers[id(value)]
        )

    return rebuilt(
        outputs,
        lambda value, new, made: (
            _biased_behind(new) if "unbiased" in value.attributes and is_added_behind(value) else new
        ),
    )


_ADDS_BIAS = frozenset(("point", "cast", "reduce", "window"))
"""Operators whose kernels compute what they read."""


def _biased_behind(call: Value) -> Value:
    weight, bias = call.of_layer
    attributes = {**call.attributes, "text": call.unbiased}
    product_of = Value("call", (*call.inputs, weight), call.shape, call.dtype, attributes)
    ORIGIN.set((call.origin[0], "bias"))
    return add(product_of, reshape(bias, (bias.shape[0], *(1 for _ in weight.shape[2:]))))


def in_two_stages(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with long reductions to few results split: parts first, by many programs, then the rest."""
    return rebuilt(outputs, lambda value, new, made: _split(new))


def _split(value: Value) -> Value:
    if value.op != "reduce":
        return value
    x = value.inputs[0]
    length = product(x.shape[axis] for axis in value.dims)
    results = product(value.shape)
    if value.kind not in _STAGES or int(results) > _FEW_RESULTS or int(length) < _LONG:
        return value
    parts, origin = bind(ceil_div(length, _PART), "parts"), value.origin
    first = make(
        "partial", (x,), (results, parts), value.dtype, kind=value.kind, dims=value.dims, part=_PART,
        origin=origin,
    )  # fmt: skip
    second = make("reduce", (first,), (results, 1), value.dtype, kind=value.kind, dims=(1,), origin=origin)
    return make("reshape", (second,), value.shape, value.dtype, origin=origin)


_LARGEST_HEAD = 256


def with_attention(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with each softmax of scores between two products as one `attention`."""
    users = _users(outputs)
    return rebuilt(outputs, lambda value, new, made: _as_attention(value, new, made, users))


def with_vector_products(outputs: Sequence[Value]) -> list[Value]:
    """The outputs with each product of a matrix and a vector as a sum, outside of attention.

    Each number of the matrix is read once, and a tile of a product would be all but empty.
    """
    users = _users(outputs)
    values = walk(tuple(outputs))
    attended = {id(value): inside for value in values if (inside := _attended(value, users))}
    kept = {*attended, *(id(scored) for scored, *_ in attended.values())}
    return rebuilt(
        outputs,
        lambda value, new, made: _as_sum(new) if _is_vector(value) and id(value) not in kept else new,
    )


def _users(outputs: Sequence[Value]) -> dict[int, int]:
    """Number of values that read each value, by its id; a result of `forward` has a reader more."""
    returned = {*map(id, outputs)}
    readers = readers_of(walk(tuple(outputs)))
    return {value: len(reading) + (value in returned) for value, reading in readers.items()}


def _is_vector(value: Value) -> bool:
    """True for a product that has one row or one column at the problem's own sizes."""
    return value.op == "dot" and 1 in (int(value.shape[-2]), int(value.shape[-1]))


def _as_sum(value: Value) -> Value:
    """A product as a sum of products, along the axis that its matrix has in memory."""
    a, b = value.inputs
    matrix = a if int(value.shape[-1]) == 1 else b
    is_turned = matrix.op == "permute" and matrix.order[-2:] == (matrix.rank - 1, matrix.rank - 2)
    ORIGIN.set(value.origin)
    if (matrix is a) == is_turned:  # neighbours in memory are results: K stands before M and N
        terms, axis = mul(unsqueeze(transpose(a, -1, -2), -1), unsqueeze(b, -2)), -3
    else:
        terms, axis = mul(unsqueeze(a, -2), unsqueeze(transpose(b, -1, -2), -3)), -1
    return reshape(_split(reduce(terms, "sum", axis, keepdim=True)), value.shape)


def _attended(value: Value, users: dict[int, int]) -> tuple[Value, Value, list[Value]] | None:
    """For a product of softmax weights and values: the product before the softmax, the scores, and masks."""
    scores = _softmax_of(value.inputs[0], users) if value.op == "dot" else None
    if scores is None or value.rank != scores.rank:
        return None
    scored, masks, stack = None, list[Value](), [scores]
    while stack:
        inner = stack.pop()
        if inner.op == "dot" and scored is None and inner.shape == scores.shape:
            scored = inner
        elif inner.op in ("point", "cast") and inner.shape == scores.shape:
            stack += inner.tensors
        else:
            masks.append(inner)
    if scored is None or users[id(scored)] != (2 if scored is scores else 1):
        return None
    if max(int(scored.inputs[0].shape[-1]), int(value.shape[-1])) > _LARGEST_HEAD:
        return None
    return scored, scores, masks


def _as_attention(value: Value, new: Value, made: dict[int, Value], users: dict[int, int]) -> Value:
    """A product of softmax weights and values as `attention`; any other value as it is."""
    attended = _attended(value, users)
    if attended is None:
        return new
    scored, scores, masks = attended
    product_of = made[id(scored)]
    inputs = (*product_of.inputs, new.inputs[1], *(made[id(mask)] for mask in masks))
    return make(
        "attention", inputs, value.shape, value.dtype, product=product_of, scores=made[id(scores)],
        origin=(value.origin[0], "attention"),
    )  # fmt: skip


def _softmax_of(weights: Value, users: dict[int, int]) -> Value | None:
    """Return the scores of a softmax over the last axis, if nothing else reads its results."""
    if not is_point(weights, "true_divide") or users[id(weights)] != 1:
        return None
    raised, total = weights.inputs
    if not is_point(raised, "exp") or users[id(raised)] != 2 or not is_point(raised.inputs[0], "sub_"):
        return None
    scores, top = raised.inputs[0].inputs
    is_softmax = (
        isinstance(total, Value)
        and isinstance(top, Value)
        and (total.op, top.op) == ("reduce", "reduce")
        and (total.kind, top.kind) == ("sum", "amax")
        and total.inputs[0] is raised
        and top.inputs[0] is scores
        and total.dims == top.dims == (scores.rank - 1,)
    )
    return scores if is_softmax and users[id(scores)] == 2 else None
