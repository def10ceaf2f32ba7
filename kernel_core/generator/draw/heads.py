"""Parts of chains and networks: products, convolutions, reductions, norms and pools of a tensor."""

from __future__ import annotations

from kernel_core.generator.draw.convolutions import chained_convolution
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.steps import activated, is_convolved, pointwise_step


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
        y = sketch.parameter((o, k)) if sketch.chance(0.4) else sketch.input((o, k))
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
    if x is None:
        x = sketch.input(sketch.axes(sketch.pick("bchw", "bchw", "bchw", "bcdhw", "bcdhw", "bcl")))
        x = window_pool(sketch, x) if sketch.chance(0.06) else x
    return chained_convolution(sketch, x, out, keep)


def reduction(sketch: Sketch, x: Tensor | None = None, keep: bool = False) -> Tensor:
    """Draw a reduction along an axis; behind a convolution over channels, depth, places or a whole sample."""
    x = x or prelude(sketch)
    longer = [at for at, axis in enumerate(x.axes) if axis is not ONE] or [0]
    dims: tuple[int, ...] = (sketch.pick(*[longer[-1] - x.rank] * 2, *longer),)
    names = ["sum", "mean", "mean", "amax", "amin", "logsumexp", "var", "std", "norm", "max", "min"]
    if x.rank > 2 and is_convolved(sketch):
        places = (*range(2, x.rank),)
        dims = sketch.pick((1,), (1,), (1,), (2,), places, places, (1, *places))
        names = names[:4] if len(dims) > 1 else ["sum", "mean", "logsumexp", "max", "min"]
    name = sketch.rng.choice(names)
    more = ", keepdim=True" if (keep := keep or sketch.chance(0.5)) else ""
    along = str(sketch.pick(dims, [*dims]) if len(dims) > 1 else dims[0])
    along = sketch.setting("dim", along) if len(dims) == 1 and sketch.chance(0.6) else along
    text = f"torch.{name}({x}, dim={along}{more})" if sketch.chance(0.5) else f"{x}.{name}(dim={along}{more})"
    text += sketch.pick("[0]", ".values") if name in ("max", "min") else ""
    reduced = {dim % x.rank for dim in dims}
    axes = tuple(ONE if k in reduced else axis for k, axis in enumerate(x.axes) if keep or k not in reduced)
    return sketch.emit(text, axes, name)


def prelude(sketch: Sketch) -> Tensor:
    """Draw an input, at times with pointwise steps behind it."""
    x = sketch.input(sketch.axes(sketch.pick("mn", "bsn", "bchw")))
    for _ in range(sketch.pick(0, 0, 1, 1, 2, 3)):
        x = pointwise_step(sketch, x)
    return x


def normalised(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw a norm that fits the shape."""
    is_image = x.rank >= 3 and is_convolved(sketch)
    if x.rank < 2 or x.axes[1 if is_image else -1] is ONE:
        return activated(sketch, x)
    if is_image:
        return _normalised_channels(sketch, x)
    kind = sketch.pick(
            "layer_norm", "layer_norm", "rms_norm", "batch_norm", "batch_norm", "group_norm", "softmax",
            "softmax", "normalize", "log_softmax",
        )  # fmt: skip
    if kind in ("batch_norm", "group_norm") and x.rank == 2:
        return _norm_layer(sketch, x, kind)
    if kind in ("layer_norm", "rms_norm", "batch_norm", "group_norm"):
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


def _normalised_channels(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw a norm layer, or softmax over the channels or over all places of each."""
    norms = ("batch_norm", "batch_norm", "group_norm", "group_norm", "instance_norm", "layer_norm", "places")
    has_all = x.axes[1].text in sketch.sizes and x.axes[-1] is not ONE
    kind = sketch.pick("softmax", "softmax", *(norms if has_all else ()))
    if kind == "softmax":
        call = sketch.pick("torch.softmax({}, dim=1)", "F.softmax({}, dim=1)", "{}.softmax(dim=1)")
        return sketch.emit(call.format(x), x.axes, kind)
    if kind == "places":
        sizes = sketch.sizes_of(x)
        flat = sketch.pick(f"{x}.view({sizes[0]}, {sizes[1]}, -1)", f"{x}.flatten(2)")
        y = sketch.emit(f"torch.softmax({flat}, dim={sketch.pick('2', '-1')})", (), "softmax")
        return sketch.emit(f"{y}.view({', '.join(sizes)})", x.axes, "view")
    if kind == "layer_norm":
        shape = ", ".join(axis.text for axis in x.axes[sketch.pick(-1, 1) :])
        return sketch.emit(f"{sketch.layer(('norm', 'ln'), f'nn.LayerNorm([{shape}])')}({x})", x.axes, kind)
    return _norm_layer(sketch, x, kind)


def _norm_layer(sketch: Sketch, x: Tensor, kind: str) -> Tensor:
    """Draw a norm over channels or groups of them."""
    channels, rank = x.axes[1].text, max(x.rank - 2, 1)
    call = f"nn.{'BatchNorm' if kind == 'batch_norm' else 'InstanceNorm'}{rank}d({channels}"
    if kind == "group_norm":
        groups = sketch.option("num_groups", sketch.pick("2", "4"))
        call = sketch.pick(f"nn.GroupNorm({groups}, ", f"nn.GroupNorm(num_groups={groups}, num_channels=")
        call += channels
    if sketch.chance(0.3):
        call += f", eps={sketch.option('eps', sketch.pick('1e-3', '1e-5'), '1e-5')}"
        if kind == "batch_norm":
            call += f", momentum={sketch.option('momentum', sketch.pick('0.1', '0.01'), '0.1')}"
    return sketch.emit(f"{sketch.layer(('norm', 'bn', 'gn', kind), f'{call})')}({x})", x.axes, kind)


def norm_of_last(
    sketch: Sketch, x: Tensor, layer: str, names: tuple[str, ...] = ("norm", "ln", "norm1")
) -> Tensor:
    """Draw `nn.LayerNorm` or `nn.RMSNorm` of the last axis."""
    called = sketch.layer(names, f"nn.{layer}({x.axes[-1].text})")
    return sketch.emit(f"{called}({x})", x.axes, "rms_norm" if layer == "RMSNorm" else "layer_norm")


def pooled(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw pooling over windows or over all places of a channel, or a reduction."""
    if x.rank == 2 and x.axes[1] is not ONE and sketch.chance(0.2):
        text = f"{sketch.layer(('pool', 'avg_pool'), 'nn.AvgPool1d(2)')}({x}.unsqueeze(1)).squeeze(1)"
        return sketch.emit(text, (x.axes[0], x.axes[1].over(2)), "avg_pool1d")
    if x.rank < 3 or not is_convolved(sketch):
        return reduction(sketch, x)
    if min(min(axis.cpu, axis.gpu) for axis in x.axes[2:]) > 3 and sketch.chance(0.75):
        return window_pool(sketch, x)
    ones = (1,) * (x.rank - 2)
    layer = f"nn.AdaptiveAvgPool{len(ones)}d({sketch.pick(1, ones)})"
    text = f"F.adaptive_avg_pool{len(ones)}d({x}, 1)"
    text = f"{sketch.layer(('global_pool', 'gap'), layer)}({x})" if sketch.chance(0.6) else text
    return sketch.emit(text, (*x.axes[:2], *[ONE] * len(ones)), "adaptive_avg_pool")


def window_pool(sketch: Sketch, x: Tensor) -> Tensor:
    """Draw pooling over windows, with options as numbers or as arguments of the constructor."""
    rank, kind = x.rank - 2, sketch.pick("max", "avg")
    size = sketch.pick(2, 2, 3)
    stride = sketch.pick(size, size, size, 2)
    prefix = sketch.pick("pool_", f"{kind}pool_", f"{kind}_pool_")
    inside = f"kernel_size={sketch.option(prefix + 'kernel_size', str(size))}"
    inside = inside.removeprefix(sketch.pick("kernel_size=", "-"))
    if stride != size or sketch.chance(0.4):
        inside += f", stride={sketch.option(prefix + 'stride', str(stride))}"
    text = f"F.{kind}_pool{rank}d({x}, {inside})"
    if sketch.habits.settings != "inline" or sketch.chance(0.6):
        layer = f"nn.{kind.title()}Pool{rank}d({inside})"
        text = f"{sketch.layer(('pool', f'{kind}_pool', f'{kind}pool', 'pool1'), layer)}({x})"
    shorter = (axis.plus(stride - size).over(stride) for axis in x.axes[2:])
    return sketch.emit(text, (*x.axes[:2], *shorter), f"{kind}_pool{rank}d")
