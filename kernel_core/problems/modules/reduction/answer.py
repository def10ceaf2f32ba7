"""The last steps of every draw: a template with its markers filled, and a draft from module and answers."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.errors import ConfigError
from kernel_core.problems.graded import Grade, GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.style import draw_style

_WORDINGS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"x_ptr": "in_ptr", "rows": "idx_n", "cols": "idx_c"},
    {"x_ptr": "input_ptr", "out_ptr": "output_ptr", "offs": "offsets"},
    {"x_ptr": "X", "out_ptr": "Y", "weight_ptr": "W", "bias_ptr": "B"},
)
_KERNEL_NAMES = (r"\1_kernel", r"\1_kernel", r"_\1_kernel", r"\1_fwd_kernel")


@dataclass(frozen=True)
class Answer:
    """A kernel before it has its module: Triton functions, the lines of `forward`, and reasons."""

    grade: Grade
    functions: tuple[str, ...]
    forward: tuple[str, ...]
    thinking: str
    fault: str = ""


def fill(template: str, **values: str) -> str:
    """The template with each `@NAME@` replaced.

    A marker alone on its line takes several lines at its indentation; an empty value removes that line.
    """
    for name, value in values.items():
        marker = f"@{name}@"

        def lines(found: re.Match[str], value: str = value) -> str:
            return textwrap.indent(value, found[1]) + "\n" if value else ""

        template = re.sub(rf"^( *){marker}\n", lines, template, flags=re.MULTILINE)
        template = template.replace(marker, value)
    return template


def mistake(right: Answer, old: str, new: str, fault: str, thinking: str = "") -> Answer:
    """The answer with one text replaced everywhere, in functions or in `forward`.

    Raises `ConfigError` if the text does not occur: the mistake would be no mistake.
    """
    functions = tuple(one.replace(old, new) for one in right.functions)
    forward = tuple(line.replace(old, new) for line in right.forward)
    if functions == right.functions and forward == right.forward:
        raise ConfigError(f"the mistake {fault} needs the text {old!r} in the kernel")
    return replace(
        right,
        grade="mistake",
        functions=functions,
        forward=forward,
        fault=fault,
        thinking=thinking or right.thinking,
    )


def draft(
    rng: random.Random, family: str, operators: Sequence[str], module: Module, answers: Sequence[Answer]
) -> Draft:
    """The draft, with a drawn style of the reference and drawn names in the kernels."""
    style = draw_style(rng)
    wording = rng.choice(_WORDINGS)
    kernel_name = rng.choice(_KERNEL_NAMES)
    with_comments = rng.random() < 0.5
    kernels = []
    for answer in answers:
        functions = [
            _worded(one if with_comments else _without_comments(one), wording, kernel_name)
            for one in answer.functions
        ]
        forward = [_worded(line, {}, kernel_name) for line in answer.forward]
        kernels.append(
            GradedKernel(
                grade=answer.grade,
                fault=answer.fault,
                source=kernel_source(module, functions, forward),
                thinking=answer.thinking,
            )
        )
    return Draft(
        family=family,
        operators=tuple(operators),
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=tuple(kernels),
    )


def _worded(text: str, wording: dict[str, str], kernel_name: str) -> str:
    for old, new in wording.items():
        text = re.sub(rf"\b{old}\b", new, text)
    return re.sub(r"\b([a-z]\w*)_kernel\b", kernel_name, text)


def _without_comments(text: str) -> str:
    return re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE)
