"""Level-2-like problems: a product, a convolution, a reduction or a norm, and what follows it pointwise."""

from __future__ import annotations

from collections.abc import Callable

from kernel_core.generator.draw.convolutions import chained_convolution
from kernel_core.generator.draw.inputs import broadcast_shapes
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.steps import Step, activated, is_convolved, joined_with, pointwise_step

# --- heads: what a chain begins with


def linear(
    sketch: Sketch, x: Tensor | None = None, out: Axis | None = None, bias: bool | None = None
) -> Tensor:
    """Draw a linear layer on the last axis."""
    x = x or sketch.input(sketch.axes(sketch.pick("mk", "mk", "bsk")))
    out = out or sketch.axis("o")
    with_bias = sketch.chance(0.8) if bias is None else bias
    more = "" if with_bias else ", bias=False"
    layer = sketch.layer(
        ("linear", "fc", "proj", "dense", "lin"), f"nn.Linear({x.axes[-1].text}, {out.text}{more})"
    )
    return sketch.emit(f"{layer}({x})", (*x.axes[:-1], out), "linear")


def product(sketch: Sketch) -> Tensor:
    """Draw a matrix product of inputs."""
    b, m, k, o = sketch.axes("bmko")
    kind = sketch.pick("matmul", "matmul", "transposed", "bmm", "addmm")
    if kind == "bmm":
        x, y = sketch.input((b, m, k)), sketch.input((b, k, o))
        text = sketch.pick("torch.bmm({}, {})", "torch.matmul({}, {})", "{} @ {}")
        return sketch.emit(text.format(x, y), (b, m, o), "bmm")
    x = sketch.input((m, k))
    weight = sketch.parameter((k, o)) if sketch.chance(0.3) else None
    if kind == "transposed":
        y = sketch.input((o, k))
        text = sketch.pick("torch.matmul({}, {}.t())", "{} @ {}.T", "torch.mm({}, {}.transpose(0, 1))")
        return sketch.emit(text.format(x, y), (m, o), "transpose", "matmul")
    y = weight or sketch.input((k, o))
    if kind == "addmm":
        c = sketch.input((o,))
        return sketch.emit(f"torch.addmm({c}, {x}, {y})", (m, o), "addmm")
    text = sketch.pick("torch.matmul({}, {})", "torch.mm({}, {})", "{} @ {}", "{}.matmul({})")
    return sketch.emit(text.format(x, y), (m, o), "matmul")


def convolution(
    sketch: Sketch, x: Tensor | None = None, keep: bool = False, out: Axis | None = None
) -> Tensor:
    """Draw a convolution layer; `keep` keeps height and width."""
    x = x or sketch.input(sketch.axes(sketch.pick("bchw", "bchw", "bchw", "bcl", "bcdhw")))
    return chained_convolution(sketch, x, out, keep)


def reduction(sketch: Sketch, x: Tensor | None = None, keep: bool = False) -> Tensor:
    """Draw a reduction along one axis."""
    x = x or prelude(sketch)
    dim = sketch.pick(-1, -1, *range(x.rank))
    name = sketch.pick("sum", "mean", "amax", "amin", "logsumexp", "var", "std", "norm", "max", "min", "mean")
    keep = keep or sketch.chance(0.5)
    more = ", keepdim=True" if keep else ""
    along = sketch.setting("dim", str(dim))
    text = f"torch.{name}({x}, dim={along}{more})" if sketch.chance(0.5) else f"{x}.{name}(dim={along}{more})"
    text += sketch.pick("[0]", ".values") if name in ("max", "min") else ""
    at = dim % x.rank
    axes = tuple(ONE if k == at else axis for k, axis in enumerate(x.axes) if keep or k != at)
    return sketch.emit(text, axes, name)


def prelude(sketch: Sketch) -> Tensor:
    """Draw an input, at times with a pointwise step behind it."""
    x = sketch.input(sketch.axes(sketch.pick("mn", "bsn", "bchw")))
    return (
        activated(sketch, x) if sketch.chance(0.3) else pointwise_step(sketch, x) if sketch.chance(0.4) else x
    )


def normalised(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw a norm that fits the shape."""
    if x.rank < 2:
        return activated(sketch, x)
    if x.rank >= 3 and is_convolved(sketch):
        channels = x.axes[1].text
        name = {3: "1d", 4: "2d", 5: "3d"}[x.rank]
        call, operator = sketch.pick(
            (f"nn.BatchNorm{name}({channels})", "batch_norm"),
            (f"nn.InstanceNorm{name}({channels})", "instance_norm"),
            *[("", "group_norm")] * 2,
        )
        call = call or f"nn.GroupNorm({sketch.option('num_groups', sketch.pick('2', '4'))}, {channels})"
        layer = sketch.layer(("norm", "bn", "gn", "norm1"), call)
        return sketch.emit(f"{layer}({x})", x.axes, operator)
    size = x.axes[-1].text
    kind = sketch.pick(
            "layer_norm", "layer_norm", "rms_norm", "batch_norm", "softmax", "softmax", "normalize",
            "log_softmax",
        )  # fmt: skip
    if kind == "batch_norm" and x.rank == 2:
        return sketch.emit(f"{sketch.layer(('bn', 'norm'), f'nn.BatchNorm1d({size})')}({x})", x.axes, kind)
    if kind in ("layer_norm", "rms_norm", "batch_norm"):
        return norm_of_last(sketch, x, "RMSNorm" if kind == "rms_norm" else "LayerNorm")
    text = {
        "softmax": (
            "torch.softmax({}, dim=-1)",
            "F.softmax({}, dim=-1)",
            "{}.softmax(dim=-1)",
            "torch.softmax({}, dim=1)",
        ),
        "log_softmax": ("F.log_softmax({}, dim=-1)", "torch.log_softmax({}, dim=1)"),
        "normalize": ("F.normalize({}, dim=-1)", "{0} / ({0}.norm(dim=-1, keepdim=True) + 1e-6)"),
    }[kind]
    return sketch.emit(sketch.rng.choice(text).format(x), x.axes, kind)


def norm_of_last(
    sketch: Sketch, x: Tensor, layer: str, names: tuple[str, ...] = ("norm", "ln", "norm1")
) -> Tensor:
    """Draw `nn.LayerNorm` or `nn.RMSNorm` of the last axis."""
    called = sketch.layer(names, f"nn.{layer}({x.axes[-1].text})")
    return sketch.emit(f"{called}({x})", x.axes, "rms_norm" if layer == "RMSNorm" else "layer_norm")


def pooled(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw pooling over windows or over all places of a channel, or a reduction."""
    if x.rank < 3 or not is_convolved(sketch):
        return reduction(sketch, x)
    rank, kind = x.rank - 2, sketch.pick("max", "avg", "global", "mean")
    if kind == "mean":
        dims = tuple(range(2, x.rank))
        return sketch.emit(f"torch.mean({x}, dim={dims if len(dims) > 1 else dims[0]})", x.axes[:2], "mean")
    if kind == "global":
        text = sketch.pick(
            f"F.adaptive_avg_pool{rank}d({x}, 1)", f"{x}.amax(dim={tuple(range(2, x.rank))}, keepdim=True)"
        )
        return sketch.emit(
            text, (*x.axes[:2], *([ONE] * rank)), "adaptive_avg_pool" if "adaptive" in text else "amax"
        )
    text = f"F.{kind}_pool{rank}d({x}, 2)"
    if sketch.chance(0.5):
        size = sketch.option(sketch.pick("pool_kernel_size", "pool_size"), "2")
        layer = sketch.layer(("pool", "down", "pooling"), f"nn.{kind.title()}Pool{rank}d({size})")
        text = f"{layer}({x})"
    return sketch.emit(text, (*x.axes[:2], *(axis.over(2) for axis in x.axes[2:])), f"{kind}_pool{rank}d")


# --- families


def chain(sketch: Sketch, head: Step | Callable[[Sketch], Tensor]) -> list[Tensor]:
    """Draw a head and one to five steps; norms, pools and reductions come at most once each."""
    x = head(sketch)  # type: ignore[call-arg]
    first = x
    for _ in range(sketch.pick(1, 2, 2, 3, 3, 4, 5)):
        x = pointwise_step(sketch, x)
        if x.rank == 0:
            break
    if x.rank and sketch.chance(0.35):
        x = sketch.pick(normalised, normalised, pooled)(sketch, x)
        for _ in range(sketch.pick(0, 0, 1, 2)):
            x = pointwise_step(sketch, x)
    if x.axes == first.axes and sketch.chance(0.2) and x is not first:
        x = sketch.emit(f"{x} + {first}", x.axes, "add")
    return [x]


def pointwise_chain(sketch: Sketch) -> list[Tensor]:
    """Draw three to seven pointwise steps, over inputs that may broadcast."""
    axes = sketch.axes()
    shapes = broadcast_shapes(sketch, axes, 1) if sketch.chance(0.5) else [axes]
    x = activated(sketch, sketch.input(shapes[0]))
    for shape in shapes[1:]:
        x = joined_with(sketch, x, sketch.input(shape), axes)
    for _ in range(sketch.rng.randint(1, 5)):
        x = pointwise_step(sketch, x)
    return [x]


def activated_norm(sketch: Sketch) -> Tensor:
    """Draw an activation and a norm."""
    return normalised(sketch, activated(sketch, prelude(sketch)))


CHAINS: dict[str, Callable[[Sketch], list[Tensor]]] = {
    "chain_pointwise": pointwise_chain,
    "chain_linear": lambda sketch: chain(sketch, linear),
    "chain_product": lambda sketch: chain(sketch, product),
    "chain_convolution": lambda sketch: chain(sketch, convolution),
    "chain_reduction": lambda sketch: chain(sketch, reduction),
    "chain_norm": lambda sketch: chain(sketch, activated_norm),
}
