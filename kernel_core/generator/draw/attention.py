"""Attention written out: scores, masks, softmax and a weighted sum, heads that share keys, and linear."""

from __future__ import annotations

from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor


def attention(sketch: Sketch) -> list[Tensor]:
    """Draw attention of given queries, keys and values."""
    return sketch.pick(_softmax_attention, _softmax_attention, _softmax_attention, _linear_attention)(sketch)


def causal(sketch: Sketch, scores: Tensor) -> Tensor:
    """Draw a mask that hides the keys behind each query; there are as many keys as queries."""
    n = sketch.pick(f"{scores}.shape[-1]", f"{scores}.size(-1)")
    square, device = scores.axes[-2:], f"device={scores}.device"
    fill = sketch.pick("float('-inf')", "float('-inf')", "-1e9")
    kind = sketch.pick("tril", "triu", "places")
    if kind == "tril":
        mask = sketch.emit(f"torch.tril(torch.ones({n}, {n}, {device}))", square, "tril")
        return sketch.emit(f"{scores}.masked_fill({mask} == 0, {fill})", scores.axes, "masked_fill")
    if kind == "triu":
        ones = f"torch.ones({n}, {n}, dtype=torch.bool, {device})"
        mask = sketch.emit(f"torch.triu({ones}, diagonal=1)", square, "triu")
        return sketch.emit(f"{scores}.masked_fill({mask}, {fill})", scores.axes, "masked_fill")
    place = sketch.emit(f"torch.arange({n}, {device})", square[:1], "arange")
    is_before = sketch.emit(f"{place}[None, :] <= {place}[:, None]", square, "le", dtype="bool")
    return sketch.emit(f"torch.where({is_before}, {scores}, {fill})", scores.axes, "where")


def _masked(sketch: Sketch, scores: Tensor) -> Tensor:
    """Scores with a given mask or bias, with later keys hidden, with limits, or as they are."""
    square = scores.axes[-2:]
    kinds = ("plain", "plain", "mask", "bias", "capped", *(["causal"] * 3 if square[0] is square[1] else []))
    kind = sketch.rng.choice(kinds)
    if kind == "causal":
        return causal(sketch, scores)
    if kind == "mask":
        mask = sketch.input(square, "torch.ones({}).tril() > 0", "bool")
        fill = sketch.pick("-1e9", "float('-inf')")
        return sketch.emit(f"{scores}.masked_fill(~{mask}, {fill})", scores.axes, "masked_fill")
    if kind == "bias":
        return sketch.emit(f"{scores} + {sketch.input(square)}", scores.axes, "add")
    if kind == "capped":
        cap = sketch.setting("softcap", sketch.pick("50.0", "30.0"))
        return sketch.emit(f"{cap} * torch.tanh({scores} / {cap})", scores.axes, "tanh", "mul")
    return scores


def _softmax_attention(sketch: Sketch) -> list[Tensor]:
    """Scaled dot products of one head or several; groups of heads or all may share keys and values."""
    b, e, s, f = sketch.axes("besf")
    t = sketch.axis("s") if sketch.chance(0.25) else s
    kind = sketch.pick("one", "one", "several", "several", "several", "grouped", "grouped", "shared")
    if kind == "grouped":
        q, k, v = _grouped(sketch, b, e, s, t, f)
    else:
        lead = (b,) if kind == "one" else (b, e)
        shared = (b, ONE) if kind == "shared" else lead
        q, k, v = sketch.input((*lead, s, f)), sketch.input((*shared, t, f)), sketch.input((*shared, t, f))
    axes = (*q.axes[:-1], t)
    letters = "bhqd"[4 - q.rank :] if q.rank == 4 else "bqd"
    keys = letters.replace("q", "k")
    is_sum = kind != "shared" and sketch.chance(0.2)
    texts = (f"torch.matmul({q}, {k}.transpose(-2, -1))", f"{q} @ {k}.transpose(-1, -2)", f"{q} @ {k}.mT")
    if is_sum:
        product = f"{letters},{keys}->{letters[:-1]}k"
        scores = sketch.emit(f"torch.einsum('{product}', {q}, {k})", axes, "einsum")
    else:
        scores = sketch.emit(sketch.rng.choice(texts), axes, "transpose", "matmul")
    text = sketch.pick(
        f"{scores} / math.sqrt({q}.size(-1))", f"{scores} * {q}.shape[-1] ** -0.5", f"{scores} * 0.125"
    )
    scores = _masked(sketch, sketch.emit(text, axes, "mul"))
    text = sketch.pick("torch.softmax({}, dim=-1)", "F.softmax({}, dim=-1)", "{}.softmax(dim=-1)")
    weights = sketch.emit(text.format(scores), axes, "softmax")
    if is_sum:
        product = f"{letters[:-1]}k,{keys}->{letters}"
        return [sketch.emit(f"torch.einsum('{product}', {weights}, {v})", q.axes, "einsum")]
    return [sketch.emit(sketch.pick(f"torch.matmul({weights}, {v})", f"{weights} @ {v}"), q.axes, "matmul")]


def _grouped(sketch: Sketch, b: Axis, e: Axis, s: Axis, t: Axis, f: Axis) -> tuple[Tensor, Tensor, Tensor]:
    """Queries of several heads for each head of keys and values, which are repeated."""
    count = sketch.pick(2, 4)
    heads = e.times(count)
    q = sketch.input((b, heads, s, f))
    k, v = (sketch.input((b, e, t, f)) for _ in range(2))
    times = sketch.setting("groups", str(count))
    if sketch.chance(0.6):
        text = f"{{}}.repeat_interleave({times}, dim=1)"
    else:
        text = f"{{}}[:, :, None].expand(-1, -1, {times}, -1, -1).flatten(1, 2)"
    k, v = (sketch.emit(text.format(x), (b, heads, t, f), "repeat_interleave") for x in (k, v))
    return q, k, v


def _linear_attention(sketch: Sketch) -> list[Tensor]:
    """Products of keys and values that queries weigh, without a softmax over keys."""
    b, e, s, f = sketch.axes("besf")
    q, k, v = (sketch.input((b, e, s, f)) for _ in range(3))
    feature = sketch.pick("F.elu({}) + 1", "torch.relu({})", "torch.exp(-{} * {})", "F.elu({}) + 1.0")
    q, k = (sketch.emit(feature.replace("{}", str(x)), q.axes, "feature_map") for x in (q, k))
    eps = sketch.setting("eps", sketch.pick("1e-6", "1e-5"))
    if sketch.chance(0.4):
        state = sketch.emit(f"torch.einsum('bhnd,bhne->bhde', {k}, {v})", (b, e, f, f), "einsum")
        total = sketch.emit(f"torch.einsum('bhnd,bhd->bhn', {q}, {k}.sum(dim=2))", (b, e, s), "einsum", "sum")
        mixed = sketch.emit(f"torch.einsum('bhnd,bhde->bhne', {q}, {state})", q.axes, "einsum")
        return [sketch.emit(f"{mixed} / ({total}.unsqueeze(-1) + {eps})", q.axes, "div")]
    state = sketch.emit(f"{k}.transpose(-2, -1) @ {v}", (b, e, f, f), "transpose", "matmul")
    mixed = sketch.emit(f"{q} @ {state}", q.axes, "matmul")
    total = sketch.emit(f"{q} @ {k}.sum(dim=-2).unsqueeze(-1)", (b, e, s, ONE), "sum", "matmul")
    return [sketch.emit(f"{mixed} / ({total} + {eps})", q.axes, "div")]
