"""Level-3-like problems: small networks, functions of several lines, and steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernel_core.generator.draw.chains import COMMON, activated, convolution, linear, norm_of_last, normalised
from kernel_core.generator.draw.forms import FILLS
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor


def perceptron(sketch: Sketch) -> list[Tensor]:
    """Two to four linear layers with activations between, at times with norms and a residual."""
    x = start = sketch.input(sketch.axes(sketch.rng.choice(("mk", "bsk"))))
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
    return [x]


def feed_forward(sketch: Sketch) -> list[Tensor]:
    """The feed-forward block of a transformer, plain or gated."""
    x = sketch.input(sketch.axes("bsn"))
    width, inner = x.axes[-1], x.axes[-1].times(sketch.rng.choice((2, 4)))
    h = _normed(sketch, x)
    if sketch.chance(0.5):
        gate = activated(
            sketch,
            linear(sketch, h, inner, bias=False),
            sketch.rng.choice(("silu", "gelu", "sigmoid", "relu")),
        )
        up = linear(sketch, h, inner, bias=False)
        h = sketch.emit(f"{gate} * {up}", up.axes, "mul")
    else:
        h = activated(sketch, linear(sketch, h, inner), sketch.rng.choice(("gelu", "relu", "silu", "mish")))
    y = linear(sketch, h, width)
    return [sketch.emit(f"{x} + {y}", x.axes, "add")]


def _normed(sketch: Sketch, x: Tensor) -> Tensor:
    return norm_of_last(sketch, x, sketch.rng.choice(("LayerNorm", "RMSNorm")), ("norm", "ln", "pre_norm"))


def residual_block(sketch: Sketch) -> list[Tensor]:
    """Convolution, norm and activation twice around a shortcut."""
    x = sketch.input(sketch.axes("bchw"))
    act = sketch.rng.choice(("relu", "silu", "gelu", "leaky_relu"))
    h = normalised(sketch, _kept(sketch, x, x.axes[1]))
    h = activated(sketch, h, act)
    if sketch.chance(0.6):
        h = normalised(sketch, _kept(sketch, h, x.axes[1]))
    y = sketch.emit(f"{h} + {x}", x.axes, "add")
    return [activated(sketch, y, act)]


def _kept(sketch: Sketch, x: Tensor, out: Axis) -> Tensor:
    layer = sketch.layer(
        ("conv1", "conv2", "conv"),
        f"nn.Conv2d({x.axes[1].text}, {out.text}, 3, padding=1{sketch.rng.choice(('', ', bias=False'))})",
    )
    return sketch.emit(f"{layer}({x})", (x.axes[0], out, *x.axes[2:]), "conv2d")


def squeeze_excite(sketch: Sketch) -> list[Tensor]:
    """Channels weighted by a small network over their means."""
    x = sketch.input(sketch.axes("bchw"))
    c = x.axes[1]
    pooled = sketch.emit(
        sketch.rng.choice((f"{x}.mean(dim=(2, 3))", f"torch.mean({x}, dim=[2, 3])")), x.axes[:2], "mean"
    )
    h = activated(sketch, linear(sketch, pooled, c.over(2)), sketch.rng.choice(("relu", "silu")))
    gate = activated(sketch, linear(sketch, h, c), sketch.rng.choice(("sigmoid", "hardsigmoid")))
    wide = sketch.emit(
        f"{gate}[:, :, None, None]" if sketch.chance(0.5) else f"{gate}.unsqueeze(-1).unsqueeze(-1)",
        (*x.axes[:2], ONE, ONE),
        "unsqueeze",
    )
    return [sketch.emit(f"{x} * {wide}", x.axes, "mul")]


def attention(sketch: Sketch) -> list[Tensor]:
    """Scores, weights and a weighted sum, with one head or several."""
    b, e, s, f = sketch.axes("besf")
    lead = (b, e) if sketch.chance(0.6) else (b,)
    q, k, v = (sketch.input((*lead, s, f)) for _ in range(3))
    scores = sketch.emit(
        sketch.rng.choice((f"torch.matmul({q}, {k}.transpose(-2, -1))", f"{q} @ {k}.transpose(-1, -2)")),
        (*lead, s, s),
        "transpose",
        "matmul",
    )
    scores = sketch.emit(
        sketch.rng.choice(
            (f"{scores} / math.sqrt({q}.size(-1))", f"{scores} * {q}.shape[-1] ** -0.5", f"{scores} * 0.125")
        ),
        scores.axes,
        "mul",
    )
    kind = sketch.rng.choice(("plain", "mask", "bias", "plain"))
    if kind == "mask":
        mask = sketch.input((s, s), "torch.ones({}).tril() > 0", "bool")
        fill = sketch.rng.choice(("-1e9", "float('-inf')"))
        scores = sketch.emit(f"{scores}.masked_fill(~{mask}, {fill})", scores.axes, "masked_fill")
    elif kind == "bias":
        scores = sketch.emit(f"{scores} + {sketch.input((s, s))}", scores.axes, "add")
    weights = sketch.emit(
        sketch.rng.choice((f"torch.softmax({scores}, dim=-1)", f"F.softmax({scores}, dim=-1)")),
        scores.axes,
        "softmax",
    )
    return [
        sketch.emit(
            sketch.rng.choice((f"torch.matmul({weights}, {v})", f"{weights} @ {v}")), q.axes, "matmul"
        )
    ]


def attention_block(sketch: Sketch) -> list[Tensor]:
    """Projections, scaled dot products and an output projection."""
    x = sketch.input(sketch.axes("bsn"))
    width = x.axes[-1]
    q, k, v = (linear(sketch, x, width, bias=sketch.chance(0.5)) for _ in range(3))
    scores = sketch.emit(
        f"{q} @ {k}.transpose(-2, -1) * {sketch.rng.choice(('0.125', '0.0625', '0.1'))}",
        (*x.axes[:2], x.axes[1]),
        "transpose",
        "matmul",
        "mul",
    )
    weights = sketch.emit(f"{scores}.softmax(dim=-1)", scores.axes, "softmax")
    h = linear(sketch, sketch.emit(f"{weights} @ {v}", x.axes, "matmul"), width)
    return [sketch.emit(f"{x} + {h}", x.axes, "add") if sketch.chance(0.6) else h]


def convolutional_network(sketch: Sketch) -> list[Tensor]:
    """Two or three convolutions with pooling, and a linear layer."""
    x = sketch.input(sketch.axes("bchw"))
    for at in range(sketch.rng.randint(1, 3)):
        x = activated(
            sketch, convolution(sketch, x, keep=True), sketch.rng.choice(("relu", "relu", "gelu", "silu"))
        )
        if at == 0 and sketch.chance(0.6):
            x = sketch.emit(
                f"F.{sketch.rng.choice(('max', 'avg'))}_pool2d({x}, 2)",
                (*x.axes[:2], *(axis.over(2) for axis in x.axes[2:])),
                "pool2d",
            )
    x = sketch.emit(
        sketch.rng.choice((f"{x}.mean(dim=(2, 3))", f"F.adaptive_avg_pool2d({x}, 1).flatten(1)")),
        x.axes[:2],
        "mean",
    )
    return [linear(sketch, x, sketch.axis("o"))]


def mixer(sketch: Sketch) -> list[Tensor]:
    """A linear layer along positions, transposed in and out."""
    x = sketch.input(sketch.axes("bsn"))
    h = sketch.emit(f"{_normed(sketch, x)}.transpose(1, 2)", (x.axes[0], x.axes[2], x.axes[1]), "transpose")
    h = activated(sketch, linear(sketch, h, x.axes[1]), sketch.rng.choice(("gelu", "silu")))
    return [sketch.emit(f"{x} + {h}.transpose(1, 2)", x.axes, "transpose", "add")]


# --- functions


def function(sketch: Sketch) -> list[Tensor]:
    """A loss, a distance or a norm that torch has no name for, written out."""
    return sketch.rng.choice(
        (
            _focal,
            _dice,
            _charbonnier,
            _rms,
            _rotary,
            _standardised,
            _soft_threshold,
            _contrastive,
            _entropy,
            _moving,
            _quantised,
            _kernel_matrix,
        )
    )(sketch)


def _pair(sketch: Sketch, fill: str = "randn") -> tuple[Tensor, Tensor]:
    axes = sketch.axes(sketch.rng.choice(("mn", "bsn", "bchw")))
    return sketch.input(axes), sketch.input(axes, FILLS.get(fill, fill), "float32")


def _reduced(sketch: Sketch, x: Tensor) -> Tensor:
    return sketch.emit(
        sketch.rng.choice((f"{x}.mean()", f"torch.mean({x})", f"{x}.sum()", f"{x}.mean(dim=-1)")), (), "mean"
    )


def _focal(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, "rand")
    loss = sketch.emit(
        f"F.binary_cross_entropy_with_logits({x}, {t}, reduction='none')", x.axes, "bce_with_logits"
    )
    p = sketch.emit(f"torch.sigmoid({x})", x.axes, "sigmoid")
    near = sketch.emit(f"{p} * {t} + (1 - {p}) * (1 - {t})", x.axes, "mul", "add")
    y = sketch.emit(
        f"{loss} * (1 - {near}) ** {sketch.rng.choice(('2', '2.0', '1.5'))}", x.axes, "pow", "mul"
    )
    return [_reduced(sketch, sketch.emit(f"0.25 * {y}", x.axes, "mul") if sketch.chance(0.5) else y)]


def _dice(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, "rand")
    p = sketch.emit(f"torch.sigmoid({x})", x.axes, "sigmoid")
    both = sketch.emit(f"({p} * {t}).sum(dim=-1)", x.axes[:-1], "mul", "sum")
    total = sketch.emit(f"{p}.sum(dim=-1) + {t}.sum(dim=-1)", x.axes[:-1], "sum", "add")
    return [sketch.emit(f"1 - (2 * {both} + 1.0) / ({total} + 1.0)", x.axes[:-1], "div", "rsub")]


def _charbonnier(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch)
    apart = sketch.emit(f"{x} - {t}", x.axes, "sub")
    text = sketch.rng.choice(
        (
            f"torch.sqrt({apart} ** 2 + 1e-6)",
            f"torch.log(torch.cosh({apart}))",
            f"torch.log1p({apart}.abs())",
            f"torch.where({apart}.abs() < 1.0, 0.5 * {apart} ** 2, {apart}.abs() - 0.5)",
        )
    )
    return [_reduced(sketch, sketch.emit(text, x.axes, "loss"))]


def _rms(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("bsn"))
    gain = sketch.parameter((x.axes[-1],), "ones")
    variance = sketch.emit(
        sketch.rng.choice((f"{x}.pow(2).mean(-1, keepdim=True)", f"({x} * {x}).mean(dim=-1, keepdim=True)")),
        (*x.axes[:-1], ONE),
        "pow",
        "mean",
    )
    eps = sketch.setting("eps", sketch.rng.choice(("1e-6", "1e-5")))
    return [
        sketch.emit(
            f"{x} * torch.rsqrt({variance} + {eps}) * {gain}",
            x.axes,
            "rsqrt",
            "mul",
        )
    ]


def _rotary(sketch: Sketch) -> list[Tensor]:
    b, s, e, f = sketch.axes("bsef")
    x = sketch.input((b, s, e, f))
    cos, sin = sketch.input((s, ONE, f)), sketch.input((s, ONE, f))
    low, high = (
        sketch.emit(text, (b, s, e, f.over(2)), "getitem")
        for text in (f"{x}[..., : {x}.shape[-1] // 2]", f"{x}[..., {x}.shape[-1] // 2 :]")
    )
    turned = sketch.emit(f"torch.cat([-{high}, {low}], dim=-1)", x.axes, "neg", "cat")
    return [sketch.emit(f"{x} * {cos} + {turned} * {sin}", x.axes, "mul", "add")]


def _standardised(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes(sketch.rng.choice(("mn", "bsn"))))
    center = sketch.emit(f"{x} - {x}.mean(dim=-1, keepdim=True)", x.axes, "mean", "sub")
    spread = sketch.rng.choice(
        (
            f"{x}.std(dim=-1, keepdim=True)",
            f"{x}.std(dim=-1, unbiased=False, keepdim=True)",
            f"{x}.abs().amax(dim=-1, keepdim=True)",
        )
    )
    return [sketch.emit(f"{center} / ({spread} + 1e-5)", x.axes, "std", "div")]


def _soft_threshold(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes())
    return [
        sketch.emit(
            f"torch.sign({x}) * torch.relu({x}.abs() - {sketch.rng.choice(('0.1', '0.5', '0.2'))})",
            x.axes,
            "sign",
            "abs",
            "relu",
        )
    ]


def _contrastive(sketch: Sketch) -> list[Tensor]:
    m, k = sketch.axes("mk")
    a, b = sketch.input((m, k)), sketch.input((m, k))
    left, right = (sketch.emit(f"F.normalize({x}, dim=-1)", x.axes, "normalize") for x in (a, b))
    scores = sketch.emit(
        f"{left} @ {right}.t() / {sketch.rng.choice(('0.07', '0.1', '0.5'))}", (m, m), "matmul", "div"
    )
    return [
        sketch.emit(
            sketch.rng.choice(
                (
                    f"F.log_softmax({scores}, dim=-1)",
                    f"torch.logsumexp({scores}, dim=1)",
                    f"F.softmax({scores}, dim=1)",
                )
            ),
            (),
            "softmax",
        )
    ]


def _entropy(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes(sketch.rng.choice(("mn", "bsn"))))
    logs = sketch.emit(
        f"F.log_softmax({x}{sketch.rng.choice((' / 2.0', '', ' * 0.5'))}, dim=-1)", x.axes, "log_softmax"
    )
    return [sketch.emit(f"-(torch.exp({logs}) * {logs}).sum(dim=-1)", x.axes[:-1], "exp", "mul", "sum")]


def _moving(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("mn"))
    y = sketch.emit(f"torch.cumsum({x}, dim=1)", x.axes, "cumsum")
    number = sketch.emit(f"torch.arange(1, {x}.shape[1] + 1, device={x}.device)", x.axes[1:], "arange")
    return [sketch.emit(f"{y} / {number}", x.axes, "div")]


def _quantised(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("mn"))
    scale = sketch.emit(
        f"{x}.abs().amax(dim=-1, keepdim=True) / 127.0", (x.axes[0], ONE), "abs", "amax", "div"
    )
    q = sketch.emit(f"torch.clamp(torch.round({x} / {scale}), -127, 127)", x.axes, "div", "round", "clamp")
    return [sketch.emit(f"{q} * {scale}", x.axes, "mul")]


def _kernel_matrix(sketch: Sketch) -> list[Tensor]:
    m, k, o = sketch.axes("mko")
    a, b = sketch.input((m, k)), sketch.input((o, k))
    apart = sketch.emit(
        f"({a} ** 2).sum(-1, keepdim=True) - 2 * {a} @ {b}.t() + ({b} ** 2).sum(-1)",
        (m, o),
        "pow",
        "sum",
        "matmul",
    )
    return [
        sketch.emit(
            sketch.rng.choice(
                (f"torch.exp(-{apart} * 0.01)", f"1.0 / (1.0 + {apart})", f"{apart}.clamp(min=0).sqrt()")
            ),
            (m, o),
            "exp",
        )
    ]


# --- optimiser steps


def optimizer(sketch: Sketch) -> list[Tensor]:
    """One step of an optimiser on a tensor; its state comes in and goes out."""
    axes = sketch.axes(sketch.rng.choice(("z", "mn", "ko")))
    sketch.habits = replace(sketch.habits, dtype="float32")
    p, g, m = sketch.input(axes), sketch.input(axes), sketch.input(axes)
    rate = sketch.rng.choice(("0.001", "0.01", "1e-3", "3e-4", "0.1"))
    b1, b2 = sketch.rng.choice(("0.9", "0.95")), sketch.rng.choice(("0.999", "0.99"))
    if sketch.chance(0.7):
        pairs = (("lr", rate), ("beta1", b1), ("beta2", b2))
        rate, b1, b2 = (sketch.setting(name, value) for name, value in pairs)
    if sketch.chance(0.3):
        g = sketch.emit(f"{g} + {sketch.rng.choice(('0.01', '1e-4', '0.1'))} * {p}", axes, "add")
    return sketch.rng.choice((_momentum, _adam, _rmsprop, _lion, _adagrad))(sketch, p, g, m, rate, b1, b2)


def _momentum(sketch: Sketch, p: Tensor, g: Tensor, m: Tensor, rate: str, b1: str, b2: str) -> list[Tensor]:
    new = sketch.emit(f"{b1} * {m} + {g}", p.axes, "momentum")
    step = f"({g} + {b1} * {new})" if sketch.chance(0.3) else f"{new}"
    return [sketch.emit(f"{p} - {rate} * {step}", p.axes, "sub"), new]


def _adam(sketch: Sketch, p: Tensor, g: Tensor, m: Tensor, rate: str, b1: str, b2: str) -> list[Tensor]:
    v = sketch.input(p.axes, FILLS["rand"])
    m = sketch.emit(
        sketch.rng.choice((f"{b1} * {m} + (1 - {b1}) * {g}", f"torch.lerp({g}, {m}, {b1})")), p.axes, "moment"
    )
    v = sketch.emit(
        sketch.rng.choice((f"{b2} * {v} + (1 - {b2}) * {g} * {g}", f"{b2} * {v} + (1 - {b2}) * {g} ** 2")),
        p.axes,
        "moment",
    )
    if sketch.chance(0.4):
        p = sketch.emit(f"{p} * (1 - {rate} * 0.01)", p.axes, "decay")
    return [sketch.emit(f"{p} - {rate} * {m} / (torch.sqrt({v}) + 1e-8)", p.axes, "sqrt", "div", "sub"), m, v]


def _rmsprop(sketch: Sketch, p: Tensor, g: Tensor, m: Tensor, rate: str, b1: str, b2: str) -> list[Tensor]:
    square = sketch.emit(f"{b2} * {m}.abs() + (1 - {b2}) * {g}.square()", p.axes, "square", "add")
    return [sketch.emit(f"{p} - {rate} * {g} * torch.rsqrt({square} + 1e-6)", p.axes, "rsqrt", "sub"), square]


def _lion(sketch: Sketch, p: Tensor, g: Tensor, m: Tensor, rate: str, b1: str, b2: str) -> list[Tensor]:
    update = sketch.emit(f"torch.sign({b1} * {m} + (1 - {b1}) * {g})", p.axes, "sign")
    return [
        sketch.emit(f"{p} - {rate} * {update}", p.axes, "sub"),
        sketch.emit(f"{b2} * {m} + (1 - {b2}) * {g}", p.axes, "moment"),
    ]


def _adagrad(sketch: Sketch, p: Tensor, g: Tensor, m: Tensor, rate: str, b1: str, b2: str) -> list[Tensor]:
    total = sketch.emit(f"torch.addcmul({m}.abs(), {g}, {g}, value=1.0)", p.axes, "addcmul")
    return [
        sketch.emit(f"torch.addcdiv({p}, {g}, {total}.sqrt() + 1e-10, value=-0.01)", p.axes, "addcdiv"),
        total,
    ]


NETWORKS: dict[str, Callable[[Sketch], list[Tensor]]] = {
    "perceptron": perceptron,
    "feed_forward": feed_forward,
    "residual_block": residual_block,
    "squeeze_excite": squeeze_excite,
    "attention": attention,
    "attention_block": attention_block,
    "convolutional_network": convolutional_network,
    "mixer": mixer,
    "function": function,
    "optimizer": optimizer,
}
