"""Descriptions of errors in a candidate's code, for messages of a sandboxed process."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any


class NvccError(Exception):
    """CUDA C++ that does not compile; `line` is the candidate's own, 0 if unknown."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


_MAX_NAME_CHARS, _MAX_MESSAGE_CHARS = 200, 2000
_COMPILER_ERRORS = {
    *("CompilationError", "CompileTimeAssertionFailure", "PTXASError", "OutOfResources"),
    NvccError.__name__,
}
"""The names of the compile errors of Triton and of CUDA C++."""


def describe_error(error: BaseException, path: Path) -> dict[str, Any]:
    """The innermost cause: its type, its message, and the last line of the candidate that it passed."""
    line, refused = 0, False
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:  # causes may be cyclic
        seen.add(id(cause))
        refused |= type(cause).__name__ in _COMPILER_ERRORS
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.filename == str(path) and frame.lineno:
                line = frame.lineno
        if isinstance(cause, SyntaxError) and cause.filename == str(path):
            line = cause.lineno or line
        if isinstance(cause, NvccError):
            line = cause.line or line
        error, cause = cause, cause.__cause__
    try:
        message = str(error)
    except BaseException:  # every exception here is the candidate's too
        message = ""
    # A compiler's last line names the error.
    part = slice(-_MAX_MESSAGE_CHARS, None) if refused else slice(_MAX_MESSAGE_CHARS)
    name, text = (
        words.encode(errors="replace").decode()
        for words in (type(error).__name__[:_MAX_NAME_CHARS], message[part])
    )
    return {"error": name, "message": text, "line": line, "by_compiler": refused}
