"""Records what torch's functions do in one run of `forward` on fake tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_map

from kernel_core.generator.calls import (
    built,
    module_path,
    short_name,
    spelled_function,
    tensors_of,
    text_without_bias,
    with_text,
)
from kernel_core.generator.decompose import FAULTS, decomposed, paired
from kernel_core.generator.ir import ORIGIN, Unsupported, Value, make
from kernel_core.generator.library_calls import LibraryCalls
from kernel_core.generator.names import NAMES, Names
from kernel_core.generator.operators.indexing import assign
from kernel_core.generator.recurrent import CELLS, cell_step, sequence_shapes
from kernel_core.generator.shapes import Shape, dimensions
from kernel_core.generator.sizes import host, without_text

OPAQUE = (nn.RNNBase, nn.MultiheadAttention, nn.TransformerEncoderLayer)
"""Layers that call what has no name in torch's interface; they stay layers."""
LAYERS = {
    nn.Linear: "linear", nn.Bilinear: "bilinear",
    nn.Conv1d: "conv1d", nn.Conv2d: "conv2d", nn.Conv3d: "conv3d",
    nn.ConvTranspose1d: "conv_transpose1d", nn.ConvTranspose2d: "conv_transpose2d",
    nn.ConvTranspose3d: "conv_transpose3d",
}  # fmt: skip
"""Layers of one function, which stay layers where the function stays torch's."""
_KEYS = itertools.count()
"""Numbers of results that stay torch's: an id may belong to a value that is gone."""
_PLAIN = ("dim", "is_floating_point", "is_complex", "is_contiguous", "stride", "element_size", "get_device")


class Unreadable(Exception):
    """A module that cannot be run, or that does what a graph cannot hold."""


@dataclass
class Graph:
    """Values of a module."""

    inputs: list[Value]
    outputs: Any
    """A nest of values and numbers, as `forward` returns it."""
    reasons: list[str] = field(default_factory=list)
    """Calls that stay torch's, and why."""
    names: Names = field(default_factory=Names)
    """Local names of sizes."""
    steps: list[str] = field(default_factory=list)
    """Names of the operators in order, as torch spells them."""


class Recorder(TorchFunctionMode):
    """Makes a value of each tensor that torch's functions return."""

    def __init__(self, model: nn.Module, library: LibraryCalls) -> None:
        super().__init__()
        self._library = library
        self._values: dict[int, tuple[torch.Tensor, Value]] = {}
        self._parts: dict[int, tuple[torch.Tensor, Any]] = {}
        """For views made by an index: the tensor and the index."""
        self._inputs: list[Value] = []
        self._model = model
        self._is_reflected = False
        """True for a sum or product whose first operand is a number."""
        self._reasons: list[str] = []
        self._steps: list[str] = []
        self._paths = {id(module): module_path(name) for name, module in model.named_modules()}
        for name, module in model.named_modules():
            path = module_path(name)
            own = {**module._parameters, **module._buffers, **vars(module)}
            for key, tensor in own.items():
                if isinstance(tensor, torch.Tensor):
                    self._leaf(tensor, f"{path}[{key}]" if key.isdigit() else f"{path}.{key}")

    @contextmanager
    def running(self) -> Iterator[None]:
        """Record what torch's functions do, and keep opaque layers whole."""
        call = nn.Module.__call__

        def layer(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if isinstance(module, CELLS):
                return cell_step(module, *args, **kwargs)
            function = LAYERS.get(type(module))
            if not isinstance(module, OPAQUE) and function not in self._library.functions:
                return call(module, *args, **kwargs)
            plain = tree_map(without_text, (args, kwargs))
            with torch._C.DisableTorchFunction():
                if isinstance(module, nn.RNNBase):
                    result = sequence_shapes(module, *plain[0], **plain[1])
                else:
                    result = call(module, *plain[0], **plain[1])
            if function is not None:
                self._steps.append(function)
                path = self._paths[id(module)]
                apart: dict[str, Any] = {"groups": getattr(module, "groups", 1)}
                if len(args) == 1 and not kwargs and (unbiased := text_without_bias(module, path, function)):
                    apart |= {"unbiased": unbiased, "of_layer": tuple(map(self.value, module.parameters()))}
                return self._call(path, args, kwargs, result, function, **apart)
            self._reasons.append(f"{type(module).__name__}: a layer without a schedule")
            return self._call(self._paths[id(module)], args, kwargs, result, type(module).__name__)

        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(nn.Module, "__call__", layer))
            for name in ("__radd__", "__rmul__"):
                stack.enter_context(mock.patch.object(torch.Tensor, name, self._reflected(name)))
            stack.enter_context(self)
            yield

    def _reflected(self, name: str) -> Any:
        """A method that says that the number stands first: torch's sums and products do not tell."""
        plain = getattr(torch.Tensor, name)

        def call(tensor: torch.Tensor, other: Any) -> Any:
            self._is_reflected = not isinstance(other, torch.Tensor)
            try:
                return plain(tensor, other)
            finally:
                self._is_reflected = False

        return call

    def argument(self, given: Any, name: str) -> Any:
        """An argument for `forward`, with the text of its number."""
        if isinstance(given, torch.Tensor):
            self._inputs.append(self._leaf(given, name))
            return given
        if isinstance(given, tuple | list):
            raise Unreadable("an input that is a list of tensors")
        return with_text(given, name)

    def graph(self, outputs: Any) -> Graph:
        """The graph with `forward`'s results."""
        with torch._C.DisableTorchFunction():
            nest = self._values_of(outputs)
        return Graph(self._inputs, nest, self._reasons, NAMES.get(), self._steps)

    def value(self, tensor: torch.Tensor) -> Value:
        """The value of a tensor that a recorded function made."""
        if id(tensor) not in self._values:
            raise Unreadable("a tensor that no recorded function made")
        return self._values[id(tensor)][1]

    def _leaf(self, tensor: torch.Tensor, text: str) -> Value:
        if id(tensor) in self._values:
            return self._values[id(tensor)][1]
        is_own = text.startswith("self.")
        expanded = NAMES.get().expanded
        shape = [
            1 if size == 1 and (is_own or (text, axis) in expanded) else size
            for axis, size in enumerate(dimensions(text, tensor.shape))
        ]
        value = make("leaf", (), shape, tensor.dtype, text=text)
        self._values[id(tensor)] = (tensor, value)
        return value

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = resolve_name(function) or getattr(function, "__name__", str(function))
        base = short_name(name)
        is_reflected, self._is_reflected = self._is_reflected, False
        if base in ("shape", "size", "numel", "nelement", "ndim", "__len__", "len"):
            return self._measured(base, function, args, kwargs)
        plain_args, plain_kwargs = tree_map(without_text, (args, kwargs))
        try:
            result = function(*plain_args, **plain_kwargs)
        except DataDependentOutputException:  # torch checks values that fake tensors lack
            result = self._like_the_table(base, args, kwargs)
        if base == "setitem":
            result = args[0]
            if self._parts.get(id(args[2]), (None,))[0] is result and args[2]._base is not None:
                return None  # the part was changed in place and written back
        tensors = tensors_of(result)
        if (
            not tensors
            or base in _PLAIN
            or (name.endswith(".__get__") and base in ("grad", "device", "dtype"))
        ):
            return result
        if base == "getitem" and result._base is not None:
            self._parts[id(result)] = (args[0], args[1])
        self._steps.append(base)
        return self._recorded(function, name, base, args, kwargs, result, is_reflected)

    def _like_the_table(self, base: str, args: Any, kwargs: Any) -> Any:
        """Fake results with the shapes and types of the table's entry."""
        made = built(base, *self._values_of((args, kwargs)))
        return tree_map(lambda value: torch.empty(tuple(map(int, value.shape)), dtype=value.dtype), made)

    def _values_of(self, nest: Any) -> Any:
        return tree_map(lambda leaf: self.value(leaf) if isinstance(leaf, torch.Tensor) else leaf, nest)

    def _measured(self, base: str, function: Any, args: Any, kwargs: Any) -> Any:
        known = isinstance(args[0], torch.Tensor) and id(args[0]) in self._values
        if not known:
            return function(*tree_map(without_text, args), **kwargs)
        shape = Shape(self.value(args[0]).shape)
        if base == "ndim":
            return len(shape)
        if base in ("numel", "nelement"):
            return shape.numel()
        if base in ("len", "__len__"):
            return int(shape[0])
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        return shape if dim is None else shape[int(dim)]

    def _recorded(
        self, function: Any, name: str, base: str, args: Any, kwargs: Any, result: Any, is_reflected: bool
    ) -> Any:
        if self._library.has(base, args, result):
            return self._call(spelled_function(name), args, kwargs, result, base)
        in_place = isinstance(args[0] if args else None, torch.Tensor) and result is args[0]
        values = self._values_of((args, kwargs))
        ORIGIN.set((len(self._steps), base.removeprefix("scaled_dot_product_")))
        reason = "another shape or type than torch's"
        try:
            made = built(base, values[0][::-1] if is_reflected else values[0], values[1])
            if self._bound(made, result, in_place):
                return result
        except Unsupported as error:
            reason = str(error)
        except FAULTS as error:
            reason = f"arguments that the table does not have ({error})"
        try:
            if self._bound(decomposed(function, values[0], values[1], built), result, in_place):
                return result
        except Exception as error:  # torch's decompositions may raise anything
            reason += f"; decomposed: {error or type(error).__name__}"[:200]
        self._reasons.append(f"{base}: {reason}")
        if in_place:
            raise Unreadable(f"{base} in place")
        return self._call(spelled_function(name), args, kwargs, result, base)

    def _bound(self, made: Any, result: Any, in_place: bool) -> bool:
        """Give each result its value; False where shape or type is not torch's."""
        pairs = paired(made, result)
        self._values |= {id(tensor): (tensor, value) for value, tensor in pairs}
        if pairs and in_place:
            self._change_memory(pairs[0][1])
        return bool(pairs)

    def _change_memory(self, changed: torch.Tensor) -> None:
        """Write a part that was changed in place back; other views of its memory are forgotten."""
        known, part = {id(changed)}, changed
        while id(part) in self._parts:
            whole, key = self._parts[id(part)]
            value = assign(self.value(whole), key, self.value(part))
            self._values[id(whole)], part = (whole, value), whole
            known.add(id(whole))
        base = changed if changed._base is None else changed._base
        for tensor, _ in list(self._values.values()):
            if id(tensor) not in known and (tensor is base or tensor._base is base):
                del self._values[id(tensor)]

    def _call(self, spelled: str, args: Any, kwargs: Any, result: Any, base: str, **apart: Any) -> Any:
        """A call that stays torch's: its text, with tensors as `{0}`, `{1}`; `apart` are attributes."""
        ORIGIN.set((len(self._steps), base))
        tensors: list[Value] = []

        def written(argument: Any) -> str:
            if isinstance(argument, torch.Tensor):
                tensors.append(self.value(argument))
                return f"{{{len(tensors) - 1}}}"
            if isinstance(argument, tuple | list):
                inner = ", ".join(map(written, argument)) + (
                    "," if len(argument) == 1 and isinstance(argument, tuple) else ""
                )
                return f"({inner})" if isinstance(argument, tuple) else f"[{inner}]"
            if isinstance(argument, torch.dtype | torch.device | slice):
                is_device = isinstance(argument, torch.device)
                return f"torch.device({str(argument)!r})" if is_device else repr(argument)
            return host(argument)

        parts = [written(argument) for argument in args]
        parts += [f"{key}={written(value)}" for key, value in kwargs.items() if key != "_stacklevel"]
        rest = ", ".join(parts[1:])
        if spelled == "getitem":
            text = f"{parts[0]}[{rest}]"
        else:
            is_method = spelled.startswith(".")
            text = f"{parts[0]}{spelled}({rest})" if is_method else f"{spelled}({', '.join(parts)})"
        text = text.replace("torch.nn.functional.", "F.")
        group = object()
        for path, tensor in _leaves(result):
            made = make(
                "call", tuple(tensors), tensor.shape, tensor.dtype, text=text, path=path, group=group,
                base=base, **apart,
            )  # fmt: skip
            self._values[id(tensor)] = (tensor, _with_sizes(made))
        return result


def _leaves(result: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Tensors of a nest of tuples with the indices that lead to them."""
    if isinstance(result, torch.Tensor):
        yield path, result
    elif isinstance(result, tuple | list):
        for index, part in enumerate(result):
            yield from _leaves(part, (*path, index))
    elif result is not None:
        raise Unreadable(f"a call that gives {type(result).__name__}")


def _with_sizes(value: Value) -> Value:
    """A result of torch's with sizes that say where it stands; the name comes when the text is written."""
    key = f"<{next(_KEYS)}>"
    shape = tuple(dimensions(key, value.shape))
    return Value(value.op, value.inputs, shape, value.dtype, {**value.attributes, "key": key})
