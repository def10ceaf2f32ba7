"""The candidate's text as a file: its name in the folder of its process, and lines within it."""

from __future__ import annotations

import ast

CANDIDATE_FILE = "candidate.py"


def first_line(definition: ast.FunctionDef) -> int:
    """The line that Python gives the function's code: where it starts, decorators included."""
    return min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])


def line_in(source: str, text: str, line: int) -> int:
    """The line of `source` that holds a line of `text`, a part of the source; 0 if it is no part."""
    start = source.find(text)
    return source.count("\n", 0, start) + line if start >= 0 and line else 0
