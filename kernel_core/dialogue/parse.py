"""Read the candidate out of what a policy wrote.

The contract with the policy is `<think>…</think>` and then `<KERNEL>…</KERNEL>`. Real answers bend it,
so these are the rules, in order:

1. Thoughts are never judged. Everything up to the last `</think>` is thought, whether or not a `<think>`
   opened it (chat templates often write the opening tag themselves). A `<think>` after that begins
   thought again, up to the end.
2. The pieces of an answer are its complete `<KERNEL>` blocks. A block that holds more than Python gives its
   fenced blocks in its place.
3. Where no such piece binds `ModelNew`, the fenced blocks of the whole answer are the pieces, unless a
   `<KERNEL>` line opens a block that is never closed. A fence is closed by the first line that starts with it
   and leaves Python, so that a docstring may hold fences; else by the first bare one. The end of an answer
   closes a fence, unless the token limit cut it off. An answer without blocks may be Python as a whole,
   or from its first import to its last indented line, or quote it: a string of JSON or Python, alone or
   in an object such as `{"code": "…"}`, or a CDATA section.
   Special tokens at the end, such as `<|im_end|>`, are no part of an answer.
4. The last piece that binds `ModelNew` counts: a later piece revises an earlier one. Pieces that define names
   which it uses and does not define are joined to it in their order; the last definition of a name counts.
5. The result must be Python that parses, with a `ModelNew` that has or inherits `forward`.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import textwrap
from itertools import islice

from kernel_core.dialogue.module_names import defined, missing, tree_of
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Candidate, NoCandidate

MAX_SOURCE_CHARS = 60_000
"""Ten times the longest honest kernel of the corpora; more is not worth a compiler's time."""

_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_BLOCK = re.compile(r"<KERNEL>((?:(?!</?KERNEL>).)*)</KERNEL>", re.DOTALL | re.IGNORECASE)
_OPENS_BLOCK = re.compile(r"^[ \t]*<KERNEL>[ \t]*$", re.MULTILINE | re.IGNORECASE)
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})([^\n`]*)$", re.MULTILINE)
_PYTHON_FENCES = frozenset({"", "python", "python3", "py", "py3", "triton", "{python}", "{.python}"})
_CLOSINGS_TRIED = 8
"""Lines that are tried as the end of a fence, so that an answer of many fences takes no time."""
_LAYOUT = str.maketrans({"\u00a0": " ", "\u200b": None, "\ufeff": None})
"""Spaces and marks that pages put into copied code, where Python takes none of them."""
_SPECIAL_TOKENS_AT_END = re.compile(
    r"(?:(?:<[|｜][^<>|｜\n]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>)\s*){1,4}\Z"
)
"""Tokens that end a turn, where a server leaves them in the text."""
_DEFINES_MODEL = re.compile(r"^class ModelNew\b", re.MULTILINE)
_MODULES = frozenset({"Module", "object"})
"""Base classes that give a module no `forward`."""


def parse_completion(text: str, finish_reason: str) -> Candidate | NoCandidate:
    """Return the candidate in a completion, or the precise reason for none. Never raises."""
    is_cut = finish_reason == "length"
    plain = _SPECIAL_TOKENS_AT_END.sub("", text.replace("\r\n", "\n").translate(_LAYOUT))
    thinking, answer = _split_thinking(plain, is_cut)
    if answer is None:
        return NoCandidate(reason=_cut_short("the <think> block is never closed", finish_reason))
    source = _kernel_source(answer, is_cut)
    if source is None:
        if finish_reason == "error":
            reason = "nothing was written: the prompt left no room or the model failed"
        elif _OPENS_BLOCK.search(answer):
            reason = _cut_short("the <KERNEL> block is never closed", finish_reason)
        else:
            reason = _cut_short("no <KERNEL> block", finish_reason)
        return NoCandidate(reason=reason, thinking=thinking)
    fault = _fault(source)
    if fault is not None:
        return NoCandidate(reason=fault, thinking=thinking)
    return Candidate.from_source(source, thinking)


def _split_thinking(text: str, is_cut: bool) -> tuple[str, str | None]:
    """Split off the thought; the answer is None when the text ends inside a thought."""
    thinking, answer = "", text
    closings = list(_THINK_CLOSE.finditer(text))
    if closings:
        thinking, answer = text[: closings[-1].start()], text[closings[-1].end() :]
    thinking = _trimmed(_THINK_OPEN.sub("", _THINK_CLOSE.sub("", thinking)))
    opening = _THINK_OPEN.search(answer)
    if opening is None:
        return thinking, answer
    before = answer[: opening.start()]
    return thinking, before if _kernel_source(before, is_cut) is not None else None


def _kernel_source(answer: str, is_cut: bool) -> str | None:
    """Return the answer's kernel text, which may have a fault; None where there is none."""
    answer = _CDATA.sub(lambda section: section[1], answer)
    bodies = [_trimmed(_unquoted(body)) for body in _BLOCK.findall(answer)]
    blocks = [piece for body in bodies for piece in _pieces_of(body)]
    source = _joined(blocks)
    if source is not None:
        return source
    ends_open = list(_OPENS_BLOCK.finditer(_BLOCK.sub("", answer)))
    fenced = _fenced(answer if not ends_open else answer[answer.rindex(ends_open[-1].group()) :], is_cut)
    source = _joined(fenced)
    if source is not None or ends_open:
        return source
    if blocks or is_cut:
        return blocks[-1] if blocks else None
    bare = next(
        (text for text in (_unquoted(_trimmed(answer)), _without_prose(answer)) if tree_of(text) is not None),
        "",
    )
    return _joined([bare])


def _unquoted(text: str) -> str:
    """Return the last module that an object or a string of JSON or Python quotes, or else the text itself."""
    if "ModelNew" in defined(tree_of(text)):
        return text
    for part in (text.strip(), text[text.find("{") : text.rfind("}") + 1]):
        for read in (functools.partial(json.loads, strict=False), ast.literal_eval):
            try:
                strings = _strings_in(read(part))
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            modules = [string for string in strings if _DEFINES_MODEL.search(string)]
            if modules:
                return _trimmed(modules[-1])
    return text


def _strings_in(value: object) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [string for item in value.values() for string in _strings_in(item)]
        case list() | tuple():
            return [string for item in value for string in _strings_in(item)]
    return []


def _without_prose(text: str) -> str:
    """Return the lines from the first import to the last indented line: prose begins no line so."""
    lines = text.split("\n")
    starts = (place for place, line in enumerate(lines) if line.startswith(("import ", "from ")))
    indented = (
        place for place in range(len(lines) - 1, -1, -1) if lines[place].strip() != lines[place].rstrip()
    )
    return "\n".join(lines[next(starts, 0) : next(indented, -1) + 1]).rstrip()


def _pieces_of(body: str) -> list[str]:
    """Return the body of a block, or the fenced blocks in it if it is not Python alone."""
    return [body] if tree_of(body) is not None else _fenced(body, is_cut=False) or [body]


def _fenced(text: str, is_cut: bool) -> list[str]:
    """Return the Python in fenced blocks, without their indentation."""
    blocks, position = [], 0
    while opening := _FENCE.search(text, position):
        is_python = (opening[3].split() or [""])[0].lower() in _PYTHON_FENCES
        closing = _closing(text, opening, is_python)
        if closing is None and is_cut:
            break
        if is_python:
            blocks.append(_block(text, opening, closing))
        position = closing.end() if closing else len(text)
    return blocks


def _closing(text: str, opening: re.Match[str], is_python: bool) -> re.Match[str] | None:
    """Return the line that closes a fence; None where the text ends before it is closed."""
    line = rf"^[ \t]*{opening[2][0]}{{{len(opening[2])},}}"
    if is_python:
        for closing in islice(re.compile(line, re.MULTILINE).finditer(text, opening.end()), _CLOSINGS_TRIED):
            if tree_of(_block(text, opening, closing)) is not None:
                return closing
    return re.compile(line + r"[ \t]*$", re.MULTILINE).search(text, opening.end())


def _block(text: str, opening: re.Match[str], closing: re.Match[str] | None) -> str:
    body = text[opening.end() + 1 : closing.start() if closing else len(text)]
    return _trimmed(textwrap.dedent(body) if opening[1] else body)


def _joined(pieces: list[str]) -> str | None:
    """Return the last piece that binds `ModelNew`, with the pieces that define its names; else None."""
    trees = [tree_of(piece) for piece in pieces]
    last = next(
        (
            index
            for index in range(len(pieces) - 1, -1, -1)
            if _DEFINES_MODEL.search(pieces[index]) or "ModelNew" in defined(trees[index])
        ),
        None,
    )
    if last is None:
        return None
    taken, pending = {last}, [last]
    while pending:
        known = set().union(*(defined(trees[index]) for index in taken))
        for name in sorted(missing(trees[pending.pop()]) - known):
            definers = [index for index, tree in enumerate(trees) if name in defined(tree)]
            if definers and definers[-1] not in taken:
                taken.add(definers[-1])
                pending.append(definers[-1])
    return "\n\n\n".join(pieces[index] for index in sorted(taken))


def _trimmed(text: str) -> str:
    """Strip blank lines at the start and whitespace at the end: candidates are hashed in this form."""
    return re.sub(r"\A(?:[ \t]*\n)+", "", text).rstrip()


def _fault(source: str) -> str | None:
    """Return the reason why this source cannot be a candidate; None if it can."""
    if not source:
        return "the <KERNEL> block is empty"
    if len(source) > MAX_SOURCE_CHARS:
        return f"the kernel has {len(source)} characters; at most {MAX_SOURCE_CHARS} are read"
    try:
        tree = syntax_tree(source)
    except SyntaxError as error:
        return f"syntax error in line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"Python cannot read the kernel: {error or type(error).__name__}"
    if "ModelNew" not in defined(tree):
        return "no class ModelNew at the top level"
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    if classes and not _may_have_forward(classes[-1], tree):
        return "class ModelNew defines no forward method"
    return None


def _may_have_forward(cls: ast.ClassDef, tree: ast.Module) -> bool:
    """False where neither the class, its bases nor a later assignment can give it `forward`."""
    bases = {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "?") for base in cls.bases}
    own = defined(ast.Module(cls.body, []))
    assigned = any(
        isinstance(node, ast.Attribute) and node.attr == "forward" and isinstance(node.ctx, ast.Store)
        for node in ast.walk(tree)
    )
    return "forward" in own or assigned or not bases <= _MODULES or bool(cls.decorator_list)


def _cut_short(reason: str, finish_reason: str) -> str:
    return f"truncated: {reason} before the token limit" if finish_reason == "length" else reason
