"""Statements of a problem's text as they stand there, without docstrings and with new names of classes."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from itertools import accumulate

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_COMMENT = re.compile(rb"[ \t]*#[^\r\n]*")
_BLANK_LINES = re.compile(rb"[ \t]*(#[^\r\n]*)?\r?\n(?:[ \t]*\r?\n)*")


class Verbatim:
    """A module's text, from which statements are copied byte by byte.

    Comments inside a definition, and behind its last line, are part of it. Docstrings of classes and
    functions go. `renamed` has new names of classes; they apply where code names the class, not in strings.
    """

    def __init__(self, source: str, renamed: Mapping[str, str]) -> None:
        self.tree = ast.parse(source)
        self._bytes = source.encode()
        self._starts = [0, *accumulate(map(len, self._bytes.splitlines(keepends=True)))]
        self._edits = sorted([*self._new_names(renamed), *self._docstrings()])

    def statement(self, node: ast.stmt) -> str:
        """Return a statement with its decorators, from its first line's indentation on."""
        first = self._start(node)
        if isinstance(node, Definition) and node.decorator_list:
            first = self._bytes.rindex(b"@", 0, self._start(node.decorator_list[0]))
        last = self._end(node)
        if isinstance(node, Definition) and (comment := _COMMENT.match(self._bytes, last)):
            last = comment.end()
        return self._indentation(first) + self._text(first, last)

    def head(self, node: Definition) -> str:
        """Return the first line of a class or function, up to its colon; a signature may take several."""
        first = self._start(node)
        text = self._bytes[first : self._end(node)].decode()
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
            if token.string == ":" and not depth:
                row, column = token.end
                before = text.splitlines(keepends=True)[: row - 1]
                length = sum(len(line.encode()) for line in before)
                length += len(text.splitlines(keepends=True)[row - 1][:column].encode())
                return self._text(first, first + length)
        raise AssertionError("a definition without a colon")

    def indentation_of(self, node: ast.ClassDef) -> str:
        """Return the indentation of a class' statements; four spaces where they follow its colon."""
        first = self._start(node.body[0])
        return self._indentation(first) if self._is_first(first) else "    "

    def _indentation(self, place: int) -> str:
        line = self._bytes.rfind(b"\n", 0, place) + 1
        return self._bytes[line:place].decode() if self._is_first(place) else ""

    def _is_first(self, place: int) -> bool:
        """Return True where nothing but blanks stands before a place in its line."""
        return not self._bytes[self._bytes.rfind(b"\n", 0, place) + 1 : place].strip()

    def _start(self, node: ast.stmt | ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def _text(self, first: int, last: int) -> str:
        """Return a part of the text with the edits that lie in it."""
        result, place = b"", first
        for start, end, text in self._edits:
            if first <= start and end <= last:
                result += self._bytes[place:start] + text
                place = end
        return (result + self._bytes[place:last]).decode()

    def _new_names(self, renamed: Mapping[str, str]) -> Iterator[tuple[int, int, bytes]]:
        for node in _outside_formats(self.tree):
            name, start = "", 0
            if isinstance(node, ast.Name):
                name, start = node.id, self._start(node)
            elif isinstance(node, ast.ClassDef):
                keyword = re.compile(rb"class\s+").match(self._bytes, self._start(node))
                assert keyword is not None
                name, start = node.name, keyword.end()
            if name in renamed:
                yield start, start + len(name.encode()), renamed[name].encode()

    def _docstrings(self) -> Iterator[tuple[int, int, bytes]]:
        for node in ast.walk(self.tree):
            if not isinstance(node, Definition) or ast.get_docstring(node, clean=False) is None:
                continue
            docstring, *rest = node.body
            first, last = self._start(docstring), self._end(docstring)
            line = self._bytes.rfind(b"\n", 0, first) + 1
            if not rest:
                yield first, last, b"pass"
            elif self._is_first(first) and (end := _BLANK_LINES.match(self._bytes, last)):
                yield line, end.end(), b""
            else:
                yield first, self._start(rest[0]), b""


def _outside_formats(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes outside formatted strings, in which Python 3.11 gives no places."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr):
            yield child
            yield from _outside_formats(child)
