"""From Inductor's code to a taught kernel with its plan."""

from __future__ import annotations

import ast
import re

from kernel_core.compiler_teacher.capture import Captured
from kernel_core.compiler_teacher.host_text import Host
from kernel_core.compiler_teacher.inductor_code import InductorCode, read_code
from kernel_core.compiler_teacher.module_text import module_text
from kernel_core.compiler_teacher.origins import Inputs, inputs_of
from kernel_core.compiler_teacher.refusal import CannotTeach
from kernel_core.compiler_teacher.thinking import thinking_of
from kernel_core.records import Problem, Record

_MOST_CHARACTERS = 7000
"""Length of a kernel's module; about 2,500 tokens, and a policy writes fewer."""


class Taught(Record):
    """A module with `ModelNew`, and the plan behind it."""

    kernel_code: str
    thinking: str


def written(problem: Problem, captured: Captured) -> Taught:
    """The compiler's code for a problem in the form that is taught. Raises `CannotTeach`."""
    code = read_code(captured.code)
    if not code.kernels:
        raise CannotTeach("no kernel of its own")
    inputs = inputs_of(captured, problem, _graph_arguments(code))
    host = Host(code, inputs)
    host.run()
    if not host.kernels:
        raise CannotTeach("no kernel of its own")
    lines = _finished(host.lines)
    text = module_text(
        problem.source,
        [kernel.text for kernel in host.kernels.values()],
        captured.arguments,
        [*_preamble(inputs, captured, "\n".join(lines)), *lines],
    )
    if len(text) > _MOST_CHARACTERS:
        raise CannotTeach("longer than a policy writes")
    pairs = [(host.compiled[name], kernel) for name, kernel in host.kernels.items()]
    return Taught(kernel_code=text, thinking=thinking_of(pairs, lines))


def _graph_arguments(code: InductorCode) -> list[str]:
    """Inductor's names of the graph's inputs, in order."""
    for statement in code.statements:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
            target = statement.targets[0]
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            return [ast.unparse(part) for part in parts]
    return []


def _finished(lines: list[str]) -> list[str]:
    """The result is called `out`, and other buffers are numbered in order."""
    text = "\n".join(lines)
    result = re.search(r"return \(?(h\d+)\b", text)
    if result:
        text = re.sub(rf"\b{result[1]}\b", "out", text)
    for number, old in enumerate(dict.fromkeys(re.findall(r"\bh\d+\b", text))):
        text = re.sub(rf"\b{old}\b", f"buffer_{number}", text)
    return re.sub(r"\bbuffer_(\d+)\b", r"h\1", text).split("\n")


def _preamble(inputs: Inputs, captured: Captured, text: str) -> list[str]:
    """Contiguous inputs and the sizes that the function uses."""
    words = set(re.findall(r"\w+", text))
    lines = [
        f"{one} = {one}.contiguous()"
        for one in captured.arguments
        if one in words and any(tensor.text == one for tensor in inputs.tensors.values())
    ]
    used = {read: name for name, read in inputs.read_from.items() if name in words}
    for tensor in inputs.tensors.values():
        dims = [used.get(f"{tensor.text}.shape[{position}]", "_") for position in range(len(tensor.shape))]
        if sum(one != "_" for one in dims) >= 2:
            lines.append(f"{', '.join(dims)} = {tensor.text}.shape")
            used = {read: name for read, name in used.items() if not read.startswith(f"{tensor.text}.shape[")}
    return [*lines, *(f"{name} = {read}" for read, name in used.items())]
