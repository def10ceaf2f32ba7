"""Level-3-like problems: small networks, with the functions and optimiser steps of other files."""

from __future__ import annotations

from collections.abc import Callable

from kernel_core.generator.draw.attention import attention, causal
from kernel_core.generator.draw.functions import FUNCTIONS
from kernel_core.generator.draw.heads import convolution, linear, norm_of_last, normalised, reduction
from kernel_core.generator.draw.losses import loss_function
from kernel_core.generator.draw.norms import norm_function
from kernel_core.generator.draw.optimizers import optimizer
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.steps import COMMON, activated


def perceptron(sketch: Sketch) -> list[Tensor]:
    """Draw two to four linear layers with activations between, at times with norms and a residual."""
    x = start = sketch.input(sketch.axes(sketch.pick("mk", "bsk")))
    act, has_norm = sketch.rng.choice(COMMON), sketch.chance(0.3)
    for at in range(sketch.rng.randint(2, 4)):
        if at:
            x = activated(sketch, x, act)
        x = linear(sketch, x, sketch.axis(sketch.rng.choice("on")))
        if has_norm:
            x = norm_of_last(sketch, x, "LayerNorm", ("norm", "ln"))
    if sketch.chance(0.3):
        x = linear(sketch, x, start.axes[-1])
        x = sketch.emit(f"{start} + {x}", x.axes, "add")
    return [reduction(sketch, x) if sketch.chance(0.25) else x]


def feed_forward(sketch: Sketch) -> list[Tensor]:
    """Draw the feed-forward block of a transformer, plain or gated."""
    x = sketch.input(sketch.axes("bsn"))
    width, inner = x.axes[-1], x.axes[-1].times(sketch.pick(2, 4))
    h = _normed(sketch, x)
    if sketch.chance(0.5):
        gate = activated(
            sketch, linear(sketch, h, inner, bias=False), sketch.pick("silu", "gelu", "sigmoid", "relu")
        )
        up = linear(sketch, h, inner, bias=False)
        h = sketch.emit(f"{gate} * {up}", up.axes, "mul")
    else:
        h = activated(sketch, linear(sketch, h, inner), sketch.pick("gelu", "relu", "silu", "mish"))
    y = linear(sketch, h, width)
    return [sketch.emit(f"{x} + {y}", x.axes, "add")]


def _normed(sketch: Sketch, x: Tensor) -> Tensor:
    return norm_of_last(sketch, x, sketch.pick("LayerNorm", "RMSNorm"), ("norm", "ln", "pre_norm"))


def residual_block(sketch: Sketch) -> list[Tensor]:
    """Draw convolution, norm and activation twice around a shortcut."""
    x = sketch.input(sketch.axes("bchw"))
    act = sketch.pick("relu", "silu", "gelu", "leaky_relu")
    h = normalised(sketch, _kept(sketch, x, x.axes[1]))
    h = activated(sketch, h, act)
    if sketch.chance(0.6):
        h = normalised(sketch, _kept(sketch, h, x.axes[1]))
    y = sketch.emit(f"{h} + {x}", x.axes, "add")
    return [activated(sketch, y, act)]


def _kept(sketch: Sketch, x: Tensor, out: Axis) -> Tensor:
    layer = sketch.layer(
        ("conv1", "conv2", "conv"),
        f"nn.Conv2d({x.axes[1].text}, {out.text}, 3, padding=1{sketch.pick('', ', bias=False')})",
    )
    return sketch.emit(f"{layer}({x})", (x.axes[0], out, *x.axes[2:]), "conv2d")


def squeeze_excite(sketch: Sketch) -> list[Tensor]:
    """Draw channels weighted by a small network over their means."""
    x = sketch.input(sketch.axes("bchw"))
    c = x.axes[1]
    pooled = sketch.emit(
        sketch.pick(f"{x}.mean(dim=(2, 3))", f"torch.mean({x}, dim=[2, 3])"), x.axes[:2], "mean"
    )
    h = activated(sketch, linear(sketch, pooled, c.over(2)), sketch.pick("relu", "silu"))
    gate = activated(sketch, linear(sketch, h, c), sketch.pick("sigmoid", "hardsigmoid"))
    wide = sketch.emit(
        f"{gate}[:, :, None, None]" if sketch.chance(0.5) else f"{gate}.unsqueeze(-1).unsqueeze(-1)",
        (*x.axes[:2], ONE, ONE),
        "unsqueeze",
    )
    return [sketch.emit(f"{x} * {wide}", x.axes, "mul")]


def attention_block(sketch: Sketch) -> list[Tensor]:
    """Draw projections, scaled dot products and an output projection."""
    x = sketch.input(sketch.axes("bsn"))
    width = x.axes[-1]
    q, k, v = (linear(sketch, x, width, bias=sketch.chance(0.5)) for _ in range(3))
    scores = sketch.emit(
        f"{q} @ {k}.transpose(-2, -1) * {sketch.pick('0.125', '0.0625', '0.1')}",
        (*x.axes[:2], x.axes[1]), "transpose", "matmul", "mul",
    )  # fmt: skip
    scores = causal(sketch, scores) if sketch.chance(0.4) else scores
    weights = sketch.emit(f"{scores}.softmax(dim=-1)", scores.axes, "softmax")
    h = linear(sketch, sketch.emit(f"{weights} @ {v}", x.axes, "matmul"), width)
    return [sketch.emit(f"{x} + {h}", x.axes, "add") if sketch.chance(0.6) else h]


def convolutional_network(sketch: Sketch) -> list[Tensor]:
    """Draw one to three convolutions with pooling, and a linear layer."""
    x = sketch.input(sketch.axes("bchw"))
    for at in range(sketch.rng.randint(1, 3)):
        x = activated(sketch, convolution(sketch, x, keep=True), sketch.pick("relu", "relu", "gelu", "silu"))
        if at == 0 and sketch.chance(0.6):
            x = sketch.emit(
                f"F.{sketch.pick('max', 'avg')}_pool2d({x}, 2)",
                (*x.axes[:2], *(axis.over(2) for axis in x.axes[2:])),
                "pool2d",
            )
    x = sketch.emit(
        sketch.pick(f"{x}.mean(dim=(2, 3))", f"F.adaptive_avg_pool2d({x}, 1).flatten(1)"), x.axes[:2], "mean"
    )
    return [linear(sketch, x, sketch.axis("o"))]


def mixer(sketch: Sketch) -> list[Tensor]:
    """Draw a linear layer along positions, transposed in and out."""
    x = sketch.input(sketch.axes("bsn"))
    h = sketch.emit(f"{_normed(sketch, x)}.transpose(1, 2)", (x.axes[0], x.axes[2], x.axes[1]), "transpose")
    h = activated(sketch, linear(sketch, h, x.axes[1]), sketch.pick("gelu", "silu"))
    return [sketch.emit(f"{x} + {h}.transpose(1, 2)", x.axes, "transpose", "add")]


def multi_head_attention(sketch: Sketch) -> list[Tensor]:
    """Draw attention whose heads are parts of the width, with or without projections."""
    b, s, e, f = sketch.axes("bsef")
    width = Axis(f"{e.text} * {f.text}", e.gpu * f.gpu, e.cpu * f.cpu)
    x = sketch.input((b, s, width), names=("x", "hidden_states", "tokens"))
    heads = sketch.stored_size("num_heads", e)
    batch, length, _ = sketch.sizes_of(x)
    q, k, v = (_heads(sketch, x, heads, batch, length) for _ in range(3))
    scores = sketch.emit(f"{q} @ {k}.transpose(-2, -1) * 0.125", (b, e, s, s), "transpose", "matmul", "mul")
    scores = causal(sketch, scores) if sketch.chance(0.4) else scores
    weights = sketch.emit(
        sketch.pick(f"{scores}.softmax(dim=-1)", f"F.softmax({scores}, dim=-1)"), scores.axes, "softmax"
    )
    h = sketch.emit(f"{weights} @ {v}", q.axes, "matmul")
    merged = sketch.pick(".transpose(1, 2).reshape", ".transpose(1, 2).contiguous().view")
    return [sketch.emit(f"{h}{merged}({batch}, {length}, -1)", x.axes, "transpose", "reshape")]


def _heads(sketch: Sketch, x: Tensor, heads: str, batch: str, length: str) -> Tensor:
    y = linear(sketch, x, x.axes[-1], bias=False) if sketch.chance(0.6) else x
    b, s, width = x.axes
    return sketch.emit(
        f"{y}.view({batch}, {length}, {heads}, -1).transpose(1, 2)", (b, ONE, s, width), "view", "transpose"
    )


def token_embedding(sketch: Sketch) -> list[Tensor]:
    """Draw embeddings of tokens and positions, added and normed."""
    b, s, v, n = sketch.axes("bsvn")
    tokens = sketch.indices((b, s), v, ("input_ids", "tokens", "x"))
    table = sketch.layer(("embedding", "tok_emb", "word_embeddings"), f"nn.Embedding({v.text}, {n.text})")
    h = sketch.emit(f"{table}({tokens})", (b, s, n), "embedding", dtype="float32")
    h = sketch.emit(f"{h} + {sketch.parameter((s, n))}", h.axes, "add", dtype="float32")
    return [_normed(sketch, h) if sketch.chance(0.6) else h]


NETWORKS: dict[str, Callable[[Sketch], list[Tensor]]] = {
    "perceptron": perceptron,
    "feed_forward": feed_forward,
    "residual_block": residual_block,
    "squeeze_excite": squeeze_excite,
    "attention": attention,
    "attention_block": attention_block,
    "convolutional_network": convolutional_network,
    "mixer": mixer,
    "multi_head_attention": multi_head_attention,
    "token_embedding": token_embedding,
    "optimizer": optimizer,
    "loss_function": loss_function,
    "norm_function": norm_function,
    **FUNCTIONS,
}
WEIGHTS = {
    "optimizer": 4,
    "layout_function": 3,
    "attention": 4,
    "loss_function": 4,
    "norm_function": 2,
    "matrix_function": 4,
}
WEIGHTS |= {"chain_convolution": 4, "chain_linear": 2, "chain_operator": 2, "chain_views": 4}
"""Families that have more forms than the others, and their shares as multiples of the others'."""
