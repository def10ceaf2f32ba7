"""Reads a problem's module into a graph, by running it once on fake tensors of its own sizes.

Nothing is computed: fake tensors have shapes and types only. Each call of torch's is looked up in the table
of operators; a call without an entry stays as it is. Shapes and attributes of the module are `Size` and
`Number`, so the graph holds for any size.
"""

from __future__ import annotations

import ast
import math
import random
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode, unset_fake_temporarily
from torch.nn.modules.conv import _ConvNd

from kernel_core.generator import literals
from kernel_core.generator.calls import FIXED, module_path, short_name, with_text
from kernel_core.generator.library_calls import NO_CALLS, LibraryCalls
from kernel_core.generator.names import NAMES, Names
from kernel_core.generator.recorder import Graph, Recorder, Unreadable
from kernel_core.generator.sizes import Number, Size, host, without_text
from kernel_core.records import Problem

_GEOMETRY = ("stride", "padding", "dilation", "output_padding")
"""Numbers of a convolution that keep their text where they are 0 or 1: all are written alike."""


def read(problem: Problem, on_meta: bool = False, library: LibraryCalls = NO_CALLS) -> Graph:
    """Return the graph of a problem's `forward`. Raises Unreadable.

    `on_meta` takes tensors of the meta device in place of fake ones. It takes half of the time and is for
    modules that ask for no device. Calls of `library` stay torch's.
    """
    names = Names()
    try:
        graph = _read_with(names, problem, on_meta, library)
    except Unreadable:
        if not names.expanded:
            raise
    if (
        names.expanded
    ):  # an axis of an input that is repeated is 1 by contract: the literal makes plain indices
        graph = _read_with(Names(frozenset(names.expanded)), problem, on_meta, library)
    return graph


def _read_with(names: Names, problem: Problem, on_meta: bool, library: LibraryCalls) -> Graph:
    arguments = forward_arguments(problem.source)
    try:
        names.taken |= {*arguments, "F", "self", "torch", "triton", "tl", "nn", "math"}
        NAMES.set(names)
        with without_values(on_meta):
            return _read(problem, arguments, library)
    except Unreadable:
        raise
    except Exception as error:  # another program's code may raise anything
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def without_values(on_meta: bool) -> AbstractContextManager[Any]:
    """Tensors that are made inside have shapes and types alone."""
    return torch.device("meta") if on_meta else FakeTensorMode(allow_non_fake_inputs=True)


def forward_arguments(source: str) -> list[str]:
    """Names of `forward`'s parameters without `self`; `*names` keeps its star."""
    arguments = forward_of(ast.parse(source)).args
    if arguments.vararg or arguments.kwonlyargs:
        raise Unreadable("forward takes a variable number of arguments")
    return [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)][1:]


def forward_of(tree: ast.Module) -> ast.FunctionDef:
    """The `forward` of `Model`, its own or of a class of the same text that it inherits from."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    waiting = ["Model"]
    while waiting:
        node = classes.get(waiting.pop(0))
        if node is None:
            continue
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "forward":
                return item
        waiting += [base.id for base in node.bases if isinstance(base, ast.Name)]
    raise Unreadable("no class Model with a forward")


def load_module(problem: Problem) -> types.ModuleType:
    """The problem's text, executed."""
    return executed(problem, ast.parse(problem.source))


def executed(problem: Problem, tree: ast.Module) -> types.ModuleType:
    """A problem's text, or a changed copy of it, executed."""
    module = types.ModuleType("problem")
    module.__dict__.update(literals.namespace())
    with _math_with_texts():  # for `from math import sqrt`
        exec(compile(tree, problem.id, "exec"), module.__dict__)
    return module


def _read(problem: Problem, arguments: list[str], library: LibraryCalls) -> Graph:
    tree = literals.with_literals(ast.parse(problem.source))
    model, inputs = model_and_inputs(executed(problem, tree))
    recorder = Recorder(model, library)
    with named_numbers(model), recorder.running(), torch.no_grad():
        values = [recorder.argument(given, name) for given, name in zip(inputs, arguments, strict=False)]
        outputs = model(*values)
    return recorder.graph(outputs)


def model_and_inputs(module: types.ModuleType) -> tuple[nn.Module, list[Any]]:
    """The module of an executed problem, and the arguments of its `forward`."""
    torch.manual_seed(0)
    random.seed(0)
    given = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
    positional, named = ([], given) if isinstance(given, dict) else (list(given), {})
    if len(positional) == 2 and isinstance(positional[1], dict) and isinstance(positional[0], list):
        positional, named = positional
    try:
        model = module.Model(*positional, **named)
    except DataDependentOutputException:  # a constructor that reads values
        with unset_fake_temporarily():
            model = module.Model(*positional, **named)
    return model, list(module.get_inputs())


@contextmanager
def named_numbers(model: nn.Module) -> Iterator[None]:
    """Numbers of all modules as attributes with a text, and `math` that keeps it; plain again at the end."""
    plain = [(vars(module), dict(vars(module))) for module in model.modules()]
    for name, module in model.named_modules():
        path = module_path(name)
        for key, value in list(vars(module).items()):
            if not key.startswith("_") and key != "training":
                fixed = () if isinstance(module, _ConvNd) and key in _GEOMETRY else FIXED
                vars(module)[key] = with_text(value, f"{path}.{key}", fixed)
                if isinstance(value, tuple):
                    NAMES.get().lengths[f"{path}.{key}"] = len(value)
    try:
        with _math_with_texts():
            yield
    finally:
        for attributes, before in plain:
            attributes.update(before)


@contextmanager
def _math_with_texts() -> Iterator[None]:
    """`math` with functions that keep the text of their numbers."""
    functions = [name for name, its in vars(math).items() if callable(its) and not name.startswith("_")]
    with ExitStack() as stack:
        for function in functions:
            stack.enter_context(mock.patch.object(math, function, _keeping(function)))
        yield


def _keeping(function: str) -> Callable[..., Any]:
    plain = getattr(math, function)

    def call(*given: Any, **named: Any) -> Any:
        if named or not any(isinstance(value, Size | Number) for value in given):
            return plain(*given, **named)
        result = plain(*map(without_text, given))
        return with_text(result, f"math.{function}({', '.join(map(host, given))})", ())

    return call


__all__ = ["Graph", "Unreadable", "forward_arguments", "forward_of", "load_module", "read", "short_name"]
