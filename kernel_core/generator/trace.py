"""Trace of a problem's `forward`: the calls that it makes with the shapes of their results, and formulas.

The reference runs once on fake tensors of its own sizes; nothing is computed. Each call of torch's is one
line. A call that torch decomposes has a second line with the expression of smaller operators, so that a
policy reads what an operator means that it was never taught:

    x: 64x128
    v1 = self.fc(x)  # linear 64x32
    v2 = hardsigmoid(v1)  # 64x32
      = clamp(clamp(v1 + 3, 0), None, 6) / 6
    return v2
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._decomp import decomposition_table
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_core.generator.calls import module_path, short_name, tensors_of
from kernel_core.generator.library_calls import WEIGHTED
from kernel_core.generator.read import forward_of, load_module, model_and_inputs, without_values
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Problem

MAX_LINES = 40
"""Longer traces end in `...`."""
MAX_FORMULA_CHARS = 240
"""A longer formula is left out."""
_MAX_OPERATORS = 24

_SILENT = frozenset(
    (
        *("shape", "size", "numel", "nelement", "ndim", "dim", "len", "stride", "is_contiguous"),
        *("element_size", "get_device", "is_floating_point", "is_complex", "device", "dtype", "grad"),
        *("requires_grad", "item", "data", "layout", "is_cuda"),
    )
)
"""Calls that make no new values."""
_USUAL = WEIGHTED | {
    *("matmul", "mm", "bmm", "addmm", "einsum", "softmax", "log_softmax", "layer_norm", "group_norm"),
    *("batch_norm", "instance_norm", "relu", "sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "abs"),
    *("dropout", "embedding", "cat", "stack", "reshape", "view", "permute", "transpose", "flatten"),
    *("unsqueeze", "squeeze", "getitem", "chunk", "split", "expand", "repeat", "contiguous", "clone", "to"),
    "float",
}
"""Calls without a formula: their decompositions say nothing new."""
_BASIC = frozenset(
    (
        *("add", "sub", "mul", "div", "neg", "abs", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt"),
        *("rsqrt", "reciprocal", "pow", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("asinh", "acosh", "atanh", "erf", "erfc", "sigmoid", "relu", "floor", "ceil", "round", "trunc"),
        *("fmod", "remainder", "sign", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "atan2"),
        *("where", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not"),
        *("logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "isnan", "isinf"),
        *("sum", "mean", "amax", "amin", "prod", "max", "min", "argmax", "argmin", "any", "all", "cumsum"),
        *("cumprod", "var", "sort", "topk", "mm", "bmm", "addmm", "convolution", "cat", "index", "index_put"),
        *("select", "slice", "view", "permute", "transpose", "unsqueeze", "squeeze", "flip", "roll"),
        *("gather", "scatter", "scatter_add", "index_select", "embedding", "constant_pad_nd", "arange"),
        *("full", "zeros", "ones", "full_like", "zeros_like", "ones_like", "_softmax", "_log_softmax"),
        *("native_layer_norm", "native_group_norm", "max_pool2d_with_indices", "avg_pool1d", "avg_pool2d"),
        *("avg_pool3d", "_to_copy", "reshape", "stack", "unfold", "repeat", "scalar_tensor", "empty"),
    )
)
"""Operators of ATen at which a decomposition stops."""
_SAME = ("alias", "detach", "clone", "lift_fresh", "lift_fresh_copy", "contiguous", "expand", "view_of")
"""Operators whose result is written as their operand."""
_CASTS = ("_to_copy", "to", "convert_element_type")
_CONSTANT = ("scalar_tensor", "full", "full_like")
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "truediv": "/", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "logical_and": "&", "logical_or": "|",
}  # fmt: skip
_UNTOLD = ("inplace", "training", "device", "dtype", "layout", "pin_memory", "memory_format")
"""Named arguments that are left out."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

NameOf = Callable[[torch.Tensor], str]


def trace(problem: Problem) -> str:
    """Return the trace of a problem; it ends in `...` at the first step that depends on values.

    It is empty where the module cannot be made or called on fake tensors.
    """
    try:
        return "\n".join(_lines(problem))
    except Exception:  # another program's code may raise anything
        return ""


def _lines(problem: Problem) -> list[str]:
    with without_values(on_meta=False), torch.no_grad():
        model, inputs = model_and_inputs(load_module(problem))
        tracer = _Tracer(model)
        arguments = forward_of(syntax_tree(problem.source)).args
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1:]
        names += [f"input{index}" for index in range(len(names), len(inputs))]
        for tensor, name in zip(inputs, names, strict=False):
            if isinstance(tensor, torch.Tensor):
                tracer.argument(tensor, name)
        try:
            with tracer:
                result = model(*inputs)
        except Exception:  # a step that depends on values
            return [*tracer.lines[:MAX_LINES], "..."]
    return tracer.finished(result)


@dataclass(frozen=True)
class _Operation:
    """Operator of ATen with its results."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[torch.Tensor, ...]


class _Operators(TorchDispatchMode):
    """Records the operators of a call, decomposed until basic ones."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[_Operation] = []

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function._schema.name.split("::")[-1]
        is_in_place = name.endswith("_") and not name.startswith("_")
        if name not in _BASIC and not is_in_place and function in decomposition_table:
            with self:
                result = decomposition_table[function](*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = function(*args, **kwargs)
        plain = name[:-1] if is_in_place else name
        self.operations.append(_Operation(plain, args, kwargs, tuple(tensors_of(result))))
        return result


class _Tracer(TorchFunctionMode):
    """Writes a line for each call of torch's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._count = 0
        self._names: dict[int, tuple[torch.Tensor, str]] = {}
        """Names by id; a tensor that is gone may leave its id to another."""
        self._weights = {
            id(tensor): (tensor, module_path(name))
            for name, tensor in model.state_dict(keep_vars=True).items()
        }
        self._layers = {
            module_path(name)
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear | _ConvNd)
        }

    def argument(self, tensor: torch.Tensor, name: str) -> None:
        """Write a line for an argument of `forward`, or a weight."""
        self._names[id(tensor)] = (tensor, name)
        self.lines.append(f"{name}: {_shape(tensor)}")

    def finished(self, result: Any) -> list[str]:
        """Return all lines with the names of `forward`'s results."""
        if len(self.lines) > MAX_LINES:
            return [*self.lines[:MAX_LINES], "..."]
        return [*self.lines, f"return {_text(result, self._name)}"]

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = short_name(resolve_name(function) or getattr(function, "__name__", str(function)))
        if name in _SILENT or len(self.lines) > MAX_LINES:
            return function(*args, **kwargs)
        operators = _Operators()
        with operators:
            result = function(*args, **kwargs)
        if name == "setitem":
            whole, key, part = _texts(args, {}, self._name)
            self.lines.append(f"{whole}[{key.strip('[]')}] = {part}")
        elif tensors := tensors_of(result):
            self._write(name, args, kwargs, tensors, operators.operations)
        return result

    def _write(
        self, name: str, args: Any, kwargs: Any, results: list[torch.Tensor], operations: list[_Operation]
    ) -> None:
        if name in (*_SAME, *_CASTS, "float") and _is_like(args[:1], results[0]):
            self._names[id(results[0])] = (results[0], self._name(args[0]))
            return
        shapes = ", ".join(dict.fromkeys(map(_shape, results)))
        if (layer := self._layer(name, args)) is not None:
            text = f"{layer}({self._name(args[0])})"
            self.lines.append(f"{self._new(results[0])} = {text}  # {name} {shapes}")
            return
        given = _texts(args, kwargs, self._name)
        text = f"{given[0]}[{given[1].strip('[]')}]" if name == "getitem" else _call(name, given)
        formula = self._formula(operations, results[0]) if len(results) == 1 and name not in _USUAL else ""
        self.lines.append(f"{', '.join(map(self._new, results))} = {text}  # {shapes}")
        if formula:
            self.lines[-1] += f"\n  = {formula}"

    def _layer(self, name: str, args: Any) -> str | None:
        """Return the path of the layer whose weight a product or convolution takes."""
        if name not in WEIGHTED or len(args) < 2:
            return None
        path = self._weights.get(id(args[1]), (None, ""))[1]
        layer = path.removesuffix(".weight")
        return layer if layer != path and layer in self._layers else None

    def _name(self, tensor: torch.Tensor) -> str:
        if id(tensor) not in self._names:
            if id(tensor) not in self._weights:
                return f"tensor({_shape(tensor)})"
            self.argument(*self._weights[id(tensor)])
        return self._names[id(tensor)][1]

    def _new(self, tensor: torch.Tensor) -> str:
        self._count += 1
        self._names[id(tensor)] = (tensor, f"v{self._count}")
        return f"v{self._count}"

    def _formula(self, operations: Sequence[_Operation], result: torch.Tensor) -> str:
        """Return the expression of a decomposed call; empty where there is none or it is too long.

        A result that is used more than once gets a letter: `a = sum(x); x / a`.
        """
        if not 1 < len(operations) <= _MAX_OPERATORS:
            return ""
        uses = Counter(id(leaf) for step in operations for leaf in tensors_of((step.args, step.kwargs)))
        texts: dict[int, str] = {}
        steps: list[str] = []

        def text_of(tensor: torch.Tensor) -> str:
            return texts.get(id(tensor)) or self._name(tensor)

        for operation in operations:
            if not operation.results:
                continue
            tensor, first = operation.results[0], operation.args[0] if operation.args else None
            is_same = operation.name in _SAME or (
                operation.name in _CASTS and isinstance(first, torch.Tensor) and first.dtype == tensor.dtype
            )
            if is_same and isinstance(first, torch.Tensor):
                texts[id(tensor)] = text_of(first)
                continue
            text = _operation(operation, text_of)
            if uses[id(tensor)] > 1 and tensor is not result and operation.name not in _CONSTANT:
                steps.append(f"{_LETTERS[len(steps)]} = {_bare(text)}")
                text = _LETTERS[len(steps) - 1]
            texts[id(tensor)] = text
        last = _bare(texts.get(id(result), ""))
        formula = "; ".join([*steps, last])
        is_new = "(" in last or " " in last
        return formula if is_new and len(formula) <= MAX_FORMULA_CHARS else ""


def _is_like(first: Any, result: torch.Tensor) -> bool:
    """Return True if a call changed neither type nor shape of its first argument."""
    return any(tensor.dtype == result.dtype and tensor.shape == result.shape for tensor in tensors_of(first))


def _shape(tensor: torch.Tensor) -> str:
    """Return `24x256` for a float32 tensor, `24x256 int64` for another."""
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return shape if tensor.dtype == torch.float32 else f"{shape} {str(tensor.dtype).removeprefix('torch.')}"


def _texts(args: Any, kwargs: Any, name_of: NameOf) -> list[str]:
    """Return the texts of a call's arguments without `None` at the end and named ones without effect."""
    texts = [_text(argument, name_of) for argument in args]
    while texts and texts[-1] == "None":
        texts.pop()
    for key, value in kwargs.items():
        if not key.startswith("_") and value is not None and key not in _UNTOLD:
            texts.append(f"{key}={_text(value, name_of)}")
    return texts


def _text(argument: Any, name_of: NameOf) -> str:
    if isinstance(argument, torch.Tensor):
        return name_of(argument)
    if isinstance(argument, slice):
        parts = (argument.start, argument.stop, argument.step)
        texts = ["" if part is None else str(part) for part in parts]
        return ":".join(texts if texts[2] else texts[:2])
    if argument is Ellipsis:
        return "..."
    if isinstance(argument, tuple | list):
        return f"[{', '.join(_text(part, name_of) for part in argument)}]"
    if isinstance(argument, float):
        return f"{argument:.6g}"
    return str(argument).removeprefix("torch.")


def _call(name: str, given: list[str]) -> str:
    if name in _INFIX and len(given) == 2:
        return f"{given[0]} {_INFIX[name]} {given[1]}"
    return f"{name}({', '.join(given)})"


def _operation(operation: _Operation, text_of: NameOf) -> str:
    """Return the expression of an operator; sums and their like are in brackets."""
    given, name = _texts(operation.args, operation.kwargs, text_of), operation.name
    if name in _CONSTANT:
        return given[-1]
    if name in _CASTS:
        return f"{given[0]}.to({str(operation.results[0].dtype).removeprefix('torch.')})"
    if name in _INFIX and len(given) == 2:
        return f"({_call(name, given)})"
    if name == "rsub" and len(given) == 2:
        return f"({given[1]} - {given[0]})"
    if name == "neg":
        return f"-{given[0]}"
    return _call(name.lstrip("_"), [_bare(text) for text in given])


def _bare(text: str) -> str:
    """Return an expression without brackets around the whole of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if index == len(text) - 1 else text
    return text
