"""A drawn problem of the suite `modules`: a reference with layers and parameters."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.style import Style
from kernel_core.problems.program import Size

IMPORTS = "import torch\nimport torch.nn as nn\n"
FUNCTIONAL = "import torch.nn.functional as F\n"


@dataclass(frozen=True)
class Module:
    """A reference module in parts.

    Lines are without indentation. `inputs` and `init_inputs` are expressions over the names of `sizes`.
    Size names are given in lower case here and written in the style's case.
    """

    doc: str
    """One sentence that says what is computed."""
    forward_lines: tuple[str, ...]
    sizes: tuple[Size, ...]
    inputs: tuple[str, ...]
    forward_args: tuple[str, ...] = ("x",)
    init_args: tuple[str, ...] = ()
    init_lines: tuple[str, ...] = ()
    init_inputs: tuple[str, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    """Named values behind the sizes, such as `("scale", "1.5")`, that no run resizes."""
    input_lines: tuple[str, ...] = ()
    """Lines of `get_inputs` that assign names which `inputs` then mentions."""
    forward_doc: tuple[str, ...] = ()
    """Lines of the docstring of `forward` in the full style; without them it names the arguments alone."""

    def draft(self, operators: Sequence[str], style: Style) -> Draft:
        """The problem of these operators, written in a style."""
        sizes = tuple(Size(style.size_name(size.name), size.gpu, size.cpu) for size in self.sizes)
        return Draft(tuple(operators), reference_source(self, style), sizes)


@dataclass(frozen=True)
class Draft:
    """A problem before it becomes a record."""

    operators: tuple[str, ...]
    """Torch's names of the operators in order, such as `conv2d`, `relu`: they decide the split."""
    reference: str
    sizes: tuple[Size, ...]
    """As named in the text."""


Draw = Callable[[random.Random], Draft]
"""A family: draws one of its problems."""


def by_name(*families: Draw) -> dict[str, Draw]:
    """The families by the names of their functions."""
    return {draw.__name__: draw for draw in families}


def reference_source(module: Module, style: Style) -> str:
    """The problem's text in KernelBench's format at its GPU sizes."""
    names = (*(size.name for size in module.sizes), *(name for name, _ in module.constants))
    named = {name: style.size_name(name) for name in names}
    before = "".join(f"    {_renamed(line, named)}\n" for line in module.input_lines)
    inputs = [_renamed(text, named) for text in module.inputs]
    init_inputs = [_renamed(text, named) for text in module.init_inputs]
    constants = "".join(_constant(size, named[size.name], style) for size in module.sizes)
    constants += "".join(f"{named[name]} = {_renamed(text, named)}\n" for name, text in module.constants)
    body = [*module.init_lines, *module.forward_lines]
    functional = FUNCTIONAL if any("F." in line for line in body) else ""
    return (
        f"{IMPORTS}{functional}\n\n"
        f"{_model_class(module, style)}\n\n"
        f"{style.heading}{chr(10) * bool(style.heading)}{constants}\n\n"
        f"def get_inputs():\n{before}{_returned(inputs, module.forward_args, style)}\n\n"
        f"def get_init_inputs():\n    return [{', '.join(init_inputs)}]{_init_comment(module, style)}\n"
    )


def _model_class(module: Module, style: Style) -> str:
    """The class with constructor and `forward`, ending in a newline."""
    lines = ["class Model(nn.Module):"]
    if style.docstring != "none":
        opened = style.open_docstring and not module.doc.startswith("\n")
        doc = f"\n    {module.doc}\n    " if opened else module.doc
        lines.append(f'    """{doc}"""\n')
    if module.init_args or module.init_lines or style.long_super or style.docstring == "full":
        arguments = ", ".join(("self", *module.init_args))
        start = "super(Model, self).__init__()" if style.long_super else "super().__init__()"
        lines += [f"    def __init__({arguments}):", f"        {start}"]
        lines += [f"        {line}" for line in module.init_lines]
        lines.append(" " * 8 * style.spaced_gap)
    typed = [f"{name}: torch.Tensor" if style.annotations else name for name in module.forward_args]
    result = " -> torch.Tensor" if style.annotations else ""
    lines.append(f"    def forward({', '.join(('self', *typed))}){result}:")
    if style.docstring == "full":
        given = [f"    {name}: input tensor" for name in module.forward_args]
        rows = module.forward_doc or ("Args:", *given, "Returns:", "    the result")
        text = "".join(f"        {row}\n" if row else "\n" for row in rows)
        lines.append(f'        """\n{text}        """')
    lines += [
        f"        {line}{_comment(line) if style.line_comments else ''}" for line in module.forward_lines
    ]
    return "\n".join(lines) + "\n"


def _comment(line: str) -> str:
    """The function or layer that a line calls, as people note it behind the line."""
    match = re.search(r"(?:torch|F|functional|self)\.(\w+)\(", line)
    return f"  # {match[1].replace('_', ' ')}" if match else ""


def _renamed(text: str, named: dict[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda match: named.get(match[0], match[0]), text)


def _constant(size: Size, name: str, style: Style) -> str:
    comment = f"  # {size.name.replace('_', ' ').lower()}" if style.size_comments else ""
    return f"{name} = {size.gpu}{comment}\n"


def _init_comment(module: Module, style: Style) -> str:
    """A comment of the full style where the problem leaves arguments at their defaults."""
    left = len(module.init_args) - len(module.init_inputs)
    if left <= 0 or style.docstring != "full":
        return ""
    return "  # the last argument keeps its default" if left == 1 else f"  # {left} more keep their defaults"


def _returned(inputs: Sequence[str], names: Sequence[str], style: Style) -> str:
    if style.docstring == "full" and len(names) == len(inputs):
        pairs = zip(names, inputs, strict=True)
        lines = [f"    {name} = {text}\n" for name, text in pairs if name != text]
        return "".join(lines) + f"    return [{', '.join(names)}]\n"
    return f"    return [{', '.join(inputs)}]\n"
