"""Losses in several lines, as authors write them with and without torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernel_core.generator.draw.forms import FILLS
from kernel_core.generator.draw.inputs import narrowed
from kernel_core.generator.draw.sketch import Sketch, Tensor

_PREDICTIONS = ("predictions", "pred", "logits", "output", "y_pred", "inputs", "x")
_TARGETS = ("targets", "target", "labels", "y_true", "y")


def loss_function(sketch: Sketch) -> list[Tensor]:
    """Draw a loss in several lines."""
    return sketch.rng.choice(_LOSSES)(sketch)


def _pair(sketch: Sketch, fill: str = "randn", shape: str = "") -> tuple[Tensor, Tensor]:
    axes = sketch.axes(shape or sketch.pick("mn", "mn", "bsn", "bchw", "z"))
    x = sketch.input(axes, dtype="float32", names=_PREDICTIONS)
    return x, sketch.input(axes, FILLS.get(fill, fill), "float32", names=_TARGETS)


def _reduced(sketch: Sketch, x: Tensor) -> Tensor:
    return sketch.emit(
        sketch.pick(f"{x}.mean()", f"torch.mean({x})", f"{x}.sum()", f"{x}.mean(dim=-1)"), (), "mean"
    )


def _plain_loss(sketch: Sketch) -> list[Tensor]:
    """Hinge, squared, absolute, Poisson and exponential losses in one expression."""
    x, t = _pair(sketch, sketch.pick("sign", "rand", "randn"))
    if sketch.chance(0.4):
        sketch.inputs[-1] = replace(sketch.inputs[-1], axes=narrowed(sketch, x.axes))
    text, name = sketch.pick(
        (f"torch.clamp(1 - {x} * {t}, min=0)", "hinge_loss"),
        (f"torch.clamp(1.0 - {t} * {x}, min=0.0)", "hinge_loss"),
        (f"torch.relu(1.0 - {x} * {t}) ** 2", "squared_hinge_loss"),
        (f"({x} - {t}) ** 2", "squared_error"),
        (f"torch.abs({x} - {t})", "absolute_error"),
        (f"torch.exp({x}) - {t} * {x}", "poisson_loss"),
        (f"torch.log(1 + torch.exp(-{x} * {t}))", "logistic_loss"),
        (f"torch.maximum({t} - {x}, 0.5 * ({x} - {t}))", "quantile_loss"),
        (f"torch.abs({x} - {t}) / (torch.abs({t}) + 1e-3)", "relative_error"),
    )
    return [_reduced(sketch, sketch.emit(text, x.axes, name))]


def _huber(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch)
    delta = sketch.setting("delta", sketch.pick("1.0", "0.5", "2.0"))
    error = sketch.emit(sketch.pick(f"torch.abs({x} - {t})", f"({x} - {t}).abs()"), x.axes, "sub", "abs")
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
    t = sketch.indices((m,), v, _TARGETS)
    logs = sketch.emit(
        sketch.pick(f"F.log_softmax({x}, dim=1)", f"{x} - torch.logsumexp({x}, dim=1, keepdim=True)"),
        (m, v), "log_softmax",
    )  # fmt: skip
    picked = sketch.emit(f"{logs}.gather(1, {t}.unsqueeze(1)).squeeze(1)", (m,), "gather")
    return [sketch.emit(sketch.pick(f"-{picked}.mean()", f"-{picked}", f"(-{picked}).sum()"), (), "neg")]


def _divergence(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, shape="mn")
    q = sketch.emit(f"torch.softmax({t}, dim=-1)", x.axes, "softmax")
    text = sketch.pick(f"torch.log_softmax({x}, dim=-1)", f"torch.log(torch.softmax({x}, dim=-1))")
    logs = sketch.emit(text, x.axes, "log_softmax")
    end = sketch.pick(".sum(dim=-1)", ".sum(dim=-1).mean()", ".sum()")
    text = sketch.pick(
        f"({q} * (torch.log({q}) - {logs})){end}", f"F.kl_div({logs}, {q}, reduction='batchmean')"
    )
    return [sketch.emit(text, (), "kl_div")]


def _triplet(sketch: Sketch) -> list[Tensor]:
    axes = sketch.axes("mn")
    a, p, n = (sketch.input(axes, names=(name,)) for name in ("anchor", "positive", "negative"))
    margin = sketch.setting("margin", sketch.pick("1.0", "0.5", "0.2"))
    near = sketch.emit(f"(({a} - {p}) ** 2).sum(dim=1)", axes[:1], "squared_distance")
    far = sketch.emit(f"(({a} - {n}) ** 2).sum(dim=1)", axes[:1], "squared_distance")
    loss = sketch.emit(f"torch.relu({near} - {far} + {margin})", axes[:1], "triplet_loss")
    return [sketch.emit(f"{loss}.mean()", (), "mean") if sketch.chance(0.6) else loss]


def _cosine(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, shape="mn")
    dot = sketch.emit(f"({x} * {t}).sum(dim=-1)", x.axes[:1], "dot_product")
    text = sketch.pick(
        f"{x}.norm(dim=-1) * {t}.norm(dim=-1)", f"torch.norm({x}, dim=-1) * torch.norm({t}, dim=-1)"
    )
    lengths = sketch.emit(text, x.axes[:1], "norm", "mul")
    value = sketch.emit(f"{dot} / ({lengths} + {sketch.setting('eps', '1e-8')})", x.axes[:1], "div")
    end = sketch.pick(f"1 - {value}", f"{value}", f"(1 - {value}).mean()")
    return [sketch.emit(end, (), "cosine_similarity")]


def _focal(sketch: Sketch) -> list[Tensor]:
    x, t = _pair(sketch, "rand")
    loss = sketch.emit(
        f"F.binary_cross_entropy_with_logits({x}, {t}, reduction='none')", x.axes, "bce_with_logits"
    )
    p = sketch.emit(f"torch.sigmoid({x})", x.axes, "sigmoid")
    near = sketch.emit(f"{p} * {t} + (1 - {p}) * (1 - {t})", x.axes, "mul", "add")
    y = sketch.emit(f"{loss} * (1 - {near}) ** {sketch.pick('2', '2.0', '1.5')}", x.axes, "pow", "mul")
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
    text = sketch.pick(
        f"torch.sqrt({apart} ** 2 + 1e-6)",
        f"torch.log(torch.cosh({apart}))",
        f"torch.log1p({apart}.abs())",
        f"torch.where({apart}.abs() < 1.0, 0.5 * {apart} ** 2, {apart}.abs() - 0.5)",
    )
    return [_reduced(sketch, sketch.emit(text, x.axes, "loss"))]


def _contrastive(sketch: Sketch) -> list[Tensor]:
    m, k = sketch.axes("mk")
    a, b = sketch.input((m, k)), sketch.input((m, k))
    left, right = (sketch.emit(f"F.normalize({x}, dim=-1)", x.axes, "normalize") for x in (a, b))
    scores = sketch.emit(
        f"{left} @ {right}.t() / {sketch.pick('0.07', '0.1', '0.5')}", (m, m), "matmul", "div"
    )
    return [
        sketch.emit(
            sketch.pick(
                    f"F.log_softmax({scores}, dim=-1)", f"torch.logsumexp({scores}, dim=1)",
                    f"F.softmax({scores}, dim=1)",
                ),
            (), "softmax",
        )
    ]  # fmt: skip


def _entropy(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes(sketch.pick("mn", "bsn")))
    logs = sketch.emit(
        f"F.log_softmax({x}{sketch.pick(' / 2.0', '', ' * 0.5')}, dim=-1)", x.axes, "log_softmax"
    )
    return [sketch.emit(f"-(torch.exp({logs}) * {logs}).sum(dim=-1)", x.axes[:-1], "exp", "mul", "sum")]


_LOSSES: tuple[Callable[[Sketch], list[Tensor]], ...] = (
    *[_plain_loss] * 5, _huber, _bce, _cross_entropy, _divergence, _divergence, _triplet, _cosine,
    _focal, _dice, _charbonnier, _contrastive, _entropy,
)  # fmt: skip
