"""The problem's own text in an answer: what `ModelNew` keeps of it, and how its inputs are made."""

from __future__ import annotations

import ast
import re

from kernel_core.generator.lines import folded
from kernel_core.generator.read import forward_of

_LONGEST_INPUT = 80
"""Characters of an input's expression that the plan repeats."""


def kept(tree: ast.Module, body: list[str]) -> str:
    """The problem's own definitions that the constructor needs, and `ModelNew` with the new `forward`."""
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    items: list[ast.stmt] = [
        node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    forward = forward_of(tree)
    used = _names_of(items)
    methods = [
        node
        for node in model.body
        if isinstance(node, ast.FunctionDef) and node.name in used and node not in items
    ]
    new = ast.FunctionDef(
        name="forward", args=forward.args, body=[ast.Pass()],
        decorator_list=[], lineno=0,
    )  # fmt: skip
    for argument in (*new.args.posonlyargs, *new.args.args):
        argument.annotation = None
    items += [*methods, new]
    model_text = ast.ClassDef(
        name="ModelNew", bases=model.bases, keywords=[], body=[_Renamed().visit(node) for node in items],
        decorator_list=[],
    )  # fmt: skip
    text = ast.unparse(ast.fix_missing_locations(model_text))
    head, _, _ = text.rpartition("        pass")
    text = head + "\n".join(folded(line, 8) for line in body)
    text = text.replace(":\n\n    def ", ":\n    def ", 1)
    if "def __init__" in text:
        text = _without_docstring(text)
    needed = _needed(tree, model, items, model.bases, body)
    return "\n\n\n".join([*needed, text])


def _without_docstring(text: str) -> str:
    return re.sub(
        r'(def __init__\(.*?\).*?:\n)\s+(""".*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')\n',
        r"\1",
        text,
        count=1,
        flags=re.S,
    )


class _Renamed(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        """`Model` becomes `ModelNew`."""
        return ast.Name("ModelNew", node.ctx) if node.id == "Model" else node


def _names_of(nodes: list[ast.stmt]) -> set[str]:
    names = set[str]()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                names.add(part.id)
            elif isinstance(part, ast.Attribute):
                names.add(part.attr)
    return names


def _names_read(function: ast.FunctionDef) -> set[str]:
    """Return the names that a function takes from around it."""
    bound = {argument.arg for argument in _arguments(function)} | {
        part.id
        for node in function.body
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    nodes: list[ast.AST] = [*function.body, *function.args.defaults]
    read = {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}
    return read - bound


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _needed(
    tree: ast.Module, model: ast.ClassDef, items: list[ast.stmt], bases: list[ast.expr], body: list[str]
) -> list[str]:
    """Definitions of the problem that the constructor reaches, in their order."""
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node is not model:
            definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        definitions[part.id] = node
    functions = [node for node in items if isinstance(node, ast.FunctionDef)]
    functions[-1].body = ast.parse("\n".join(line.removeprefix("return ") for line in body)).body
    waiting = _names_of([ast.Expr(base) for base in bases])
    for function in functions:
        waiting |= _names_read(function)
    kept: list[ast.stmt] = []
    seen = set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in definitions:
            continue
        seen.add(name)
        if definitions[name] not in kept:
            kept.append(definitions[name])
            waiting |= _names_of([definitions[name]])
    return [ast.unparse(node) for node in tree.body if node in kept]


def input_texts(source: str) -> dict[str, str]:
    """Expressions by which `get_inputs` makes the inputs, by the names that `forward` gives them."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    body = functions["get_inputs"].body
    assigned = (
        {target.id: node.value for node in body if isinstance(
            node, ast.Assign,
        ) for target in node.targets if isinstance(target, ast.Name)}
    )  # fmt: skip
    last = body[-1].value if isinstance(body[-1], ast.Return) else None
    made = last.elts if isinstance(last, ast.List | ast.Tuple) else []
    names = [argument.arg for argument in _arguments(forward_of(tree))[1:]]
    texts = {
        name: ast.unparse(assigned.get(node.id, node) if isinstance(node, ast.Name) else node)
        for name, node in zip(names, made, strict=False)
    }
    return {name: text for name, text in texts.items() if len(text) <= _LONGEST_INPUT}
