"""Norms: division by one along a dimension or of a whole tensor, batch, instance, group and layer norms."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.pointwise import pointwise
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size, dims_of

_NORMS: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "rms_norm": (
        "Divides by the root mean square along one dimension.",
        (
            ("rms = torch.sqrt(torch.mean(x * x, dim=@D@, keepdim=True) + self.eps)", "return x / rms"),
            ("mean_square = x.pow(2).mean(dim=@D@, keepdim=True)",
             "return x * torch.rsqrt(mean_square + self.eps)"),
        ),
    ),
    "rms_norm_weighted": (
        "Root mean square normalization with a learned scale.",
        (
            ("mean_square = x.pow(2).mean(dim=@D@, keepdim=True)",
             "return self.weight * x * torch.rsqrt(mean_square + self.eps)"),
        ),
    ),
    "l2_norm": (
        "Scales vectors along one dimension to unit length.",
        (
            ("return x / torch.norm(x, p=2, dim=@D@, keepdim=True)",),
            ("return x / x.norm(dim=@D@, keepdim=True)",),
            ("length = torch.sqrt(torch.sum(x ** 2, dim=@D@, keepdim=True))", "return x / length"),
        ),
    ),
    "normalize": (
        "Unit length along one dimension, safe for zero vectors.",
        (("return F.normalize(x, p=2, dim=@D@)",), ("return F.normalize(x, dim=@D@)",)),
    ),
    "l1_norm": (
        "Divides by the sum of absolute values along one dimension.",
        (
            ("return x / torch.sum(torch.abs(x), dim=@D@, keepdim=True)",),
            ("return x / x.abs().sum(dim=@D@, keepdim=True)",),
        ),
    ),
    "l1_mean_norm": (
        "Divides by the mean absolute value along one dimension.",
        (
            ("mean_abs = torch.mean(torch.abs(x), dim=@D@, keepdim=True)", "return x / mean_abs"),
            ("return x / x.abs().mean(dim=@D@, keepdim=True)",),
        ),
    ),
}  # fmt: skip
"""A sentence, and ways to write the lines of `forward` with the dimension at `@D@`."""
_WHOLE: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    (
        "frobenius_norm",
        (
            ("return x / torch.norm(x, p='fro')",),
            ("norm = torch.norm(x)", "return x / norm"),
            ("norm = torch.sqrt(torch.sum(x ** 2))", "return x / norm"),
        ),
    ),
    (
        "rms_of_all",
        (("rms = torch.sqrt(torch.mean(x ** 2))", "return x / rms"), ("return x / x.pow(2).mean().sqrt()",)),
    ),
    ("mean_abs_of_all", (("return x / torch.mean(torch.abs(x))",), ("return x / x.abs().mean()",))),
)
_BATCH_ACTIVATIONS = ("relu", "silu", "gelu", "leaky_relu", "sigmoid", "tanh", "elu", "hardswish")
_GROUP_ACTIVATIONS = (*_BATCH_ACTIVATIONS, "mish")


def vector_norm(rng: random.Random) -> Draft:
    """A division by a norm along the channels or along rows."""
    name, (doc, forms) = rng.choice(tuple(_NORMS.items()))
    has_eps, has_weight = name.startswith("rms_norm"), name == "rms_norm_weighted"
    rank = rng.choice((2, 2, 3, 4, 4, 5))
    sizes = draw_sizes(rng, rank)
    dim = -1 if has_weight or (rank < 4 and rng.random() < 0.3) else 1
    return Module(
        doc=doc,
        init_args=("num_features: int", "eps: float = 1e-5") if has_eps else (),
        init_lines=(
            *(("self.eps = eps",) if has_eps else ()),
            *(("self.weight = nn.Parameter(torch.ones(num_features))",) if has_weight else ()),
        ),
        forward_lines=tuple(line.replace("@D@", str(dim)) for line in rng.choice(forms)),
        sizes=sizes,
        inputs=(_random(rng, sizes),),
        init_inputs=(sizes[dim].name,) if has_eps else (),
    ).draft((name,), draw_style(rng))


def frobenius_norm(rng: random.Random) -> Draft:
    """A whole tensor divided by its norm."""
    sizes = draw_sizes(rng, rng.choice((2, 3, 4, 4)))
    name, forms = rng.choice(_WHOLE)
    return Module(
        doc="Divides a tensor by one norm of all its values.",
        forward_lines=rng.choice(forms),
        sizes=sizes,
        inputs=(_random(rng, sizes),),
    ).draft((name,), draw_style(rng))


def _random(rng: random.Random, sizes: tuple[Size, ...]) -> str:
    return f"torch.{rng.choice(('rand', 'randn'))}({dims_of(sizes)})"


def batch_norm(rng: random.Random) -> Draft:
    """BatchNorm1d, 2d or 3d in training mode, and perhaps an activation behind it."""
    rank = rng.choice((2, 3, 4, 4, 4, 5))
    sizes = draw_sizes(rng, rank)
    activation = pointwise(rng.choice(_BATCH_ACTIVATIONS), rng) if rng.random() < 0.35 else None
    layer = f"nn.BatchNorm{max(1, rank - 2)}d"
    layer = rng.choice((f"{layer}(num_features)", f"{layer}(num_features=num_features)"))
    lines: tuple[str, ...] = ("return self.bn(x)",)
    if activation:
        lines = ("x = self.bn(x)", f"return {activation.torch.replace('{v}', 'x')}")
    module = Module(
        doc="Batch normalization"
        + (" followed by an activation." if activation else " with batch statistics."),
        init_args=("num_features: int",),
        init_lines=(f"self.bn = {layer}",),
        forward_lines=lines,
        sizes=sizes,
        inputs=(_random(rng, sizes),),
        init_inputs=(sizes[1].name,),
    )
    operators = ("batch_norm", *((activation.operator,) if activation else ()))
    return module.draft(operators, draw_style(rng))


def instance_norm(rng: random.Random) -> Draft:
    """InstanceNorm1d, 2d or 3d, with and without parameters."""
    rank = rng.choice((3, 4, 4, 4, 5))
    sizes = draw_sizes(rng, rank)
    layer = f"nn.InstanceNorm{rank - 2}d"
    affine = ", affine=True" if rng.random() < 0.35 else ""
    text = rng.choice((f"{layer}(num_features", f"{layer}(num_features=num_features"))
    return _normed(
        rng,
        name="instance_norm",
        doc="Normalizes each channel of each sample.",
        layer=f"{text}{affine})",
        init_args=("num_features: int",),
        init_inputs=(sizes[1].name,),
        sizes=sizes,
        attribute=rng.choice(("inorm", "norm", "instance_norm")),
    )


def group_norm(rng: random.Random) -> Draft:
    """GroupNorm over any number of spatial dimensions."""
    per_group, groups, cpu_groups = rng.choice(
        ((2, 8, 2), (4, 8, 3), (4, 16, 3), (8, 8, 2), (2, 32, 3), (16, 4, 2), (8, 16, 2))
    )
    given = draw_sizes(rng, rng.choice((3, 4, 4, 4, 5)))
    while given[1].gpu != per_group * groups:
        given = draw_sizes(rng, len(given))
    channels = Size(given[1].name, per_group * groups, per_group * cpu_groups)
    arguments = rng.choice(("num_groups, num_features", "num_groups=num_groups, num_channels=num_features"))
    return _normed(
        rng,
        name="group_norm",
        doc="Normalizes groups of channels.",
        layer=f"nn.GroupNorm({arguments})",
        init_args=("num_features: int", "num_groups: int"),
        init_inputs=(channels.name, "num_groups"),
        sizes=(given[0], channels, *given[2:], Size("num_groups", groups, cpu_groups)),
        attribute=rng.choice(("gn", "norm", "group_norm")),
    )


def layer_norm(rng: random.Random) -> Draft:
    """LayerNorm over the last one to three dimensions."""
    rank = rng.choice((2, 3, 3, 4, 4))
    sizes = draw_sizes(rng, rank)
    over = {2: 1, 3: rng.choice((1, 1, 2)), 4: rng.choice((3, 3, 2, 1))}[rank]
    names = [size.name for size in sizes[rank - over :]]
    shape = f"({', '.join(names)})" if over > 1 else names[0]
    if over > 1 or rng.random() < 0.4:
        argument = "normalized_shape: tuple"
        given = shape if over > 1 else f"({shape},)"
    else:
        argument, given = "normalized_shape: int", shape
    return _normed(
        rng,
        name="layer_norm",
        doc="Layer normalization over the trailing dimensions.",
        layer=f"nn.LayerNorm({rng.choice(('', 'normalized_shape='))}normalized_shape)",
        init_args=(argument,),
        init_inputs=(given,),
        sizes=sizes,
        attribute=rng.choice(("ln", "norm", "layer_norm")),
    )


def _normed(
    rng: random.Random,
    *,
    name: str,
    doc: str,
    layer: str,
    init_args: tuple[str, ...],
    init_inputs: tuple[str, ...],
    sizes: tuple[Size, ...],
    attribute: str,
) -> Draft:
    """The norm, at times with a residual before or an activation behind."""
    activation = pointwise(rng.choice(_GROUP_ACTIVATIONS), rng) if rng.random() < 0.3 else None
    residual = rng.random() < 0.15
    text = f"self.{attribute}({'x + residual' if residual else 'x'})"
    lines: tuple[str, ...] = (f"return {text}",)
    if activation:
        lines = (f"x = {text}", f"return {activation.torch.replace('{v}', 'x')}")
    doc = doc.removesuffix(".") + (", with a residual before" if residual else "")
    drawn = _random(rng, tuple(size for size in sizes if size.name != "num_groups"))
    return Module(
        doc=doc + (", with an activation behind." if activation else "."),
        init_args=init_args,
        init_lines=(f"self.{attribute} = {layer}",),
        forward_args=("x", "residual") if residual else ("x",),
        forward_lines=lines,
        sizes=sizes,
        inputs=(drawn, drawn) if residual else (drawn,),
        init_inputs=init_inputs,
    ).draft((*["add"] * residual, name, *([activation.operator] if activation else [])), draw_style(rng))
