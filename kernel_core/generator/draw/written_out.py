"""Losses and norms that are written out in several lines, as authors write what torch has names for, too."""

from __future__ import annotations

from collections.abc import Callable

from kernel_core.generator.draw.forms import FILLS
from kernel_core.generator.draw.sizes import ONE
from kernel_core.generator.draw.sketch import Sketch, Tensor

_PREDICTIONS = ("predictions", "pred", "logits", "output", "y_pred", "inputs", "x")
_TARGETS = ("targets", "target", "labels", "y_true", "y")


def loss_function(sketch: Sketch) -> list[Tensor]:
    """Draw a loss in several lines."""
    return sketch.rng.choice(_LOSSES)(sketch)


def norm_function(sketch: Sketch) -> list[Tensor]:
    """Draw a norm in several lines."""
    return sketch.rng.choice(_NORMS)(sketch)


# --- losses


def _pair(sketch: Sketch, fill: str = "randn", shape: str = "") -> tuple[Tensor, Tensor]:
    axes = sketch.axes(shape or sketch.rng.choice(("mn", "mn", "bsn", "bchw", "z")))
    x = sketch.input(axes, dtype="float32", names=_PREDICTIONS)
    return x, sketch.input(axes, FILLS.get(fill, fill), "float32", names=_TARGETS)


def _reduced(sketch: Sketch, x: Tensor) -> Tensor:
    return sketch.emit(
        sketch.rng.choice((f"{x}.mean()", f"torch.mean({x})", f"{x}.sum()", f"{x}.mean(dim=-1)")), (), "mean"
    )


def _plain_loss(sketch: Sketch) -> list[Tensor]:
    """Hinge, squared, absolute, Poisson and exponential losses in one expression."""
    x, t = _pair(sketch, sketch.rng.choice(("sign", "rand", "randn")))
    text, name = sketch.rng.choice(
        (
            (f"torch.clamp(1 - {x} * {t}, min=0)", "hinge_loss"),
            (f"torch.relu(1.0 - {x} * {t}) ** 2", "squared_hinge_loss"),
            (f"({x} - {t}) ** 2", "squared_error"),
            (f"torch.abs({x} - {t})", "absolute_error"),
            (f"torch.exp({x}) - {t} * {x}", "poisson_loss"),
            (f"torch.log(1 + torch.exp(-{x} * {t}))", "logistic_loss"),
            (f"torch.maximum({t} - {x}, 0.5 * ({x} - {t}))", "quantile_loss"),
            (f"torch.abs({x} - {t}) / (torch.abs({t}) + 1e-3)", "relative_error"),
        )
    )
    return [_reduced(sketch, sketch.emit(text, x.axes, name))]


def _huber(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch)
    delta = sketch.setting("delta", sketch.rng.choice(("1.0", "0.5", "2.0")))
    error = sketch.emit(
        sketch.rng.choice((f"torch.abs({x} - {t})", f"({x} - {t}).abs()")), x.axes, "sub", "abs"
    )
    small = sketch.emit(f"0.5 * {error} ** 2", x.axes, "square")
    large = sketch.emit(f"{delta} * ({error} - 0.5 * {delta})", x.axes, "mul")
    loss = sketch.emit(f"torch.where({error} <= {delta}, {small}, {large})", x.axes, "where")
    return [_reduced(sketch, loss)]


def _bce(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, "rand")
    p = sketch.emit(f"torch.sigmoid({x})", x.axes, "sigmoid")
    p = sketch.emit(f"torch.clamp({p}, 1e-6, 1 - 1e-6)", x.axes, "clamp") if sketch.chance(0.7) else p
    loss = sketch.emit(
        f"-({t} * torch.log({p}) + (1 - {t}) * torch.log(1 - {p}))", x.axes, "binary_cross_entropy"
    )
    return [_reduced(sketch, loss)]


def _cross_entropy(sketch: Sketch) -> list[Tensor]:
    m, v = sketch.axes("mv")
    x = sketch.input((m, v), names=("logits", "predictions", "x"))
    t = sketch.input((m,), f"torch.randint(0, {v.text}, {{tuple}})", "int64", names=_TARGETS)
    logs = sketch.emit(
        sketch.rng.choice((f"F.log_softmax({x}, dim=1)", f"{x} - torch.logsumexp({x}, dim=1, keepdim=True)")),
        (m, v), "log_softmax",
    )  # fmt: skip
    picked = sketch.emit(f"{logs}.gather(1, {t}.unsqueeze(1)).squeeze(1)", (m,), "gather")
    return [
        sketch.emit(sketch.rng.choice((f"-{picked}.mean()", f"-{picked}", f"(-{picked}).sum()")), (), "neg")
    ]


def _divergence(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, shape="mn")
    q = sketch.emit(f"torch.softmax({t}, dim=-1)", x.axes, "softmax")
    logs = sketch.emit(f"torch.log_softmax({x}, dim=-1)", x.axes, "log_softmax")
    end = sketch.rng.choice((".sum(dim=-1)", ".sum(dim=-1).mean()", ".sum()"))
    return [sketch.emit(f"({q} * (torch.log({q}) - {logs})){end}", (), "kl_div")]


def _triplet(sketch: Sketch) -> list[Tensor]:
    axes = sketch.axes("mn")
    a, p, n = (sketch.input(axes, names=(name,)) for name in ("anchor", "positive", "negative"))
    margin = sketch.setting("margin", sketch.rng.choice(("1.0", "0.5", "0.2")))
    near = sketch.emit(f"(({a} - {p}) ** 2).sum(dim=1)", axes[:1], "squared_distance")
    far = sketch.emit(f"(({a} - {n}) ** 2).sum(dim=1)", axes[:1], "squared_distance")
    loss = sketch.emit(f"torch.relu({near} - {far} + {margin})", axes[:1], "triplet_loss")
    return [sketch.emit(f"{loss}.mean()", (), "mean") if sketch.chance(0.6) else loss]


def _cosine(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, shape="mn")
    dot = sketch.emit(f"({x} * {t}).sum(dim=-1)", x.axes[:1], "dot_product")
    text = sketch.rng.choice(
        (f"{x}.norm(dim=-1) * {t}.norm(dim=-1)", f"torch.norm({x}, dim=-1) * torch.norm({t}, dim=-1)")
    )
    lengths = sketch.emit(text, x.axes[:1], "norm", "mul")
    value = sketch.emit(f"{dot} / ({lengths} + {sketch.setting('eps', '1e-8')})", x.axes[:1], "div")
    end = sketch.rng.choice((f"1 - {value}", f"{value}", f"(1 - {value}).mean()"))
    return [sketch.emit(end, (), "cosine_similarity")]


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


# --- norms


def _scaled_by_norm(sketch: Sketch) -> list[Tensor]:
    """L1, L2, Frobenius and maximum norms."""
    x = sketch.input(sketch.axes(sketch.rng.choice(("mn", "mn", "bn", "bsn", "bchw"))))
    dim = sketch.setting("dim", sketch.rng.choice(("1", "1", "-1")))
    low, high = f"{x}.amin(dim={dim}, keepdim=True)", f"{x}.amax(dim={dim}, keepdim=True)"
    texts = (
        (f"{x} / torch.sum(torch.abs({x}), dim={dim}, keepdim=True)", "l1_norm"),
        (f"{x} / {x}.abs().mean(dim={dim}, keepdim=True)", "l1_norm"),
        (f"{x} / torch.norm({x}, p=2, dim={dim}, keepdim=True)", "l2_norm"),
        (f"{x} / torch.sqrt((({x} ** 2).sum(dim={dim}, keepdim=True)) + 1e-12)", "l2_norm"),
        (f"{x} / (torch.linalg.norm({x}, dim={dim}, keepdim=True) + 1e-6)", "l2_norm"),
        (f"{x} / torch.norm({x})", "frobenius_norm"),
        (f"{x} / torch.sqrt(torch.sum({x} * {x}))", "frobenius_norm"),
        (f"{x} / torch.norm({x}, p='fro')", "frobenius_norm"),
        (f"{x} / {x}.abs().amax(dim={dim}, keepdim=True)", "max_norm"),
        (f"({x} - {low}) / ({high} - {low})", "min_max_scaling"),
    )  # fmt: skip
    text, name = sketch.rng.choice(texts)
    return [sketch.emit(text, x.axes, name)]


def _moments(sketch: Sketch, x: Tensor, dims: str) -> Tensor:
    """A value shifted and scaled to mean 0 and variance 1 along dimensions."""
    eps = sketch.setting("eps", sketch.rng.choice(("1e-5", "1e-6", "1e-3")))
    mean = sketch.emit(f"{x}.mean(dim={dims}, keepdim=True)", x.axes, "mean")
    variance = sketch.emit(
        sketch.rng.choice(
            (
                f"{x}.var(dim={dims}, keepdim=True, unbiased=False)",
                f"(({x} - {mean}) ** 2).mean(dim={dims}, keepdim=True)",
            )
        ),
        x.axes, "var",
    )  # fmt: skip
    text = sketch.rng.choice(
        (
            f"({x} - {mean}) / torch.sqrt({variance} + {eps})",
            f"({x} - {mean}) * torch.rsqrt({variance} + {eps})",
        )
    )
    return sketch.emit(text, x.axes, "sub", "div")


def _channel_norm(sketch: Sketch) -> list[Tensor]:
    """Batch, instance and layer norm of images, and RMS norm over channels."""
    x = sketch.input(sketch.axes("bchw"))
    channel = (x.axes[1], ONE, ONE)
    if sketch.chance(0.3):
        rms = sketch.emit(f"torch.sqrt(torch.mean({x} ** 2, dim=1, keepdim=True) + 1e-5)", x.axes, "rms_norm")
        return [sketch.emit(f"{x} / {rms}", x.axes, "div")]
    y = _moments(sketch, x, sketch.rng.choice(("(0, 2, 3)", "(2, 3)", "(1, 2, 3)", "[2, 3]", "1")))
    if sketch.chance(0.5):
        weight, bias = sketch.parameter(channel, "ones"), sketch.parameter(channel, "zeros")
        y = sketch.emit(f"{y} * {weight} + {bias}", x.axes, "mul", "add")
    return [y]


def _layer_norm(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes(sketch.rng.choice(("mn", "bsn"))))
    y = _moments(sketch, x, "-1")
    if sketch.chance(0.6):
        y = sketch.emit(
            f"{y} * {sketch.parameter(x.axes[-1:], 'ones')} + {sketch.parameter(x.axes[-1:])}", x.axes, "mul"
        )
    return [y]


def _group_norm(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("bchw"))
    b, c, h, w = sketch.sizes_of(x)
    groups = sketch.setting("num_groups", sketch.rng.choice(("2", "4")))
    split = sketch.emit(
        sketch.rng.choice(
            (f"{x}.view({b}, {groups}, -1)", f"{x}.reshape({b}, {groups}, {c} // {groups} * {h} * {w})")
        ),
        (x.axes[0], ONE, ONE), "reshape",
    )  # fmt: skip
    y = _moments(sketch, split, "-1")
    return [
        sketch.emit(
            sketch.rng.choice((f"{y}.view({b}, {c}, {h}, {w})", f"{y}.view_as({x})")), x.axes, "reshape"
        )
    ]


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


_LOSSES: tuple[Callable[[Sketch], list[Tensor]], ...] = (
    _plain_loss, _plain_loss, _plain_loss, _huber, _bce, _cross_entropy, _divergence, _triplet, _cosine,
    _focal, _dice, _charbonnier, _contrastive, _entropy,
)  # fmt: skip
_NORMS: tuple[Callable[[Sketch], list[Tensor]], ...] = (
    _scaled_by_norm, _scaled_by_norm, _scaled_by_norm, _channel_norm, _channel_norm, _layer_norm, _group_norm,
    _rms, _standardised,
)  # fmt: skip
WRITTEN_OUT: dict[str, Callable[[Sketch], list[Tensor]]] = {
    "loss_function": loss_function,
    "norm_function": norm_function,
}
