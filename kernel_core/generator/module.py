"""The problem's own text in an answer: what `ModelNew` keeps of it, and how its inputs are made."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence

from kernel_core.generator.lines import folded
from kernel_core.generator.read import forward_of
from kernel_core.generator.verbatim import Verbatim

_LONGEST_INPUT = 80
"""Characters of an input's expression that the plan repeats."""
_INDENT = 8
"""Columns of the lines of `forward` where a problem indents by four."""
_COMPOUND = ast.If | ast.Try | ast.With | ast.For | ast.While
Named = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.AugAssign | _COMPOUND


def kept(source: str, body: Sequence[str]) -> tuple[list[str], str]:
    """Return the problem's imports, and its definitions that the constructor needs with `ModelNew`.

    All are copied as they stand in the problem. `body` are the lines of the new `forward`.
    """
    text = Verbatim(source, {"Model": "ModelNew"})
    tree = text.tree
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    forward = forward_of(tree)
    items = _members(model, forward)
    indent = text.indentation_of(model)
    lines = "\n".join(folded(line, _INDENT) for line in body)
    new = f"{indent}{text.head(forward)}\n{re.sub(r'(?m)^ {8}', f'{indent}    ', lines)}"
    members = [(item, _indented(text.statement(item), indent)) for item in items] + [(forward, new)]
    classes = f"{text.head(model)}\n{_spaced(members, between=1)}"
    written = "\n".join(line.removeprefix("return ") for line in body)
    new_forward = ast.FunctionDef(
        name="forward", args=forward.args, body=ast.parse(written).body, decorator_list=[],
        returns=forward.returns,
    )  # fmt: skip
    used = _names_of([*model.bases, *model.keywords]).union(*map(_names_read, [*items, new_forward]))
    needed = [(node, text.statement(node)) for node in _reached(tree.body, used, _names_read, model)]
    return _imports(text), _spaced([*needed, (model, classes)], between=2)


def kept_whole(source: str) -> tuple[list[str], str]:
    """Return the problem's imports, and `ModelNew` with all that it needs, as they stand there."""
    text = Verbatim(source, {"Model": "ModelNew"})
    model = next(node for node in text.tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    needed = {id(node) for node in _reached(text.tree.body, _names_read(model), _names_read, model)}
    nodes = [node for node in text.tree.body if isinstance(node, Named)]
    kept_nodes = [node for node in nodes if node is model or id(node) in needed]
    return _imports(text), _spaced([(node, text.statement(node)) for node in kept_nodes], between=2)


def _imports(text: Verbatim) -> list[str]:
    nodes = [node for node in text.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [text.statement(node) for node in nodes]


def _members(model: ast.ClassDef, forward: ast.FunctionDef) -> list[Named]:
    """The constructor with the methods and attributes of the class that it names."""
    constructor = [item for item in model.body if isinstance(item, Named) and "__init__" in _bound(item)]
    reached = _reached(model.body, _attributes_of(*constructor), _attributes_of, forward)
    return [item for item in model.body if item in [*constructor, *reached] and isinstance(item, Named)]


def _reached(
    body: Iterable[ast.stmt], names: set[str], names_of: Callable[[Named], set[str]], without: ast.stmt
) -> list[Named]:
    """The definitions among statements that names lead to, in their order."""
    definitions = [node for node in body if isinstance(node, Named) and node is not without]
    reached: list[Named] = []
    waiting, seen = set(names), set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for node in definitions:
            if name in _bound(node) and node not in reached:
                reached.append(node)
                waiting |= names_of(node) - seen
    return [node for node in definitions if node in reached]


def _indented(statement: str, indent: str) -> str:
    """The statement on a line of its own where another one stands before it."""
    return statement if statement.startswith(indent) else indent + statement


def _spaced(statements: Sequence[tuple[Named, str]], between: int) -> str:
    """Statements with blank lines around classes and functions."""
    result = ""
    for place, (node, text) in enumerate(statements):
        if place:
            previous = statements[place - 1][0]
            is_apart = isinstance(node, ast.FunctionDef | ast.ClassDef) or not isinstance(
                previous, ast.Assign | ast.AnnAssign
            )
            result += "\n" * (1 + between * is_apart)
        result += text
    return result


def _bound(node: Named) -> set[str]:
    """Names that a definition binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    stored = [part for part in ast.walk(node) if isinstance(part, ast.Name)]
    inner = [part for part in ast.walk(node) if isinstance(part, ast.FunctionDef | ast.ClassDef)]
    names = {part.id for part in stored if isinstance(part.ctx, ast.Store)}
    return names | {part.name for part in inner}


def _names_of(nodes: Iterable[ast.AST]) -> set[str]:
    return {part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name)}


def _attributes_of(*nodes: ast.AST) -> set[str]:
    """Names of attributes, and those without an object that a class' own statements read."""
    parts = [part for node in nodes for part in ast.walk(node)]
    return {part.attr for part in parts if isinstance(part, ast.Attribute)} | _names_of(nodes)


def _names_read(item: Named) -> set[str]:
    """Names that a definition takes from around it."""
    if isinstance(item, ast.ClassDef):
        inner = [node for node in item.body if isinstance(node, Named)]
        others = [node for node in item.body if node not in inner]
        around = _names_of([*item.bases, *item.keywords, *item.decorator_list, *others])
        return around.union(*map(_names_read, inner))
    if not isinstance(item, ast.FunctionDef):
        return _names_of([item])
    bound = {argument.arg for argument in _arguments(item)} | {
        part.id
        for node in item.body
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    return (_names_of(item.body) - bound) | _names_of(_around(item))


def _around(function: ast.FunctionDef) -> list[ast.AST]:
    """Expressions that are computed where a function is defined."""
    hints = [argument.annotation for argument in _arguments(function)]
    parts = [*function.decorator_list, *function.args.defaults, *function.args.kw_defaults, *hints]
    return [part for part in (*parts, function.returns) if part is not None]


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


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
        name: _on_one_line(source, assigned.get(node.id, node) if isinstance(node, ast.Name) else node)
        for name, node in zip(names, made, strict=False)
    }
    return {name: text for name, text in texts.items() if len(text) <= _LONGEST_INPUT}


def _on_one_line(source: str, node: ast.expr) -> str:
    """Text of an expression as it stands there, or written anew where it takes several lines."""
    text = ast.get_source_segment(source, node)
    return ast.unparse(node) if text is None or "\n" in text else text
