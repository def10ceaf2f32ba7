"""Ladder of inputs for a `forward` of unknown shapes, the likeliest first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_IMAGES = re.compile(r"ima?ge?s?|img\d?|input_image|im\d?|rgb\w*|hsv|lab|yuv|luv|xyz|hls|ycbcr|image_\w+")
_INTEGERS = re.compile(r"input_ids|\w*_ids|index|indices|idx|labels?|tokens?|targets?|positions?|token_\w+")
_LABELS = re.compile(r"labels?|targets?|gt|y|target_\w+")
_MOST_INPUTS = 4
_TOKENS = re.compile(r"hidden_states?|\w*tokens?|\w*states?|inputs_embeds|query|key|value|q|k|v")


def ladder(
    arguments: Sequence[str], channels: Sequence[str], sizes: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Tuples of expressions, one an argument of `forward`.

    `channels` and `sizes` name constants of the constructor that a dimension may be as long as.
    """
    if not arguments or len(arguments) > _MOST_INPUTS:
        return
    seen: set[tuple[str, ...]] = set()
    for first in _first_shapes(arguments[0], channels, sizes):
        for rest in _others(arguments, first, channels):
            inputs = tuple(
                _expression(name, shape) for name, shape in zip(arguments, (first, *rest), strict=True)
            )
            if inputs not in seen:
                seen.add(inputs)
                yield inputs


def _first_shapes(name: str, channels: Sequence[str], sizes: Sequence[str]) -> Iterator[str]:
    if _IMAGES.fullmatch(name):
        yield "BATCH_SIZE, 3, HEIGHT, WIDTH"
        yield "BATCH_SIZE, 1, HEIGHT, WIDTH"
    if re.fullmatch(r"input_ids|tokens?|\w*token_ids|position_ids", name):
        yield "long VOCAB: BATCH_SIZE, SEQ_LEN"
    image = next((size for size in sizes if re.search(r"IMG|IMAGE|RESOL|FEAT_SIZE|INPUT_SIZE", size)), None)
    for channel in channels or ("",):
        plane, row = channel or "CHANNELS", channel or "FEATURES"
        forms = [
            f"BATCH_SIZE, {plane}, HEIGHT, WIDTH",
            f"BATCH_SIZE, SEQ_LEN, {row}",
            f"BATCH_SIZE, HEIGHT, WIDTH, {plane}",
            f"BATCH_SIZE, {row}",
            f"BATCH_SIZE, {plane}, LENGTH",
            f"BATCH_SIZE, {plane}, DEPTH, HEIGHT, WIDTH",
        ]
        if _TOKENS.fullmatch(name):
            forms[0], forms[1] = forms[1], forms[0]
        if image:
            yield f"BATCH_SIZE, {plane}, {image}, {image}"
            yield f"BATCH_SIZE, {image} * {image}, {row}"
        yield from forms
    heads = next((size for size in sizes if "HEAD" in size and "DIM" not in size), "HEADS")
    width = next((size for size in sizes if "DIM" in size and "HEAD" in size), "HEAD_DIM")
    yield f"BATCH_SIZE, {heads}, SEQ_LEN, {width}"
    yield f"BATCH_SIZE, SEQ_LEN, {heads}, {width}"
    if not channels:
        yield "BATCH_SIZE, 3, HEIGHT, WIDTH"
        yield "BATCH_SIZE, LENGTH, 3"
        yield "BATCH_SIZE, LENGTH, 4"
        yield "LENGTH, 3"
        yield "BATCH_SIZE, 3, 3"
        yield "BATCH_SIZE, FEATURES, FEATURES"
        yield "LENGTH"
    if image:
        yield f"BATCH_SIZE, 3, {image}, {image}"


def _others(arguments: Sequence[str], first: str, channels: Sequence[str]) -> Iterator[tuple[str, ...]]:
    count = len(arguments) - 1
    if count == 0:
        yield ()
        return
    yield (first,) * count
    if count > 1 and _INTEGERS.fullmatch(arguments[-1]):
        yield (first,) * (count - 1) + (f"long 2: {first.split(',')[0]}",)
    dims = [dim.strip() for dim in first.split(": ")[-1].split(",")]
    if count == 1:
        if _INTEGERS.fullmatch(arguments[1]) or _LABELS.fullmatch(arguments[1]):
            spatial = ", ".join((dims[0], *dims[2:])) or dims[0]
            yield (f"long {dims[1] if len(dims) > 1 else 2}: {spatial}",)
            yield (f"long 2: {first}",)
            yield (f"float 2: {first}",)
        for channel in channels:
            yield (", ".join((*dims[:-1], channel)),)
            yield (f"{dims[0]}, {channel}",)
        yield (", ".join((dims[0], *dims[2:])) if len(dims) > 2 else dims[0],)
        yield (dims[-1],)
        yield (f"{dims[0]}, 1, {dims[-1]}",)
        yield ("3, 3",)
        yield (f"{dims[0]}, 3, 3",)
    elif count == 2 and len(dims) > 1:
        yield (dims[-1],) * 2
        yield (dims[1],) * 2
        yield (first, f"{dims[0]}, {dims[-1]}")
        yield (f"{dims[0]}, {dims[-1]}",) * 2


def _expression(name: str, shape: str) -> str:
    kind, _, dims = shape.rpartition(": ")
    if kind.startswith("long"):
        return f"torch.randint(0, {kind.split()[1]}, ({dims},))"
    if kind.startswith("float"):
        return f"torch.randint(0, {kind.split()[1]}, ({dims},)).float()"
    if _IMAGES.fullmatch(name):
        return f"torch.rand({dims})"
    return f"torch.randn({dims})"
