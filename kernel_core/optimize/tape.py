"""Tape of torch's calls: one run of a module on fake tensors, written as the lines of a `forward`.

Shapes and size attributes are `generator.sizes.Size`, so Python's own arithmetic writes host code such as
`x.shape[1] // 2`, and the text holds for other sizes. Control flow that depends on values is refused by the
fake tensors. What the lines compute is compared with the module itself (`part.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves, tree_map

from kernel_core.generator.read import short_name
from kernel_core.generator.shapes import Shape
from kernel_core.generator.sizes import Number, Size, host, without_text

_MEASURES = ("shape", "size", "numel", "nelement", "ndim", "dim", "__len__", "len")
_SIGNS = {
    "__add__": "+", "add": "+", "__sub__": "-", "sub": "-", "__mul__": "*", "mul": "*",
    "__truediv__": "/", "div": "/", "__matmul__": "@",
}  # fmt: skip


class Unwritable(Exception):
    """Reason why a submodule cannot be written as a problem."""


class Tape(TorchFunctionMode):
    """Writes each call of torch's on tensors as a line. `names` are the texts of tensors known before."""

    def __init__(self, inputs: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.used: set[str] = set()
        """Texts of the weights that the lines read."""
        self._taken = {"self", "torch", "nn", "F", *inputs}
        self._weights = {id(tensor): text for text, tensor in weights.items()}
        self._texts = {id(tensor): (tensor, text) for text, tensor in {**weights, **inputs}.items()}
        self._device = next(iter(inputs.values())).device
        self._device_text = f"{next(iter(inputs))}.device"

    def text_of(self, tensor: torch.Tensor) -> str:
        """Return the variable of a tensor that the lines made or were given."""
        if id(tensor) not in self._texts:
            raise Unwritable("it uses a tensor that is no input, weight or result of torch's functions")
        text = self._texts[id(tensor)][1]
        if id(tensor) in self._weights:
            self.used.add(text)
        return text

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = resolve_name(function) or getattr(function, "__name__", str(function))
        base = short_name(name)
        if base in _MEASURES and args and id(args[0]) in self._texts:
            return self._measured(base, args, kwargs)
        result = function(*tree_map(without_text, args), **tree_map(without_text, kwargs))
        if base == "setitem":
            self.lines.append(f"{self._written(args[0])}[{self._index(args[1])}] = {self._written(args[2])}")
            return result
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not tensors or base == "grad":
            return result
        call = self._call(name, base, args, kwargs)
        if not args or result is not args[0]:
            self._bind(result, base, call)
        elif _is_in_place(name, kwargs):
            self.lines.append(call)
        return result

    def _measured(self, base: str, args: Any, kwargs: Any) -> Any:
        tensor = args[0]
        text = self.text_of(tensor)
        shape = Shape(
            Size(size, f"{text}.shape[{axis}]") if size != 1 else 1 for axis, size in enumerate(tensor.shape)
        )
        if base in ("ndim", "dim"):
            return len(shape)
        if base in ("numel", "nelement"):
            return shape.numel()
        if base in ("len", "__len__"):
            return int(shape[0])
        axis = args[1] if len(args) > 1 else kwargs.get("dim")
        return shape if axis is None else shape[int(axis)]

    def _call(self, name: str, base: str, args: Any, kwargs: Any) -> str:
        last = name.rsplit(".", 1)[-1]
        if name.endswith(".__get__"):
            return f"{self._written(args[0])}.{base}"
        if last == "__getitem__":
            return f"{self._written(args[0])}[{self._index(args[1])}]"
        is_method = name.startswith("torch.Tensor.")
        if is_method and last in _SIGNS and len(args) == 2 and not kwargs:
            return f"{self._written(args[0])} {_SIGNS[last]} {self._written(args[1])}"
        given = [self._written(part) for part in args]
        given += [f"{key}={self._written(value)}" for key, value in kwargs.items() if key != "_stacklevel"]
        if is_method:
            return f"{given[0]}.{last}({', '.join(given[1:])})"
        spelled = name.replace("torch.functional.", "torch.").replace("torch.nn.functional.", "F.")
        if not spelled.startswith(("torch.", "F.")):
            raise Unwritable(f"it calls {spelled}, which is no function of torch's")
        return f"{spelled}({', '.join(given)})"

    def _bind(self, result: Any, base: str, call: str) -> None:
        word = re.sub(r"\W", "", base).strip("_") or "value"
        names: list[str] = []

        def named(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return "_"
            name, number = word if word.isidentifier() and not hasattr(__builtins__, word) else f"{word}_", 1
            while name in self._taken or name in ("in", "is", "not", "and", "or"):
                number += 1
                name = f"{word}_{number}"
            self._taken.add(name)
            self._texts[id(leaf)] = (leaf, name)
            names.append(name)
            return name

        nest = [named(leaf) for leaf in result] if isinstance(result, tuple | list) else named(result)
        left = ", ".join(nest) + ("," if len(nest) == 1 else "") if isinstance(nest, list) else nest
        self.lines.append(f"{left} = {call}")

    def _index(self, index: Any) -> str:
        if isinstance(index, tuple) and index:
            return ", ".join(map(self._written, index)) + ("," if len(index) == 1 else "")
        return self._written(index)

    def _written(self, value: Any) -> str:
        """Return an argument as host text."""
        if isinstance(value, torch.Tensor):
            return self.text_of(value)
        if isinstance(value, slice):
            parts = ["" if part is None else self._written(part) for part in (value.start, value.stop)]
            return ":".join([*parts, *([self._written(value.step)] if value.step is not None else [])])
        if isinstance(value, tuple | list):
            inner = ", ".join(
                repr(without_text(part)) if isinstance(part, slice) else self._written(part) for part in value
            )
            comma = "," if len(value) == 1 and isinstance(value, tuple) else ""
            return f"({inner}{comma})" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, torch.device | str) and str(value) == str(self._device):
            return self._device_text
        if isinstance(value, torch.device):
            raise Unwritable(f"it works on the device {value} beside {self._device}")
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout) or value is Ellipsis:
            return repr(value) if value is not Ellipsis else "..."
        if value is None or isinstance(value, bool | int | float | str | Size | Number):
            return host(value)
        raise Unwritable(f"it passes {type(value).__name__} to a function of torch's")


def _is_in_place(name: str, kwargs: Any) -> bool:
    """Return False for calls that had nothing to do, such as `x.contiguous()`."""
    last = name.rsplit(".", 1)[-1]
    return bool(kwargs.get("inplace")) or last.startswith("__i") or (last[-1] == "_" and last[-2:] != "__")
