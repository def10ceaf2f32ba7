"""Elements of a tensor in another order, with a few operators behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.pointwise import draw_chain
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size, dims_of

_TAILS = ("relu", "sigmoid", "tanh", "silu", "gelu", "mul", "add", "sub", "square", "abs", "neg", "hardtanh")


@dataclass(frozen=True)
class Arrangement:
    """An order of elements, as a reference writes it."""

    doc: str
    lines: tuple[str, ...]
    """Lines of `forward`; the last assigns `x`."""
    sizes: tuple[Size, ...]
    setting: tuple[str, int] | None = None
    """A number of the constructor and its value."""


def _sizes(*sizes: tuple[str, Sequence[int], int], rng: random.Random) -> tuple[Size, ...]:
    return tuple(Size(name, rng.choice(few), small) for name, few, small in sizes)


def _images(rng: random.Random, by: int, *, groups: int = 1) -> tuple[Size, ...]:
    """Images with sides that are multiples of `by`, and channels in multiples of `groups`."""
    channels = [groups * size for size in (16, 24, 32, 48, 64, 96) if groups * size <= 512]
    sides = [by * (size // by) for size in (48, 56, 60, 64, 96, 112, 120, 128)]
    return _sizes(
        (rng.choice(("batch_size", "batch", "n")), (8, 12, 16, 24, 32), 2),
        (rng.choice(("channels", "in_channels", "features")), channels, groups * 3),
        ("height", sides, by * 2),
        ("width", sides, by * 3),
        rng=rng,
    )


def permute(rng: random.Random) -> Arrangement:
    """Axes in another order, by `permute`, `transpose` or `movedim`."""
    rank = rng.choice((3, 3, 4, 4, 5))
    names = ("batch_size", "channels", "frames", "height", "width")[:rank]
    counts = {3: ((16, 32), (500, 512), (768, 1000)), 4: ((16, 24), (32, 64), (48, 60), (64, 80))}
    few = counts.get(rank, ((8, 12), (16, 24), (10, 12), (32, 40), (30, 36)))
    sizes = _sizes(
        *((name, choices, 2 + i) for i, (name, choices) in enumerate(zip(names, few, strict=True))), rng=rng
    )
    kind = rng.choice(("permute", "permute", "torch_permute", "transpose", "movedim"))
    if kind in ("permute", "torch_permute"):
        order = list(range(rank))
        while order == sorted(order):
            rng.shuffle(order)
        dims = ", ".join(map(str, order))
        text = f"x.permute({dims})" if kind == "permute" else f"torch.permute(x, ({dims}))"
    else:
        dim, other = sorted(rng.sample(range(rank), 2))
        text = f"x.movedim({dim}, {other})"
        if kind == "transpose":
            text = rng.choice((f"x.transpose({dim}, {other})", f"torch.swapaxes(x, {dim}, {other})"))
    doc = "Puts the dimensions of a tensor in another order."
    return Arrangement(doc, (f"x = {text}.contiguous()",), sizes)


def depth_to_space(rng: random.Random) -> Arrangement:
    """Channels become pixels, in either order of the split."""
    r = rng.choice((2, 2, 3, 4))
    sizes = _images(rng, 1, groups=r * r)
    setting = rng.choice(("block_size", "factor", "scale", "upscale_factor"))
    own = f"self.{setting}"
    late = rng.random() < 0.5
    split = f"{own}, {own}, C // {own} ** 2" if late else f"C // {own} ** 2, {own}, {own}"
    dims = "0, 3, 4, 1, 5, 2" if late else "0, 1, 4, 2, 5, 3"
    lines: tuple[str, ...] = (
        "N, C, H, W = x.shape",
        f"x = x.view(N, {split}, H, W)",
        f"x = x.permute({dims}).contiguous()",
        f"x = x.view(N, C // {own} ** 2, H * {own}, W * {own})",
    )
    if not late and rng.random() < 0.4:
        lines = (f"x = F.pixel_shuffle(x, {own})",)
    return Arrangement("Rearranges channels into pixels.", lines, sizes, (setting, r))


def space_to_depth(rng: random.Random) -> Arrangement:
    """Pixels become channels, before or behind those that there are."""
    r = rng.choice((2, 2, 4))
    sizes = _images(rng, r)
    setting = rng.choice(("block_size", "factor", "bs", "downscale_factor"))
    own = f"self.{setting}"
    first = rng.random() < 0.5
    dims = "0, 3, 5, 1, 2, 4" if first else "0, 1, 3, 5, 2, 4"
    lines: tuple[str, ...] = (
        "N, C, H, W = x.size()",
        f"x = x.view(N, C, H // {own}, {own}, W // {own}, {own})",
        f"x = x.permute({dims}).contiguous()",
        f"x = x.view(N, C * {own} * {own}, H // {own}, W // {own})",
    )
    if not first and rng.random() < 0.4:
        lines = (f"x = F.pixel_unshuffle(x, {own})",)
    return Arrangement("Rearranges pixels into channels.", lines, sizes, (setting, r))


def channel_shuffle(rng: random.Random) -> Arrangement:
    """Channels of several groups in turns."""
    groups = rng.choice((2, 3, 4, 8))
    sizes = _images(rng, 1, groups=groups)
    lines = (
        "N, C, H, W = x.shape",
        "x = x.view(N, self.groups, C // self.groups, H, W)",
        rng.choice(("x = x.transpose(1, 2).contiguous()", "x = x.permute(0, 2, 1, 3, 4).contiguous()")),
        "x = x.view(N, C, H, W)",
    )
    return Arrangement("Shuffles channels between groups.", lines, sizes, ("groups", groups))


def window_partition(rng: random.Random) -> Arrangement:
    """Images with channels last, cut into windows."""
    side = rng.choice((4, 7, 8))
    sizes = _images(rng, side)
    batch, channels, height, width = sizes
    sizes = (batch, height, width, channels)
    own = "self.window_size"
    lines = (
        "B, H, W, C = x.shape",
        f"x = x.view(B, H // {own}, {own}, W // {own}, {own}, C)",
        f"x = x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, {own}, {own}, C)",
    )
    return Arrangement("Cuts images into windows.", lines, sizes, ("window_size", side))


def merged_patches(rng: random.Random) -> Arrangement:
    """Four pixels beside one another as channels of one, by slices."""
    batch, channels, height, width = _images(rng, 2)
    sizes = (batch, height, width, channels)
    names = rng.choice((("x0", "x1", "x2", "x3"), ("a", "b", "c", "d")))
    starts = ((0, 0), (1, 0), (0, 1), (1, 1))
    lines = [
        f"{name} = x[:, {row}::2, {column}::2, :]" for name, (row, column) in zip(names, starts, strict=True)
    ]
    lines.append(f"x = torch.cat([{', '.join(names)}], dim=-1)")
    return Arrangement("Joins the channels of neighbouring pixels.", tuple(lines), sizes)


def split_heads(rng: random.Random) -> Arrangement:
    """Features as heads, before the tokens."""
    number = rng.choice((4, 6, 8, 12))
    sizes = _tokens(rng, ("dim", [number * size for size in (32, 48, 64)], number * 3))
    lines = (
        "B, T, C = x.shape",
        "x = x.view(B, T, self.num_heads, C // self.num_heads)",
        "x = x.transpose(1, 2).contiguous()",
    )
    return Arrangement("Splits features into heads.", lines, sizes, ("num_heads", number))


def merged_heads(rng: random.Random) -> Arrangement:
    """Heads as features again."""
    heads = ("num_heads", (4, 6, 8, 12), 3)
    batch, tokens, number, size = _tokens(rng, heads, ("head_dim", (32, 48, 64, 80), 7))
    lines = ("B, H, T, D = x.shape", "x = x.permute(0, 2, 1, 3).reshape(B, T, H * D)")
    return Arrangement("Joins the features of all heads.", lines, (batch, number, tokens, size))


def _tokens(rng: random.Random, *others: tuple[str, Sequence[int], int]) -> tuple[Size, ...]:
    return _sizes(("batch_size", (8, 16, 24), 2), ("seq_len", (500, 512, 1000), 5), *others, rng=rng)


def patches(rng: random.Random) -> Arrangement:
    """Images as rows of flattened patches."""
    side = rng.choice((4, 8, 16))
    sizes = _images(rng, side)
    last = rng.random() < 0.5
    own = "self.patch_size"
    dims = "0, 2, 4, 3, 5, 1" if last else "0, 2, 4, 1, 3, 5"
    lines = (
        "N, C, H, W = x.shape",
        f"h, w = H // {own}, W // {own}",
        f"x = x.reshape(N, C, h, {own}, w, {own}).permute({dims})",
        f"x = x.reshape(N, h * w, C * {own} ** 2)",
    )
    return Arrangement("Flattens the patches of images.", lines, sizes, ("patch_size", side))


_FORMS: tuple[Callable[[random.Random], Arrangement], ...] = (
    *(permute, permute, depth_to_space, space_to_depth, channel_shuffle, window_partition),
    *(merged_patches, split_heads, merged_heads, patches),
)


def rearranged(rng: random.Random) -> Draft:
    """One arrangement, alone or with operators behind it."""
    form = rng.choice(_FORMS)
    arrangement = form(rng)
    chain = draw_chain(rng, rng.choice((0, 0, 1, 2)), _TAILS)
    style = draw_style(rng)
    returned = [
        *arrangement.lines,
        *(f"x = {operator.torch.replace('{v}', 'x')}" for operator in chain),
        "return x",
    ]
    if not chain and rng.random() < 0.5:
        returned = [*arrangement.lines[:-1], f"return {arrangement.lines[-1].removeprefix('x = ')}"]
    setting = arrangement.setting
    return Module(
        doc=arrangement.doc,
        init_args=(f"{setting[0]}: int",) if setting else (),
        init_lines=(f"self.{setting[0]} = {setting[0]}",) if setting else (),
        forward_lines=tuple(returned),
        sizes=arrangement.sizes,
        inputs=(f"torch.randn({dims_of(arrangement.sizes)})",),
        init_inputs=(setting[0],) if setting else (),
        constants=((setting[0], str(setting[1])),) if setting else (),
    ).draft((form.__name__, *(operator.operator for operator in chain)), style)
