"""Where a module's text asks for a layer or a function of torch, and the edits that put a kernel there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernel_core.problems.layer_swap.parts import PARTS, Part
from kernel_core.problems.syntax import Spans

_MODULES = ("nn", "torch.nn")
_FUNCTIONS = ("F", "torch", "nn.functional", "torch.nn.functional", "functional")
_MEANS_ONE = ("1", "(1, 1)")
_OTHER_WORK = ("padding_mode", "approximate", "groups")
"""Settings that ask for another kernel; a tile of channels does not suit a convolution of many groups."""


@dataclass(frozen=True)
class Edit:
    """A span of a text's bytes, and what stands there then."""

    start: int
    end: int
    text: str
    extent: int = 0
    """The length of the expression that is changed: of two that begin together, the shorter is within."""


@dataclass(frozen=True)
class Site:
    """One place where a part can be put."""

    part: Part
    edits: tuple[Edit, ...]
    is_layer: bool


def edited(source: bytes, edits: Iterable[Edit]) -> str:
    """The text with all edits; spans do not overlap."""
    for edit in sorted(edits, key=lambda one: (-one.start, one.extent)):
        source = source[: edit.start] + edit.text.encode() + source[edit.end :]
    return source.decode()


def sites(tree: ast.Module, spans: Spans) -> Iterator[Site]:
    """All places, in the order of the tree's walk; `@C` and `@F` in edits stand for names."""
    layers = {part.layer: part for part in PARTS if part.layer}
    functions = {part.name: part for part in PARTS if part.has_function and part.name != "add"}
    [add] = (part for part in PARTS if part.name == "add")
    kept = {id(node) for one in _instance_checks(tree) for node in ast.walk(one)}
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in _MODULES and id(node) not in kept:
            part = layers.get(node.attr)
            if part is not None and _takes(part, called.get(id(node))):
                yield Site(part, (Edit(spans.start(node), spans.end(node), "@C"),), True)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            part = functions.get(node.func.attr)
            edits = _call_edits(part.name, node, node.func, spans) if part is not None else ()
            if part is not None and edits:
                yield Site(part, edits, False)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            calls = [one for one in (node.left, node.right) if _asks_a_layer(one)]
            if calls and spans.between(node.left, node.right).strip() == b"+":
                yield Site(add, _sum_edits(node, spans), False)


def _instance_checks(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            yield node


def _takes(part: Part, call: ast.Call | None) -> bool:
    """Whether the kernel computes what the layer is made with, as far as the text shows it."""
    if call is None:
        return part.name != "adaptive_avg_pool2d"
    arguments = [ast.unparse(one) for one in call.args]
    if part.name == "adaptive_avg_pool2d":
        return len(arguments) == 1 and arguments[0] in _MEANS_ONE and not call.keywords
    return not any(one.arg in _OTHER_WORK for one in call.keywords)


def _call_edits(name: str, call: ast.Call, func: ast.Attribute, spans: Spans) -> tuple[Edit, ...]:
    """`F.gelu(x)` and `x.sigmoid()` as calls of the host's function; empty where it would lose a setting."""
    is_function = ast.unparse(func.value) in _FUNCTIONS
    given = call.args[1:] if is_function else call.args
    settings = [one.arg for one in call.keywords] + ["dim"] * len(given)
    numbers = [ast.unparse(one.value) for one in call.keywords] + [ast.unparse(one) for one in given]
    wanted = [("dim", "-1")] if name == "softmax" else []
    free = [pair for pair in zip(settings, numbers, strict=True) if pair != ("inplace", "False")]
    if free != wanted or (is_function and not call.args):
        return ()
    first = call.args[0] if is_function else func.value
    return (
        Edit(spans.start(call), spans.start(first), "@F(", spans.end(call) - spans.start(call)),
        Edit(spans.end(first), spans.end(call), ")"),
    )


def _asks_a_layer(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.")


def _sum_edits(node: ast.BinOp, spans: Spans) -> tuple[Edit, ...]:
    start, end = spans.start(node), spans.end(node)
    return (
        Edit(start, start, "@F(", end - start),
        Edit(spans.end(node.left), spans.start(node.right), ", "),
        Edit(end, end, ")"),
    )
