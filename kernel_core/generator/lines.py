"""Lines as an author writes them: what is read once stands where it is read, and long lines are broken.

A schedule names every intermediate. `joined` puts a pure line into the only line of its block that reads its
name, as long as that line stays short.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

LONGEST, _LONGEST_JOINED = 100, 84
"""Characters of a line, and of one that another line was joined to."""


def joined(
    lines: Sequence[str], pure: set[str], products: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """The body of a kernel with lines joined; `pure` are names of lines without loads that may move.

    Names in `products` are written as the product of other names.
    """
    block = [_Apart(products or {}).visit(statement) for statement in ast.parse("\n".join(lines)).body]
    return list(_texts(_joined(block, pure, 4), 4))


def _texts(block: list[ast.stmt], indent: int) -> Iterator[str]:
    for statement in block:
        if isinstance(statement, ast.For):
            yield " " * indent + f"for {ast.unparse(statement.target)} in {ast.unparse(statement.iter)}:"
            yield from _texts(statement.body, indent + 4)
        else:
            yield folded(_text(statement), indent)


def _text(statement: ast.AST) -> str:
    return ast.unparse(statement).replace("'", '"')


def _joined(block: list[ast.stmt], pure: set[str], indent: int) -> list[ast.stmt]:
    for statement in block:
        if isinstance(statement, ast.For):
            statement.body = _joined(statement.body, pure, indent + 4)
    lines = [_Line(statement) for statement in block]
    place = 0
    while place < len(lines):
        merged = _merged(lines, place, pure)
        if merged is not None and len(_text(merged[1])) + indent <= _LONGEST_JOINED:
            lines[merged[0]] = _Line(merged[1])
            del lines[place]
        else:
            place += 1
    return [line.statement for line in lines]


class _Line:
    """A statement with the names that it reads, and how often, and those that it binds."""

    def __init__(self, statement: ast.stmt) -> None:
        self.statement = statement
        self.reads = Counter(_names(statement, ast.Load))
        self.written = set(_names(statement, ast.Store))


def _merged(lines: Sequence[_Line], place: int, pure: set[str]) -> tuple[int, ast.stmt] | None:
    """Return the only line that reads the name of another, with its place; None where the name stays."""
    line = lines[place].statement
    if not (isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)):
        return None
    name, reader, is_moved = line.targets[0].id, None, False
    if name not in pure:
        return None
    needed = lines[place].reads.keys()
    for at, later in enumerate(lines[place + 1 :], start=place + 1):
        reads = later.reads[name]
        if reads and (reads > 1 or reader is not None or is_moved or not _takes(later.statement, name)):
            return None
        reader = at if reads else reader
        if name in later.written:
            break
        is_moved = is_moved or not later.written.isdisjoint(needed)
    if reader is None:
        return None
    copy = ast.parse(ast.unparse(lines[reader].statement)).body[0]
    return reader, _Replaced(name, line.value).visit(copy)


def _takes(reader: ast.stmt, name: str) -> bool:
    """Return True where an expression may stand for a name: in no loop, and not as what is stored."""
    if isinstance(reader, ast.For):
        return False
    if not (isinstance(reader, ast.Expr) and isinstance(reader.value, ast.Call)):
        return True
    stored = reader.value.args[1]
    return not (isinstance(stored, ast.Name) and stored.id == name)


def _names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, context):
            yield part.id


class _Apart(ast.NodeTransformer):
    """Products of names; `x * product` and `x // product` take one name after the other."""

    def __init__(self, products: Mapping[str, Sequence[str]]) -> None:
        self._products = products

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A product by itself."""
        first, *rest = self._factors(node.id)
        result: ast.expr = ast.Name(first, ast.Load())
        for name in rest:
            result = ast.BinOp(result, ast.Mult(), ast.Name(name, ast.Load()))
        return result if rest else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """A chain of operations, whose numbers are not larger than those of the index."""
        if not isinstance(node.right, ast.Name) or not isinstance(node.op, ast.Mult | ast.FloorDiv):
            self.generic_visit(node)
            return node
        names = self._factors(node.right.id)
        result: ast.expr = self.visit(node.left)
        for name in names if isinstance(node.op, ast.Mult) else reversed(names):
            result = ast.BinOp(result, node.op, ast.Name(name, ast.Load()))
        return result

    def _factors(self, name: str) -> list[str]:
        parts = self._products.get(name)
        return [name] if parts is None else [factor for part in parts for factor in self._factors(part)]


class _Replaced(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self._name, self._value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The name becomes its value."""
        return self._value if node.id == self._name else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """A sum behind a pointer needs no brackets."""
        self.generic_visit(node)
        is_offset = isinstance(node.left, ast.Name) and node.left.id.endswith("_ptr")
        return _added(node.left, node.right) if is_offset else node


def _added(left: ast.expr, right: ast.expr) -> ast.expr:
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Add):
        left, right = _added(left, right.left), right.right
    return ast.BinOp(left, ast.Add(), right)


def folded(line: str, indent: int = 0) -> str:
    """A line with its indentation, broken inside brackets where it is too long."""
    text = " " * indent + line
    pairs = [] if len(text) <= LONGEST else [pair for pair in _brackets(text) if not _is_index(text, *pair)]
    if not pairs:
        return text
    first, last = max(pairs, key=lambda pair: pair[1] - pair[0])
    target, _, value = text.partition(" = ")
    if value and text[last + 1 : last + 2] not in ("", ".", ":"):
        text = f"{target} = ({value})"
        first, last = len(target) + 3, len(text) - 1
    inside, inner = text[first + 1 : last], f"\n{' ' * (indent + 4)}"
    is_call = text[first - 1].isalnum() or text[first - 1] in "_]"
    parts = _split(inside, ",")
    if len(parts) > 1 or is_call:
        parts = packed([folded(part, indent + 4).strip() for part in parts], LONGEST - indent - 5, ", ")
        body = f",{inner}".join(parts) + ","
    else:
        parts = [folded(part, indent + 4).strip() for part in _split(inside, "+-&|") if part]
        body = inner.join(packed(parts, LONGEST - indent - 4, " "))
    return f"{text[: first + 1]}{inner}{body}\n{' ' * indent}{text[last:]}"


def packed(parts: Sequence[str], width: int, between: str) -> list[str]:
    """Lines of as many parts as fit, for code between brackets."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 2 <= width and "\n" not in lines[-1] + part:
            lines[-1] += f"{between}{part}"
        else:
            lines.append(part)
    return lines


def _brackets(text: str) -> list[tuple[int, int]]:
    """Places of the outermost brackets."""
    pairs, opened = list[tuple[int, int]](), list[int]()
    for place, letter in enumerate(_without_strings(text)):
        if letter in "([":
            opened.append(place)
        elif letter in ")]":
            first = opened.pop()
            if not opened:
                pairs.append((first, place))
    return pairs


def _is_index(text: str, first: int, last: int) -> bool:
    """True for the brackets of an index, which a comma at the end would make a tuple."""
    is_behind_value = text[first - 1 : first].isalnum() or text[first - 1 : first] in ("_", "]", ")")
    return text[first] == "[" and is_behind_value and len(_split(text[first + 1 : last], ",")) == 1


def _without_strings(text: str) -> str:
    return re.sub(r"'[^']*'|\"[^\"]*\"", lambda match: "_" * len(match[0]), text)


def _split(text: str, at: str) -> list[str]:
    """The parts between a text's outermost commas, or before its outermost operators."""
    depth, parts = 0, [""]
    for place, letter in enumerate(_without_strings(text)):
        depth += (letter in "([") - (letter in ")]")
        is_apart = letter == "," or text[place - 1 : place + 2] == f" {letter} "
        is_cut = letter in at and not depth and is_apart
        if is_cut:
            parts.append("")
        parts[-1] += "" if is_cut and letter == "," else text[place]
    return [part.strip() for part in parts if part.strip()]
