"""Which operators a reference applies, in order of evaluation, however they are spelt.

`nn.ReLU()(x)`, `F.relu(x)`, `torch.relu(x)` and `x.relu_()` are all `relu`; `a @ b` is `matmul`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kernel_core.corpus.canonical import OWN_ATTRIBUTE, OWN_NAME

_INPUT_MAKERS = frozenset({"get_inputs", "get_init_inputs", "__init__"})
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
# Calls that shape, store or describe values without computing any.
_SILENT = frozenset(
    (
        *("parameter", "tensor", "sequential", "modulelist", "moduledict"),
        *("size", "dim", "shape", "numel", "type", "device", "item", "keys", "values", "items"),
        *("contiguous", "clone", "detach", "to", "float", "half", "long", "int", "cuda", "cpu"),
        *("append", "extend", "join", "format"),
    )
)


def operators_of(tree: ast.Module) -> tuple[str, ...]:
    """The operators of a canonical tree, inner before outer, in the order the functions are written."""
    layers = _layers(tree)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in _INPUT_MAKERS:
            for statement in node.body:
                found.extend(_evaluated(statement, layers))
    return tuple(found)


def operator_name(path: str) -> str:
    """The name shared by all spellings of an operator: `torch.nn.CrossEntropyLoss` is `crossentropy`."""
    leaf = path.rpartition(".")[2].lower().replace("_", "")
    return leaf.removesuffix("loss") or leaf


def _layers(tree: ast.Module) -> dict[str, list[str]]:
    """Attribute of `self` to the operators of the layers that `__init__` puts there."""
    layers: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.FunctionDef) and node.name == "__init__"):
            continue
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
                target = statement.targets[0].attr
                layers.setdefault(target, []).extend(_evaluated(statement.value, {}))
    return layers


def _evaluated(node: ast.AST, layers: Mapping[str, list[str]]) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # walked on its own
    for child in ast.iter_child_nodes(node):
        yield from _evaluated(child, layers)
    if isinstance(node, ast.BinOp):
        if name := _BINARY.get(type(node.op)):
            yield name
    elif isinstance(node, ast.Attribute) and node.attr.startswith(OWN_ATTRIBUTE):
        yield from layers.get(node.attr, ())
    elif isinstance(node, ast.Call) and (name := _called(node.func)) and name not in _SILENT:
        yield name


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute) and not function.attr.startswith((OWN_ATTRIBUTE, "__")):
        return operator_name(function.attr)
    if isinstance(function, ast.Name) and "." in function.id and not function.id.startswith(OWN_NAME):
        return operator_name(function.id)
    return None
