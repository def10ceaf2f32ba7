"""Calls of torch's: their names, their entries in the table, and numbers with their host text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_flatten

from kernel_core.generator.ir import Unsupported
from kernel_core.generator.operators import BUILDERS, pointwise
from kernel_core.generator.sizes import Number, Size

FIXED = (0, 1, -1)
"""Attributes that are literals in the answer: a stride of 1 is no size, and an axis is none."""


def module_path(name: str) -> str:
    """Host text of a submodule: `self.net[0].conv`."""
    text = "self"
    for part in name.split(".") if name else ():
        text += f"[{part}]" if part.isdigit() else f".{part}"
    return text


def with_text(value: Any, text: str, fixed: Sequence[int] = FIXED) -> Any:
    """Return a number, or a tuple of them, with its host text; `fixed` numbers and other values stay."""
    if type(value) is int:
        return Size(value, text) if value not in fixed else value
    if isinstance(value, float):
        return Number(value, text)
    if type(value) is tuple and value and all(type(item) in (int, float) for item in value):
        return tuple(with_text(item, f"{text}[{k}]", fixed) for k, item in enumerate(value))
    return value


_OPTIONS = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}
"""Options of a convolution with torch's defaults."""


def text_without_bias(module: nn.Module, path: str, function: str) -> str:
    """Return a convolution layer's call without its bias, of `{0}` and the weight `{1}`; empty for others."""
    if not isinstance(module, _ConvNd) or module.bias is None or module.padding_mode != "zeros":
        return ""
    usual = {name: (default, (default,) * len(module.kernel_size)) for name, default in _OPTIONS.items()}
    options = [f", {name}={path}.{name}" for name in usual if getattr(module, name) not in usual[name]]
    return f"F.{function}({{0}}, {{1}}{''.join(options)})"


def short_name(name: str) -> str:
    """Last part of torch's name without marks of operators, methods in place and getters."""
    base = name.removesuffix(".__get__").rsplit(".", 1)[-1]
    if base.startswith("special_"):
        base = base.removeprefix("special_")
    if base.startswith("__") and base.endswith("__"):
        base = base.strip("_")
        if base in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor"):
            return base[1:]
        return {"radd": "add", "rand": "and", "ror": "or", "rxor": "xor"}.get(base, base)
    return base[:-1] if base.endswith("_") and not base.startswith("_") else base


def built(base: str, args: Any, kwargs: Any) -> Any:
    """The values of a call by the table. Raises Unsupported, or TypeError for arguments it does not have."""
    if base not in BUILDERS:
        base = base.removesuffix("_copy")  # `permute_copy` and its like: where values stand is not theirs
    named = {key: value for key, value in kwargs.items() if key not in ("inplace", "out")}
    if base in BUILDERS:
        return BUILDERS[base](*args, **named)
    entry = pointwise().get(base)
    if entry is None:
        raise Unsupported("no entry")
    if kwargs.get("out") is not None:
        raise Unsupported("out")
    from kernel_core.generator.build import point  # which imports the table

    renamed = {"input": "x", "self": "x", "exponent": "other"}
    return point(entry.name, *args, **{renamed.get(key, key): value for key, value in named.items()})


def spelled_function(name: str) -> str:
    """Host text of a function by its resolved name."""
    base = name.rsplit(".", 1)[-1]
    if name.startswith("torch.Tensor."):
        return "getitem" if base == "__getitem__" else f".{base}"
    return name.replace("torch.functional.", "torch.")


def tensors_of(nest: Any) -> list[torch.Tensor]:
    """Tensors in a nest of tuples, lists and dictionaries."""
    return [leaf for leaf in tree_flatten(nest)[0] if isinstance(leaf, torch.Tensor)]


def nest_text(nest: Any, text_of: Callable[[Any], str]) -> str:
    """Host text of a nest of tuples, lists and dictionaries by the texts of its leaves."""
    if isinstance(nest, tuple | list):
        inner = ", ".join(nest_text(part, text_of) for part in nest)
        inner += "," if len(nest) == 1 and isinstance(nest, tuple) else ""
        return f"({inner})" if isinstance(nest, tuple) else f"[{inner}]"
    if isinstance(nest, dict):
        return "{" + ", ".join(f"{key!r}: {nest_text(part, text_of)}" for key, part in nest.items()) + "}"
    return text_of(nest)
