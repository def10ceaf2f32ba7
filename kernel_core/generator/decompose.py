"""Reads a call that the table lacks as the smaller operators of torch's own decompositions.

The call runs on fake tensors with symbolic sizes, so what torch computes with sizes comes back as an
expression of them. Each operator that arrives is looked up in the table; others are decomposed further.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils._sympy.printers import PythonPrinter

from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.sizes import Number, Size, host

Build = Callable[[str, Any, Any], Any]
"""Makes the values of a call by the table: name, arguments, named arguments."""
_LOOSE = 1
_FAULTS = (TypeError, AttributeError, ValueError, KeyError, IndexError)


def decomposed(function: Any, args: Any, kwargs: Any, build: Build) -> Any:
    """The values of `function(*args, **kwargs)`; tensors among the arguments are values.

    Numbers are symbolic too, where the function takes such numbers; else they are literals in the answer.
    Raises Unsupported where an operator has neither an entry nor a decomposition.
    """
    is_named = any(isinstance(one, Size) for one in tree_flatten((args, kwargs))[0])
    if is_named:
        try:
            return _decomposed(function, args, kwargs, build)
        except Exception:  # many functions take no symbolic number, and each says so in another way
            args, kwargs = tree_map(lambda one: int(one) if isinstance(one, Size) else one, (args, kwargs))
    return _decomposed(function, args, kwargs, build)


def _decomposed(function: Any, args: Any, kwargs: Any, build: Build) -> Any:
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():
        env = ShapeEnv()
        run = _Run(env, build)
        with FakeTensorMode(shape_env=env, allow_non_fake_inputs=True) as mode:
            given = tree_map(lambda one: run.given(one, mode), (args, kwargs))
            with torch.no_grad(), run:
                result = function(*given[0], **given[1])
        return tree_map(run.result, result)


class _Run(TorchDispatchMode):
    """Values of the tensors of one decomposed call."""

    def __init__(self, env: ShapeEnv, build: Build) -> None:
        super().__init__()
        self._env, self._build = env, build
        self._texts: dict[str, str] = {}
        self._values: dict[int, tuple[torch.Tensor, Value]] = {}

    def given(self, one: Any, mode: FakeTensorMode) -> Any:
        """A symbolic tensor for a value, a symbolic number for a named size, else the argument."""
        if isinstance(one, Value):
            dims = [DimDynamic.DYNAMIC if isinstance(n, Size) else DimDynamic.STATIC for n in one.shape]
            shape = tuple(map(int, one.shape))
            tensor = mode.from_tensor(
                torch.empty(shape, dtype=one.dtype, device="meta"),
                source=ConstantSource(f"t{len(self._values)}"),
                symbolic_context=StatelessSymbolicContext(dynamic_sizes=dims),
            ).to("cpu")
            symbols: list[Any] = list(tensor.shape)
            for size, symbol in zip(one.shape, symbols, strict=True):
                if isinstance(symbol, torch.SymInt):
                    self._texts.setdefault(str(symbol.node.expr), host(size))
            self._values[id(tensor)] = (tensor, one)
            return tensor
        if isinstance(one, Size):
            name = f"n{len(self._texts)}"
            symbol = self._env.create_symbol(int(one), ConstantSource(name), DimDynamic.DYNAMIC)
            self._texts.setdefault(str(symbol), host(one))
            return self._env.create_symintnode(symbol, hint=int(one)) if not symbol.is_number else int(one)
        return float(one) if isinstance(one, Number) else one

    def result(self, one: Any) -> Any:
        """The value of a tensor, the text of a symbolic number."""
        if isinstance(one, torch.Tensor):
            if id(one) in self._values:
                return self._values[id(one)][1]
            constant = getattr(one, "constant", None) if one.dim() == 0 else None
            if constant is None:
                raise Unsupported("a tensor that no operator made")
            return make("full", (constant.item(),), (), one.dtype)
        if isinstance(one, torch.SymInt | torch.SymFloat):
            return self._number(one)
        return one

    def _number(self, one: Any) -> Any:
        expression = one.node.expr
        plain = one.node.hint if one.node.has_hint() else None
        if plain is None:
            raise Unsupported("a size that depends on values")
        if expression.is_number:
            return plain
        text = PythonPrinter().doprint(expression)
        alone = self._texts.get(text)
        text = alone or re.sub(
            r"\b[a-z]+\d+\b", lambda m: f"({self._texts[m[0]]})" if m[0] in self._texts else m[0], text
        )
        binds = {} if alone and re.fullmatch(r"[\w.\[\]]+", alone) else {"binds": _LOOSE}
        return Size(plain, text, **binds) if isinstance(one, torch.SymInt) else Number(plain, text, **binds)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.namespace == "prim":  # the device of a tensor, asked for by a decomposition
            return args[0].fake_device
        name = function._schema.name.split("::")[-1]
        name = name[:-1] if name.endswith("_") and not name.startswith("_") else name
        if (made := self._by_table(name, args, kwargs)) is not None:
            result = function(*args, **kwargs)
            if self._bound(made, result):
                return result
        with self:
            decomposition = decomposition_table.get(function)
            if decomposition is not None:
                return decomposition(*args, **kwargs)
            result = function.decompose(*args, **kwargs)
        if result is NotImplemented:
            raise Unsupported(f"no entry for {name}")
        return result

    def _by_table(self, name: str, args: Any, kwargs: Any) -> Any:
        try:
            values = tree_map(self.result, (args, kwargs))
            return self._build(name, *values)
        except (Unsupported, *_FAULTS):
            return None

    def _bound(self, made: Any, result: Any) -> bool:
        values, tensors = tree_flatten(made)[0], tree_flatten(result)[0]
        pairs = list(zip(values, tensors, strict=False))
        if len(values) != len(tensors) or any(
            tuple(map(int, value.shape)) != tuple(map(int, tensor.shape)) or value.dtype != tensor.dtype
            for value, tensor in pairs
        ):
            return False
        for value, tensor in pairs:
            self._values[id(tensor)] = (tensor, value)
        return True
