"""Level-1-like problems: one operator of the table in one of torch's spellings, and layers by themselves."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from kernel_core.generator.draw.forms import Form, forms, resolved, spellings
from kernel_core.generator.draw.inputs import inputs_of
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch, Tensor

SYMBOLS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "true_divide": "/", "pow": "**", "floor_divide": "//",
    "remainder": "%", "matmul": "@", "mm": "@", "bmm": "@", "bitwise_and": "&", "bitwise_or": "|",
    "bitwise_xor": "^", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
LAYERS_BY_NAME = {
    name.lower(): name
    for name in dir(nn)
    if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module)
}
LAYERS_BY_NAME |= {"kldiv": "KLDivLoss", "binarycrossentropy": "BCELoss", "crossentropy": "CrossEntropyLoss"}
LAYERS_BY_NAME |= {"binarycrossentropywithlogits": "BCEWithLogitsLoss", "interpolate": "Upsample"}
_UNTIED = ("numbers", "small", "mixed")
"""Ways to write sizes in which tensors that share an axis do not show it."""
_OWN_LAYERS = """
Linear | mk | k, o ; k, o, bias=False
Linear | bsk | k, o
Linear | bhwk | k, o ; k, o, bias=False
LayerNorm | bsn | n ; n, eps=1e-6
LayerNorm | bchw | [c, h, w]
RMSNorm | bsn | n ; n, eps=1e-6
GroupNorm | bchw | 4, c ; 2, c, eps=1e-4
GroupNorm | bcl | 4, c
InstanceNorm2d | bchw | c ; c, affine=True
InstanceNorm1d | bcl | c, affine=True
BatchNorm2d | bchw | c ; c, eps=1e-3
BatchNorm1d | mn | n
BatchNorm1d | bcl | c
BatchNorm3d | bcdhw | c
InstanceNorm3d | bcdhw | c
LayerNorm | mn | n, elementwise_affine=False ; n
Linear | mk | k, o, bias=False ; in_features=k, out_features=o
PReLU | bchw | c ; 1
Embedding | vocabulary | v, n
"""


def single_operator(sketch: Sketch, name: str) -> list[Tensor]:
    """Draw one call of an operator, in one of its forms and spellings."""
    form = sketch.rng.choice(forms()[name])
    if any(given.shape[0] == "@" for given in form.inputs) and sketch.habits.sizes in _UNTIED:
        sketch.habits = replace(sketch.habits, sizes="named")
    values, at = inputs_of(sketch, form)
    return [call(sketch, form, values, at)]


def layer_names() -> tuple[str, ...]:
    """Return layers with parameters of their own."""
    return tuple(_own_layers())


@functools.cache
def _own_layers() -> dict[str, tuple[tuple[str, str], ...]]:
    """Shape of the input and options of each layer, by name."""
    rows: dict[str, tuple[tuple[str, str], ...]] = {}
    for line in _OWN_LAYERS.strip().splitlines():
        name, shape, options = line.split(" | ")
        rows[name] = (*rows.get(name, ()), (shape, options))
    return rows


def single_layer(sketch: Sketch, name: str) -> list[Tensor]:
    """Draw one layer with parameters."""
    shape, options = sketch.rng.choice(_own_layers()[name])
    chosen = sketch.rng.choice(options.split(" ; ")).strip()
    if shape == "vocabulary":
        axes = sketch.axes("bsvn")
        inputs = [sketch.input(axes[:2], f"torch.randint(0, {axes[2].text}, ({{}}))", "int64")]
        letters = "bsvn"
    else:
        letters = shape + "po"
        axes = sketch.axes(letters if re.search(r"\b[po]\b", chosen) else shape)
        inputs = [sketch.input(axes[: len(shape)])]
    by_letter = {letter: axis.text for letter, axis in zip(letters, axes, strict=False)}
    arguments = re.sub(r"\b[a-z]\b", lambda match: by_letter.get(match[0], match[0]), chosen)
    stem = re.sub(r"\d[a-z]$", "", name).lower()
    names = (stem, stem, "layer", "op", "module", stem[:4])
    layer = sketch.layer(names, f"nn.{name}({_options(sketch, name, arguments)})")
    operator = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return [sketch.emit(f"{layer}({', '.join(map(str, inputs))})", (), operator)]


# --- spelling

_OPTION = re.compile(
    r"\b(dim|eps|p|alpha|beta|margin|delta|value|k|diagonal|offset|shifts|min|max|negative_slope|decimals)"
    r"=(-?\d[\d.e-]*)(?=[,)])"
)
"""Options that an author may store in an attribute."""
_WITH_NUMBER = "x, @f"
_SCALAR_INPUT = 0.6
"""Share of calls with a number behind a tensor in which it is an argument of `forward`."""
_SEVERAL = frozenset(
    (
        "var_mean", "std_mean", "aminmax", "chunk", "split", "unbind", "frexp", "cummax", "cummin", "sort",
        "topk",
    ),
)  # fmt: skip
"""Operators that return several tensors where no part is taken."""


def _broadcast(shapes: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    """The shape that shapes broadcast to."""
    rank = max(map(len, shapes))
    aligned = [(*([ONE] * (rank - len(shape))), *shape) for shape in shapes]
    return tuple(
        next((axis for axis in column if axis is not ONE), ONE) for column in zip(*aligned, strict=True)
    )


def call(sketch: Sketch, form: Form, values: dict[str, Tensor], at: int) -> Tensor:
    """Draw a call of a form: a function, a method, an operator's sign, a subscript or a layer."""
    first = next(iter(values.values()))
    arguments = resolved(form.arguments, first.rank, at, sketch.rng)
    if form.arguments == _WITH_NUMBER and sketch.chance(_SCALAR_INPUT):
        arguments = f"x, {sketch.scalar(arguments.removeprefix('x, '))}"
    size = sketch.pick("shape[{}]", "size({})")
    sizes = {letter: f"{first}.{size.format(at)}" for letter, at in (("B", 0), ("C", 1), ("N", -1))}
    given = sizes | {name: str(value) for name, value in values.items()}
    parts = re.sub(r"(?<![\w.'])[a-zBCN](?![\w(='])", lambda match: given.get(match[0], match[0]), arguments)
    writers = [writer for writer in _WRITERS if writer(sketch, form, parts, arguments, dry=True)]
    writer = sketch.rng.choice(writers)
    text = writer(sketch, form, parts, arguments, dry=False)
    if writer is not _layer:
        text = _OPTION.sub(lambda match: f"{match[1]}={sketch.setting(match[1], match[2])}", text)
    is_like_first = form.family in ("pointwise", "comparison", "softmax", "scan") or form.operator in SYMBOLS
    several = (form.operator in _SEVERAL and not form.result) or "return_indices" in form.arguments
    axes: tuple[Axis, ...] = ()
    if is_like_first and form.operator not in ("matmul", "mm", "bmm"):
        axes = _broadcast([value.axes for value in values.values()])
    return sketch.emit(text + form.result, axes, form.operator, dtype="tuple" if several else "")


def _function(sketch: Sketch, form: Form, parts: str, plain: str, dry: bool) -> str:
    functions = spellings(form.operator)
    if not functions:
        return ""
    chosen = functions[0] if dry else sketch.rng.choice(functions)
    return f"{chosen.replace('F.', sketch.habits.functional + '.')}({parts})"


def _method(sketch: Sketch, form: Form, parts: str, plain: str, dry: bool) -> str:
    name = form.operator
    is_method = callable(getattr(torch.Tensor, name, None)) and name not in ("where", "index")
    if not is_method or not re.match(r"[a-z](,|$)", plain):
        return ""
    receiver, _, rest = parts.partition(", ")
    return f"{receiver}.{name}({rest})"


def _sign(sketch: Sketch, form: Form, parts: str, plain: str, dry: bool) -> str:
    sign = SYMBOLS.get(form.operator)
    if sign is None or plain.count(",") != 1 or "=" in plain:
        return ""
    left, _, right = parts.partition(", ")
    return f"{left} {sign} {right}"


def _subscript(sketch: Sketch, form: Form, parts: str, plain: str, dry: bool) -> str:
    receiver, _, rest = parts.partition(", ")
    return f"{receiver}[{rest}]" if form.operator == "index" else ""


def _layer(sketch: Sketch, form: Form, parts: str, plain: str, dry: bool) -> str:
    """A layer of torch with the form's options; its inputs come first."""
    stem = form.operator.replace("_", "").removesuffix("loss")
    name = LAYERS_BY_NAME.get(form.operator.replace("_", "")) or LAYERS_BY_NAME.get(stem)
    tensors = re.match(r"(?:[a-z], )*[a-z](?=,|$)", plain)
    if (
        name is None
        or tensors is None
        or name in ("Linear", "Bilinear", "Embedding", "PReLU", "RReLU", "Module")
    ):
        return ""
    if re.match(r"(Conv|.*Norm)", name) or "training" in plain or ".shape" in parts:
        return ""
    count = tensors[0].count(",") + 1
    split = parts.split(", ")
    if dry:
        return "layer"
    options = _options(sketch, name, ", ".join(split[count:]))
    stem = re.sub(r"\d[a-z]$", "", form.operator).split("_")[0]
    names = ("loss", "criterion", "loss_fn") if name.endswith("Loss") else (stem, "act", "op", "layer", "fn")
    names = names if form.family in ("pointwise", "arithmetic", "loss") else (stem, "op", "layer")
    return f"{sketch.layer(names, f'nn.{name}({options})')}({', '.join(split[:count])})"


def _options(sketch: Sketch, name: str, text: str) -> str:
    """Return a layer's options; numbers may become arguments of the constructor."""
    called = ast.parse(f"f({text})", mode="eval").body
    assert isinstance(called, ast.Call)
    parts = [ast.unparse(given) for given in called.args]
    first = next((option for stem, option in _FIRST.items() if stem in name), "")
    if first and parts and isinstance(called.args[0], ast.Constant | ast.Tuple):
        parts[0] = sketch.option(first, parts[0])
    for given in called.keywords:
        value = ast.unparse(given.value)
        is_number = isinstance(given.value, ast.Constant | ast.Tuple) and "'" not in value
        usual = _POOLING.get(given.arg or "", "") if "Pool" in name else ""
        parts.append(f"{given.arg}={sketch.option(given.arg or '', value, usual) if is_number else value}")
    return ", ".join(parts)


_FIRST = {"Adaptive": "output_size", "Pool": "kernel_size", "GroupNorm": "num_groups"}
"""Name of the number that comes first, by a part of the layer's name."""
_POOLING = {"padding": "0", "dilation": "1", "ceil_mode": "False", "return_indices": "False"}
"""Torch's defaults of what a pool's constructor takes."""
Writer = Callable[..., str]
_WRITERS: tuple[Writer, ...] = (_function, _method, _sign, _subscript, _layer)
