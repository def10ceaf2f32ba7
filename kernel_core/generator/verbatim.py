"""The problem's own text in an answer that replaces a part of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from kernel_core.generator.lines import folded
from kernel_core.generator.read import Unreadable

_MAKERS = ("get_inputs", "get_init_inputs")


def replaced(source: str, statements: Sequence[ast.stmt], lines: Sequence[str]) -> str:
    """The text with other lines in place of some statements. Raises Unreadable where they share a line."""
    own = source.splitlines()
    first, last = statements[0], statements[-1]
    start, end = first.lineno - 1, last.end_lineno or last.lineno
    behind = own[end - 1].encode()[last.end_col_offset :].decode().strip()
    if own[start][: first.col_offset].strip() or (behind and not behind.startswith("#")):
        raise Unreadable("statements that share a line with others")
    indent = first.col_offset
    new = "\n".join(folded(line, indent) for line in lines)
    return "\n".join([*own[:start], new, *own[end:]]) + "\n"


def kept(source: str) -> tuple[list[str], str]:
    """The imports, and the text of all that `Model` needs, with `Model` as `ModelNew`."""
    lines = _renamed(source).splitlines()
    tree = ast.parse(source)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    needed = _needed(tree)
    parts: list[str] = []
    previous: ast.stmt | None = None
    for before, node in zip([None, *tree.body], tree.body, strict=False):
        if id(node) not in needed:
            continue
        start = _first_line(node, lines)
        blank = 2
        if previous is not None and before is previous:
            blank = min(start - (previous.end_lineno or 0), 2)
        parts.append("\n" * (blank + 1 if parts else 0) + "\n".join(lines[start : node.end_lineno]))
        previous = node
    return [_lines_of(node, lines) for node in imports], "".join(parts)


def _lines_of(node: ast.stmt, lines: Sequence[str]) -> str:
    return "\n".join(lines[node.lineno - 1 : node.end_lineno])


def _first_line(node: ast.stmt, lines: Sequence[str]) -> int:
    """Number from 0 of a definition's first line, with its decorators and the comment above it."""
    decorators = getattr(node, "decorator_list", [])
    start = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return start


def _renamed(source: str) -> str:
    """The text with `ModelNew` in place of each name `Model`."""
    lines = source.splitlines()
    places = list[tuple[int, int]]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id == "Model":
            column = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
            places.append((node.lineno - 1, column + len("Model")))
        elif isinstance(node, ast.ClassDef) and node.name == "Model":
            match = re.compile(r"class\s+Model\b").search(lines[node.lineno - 1])
            places += [(node.lineno - 1, match.end())] if match else []
    for line, column in sorted(places, reverse=True):
        lines[line] = lines[line][:column] + "New" + lines[line][column:]
    return "\n".join(lines) + "\n"


def _needed(tree: ast.Module) -> set[int]:
    """Ids of the statements that `Model` needs, and of those that define nothing by themselves."""
    definitions: dict[str, list[ast.stmt]] = {}
    waiting: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            definitions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    definitions.setdefault(part.id, []).append(node)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            waiting.append(node)
    waiting += definitions.get("Model", [])
    needed = {id(node) for node in waiting}
    while waiting:
        for name in _free_names(waiting.pop()):
            for node in definitions.get(name, []):
                if id(node) not in needed and name not in _MAKERS:
                    needed.add(id(node))
                    waiting.append(node)
    return needed


def _free_names(node: ast.AST) -> set[str]:
    """Names that a statement takes from around it."""
    names = set[str]()
    if isinstance(node, ast.Name):
        return {node.id}
    for child in ast.iter_child_nodes(node):
        names |= _free_names(child)
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        arguments = node.args
        given = [argument for argument in ast.walk(arguments) if isinstance(argument, ast.arg)]
        outside = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
        outside += [argument.annotation for argument in given if argument.annotation]
        outside += getattr(node, "decorator_list", [])
        bound = {argument.arg for argument in given}
        bound |= {
            part.id
            for part in ast.walk(node)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        }
        names = (names - bound).union(*map(_free_names, outside))
    return names
