"""Instance, group and layer normalization: rows of a tensor with their own mean and variance."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.pointwise import Pointwise, pointwise
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.group_kernels import (
    BY_CHANNEL,
    BY_POSITION,
    PART,
    PART_APPLY,
    THREE_PASSES,
    TWO_PASSES,
)
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.program import Size

_ACTIVATIONS = ("relu", "silu", "gelu", "leaky_relu", "sigmoid", "tanh", "elu", "hardswish", "mish")
_CHUNK = 16384


@dataclass(frozen=True)
class _Kind:
    """A normalization: how it is written and how its groups lie in memory."""

    name: str
    doc: str
    layer: str
    init_args: tuple[str, ...]
    init_inputs: tuple[str, ...]
    sizes: tuple[Size, ...]
    attribute: str
    view: tuple[str, ...]
    """Host lines that leave `groups`, the number of rows, and `n`, their length, and further scalars."""
    scalars: tuple[str, ...] = ()
    affine: str = ""
    split: bool = False
    """Whether rows are so long that several programs should share one."""


def instance_norm(rng: random.Random) -> Draft:
    """InstanceNorm1d, 2d or 3d, with and without parameters."""
    rank = rng.choice((3, 4, 4, 4, 5))
    sizes = draw_sizes(rng, rank)
    layer = f"nn.InstanceNorm{rank - 2}d"
    affine = rng.random() < 0.35
    text = rng.choice((f"{layer}(num_features", f"{layer}(num_features=num_features"))
    return _draft(
        rng,
        "instance_norm",
        _Kind(
            name="instance_norm",
            doc="Normalizes each channel of each sample.",
            layer=text + (", affine=True)" if affine else ")"),
            init_args=("num_features: int",),
            init_inputs=(sizes[1].name,),
            sizes=sizes,
            attribute=rng.choice(("inorm", "norm", "instance_norm")),
            view=("n = x.shape[2:].numel()", "groups = x.numel() // n", "channels = x.shape[1]")
            if affine
            else ("n = x.shape[2:].numel()", "groups = x.numel() // n"),
            scalars=("channels",) if affine else (),
            affine=_INSTANCE_AFFINE if affine else "",
        ),
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
    sizes = (given[0], channels, *given[2:], Size("num_groups", groups, cpu_groups))
    return _draft(
        rng,
        "group_norm",
        _Kind(
            name="group_norm",
            doc="Normalizes groups of channels.",
            layer=rng.choice(
                ("nn.GroupNorm(num_groups, num_features)",
                 "nn.GroupNorm(num_groups=num_groups, num_channels=num_features)")
            ),
            init_args=("num_features: int", "num_groups: int"),
            init_inputs=(channels.name, "num_groups"),
            sizes=sizes,
            attribute=rng.choice(("gn", "norm", "group_norm")),
            view=(
                "spatial = x.shape[2:].numel()",
                "num_groups = self.@A@.num_groups",
                "groups = x.shape[0] * num_groups",
                "n = x.numel() // groups",
            ),
            scalars=("spatial", "num_groups"),
            affine=BY_CHANNEL.replace("@FIRST@", "(row % num_groups) * (n // spatial) + "),
        ),
    )  # fmt: skip


def layer_norm(rng: random.Random) -> Draft:
    """LayerNorm over the last one to three dimensions."""
    rank = rng.choice((2, 3, 3, 4, 4))
    sizes = draw_sizes(rng, rank)
    over = {2: 1, 3: rng.choice((1, 1, 2)), 4: rng.choice((3, 3, 2, 1))}[rank]
    names = [size.name for size in sizes[rank - over :]]
    shape = f"({', '.join(names)})" if over > 1 else names[0]
    whole = over >= rank - 1 and rank > 2
    if over > 1 or rng.random() < 0.4:
        argument = "normalized_shape: tuple"
        given = shape if over > 1 else f"({shape},)"
    else:
        argument, given = "normalized_shape: int", shape
    return _draft(
        rng,
        "layer_norm",
        _Kind(
            name="layer_norm",
            doc="Layer normalization over the trailing dimensions.",
            layer=rng.choice(
                ("nn.LayerNorm(normalized_shape)", "nn.LayerNorm(normalized_shape=normalized_shape)")
            ),
            init_args=(argument,),
            init_inputs=(given,),
            sizes=sizes,
            attribute=rng.choice(("ln", "norm", "layer_norm")),
            view=("n = self.@A@.weight.numel()", "groups = x.numel() // n"),
            affine=BY_POSITION,
            split=whole,
        ),
    )


_INSTANCE_AFFINE = """\
c = row % channels
y = y * tl.load(weight_ptr + c) + tl.load(bias_ptr + c)"""


def _draft(rng: random.Random, family: str, kind: _Kind) -> Draft:
    activation = pointwise(rng.choice(_ACTIVATIONS), rng) if rng.random() < 0.3 else None
    residual = rng.random() < 0.15
    module = _module(rng, kind, activation, residual)
    values = {
        "K": kind.name,
        "MORE": ("residual_ptr, " if residual else "") + ("weight_ptr, bias_ptr, " if kind.affine else ""),
        "RESIDUAL": "residual_ptr, " if residual else "",
        "SCALARS": "".join(f"{one}, " for one in kind.scalars),
        "ADD": _ADD if residual else "",
        "AFFINE": kind.affine,
        "AFTER": f"y = {activation.triton.replace('{v}', 'y')}" if activation else "",
    }
    three, two = fill(THREE_PASSES, **values), fill(TWO_PASSES, **values)
    more = _arguments(kind, residual)
    naive = Answer("naive", (three,), _lines(kind, residual, more, 1024, 4), _THREE_REASON)
    fused = Answer("fused", (two,), _lines(kind, residual, more, 2048, 4), _TWO_REASON)
    if kind.split:
        functions = (fill(PART, **values), fill(PART_APPLY, **values))
        tuned = Answer("tuned", functions, _split_lines(kind, residual, more), _SPLIT_REASON)
    else:
        tuned = Answer("tuned", (two,), _lines(kind, residual, more, 4096, 8), _TWO_REASON)
    wrong = mistake(tuned, "(x - mean) * rstd", "x * rstd", "mean_not_removed")
    unrooted = mistake(naive, "1.0 / tl.sqrt", "1.0 / ", "no_root")
    operators = (*(("add",) if residual else ()), kind.name, *((activation.operator,) if activation else ()))
    return draft(rng, family, operators, module, (naive, fused, tuned, wrong, unrooted))


_ADD = "x += tl.load(residual_ptr + base + cols, mask=cols < n, other=0.0)"
_THREE_REASON = (
    "A group is one piece of memory, so a program takes one group: a pass for the mean, a pass for the "
    "variance, a pass to write. The later passes mostly hit the cache."
)
_TWO_REASON = (
    "Sum and sum of squares are taken in one pass over the group, so it is read twice in place of three "
    "times; everything after the statistics happens in registers before the store."
)
_SPLIT_REASON = (
    "There are few groups and each is long, so one program a group would leave most of the GPU idle. "
    "Chunks leave partial sums; a second kernel combines the sums of its group and writes its chunk."
)


def _module(rng: random.Random, kind: _Kind, activation: Pointwise | None, residual: bool) -> Module:
    given = "x + residual" if residual else "x"
    text = f"self.{kind.attribute}({given})"
    lines: tuple[str, ...] = (f"return {text}",)
    if activation:
        lines = (f"x = {text}", f"return {activation.torch.replace('{v}', 'x')}")
    names = ", ".join(size.name for size in kind.sizes if size.name != "num_groups")
    source = rng.choice(("rand", "randn"))
    doc = kind.doc.removesuffix(".") + (", with a residual before" if residual else "")
    return Module(
        doc=doc + (", with an activation behind." if activation else "."),
        init_args=kind.init_args,
        init_lines=(f"self.{kind.attribute} = {kind.layer}",),
        forward_args=("x", "residual") if residual else ("x",),
        forward_lines=lines,
        sizes=kind.sizes,
        inputs=(f"torch.{source}({names})",) * (2 if residual else 1),
        init_inputs=kind.init_inputs,
    )


def _arguments(kind: _Kind, residual: bool) -> str:
    affine = f"self.{kind.attribute}.weight, self.{kind.attribute}.bias, " if kind.affine else ""
    return ("residual, " if residual else "") + affine


def _view(kind: _Kind, residual: bool) -> tuple[str, ...]:
    contiguous = ("residual = residual.contiguous()",) if residual else ()
    view = tuple(line.replace("@A@", kind.attribute) for line in kind.view)
    return ("x = x.contiguous()", *contiguous, *view, "out = torch.empty_like(x)")


def _lines(kind: _Kind, residual: bool, more: str, block: int, warps: int) -> tuple[str, ...]:
    scalars = "".join(f", {one}" for one in kind.scalars)
    warp = "" if warps == 4 else f", num_warps={warps}"
    fitted = str(block) if block <= 1024 else f"min({block}, triton.next_power_of_2(n))"
    return (
        *_view(kind, residual),
        f"{kind.name}_kernel[(groups,)](",
        f"    x, {more}out, n{scalars}, self.{kind.attribute}.eps,",
        f"    BLOCK={fitted}{warp},",
        ")",
        "return out",
    )


def _split_lines(kind: _Kind, residual: bool, more: str) -> tuple[str, ...]:
    scalars = "".join(f"{one}, " for one in kind.scalars)
    given = "residual, " if residual else ""
    return (
        *_view(kind, residual),
        f"parts = triton.cdiv(n, {_CHUNK})",
        "sums = torch.empty(groups * parts, device=x.device, dtype=torch.float32)",
        "squares = torch.empty_like(sums)",
        "grid = (groups * parts,)",
        f"stats_kernel[grid](x, {given}sums, squares, n, parts, CHUNK={_CHUNK}, BLOCK=2048, num_warps=8)",
        "apply_kernel[grid](",
        f"    x, {more}sums, squares, out, n, {scalars}parts, self.{kind.attribute}.eps,",
        f"    CHUNK={_CHUNK}, BLOCK=2048, PARTS=triton.next_power_of_2(parts), num_warps=8,",
        ")",
        "return out",
    )
