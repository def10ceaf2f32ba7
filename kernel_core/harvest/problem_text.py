"""Text of a problem from a harvested definition."""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernel_core.harvest.extract import Extract, ExtractionRefused, source_of
from kernel_core.harvest.values import ArgumentValue, usual_value
from kernel_core.records import Constant

_LARGEST_CONFIGURATION = 24


@dataclass(frozen=True)
class Body:
    """Text of a problem up to its sizes, with the values of sizes and inputs."""

    source: str
    """Defines `Model`."""
    takes_first: str
    """Text for a definition that returns several tensors: `Model` returns the first."""
    init: tuple[str, ...]
    """Expressions of `get_init_inputs`."""
    values: tuple[ArgumentValue, ...]
    """Constants behind them."""
    arguments: tuple[str, ...]
    """Tensors that `forward` takes."""
    is_function: bool


def body_of(made: Extract, rng: random.Random) -> Body:
    """Return the text that defines `Model`.

    Raises `ExtractionRefused` where an argument has no usual value.
    """
    made = copy.deepcopy(made)
    if isinstance(made.node, ast.FunctionDef):
        return _of_function(made, rng)
    return _of_class(made, rng)


def tail_of(constants: Mapping[str, Constant], inputs: Sequence[str], init: Sequence[str]) -> str:
    """Sizes, `get_inputs` and `get_init_inputs`."""
    sizes = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    return (
        f"{sizes}\n\ndef get_inputs():\n    return [{', '.join(inputs)}]\n\n\n"
        f"def get_init_inputs():\n    return [{', '.join(init)}]\n"
    )


def _of_function(made: Extract, rng: random.Random) -> Body:
    assert isinstance(made.node, ast.FunctionDef)
    if made.node.args.posonlyargs:
        raise ExtractionRefused("positional-only arguments")
    tensors: list[str] = []
    fixed: list[tuple[str, ArgumentValue]] = []
    for argument in _required(made.node.args):
        value = usual_value(argument.arg, rng, is_function=True)
        hinted = argument.annotation is not None and "Tensor" in ast.unparse(argument.annotation)
        if value is None or hinted or (argument.arg in ("input", "x", "weight", "scale") and not tensors):
            tensors.append(argument.arg)
        else:
            fixed.append((argument.arg, value))
    if not tensors or not re.search(
        r"torch|F\.|nn\.|\.(sum|mean|exp|view|reshape)\(", ast.unparse(made.node)
    ):
        raise ExtractionRefused("no function of tensors")
    values = tuple(value for _, value in fixed if value.is_size)
    call = ", ".join(
        [f"{name}={name}" for name in tensors]
        + [f"{name}=self.{name}" if value.is_size else f"{name}={value.large}" for name, value in fixed]
    )
    sized = [name for name, value in fixed if value.is_size]
    lines = ["class Model(nn.Module):"]
    if sized:
        lines += [f"    def __init__(self, {', '.join(sized)}):", "        super().__init__()"]
        lines += [f"        self.{name} = {name}" for name in sized] + [""]
    lines.append(f"    def forward(self, {', '.join(tensors)}):")
    head = source_of(made) + "\n\n" + "\n".join(lines)
    return Body(
        source=f"{head}\n        return {made.name}({call})\n",
        takes_first=f"{head}\n        return {made.name}({call})[0]\n",
        init=tuple(value.name for value in values),
        values=values,
        arguments=tuple(tensors),
        is_function=True,
    )


def _of_class(made: Extract, rng: random.Random) -> Body:
    assert isinstance(made.node, ast.ClassDef)
    forward, constructor = _method(made, made.node, "forward"), _method(made, made.node, "__init__")
    if forward is None:
        raise ExtractionRefused("no forward of its own")
    values: list[tuple[str, ArgumentValue]] = []
    if constructor is not None:
        own = next((statement for statement in made.node.body if statement is constructor), None)
        if own is not None:
            _open_configuration(made, constructor)
        for argument in _required(constructor.args)[1:]:
            value = usual_value(argument.arg, rng)
            if value is None:
                raise ExtractionRefused("an argument without a usual value")
            values.append((argument.arg, value))
        if constructor.args.kwonlyargs and own is not None:
            _make_positional(constructor.args)
    init = tuple(value.name if value.is_size else str(value.large) for _, value in values)
    source = source_of(made)
    if re.search(r"\bModel\b", source):
        raise ExtractionRefused("two definitions of one name")
    names = ", ".join(name for name, _ in values)
    arguments = tuple(argument.arg for argument in _required(forward.args)[1:])
    wrapped = (
        f"{source}\n\nclass Model(nn.Module):\n    def __init__(self{', ' * bool(names)}{names}):\n"
        f"        super().__init__()\n        self.layer = {made.name}({names})\n\n"
        f"    def forward(self, {', '.join(arguments)}):\n"
        f"        return self.layer({', '.join(arguments)})[0]\n"
    )
    return Body(
        source=_as_model(made),
        takes_first=wrapped,
        init=init,
        values=tuple(value for _, value in values if value.is_size),
        arguments=arguments,
        is_function=False,
    )


def _as_model(made: Extract) -> str:
    """Rename the class to `Model`; sentences that mention its name keep it."""
    renamed = copy.deepcopy(made)
    for node in renamed.definitions.values():
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id == made.name:
                inner.id = "Model"
            elif isinstance(inner, ast.ClassDef) and inner.name == made.name:
                inner.name = "Model"
    return source_of(renamed)


def _required(arguments: ast.arguments) -> list[ast.arg]:
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return required + [argument for argument, default in pairs if default is None]


def _make_positional(arguments: ast.arguments) -> None:
    """Keyword-only arguments as positional ones: `get_init_inputs` gives a list."""
    positional = [*arguments.posonlyargs, *arguments.args]
    cut = len(positional) - len(arguments.defaults)
    pairs = list(zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True))
    needed = [argument for argument, default in pairs if default is None]
    optional = [(argument, default) for argument, default in pairs if default is not None]
    arguments.args = [*positional[:cut], *needed, *positional[cut:], *(argument for argument, _ in optional)]
    arguments.defaults = [*arguments.defaults, *(default for _, default in optional)]
    arguments.posonlyargs, arguments.kwonlyargs, arguments.kw_defaults, arguments.vararg = [], [], [], None


def _method(made: Extract, node: ast.ClassDef, name: str, depth: int = 0) -> ast.FunctionDef | None:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    for base in node.bases:
        above = made.definitions.get(ast.unparse(base))
        if isinstance(above, ast.ClassDef) and depth < 6:
            method = _method(made, above, name, depth + 1)
            if method is not None:
                return method
    return None


def _open_configuration(made: Extract, constructor: ast.FunctionDef) -> None:
    """`config` becomes the arguments that are read of it."""
    required = [argument.arg for argument in _required(constructor.args)]
    if "config" not in required:
        return
    read: dict[str, None] = {}
    for node in made.definitions.values():
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) in ("config", "self.config"):
                read[inner.attr] = None
    names = list(read)
    if not names or len(names) > _LARGEST_CONFIGURATION or any(name.startswith("get_") for name in names):
        raise ExtractionRefused("an argument without a usual value")
    position = required.index("config")
    constructor.args.args[position : position + 1] = [ast.arg(name.lstrip("_")) for name in names]
    replaced = _ConfigurationNames(names)
    constructor.body = [replaced.visit(statement) for statement in constructor.body]
    if any(isinstance(node, ast.Name) and node.id == "config" for node in ast.walk(constructor)) or any(
        "self.config" in ast.unparse(node) for node in made.definitions.values()
    ):
        made.imports["SimpleNamespace"] = "from types import SimpleNamespace"
        given = ", ".join(f"{name}={name.lstrip('_')}" for name in names)
        constructor.body[:0] = ast.parse(f"config = SimpleNamespace({given})").body
    ast.fix_missing_locations(constructor)


class _ConfigurationNames(ast.NodeTransformer):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "config" and node.attr in self._names:
            return ast.Name(node.attr.lstrip("_"), ast.Load())
        self.generic_visit(node)
        return node
