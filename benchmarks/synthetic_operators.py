"""What invented modules are made of: operators by domain, in PyTorch and in a compiler's Triton."""

from __future__ import annotations

POINTWISE = {
    "relu": ("F.relu({x})", "triton_helpers.maximum({t}, 0)"),
    "sigmoid": ("torch.sigmoid({x})", "tl.sigmoid({t})"),
    "tanh": ("torch.tanh({x})", "libdevice.tanh({t})"),
    "gelu": ("F.gelu({x})", "0.5 * {t} * (1.0 + libdevice.erf({t} * 0.7071067811865476))"),
    "silu": ("F.silu({x})", "{t} * tl.sigmoid({t})"),
    "softplus": ("F.softplus({x})", "libdevice.log1p(tl_math.exp({t}))"),
    "elu": ("F.elu({x}, {c})", "tl.where({t} > 0, {t}, {c} * libdevice.expm1({t}))"),
    "leaky_relu": ("F.leaky_relu({x}, {c})", "tl.where({t} > 0, {t}, {t} * {c})"),
    "hardtanh": (
        "F.hardtanh({x}, -{c}, {c})",
        "triton_helpers.minimum(triton_helpers.maximum({t}, -{c}), {c})",
    ),
    "mish": ("F.mish({x})", "{t} * libdevice.tanh(libdevice.log1p(tl_math.exp({t})))"),
    "abs": ("torch.abs({x})", "tl_math.abs({t})"),
    "square": ("torch.square({x})", "{t} * {t}"),
    "sin": ("torch.sin({x})", "tl_math.sin({t})"),
    "cos": ("torch.cos({x})", "tl_math.cos({t})"),
    "scale": ("{x} * {c}", "{t} * {c}"),
    "shift": ("{x} + {c}", "{t} + {c}"),
    "clamp": (
        "torch.clamp({x}, -{c}, {c})",
        "triton_helpers.minimum(triton_helpers.maximum({t}, -{c}), {c})",
    ),
    "rsqrt": ("torch.rsqrt({x} * {x} + {c})", "libdevice.rsqrt({t} * {t} + {c})"),
    "logsigmoid": (
        "F.logsigmoid({x})",
        "triton_helpers.minimum(0, {t}) - libdevice.log1p(tl_math.exp(-tl_math.abs({t})))",
    ),
    "hardswish": (
        "F.hardswish({x})",
        "{t} * triton_helpers.minimum(triton_helpers.maximum({t} + 3.0, 0.0), 6.0) / 6.0",
    ),
}
"""Kind to its PyTorch and its Triton expression; `{c}` is a constant."""

LIBRARY = {
    "rows": {
        "linear": ("nn.Linear({n}, {n})", "{l}({x})"),
        "layer_norm": ("nn.LayerNorm({n}, eps={e})", "{l}({x})"),
        "softmax": ("", "torch.softmax({x}, dim=-1)"),
        "log_softmax": ("", "F.log_softmax({x}, dim=-1)"),
        "cumsum": ("", "torch.cumsum({x}, dim=-1)"),
        "centre": ("", "{x} - {x}.mean(dim=-1, keepdim=True)"),
        "unit": ("", "F.normalize({x}, dim=-1, eps={e})"),
        "flip": ("", "torch.flip({x}, dims=[-1])"),
        "bilinear": ("nn.Bilinear({n}, {n}, {n})", "{l}({x}, {x})"),
        "logsumexp": ("", "{x} - torch.logsumexp({x}, dim=-1, keepdim=True)"),
    },
    "sequence": {
        "attention": ("nn.MultiheadAttention({n}, 4, batch_first=True)", "{l}({x}, {x}, {x})[0]"),
        "project": ("nn.Linear({n}, {n}, bias=False)", "{l}({x})"),
        "time_norm": ("nn.LayerNorm({n}, eps={e})", "{l}({x})"),
        "scores": ("", "torch.softmax({x} @ {x}.transpose(1, 2), dim=-1) @ {x}"),
        "time_mean": ("", "{x} - {x}.mean(dim=1, keepdim=True)"),
        "recurrent": ("nn.GRU({n}, {n}, batch_first=True)", "{l}({x})[0]"),
        "convolve_time": ("nn.Conv1d({n}, {n}, 3, padding=1)", "{l}({x}.transpose(1, 2)).transpose(1, 2)"),
        "roll": ("", "torch.roll({x}, shifts={k}, dims=1)"),
    },
    "image": {
        "conv3": ("nn.Conv2d({n}, {n}, 3, padding=1)", "{l}({x})"),
        "conv_grouped": ("nn.Conv2d({n}, {n}, 3, padding=1, groups={n})", "{l}({x})"),
        "conv_transposed": ("nn.ConvTranspose2d({n}, {n}, 3, padding=1)", "{l}({x})"),
        "batch_norm": ("nn.BatchNorm2d({n}, eps={e})", "{l}({x})"),
        "group_norm": ("nn.GroupNorm(2, {n}, eps={e})", "{l}({x})"),
        "instance_norm": ("nn.InstanceNorm2d({n}, affine=True)", "{l}({x})"),
        "max_pool": ("nn.MaxPool2d(3, stride=1, padding=1)", "{l}({x})"),
        "avg_pool": ("nn.AvgPool2d(3, stride=1, padding=1)", "{l}({x})"),
        "pixel_softmax": ("", "torch.softmax({x}.flatten(2), dim=-1).view_as({x})"),
        "channel_gate": ("", "{x} * torch.sigmoid({x}.mean(dim=(2, 3), keepdim=True))"),
        "prelu": ("nn.PReLU({n})", "{l}({x})"),
    },
}
"""Domain to kind to the layer that `__init__` makes (if any) and the expression that applies it."""

JOINS = {"add": "{a} + {b}", "mul": "{a} * {b}", "maximum": "torch.maximum({a}, {b})", "sub": "{a} - {b}"}
SHAPES = {"rows": "[{m}, {n}]", "sequence": "[{m}, {k}, {n}]", "image": "[{m}, {n}, {h}, {h}]"}
