"""Functions of several lines: activations, scans, layouts, products and quantisation."""

from __future__ import annotations

from collections.abc import Callable

from kernel_core.generator.draw.sizes import ONE
from kernel_core.generator.draw.sketch import Sketch, Tensor
from kernel_core.generator.draw.steps import FORMULAS, pointwise_step, written_out


def _choice(functions: tuple[Callable[[Sketch], list[Tensor]], ...]) -> Callable[[Sketch], list[Tensor]]:
    return lambda sketch: sketch.rng.choice(functions)(sketch)


# --- activations


def _activation(sketch: Sketch) -> list[Tensor]:
    """An activation in one expression."""
    return [written_out(sketch, sketch.input(sketch.axes()), [*FORMULAS])]


def _glu(sketch: Sketch) -> list[Tensor]:
    """A gate whose halves come from one tensor."""
    b, s, n = sketch.axes("bsn")
    x = sketch.input((b, s, n.times(2)))
    act = sketch.pick("torch.sigmoid", "F.silu", "F.gelu", "torch.relu", "torch.tanh")
    split = sketch.pick(f"{x}.chunk(2, dim=-1)", f"torch.chunk({x}, 2, dim=-1)")
    left, right = sketch.parts(
        split, (b, s, n), sketch.pick(("a", "b"), ("x1", "x2"), ("gate", "value")), "chunk"
    )
    return [sketch.emit(f"{act}({left}) * {right}", (b, s, n), "glu", "mul")]


def _soft_threshold(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes())
    return [
        sketch.emit(
            f"torch.sign({x}) * torch.relu({x}.abs() - {sketch.pick('0.1', '0.5', '0.2')})", x.axes,
            "sign", "abs", "relu",
        )
    ]  # fmt: skip


# --- scans


def _scan(sketch: Sketch) -> list[Tensor]:
    """Exclusive, reverse and masked running sums and products."""
    x = sketch.input(sketch.axes(sketch.pick("mn", "mn", "bn")), "randn")
    x = pointwise_step(sketch, x) if sketch.chance(0.4) else x
    dim = sketch.setting("dim", "1")
    if sketch.chance(0.25):
        mask = sketch.input(x.axes, "torch.rand({}) > 0.5", "bool", names=("mask", "valid"))
        return [sketch.emit(f"torch.cumsum({x} * {mask}, dim={dim})", x.axes, "mul", "masked_cumulative_sum")]
    text, name = sketch.pick(
        (f"torch.cumsum({x}.flip({dim}), dim={dim}).flip({dim})", "reverse_cumulative_sum"),
        (f"torch.flip(torch.cumsum(torch.flip({x}, dims=[1]), dim=1), dims=[1])", "reverse_cumulative_sum"),
        (f"torch.cumsum({x}, dim={dim}) - {x}", "exclusive_cumulative_sum"),
        (f"F.pad(torch.cumsum({x}, dim=1), (1, 0))[:, :-1]", "exclusive_cumulative_sum"),
        (f"torch.cumsum({x}, dim={dim}) / {x}.sum(dim={dim}, keepdim=True).abs()", "cumulative_share"),
        (f"torch.cumsum({x} * {x}, dim={dim}).sqrt()", "cumulative_norm"),
        (f"torch.exp(torch.cumsum(-torch.abs({x}), dim={dim}))", "cumulative_decay"),
    )
    y = sketch.emit(text, x.axes, name)
    return [pointwise_step(sketch, y) if sketch.chance(0.4) else y]


def _moving(sketch: Sketch) -> list[Tensor]:
    x = sketch.input(sketch.axes("mn"))
    y = sketch.emit(f"torch.cumsum({x}, dim=1)", x.axes, "cumsum")
    number = sketch.emit(f"torch.arange(1, {x}.shape[1] + 1, device={x}.device)", x.axes[1:], "arange")
    return [sketch.emit(f"{y} / {number}", x.axes, "div")]


# --- layouts


def _shuffled(sketch: Sketch) -> list[Tensor]:
    """Channel shuffle by views."""
    x = sketch.input(sketch.axes("bchw"))
    b, c, h, w = sketch.sizes_of(x)
    groups = sketch.setting("groups", sketch.pick("2", "4"))
    y = sketch.emit(f"{x}.view({b}, {groups}, {c} // {groups}, {h}, {w})", (*x.axes, ONE), "view")
    y = sketch.emit(f"{y}.transpose(1, 2).contiguous()", (*x.axes, ONE), "transpose")
    return [sketch.emit(f"{y}.view({b}, {c}, {h}, {w})", x.axes, "channel_shuffle")]


def _flattened(sketch: Sketch) -> list[Tensor]:
    """A reduction or softmax over positions, which a view puts in one axis."""
    x = sketch.input(sketch.axes("bchw"))
    b, c, h, w = sketch.sizes_of(x)
    y = sketch.emit(
        sketch.pick(f"{x}.view({b}, {c}, -1)", f"{x}.view({b}, {c}, {h} * {w})"), x.axes[:3], "view"
    )
    ends = (
        (f"{y}.mean(dim=-1)", x.axes[:2], "mean"),
        (f"{y}.max(dim=-1)[0]", x.axes[:2], "max"),
        (f"torch.softmax({y}, dim=-1).view({b}, {c}, {h}, {w})", x.axes, "softmax"),
        (f"{y}.transpose(1, 2)", (), "transpose"),
        (f"({y} / {y}.norm(dim=-1, keepdim=True)).view({b}, {c}, {h}, {w})", x.axes, "normalize"),
        (f"torch.bmm({y}, {y}.transpose(1, 2)) / ({c} * {h} * {w})", (), "gram_matrix"),
    )
    text, axes, name = sketch.rng.choice(ends)
    return [sketch.emit(text, axes, name)]


def _windows(sketch: Sketch) -> list[Tensor]:
    """Windows of images as rows of a batch, patches as rows of a sequence, or neighbours as channels."""
    b, h, w, c = sketch.axes("bhwc")
    size = sketch.pick(2, 4, 7, 8)
    side = sketch.setting(sketch.pick("window_size", "patch_size", "size"), str(size))
    if sketch.chance(0.3):
        x = sketch.input((b, h.times(2), w.times(2), c))
        corners = [
            sketch.emit(f"{x}[:, {k}::2, {j}::2, :]", (b, h, w, c), "getitem") for k in (0, 1) for j in (0, 1)
        ]
        return [sketch.emit(f"torch.cat([{', '.join(map(str, corners))}], dim=-1)", (), "cat")]
    if sketch.chance(0.5):
        x = sketch.input((b, h.times(size), w.times(size), c))
        x = pointwise_step(sketch, x) if sketch.chance(0.4) else x
        sizes = sketch.sizes_of(x)
        text = "{x}.view({0}, {1} // {s}, {s}, {2} // {s}, {s}, {3})"
        y = sketch.emit(text.format(*sizes, x=x, s=side), (), "view")
        end = sketch.pick("-1, {s}, {s}, {c}", "-1, {s} * {s}, {c}").format(s=side, c=sizes[3])
        call = sketch.pick(f".contiguous().view({end})", f".reshape({end})")
        return [sketch.emit(f"{y}.permute(0, 1, 3, 2, 4, 5){call}", (), "permute")]
    x = sketch.input((b, c, h.times(size), w.times(size)))
    sizes = sketch.sizes_of(x)
    text = "{x}.reshape({0}, {1}, {2} // {s}, {s}, {3} // {s}, {s})"
    y = sketch.emit(text.format(*sizes, x=x, s=side), (), "reshape")
    end = f"{sizes[0]}, -1, {sizes[1]} * {side} * {side}"
    return [sketch.emit(f"{y}.permute(0, 2, 4, 1, 3, 5).reshape({end})", (), "permute")]


def _heads(sketch: Sketch) -> list[Tensor]:
    """Features split into heads, heads joined again, or places of images as a sequence."""
    b, s, e, f = sketch.axes("besf")
    if sketch.chance(0.4):
        x = sketch.input((b, e, s, f))
        x = pointwise_step(sketch, x) if sketch.chance(0.5) else x
        sizes = sketch.sizes_of(x)
        end = f"{sizes[0]}, {sizes[2]}, {sizes[1]} * {sizes[3]}"
        call = sketch.pick(f".contiguous().view({end})", f".reshape({end})")
        return [sketch.emit(f"{x}.transpose(1, 2){call}", (), "transpose", "view")]
    x = sketch.input((b, s, f.times(4)))
    sizes = sketch.sizes_of(x)
    y = sketch.emit(f"{x}.view({sizes[0]}, {sizes[1]}, 4, {sizes[2]} // 4)", (), "view")
    call = sketch.pick("permute(0, 2, 1, 3)", "transpose(1, 2)", "permute(0, 2, 3, 1)")
    scale = sketch.pick("", f" * {sketch.setting('scale', '0.125')}")
    return [sketch.emit(f"{y}.{call}{sketch.pick('', '.contiguous()')}{scale}", (), call.partition("(")[0])]


def _masked(sketch: Sketch) -> list[Tensor]:
    """A mean, softmax or sum over the valid positions of sequences."""
    b, s, n = sketch.axes("bsn")
    x = sketch.input((b, s, n))
    mask = sketch.input((b, s), "torch.rand({}) > 0.3", "bool", names=("mask", "attention_mask", "valid"))
    wide = sketch.emit(sketch.pick(f"{mask}.unsqueeze(-1)", f"{mask}[:, :, None]"), (b, s, ONE), "unsqueeze")
    kept = sketch.emit(f"{x} * {wide}", x.axes, "mul")
    text, name = sketch.pick(
        (f"{kept}.sum(dim=1) / {wide}.sum(dim=1).clamp(min=1)", "masked_mean"),
        (f"{kept}.sum(dim=1)", "masked_sum"),
        (f"torch.softmax({x}.masked_fill(~{wide}, -1e9), dim=1)", "masked_softmax"),
    )
    return [sketch.emit(text, (), name)]


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


# --- products


def _matrix(sketch: Sketch) -> list[Tensor]:
    """Products with triangular, diagonal, symmetric, transposed and repeated factors."""
    m, n = sketch.axes("mn")
    kind = sketch.pick("square", "square", "square", "diagonal", "diagonal", "transposed", "gram", "scaled")
    if kind == "square":
        a, b = sketch.input((m, m), names=("A", "a", "x")), sketch.input((m, m), names=("B", "b", "y"))
        text, name = sketch.pick(
            (f"torch.tril(torch.matmul({a}, {b}))", "tril"),
            (f"torch.triu({a} @ {b})", "triu"),
            (f"torch.matmul(torch.tril({a}), torch.tril({b}))", "tril"),
            (f"torch.matmul({a} + {a}.T, {b})", "transpose"),
            (f"torch.matmul({a}, {b}) + torch.eye({a}.shape[0], device={a}.device)", "eye"),
            (f"torch.trace({a} @ {b}).reshape(1)", "trace"),
        )
        return [sketch.emit(text, (), "matmul", name)]
    if kind == "diagonal":
        d, a = sketch.input((m,), names=("d", "diag", "a")), sketch.input((m, n))
        text = sketch.pick(f"torch.diag({d}) @ {a}", f"{d}.unsqueeze(1) * {a}", f"{d}[:, None] * {a}")
        return [sketch.emit(text, (m, n), "diagonal_product")]
    if kind == "transposed":
        a, b = (
            sketch.input((n, m), names=("A", "a", "x")),
            sketch.input((sketch.axis("o"), n), names=("B", "b", "y")),
        )
        return [
            sketch.emit(
                sketch.pick(f"torch.matmul({a}.T, {b}.T)", f"{a}.t() @ {b}.t()"), (), "transpose",
                "matmul",
            )
        ]  # fmt: skip
    a = sketch.input((m, n), names=("A", "a", "x"))
    if kind == "gram":
        text = sketch.pick(f"torch.matmul({a}, {a}.T)", f"{a} @ {a}.t() / {a}.shape[1]", f"{a}.T @ {a}")
        return [sketch.emit(text, (), "transpose", "gram_matrix")]
    b = sketch.input((n, sketch.axis("o")), names=("B", "b", "y"))
    number = sketch.number()
    scale = sketch.scalar(number) if sketch.chance(0.4) else sketch.setting("alpha", number)
    text = sketch.pick(f"{a} @ {b} * {scale}", f"{scale} * torch.mm({a}, {b})")
    return [sketch.emit(text, (), "matmul", "mul")]


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
        f"({a} ** 2).sum(-1, keepdim=True) - 2 * {a} @ {b}.t() + ({b} ** 2).sum(-1)", (m, o), "pow", "sum",
        "matmul",
    )  # fmt: skip
    return [
        sketch.emit(
            sketch.pick(
                f"torch.exp(-{apart} * 0.01)", f"1.0 / (1.0 + {apart})", f"{apart}.clamp(min=0).sqrt()"
            ),
            (m, o),
            "exp",
        )
    ]


FUNCTIONS: dict[str, Callable[[Sketch], list[Tensor]]] = {
    "activation_function": _choice((_activation, _activation, _activation, _glu, _soft_threshold)),
    "scan_function": _choice((_scan, _scan, _scan, _moving)),
    "layout_function": _choice((_shuffled, _flattened, _masked, _rotary, _windows, _heads)),
    "matrix_function": _choice((_matrix, _matrix, _matrix, _kernel_matrix, _quantised)),
}
"""Families by name."""
