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

from kernel_core.generator.calls import tensors_of
from kernel_core.generator.ir import Unsupported, Value, make
from kernel_core.generator.sizes import Number, Size, host, is_named

Build = Callable[[str, Any, Any], Any]
"""Makes the values of a call by the table: name, arguments, named arguments."""
_LOOSE = 1
FAULTS = (TypeError, AttributeError, ValueError, KeyError, IndexError)
"""Errors of a builder that is called with arguments it does not have."""


def paired(made: Any, result: Any) -> list[tuple[Value, torch.Tensor]]:
    """Values with the tensors of torch's result; none where a shape, a type or their number differs."""
    values = tree_flatten(made)[0]
    tensors = tensors_of(result)
    if len(values) != len(tensors) or not all(isinstance(value, Value) for value in values):
        return []
    pairs = list(zip(values, tensors, strict=True))
    is_same = all(
        tuple(map(int, value.shape)) == tuple(map(int, tensor.shape)) and value.dtype == tensor.dtype
        for value, tensor in pairs
    )
    return pairs if is_same else []


def decomposed(function: Any, args: Any, kwargs: Any, build: Build) -> Any:
    """The values of `function(*args, **kwargs)`; tensors among the arguments are values.

    Numbers are symbolic too, where the function takes such numbers; else they are literals in the answer.
    Raises Unsupported where an operator has neither an entry nor a decomposition.
    """
    if any(isinstance(argument, Size) for argument in tree_flatten((args, kwargs))[0]):
        try:
            return _decomposed(function, args, kwargs, build)
        except Exception:  # many functions take no symbolic number, and each says so in another way
            args, kwargs = tree_map(
                lambda argument: int(argument) if isinstance(argument, Size) else argument, (args, kwargs)
            )
    return _decomposed(function, args, kwargs, build)


def _decomposed(function: Any, args: Any, kwargs: Any, build: Build) -> Any:
    with unset_fake_temporarily(), torch._C.DisableTorchFunction():
        env = ShapeEnv()
        run = _Run(env, build)
        with FakeTensorMode(shape_env=env, allow_non_fake_inputs=True) as mode:
            given = tree_map(lambda argument: run.given(argument, mode), (args, kwargs))
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

    def given(self, argument: Any, mode: FakeTensorMode) -> Any:
        """A symbolic tensor for a value, a symbolic number for a named size, else the argument."""
        if isinstance(argument, Value):
            dims = [DimDynamic.DYNAMIC if is_named(n) else DimDynamic.STATIC for n in argument.shape]
            shape = tuple(map(int, argument.shape))
            tensor = mode.from_tensor(
                torch.empty(shape, dtype=argument.dtype, device="meta"),
                source=ConstantSource(f"t{len(self._values)}"),
                symbolic_context=StatelessSymbolicContext(dynamic_sizes=dims),
            ).to("cpu")
            symbols: list[Any] = list(tensor.shape)
            for size, symbol in zip(argument.shape, symbols, strict=True):
                if isinstance(symbol, torch.SymInt):
                    self._texts.setdefault(str(symbol.node.expr), host(size))
            self._values[id(tensor)] = (tensor, argument)
            return tensor
        if isinstance(argument, Size):
            name = f"n{len(self._texts)}"
            symbol = self._env.create_symbol(int(argument), ConstantSource(name), DimDynamic.DYNAMIC)
            self._texts.setdefault(str(symbol), host(argument))
            return (
                self._env.create_symintnode(symbol, hint=int(argument))
                if not symbol.is_number
                else int(argument)
            )
        return float(argument) if isinstance(argument, Number) else argument

    def result(self, returned: Any) -> Any:
        """The value of a tensor, the text of a symbolic number."""
        if isinstance(returned, torch.Tensor):
            if id(returned) in self._values:
                return self._values[id(returned)][1]
            constant = getattr(returned, "constant", None) if returned.dim() == 0 else None
            if constant is None:
                raise Unsupported("a tensor that no operator made")
            return make("full", (constant.item(),), (), returned.dtype)
        if isinstance(returned, torch.SymInt | torch.SymFloat):
            return self._number(returned)
        return returned

    def _number(self, number: Any) -> Any:
        expression = number.node.expr
        plain = number.node.hint if number.node.has_hint() else None
        if plain is None:
            raise Unsupported("a size that depends on values")
        if expression.is_number:
            return plain
        text = PythonPrinter().doprint(expression)
        alone = self._texts.get(text)
        text = alone or re.sub(
            r"\b[a-z]+\d+\b", lambda m: f"({self._texts[m[0]]})" if m[0] in self._texts else m[0], text
        )
        kind = Size if isinstance(number, torch.SymInt) else Number
        is_atom = alone is not None and re.fullmatch(r"[\w.\[\]]+", alone)
        return kind(plain, text) if is_atom else kind(plain, text, _LOOSE)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function.namespace == "prim":  # the device of a tensor, asked for by a decomposition
            return args[0].fake_device
        name = function._schema.name.split("::")[-1]
        name = name[:-1] if name.endswith("_") and not name.startswith("_") else name
        if (made := self._by_table(name, args, kwargs)) is not None:
            result = function(*args, **kwargs)
            if pairs := paired(made, result):
                self._values |= {id(tensor): (tensor, value) for value, tensor in pairs}
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
        except (Unsupported, *FAULTS):
            return None
