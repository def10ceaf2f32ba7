"""Slips in a right kernel, as a model makes them: a name that is missing, a lost axis, an open bracket.

They are context of a second turn and are never learned. A slip is an edit of the text, so it fits any kernel;
the judge says what it leads to.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable

from kernel_core.problems.syntax import Spans

Edit = Callable[[str, random.Random], str | None]


def draw_slip(source: str, rng: random.Random) -> tuple[str, str] | None:
    """The name of a slip and the kernel with it; None where no slip fits.

    `source` must be valid Python with Triton functions and a class `ModelNew`.
    """
    for name in rng.sample(list(SLIPS), len(SLIPS)):
        broken = SLIPS[name](source, rng)
        if broken is not None and broken != source:
            return name, broken
    return None


def _missing_parameter(source: str, rng: random.Random) -> str | None:
    """A kernel's parameter is used, and neither declared nor passed."""
    tree = ast.parse(source)
    launches = [
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    ]
    options = []
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or not function.decorator_list:
            continue
        calls = [launch for launch in launches if ast.unparse(launch.func.value) == function.name]  # type: ignore[attr-defined]
        for place, parameter in enumerate(function.args.args):
            if parameter.annotation is None and calls and all(len(call.args) > place for call in calls):
                options.append((parameter, [call.args[place] for call in calls]))
    if not options:
        return None
    parameter, passed = rng.choice(options)
    return _without(source, [parameter, *passed])


def _missing_argument(source: str, rng: random.Random) -> str | None:
    """A launch lacks one argument."""
    calls = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript) and len(node.args) > 1
    ]
    return _without(source, [rng.choice(rng.choice(calls).args)]) if calls else None


def _without(source: str, nodes: list[ast.expr | ast.arg]) -> str:
    """The text without these items of comma-separated lists."""
    spans = Spans(source)
    text = spans.source
    for start, end in sorted(((spans.start(node), spans.end(node)) for node in nodes), reverse=True):
        rest = text[end:]
        comma = re.match(rb",\s*", rest)
        text = text[:start] + (rest[comma.end() :] if comma else rest)
    return text.decode()


def _unknown_name(source: str, rng: random.Random) -> str | None:
    """A value has another name where it is made than where it is used."""
    tree = ast.parse(source)
    kernels = [
        statement
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef) and statement.decorator_list
    ]
    options = []
    for kernel in kernels:
        made = [
            statement.targets[0]
            for statement in ast.walk(kernel)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        ]
        names = [variable.id for variable in made]
        mentioned = [node for node in ast.walk(kernel) if isinstance(node, ast.Name)]
        read = {node.id for node in mentioned if isinstance(node.ctx, ast.Load)}
        options += [variable for variable in made if names.count(variable.id) == 1 and variable.id in read]
    if not options:
        return None
    target = rng.choice(options)
    lines = source.split("\n")
    line = lines[target.lineno - 1]
    assert target.end_col_offset is not None
    lines[target.lineno - 1] = f"{line[: target.end_col_offset]}_new{line[target.end_col_offset :]}"
    return "\n".join(lines)


_UNKNOWN_FUNCTIONS = (
    ("tl.maximum(", "tl.relu("),
    ("tl.sigmoid(", "torch.sigmoid("),
    ("tl.exp(", "tl.expf("),
    ("tl.rsqrt(", "tl.rsqroot("),
    ("tl.where(", "tl.select("),
    ("tl.zeros(", "tl.zeros_like("),
    ("tl.sum(", "tl.mean("),
)


def _unknown_function(source: str, rng: random.Random) -> str | None:
    """A function that Triton does not have, or that takes other arguments."""
    present = [pair for pair in _UNKNOWN_FUNCTIONS if pair[0] in source]
    return source.replace(*rng.choice(present), 1) if present else None


def _open_bracket(source: str, rng: random.Random) -> str | None:
    """A bracket is never closed."""
    lines = source.split("\n")
    places = [place for place, line in enumerate(lines) if line.startswith("    ") and line.endswith("))")]
    if not places:
        return None
    place = rng.choice(places)
    lines[place] = lines[place][:-1]
    return "\n".join(lines)


def _lost_axes(source: str, rng: random.Random) -> str | None:
    """The result has lost its axes of one entry, or has one too many."""
    returned = re.findall(r"\n {8}return (\w+)\n", source)
    made = re.search(rf"\n {{8}}{returned[-1]} = torch\.empty\(\(([^()]*)\)", source) if returned else None
    if made is None:
        return None
    shape = made[1]
    other = shape.replace(", 1", "") if ", 1" in shape else f"{shape.rstrip(',')}, 1"
    other = f"{other}," if "," not in other else other
    return source[: made.start(1)] + other + source[made.end(1) :]


def _layer_for_number(source: str, rng: random.Random) -> str | None:
    """A launch is given a layer where it needs the layer's number."""
    uses = re.findall(
        r"self\.\w+\.(?:negative_slope|alpha|beta|eps|min_val|max_val|num_groups|weight)\b", source
    )
    if not uses:
        return None
    text = rng.choice(uses)
    return source.replace(text, text.rpartition(".")[0], 1)


SLIPS: dict[str, Edit] = {
    "missing_parameter": _missing_parameter,
    "missing_argument": _missing_argument,
    "unknown_name": _unknown_name,
    "unknown_function": _unknown_function,
    "open_bracket": _open_bracket,
    "lost_axes": _lost_axes,
    "layer_for_number": _layer_for_number,
}
