"""From what a policy wrote to the kernel it hands in.

The contract with the policy is `<think>…</think>` and then `<KERNEL>…</KERNEL>`. Real answers bend it,
so these are the rules, in order:

1. Thoughts are never judged. Everything up to the last `</think>` is thought, whether or not a `<think>`
   opened it (chat templates often write the opening tag themselves). A `<think>` after that begins
   thought again, up to the end.
2. Of the complete `<KERNEL>` blocks in what remains, the last one counts: a later block revises an
   earlier one. A block that was opened and never closed does not count.
3. Only where there is no `<KERNEL>` tag at all, the last fenced block that names `ModelNew` counts.
4. A fence around the whole block is taken off.
5. What is left must be Python that parses, with a class `ModelNew` that defines `forward`.
"""

from __future__ import annotations

import ast
import re

from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Candidate, NoCandidate

MAX_SOURCE_CHARS = 60_000
"""Ten times the longest honest kernel of the corpora; more is not worth a compiler's time."""

_THINK_OPEN = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINK_CLOSE = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCED = re.compile(r"^```[^\n`]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
_OPEN, _CLOSE = "<KERNEL>", "</KERNEL>"


def parse_completion(text: str, finish_reason: str) -> Candidate | NoCandidate:
    """The candidate in a completion, or precisely why there is none. Never raises."""
    thinking, answer = _split_thinking(text.replace("\r\n", "\n"))
    if answer is None:
        return NoCandidate(reason=_cut_short("the <think> block is never closed", finish_reason))
    body = _kernel_block(answer)
    if body is None:
        if finish_reason == "error":
            reason = "nothing was written: the prompt left no room or the model failed"
        elif _OPEN in answer:
            reason = _cut_short("the <KERNEL> block is never closed", finish_reason)
        else:
            reason = _cut_short("no <KERNEL> block", finish_reason)
        return NoCandidate(reason=reason, thinking=thinking)
    source = _trimmed(_without_fence(body))
    problem = _fault(source)
    if problem is not None:
        return NoCandidate(reason=problem, thinking=thinking)
    return Candidate.from_source(source, thinking)


def _split_thinking(text: str) -> tuple[str, str | None]:
    """The thought and the answer; the answer is None when the text ends inside a thought."""
    thinking, answer = "", text
    closings = list(_THINK_CLOSE.finditer(text))
    if closings:
        thinking, answer = text[: closings[-1].start()], text[closings[-1].end() :]
    thinking = _trimmed(_THINK_OPEN.sub("", _THINK_CLOSE.sub("", thinking)))
    opening = _THINK_OPEN.search(answer)
    if opening is None:
        return thinking, answer
    before = answer[: opening.start()]
    return thinking, before if _kernel_block(before) is not None else None


def _kernel_block(answer: str) -> str | None:
    if _OPEN not in answer and _CLOSE not in answer:
        fenced = [block for block in _FENCED.findall(answer) if "class ModelNew" in block]
        return fenced[-1] if fenced else None
    end = answer.rfind(_CLOSE)
    start = answer.rfind(_OPEN, 0, max(end, 0))
    return answer[start + len(_OPEN) : end] if end >= 0 and start >= 0 else None


def _without_fence(body: str) -> str:
    """The block without a fence around all of it; an unclosed fence counts as around all."""
    stripped = body.strip()
    if not stripped.startswith("```"):
        return body
    fenced = _FENCED.search(stripped)
    return fenced.group(1) if fenced else stripped.partition("\n")[2]


def _trimmed(text: str) -> str:
    """Without blank lines at the start and whitespace at the end: the form that candidates are named by."""
    return re.sub(r"\A(?:[ \t]*\n)+", "", text).rstrip()


def _fault(source: str) -> str | None:
    """Why this source cannot be a candidate; None if it can."""
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
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    if not classes:
        return "no class ModelNew at the top level"
    if not any(isinstance(node, ast.FunctionDef) and node.name == "forward" for node in classes[-1].body):
        return "class ModelNew defines no forward method"
    return None


def _cut_short(reason: str, finish_reason: str) -> str:
    return f"truncated: {reason} before the token limit" if finish_reason == "length" else reason
