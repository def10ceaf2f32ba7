"""The inputs of a compiled graph as a module's `forward` would name them."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_core.compiler_teacher.capture import Captured, Origin
from kernel_core.compiler_teacher.refusal import CannotTeach
from kernel_core.records import Problem


@dataclass(frozen=True)
class Tensor:
    """A tensor of the forward function: how it is written, and its shape and strides as expressions."""

    text: str
    stem: str
    """What a kernel calls it."""
    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass
class Inputs:
    """Tensors by Inductor's names, and sizes with what they are read from."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    sizes: dict[str, str] = field(default_factory=dict)
    """Taught name of a size by Inductor's name of the argument."""
    read_from: dict[str, str] = field(default_factory=dict)
    """Expression that gives a size, by its taught name."""
    values: dict[str, int] = field(default_factory=dict)
    """Value at the problem's own sizes, by taught name."""


def inputs_of(captured: Captured, problem: Problem, graph_arguments: list[str]) -> Inputs:
    """Names for everything that the graph takes. Raises `CannotTeach` for an origin outside the module."""
    inputs = Inputs()
    taken = set(captured.arguments) | {"out", "self", "torch", "triton", "tl", "nn"}
    for name, origin in zip(graph_arguments, captured.origins, strict=True):
        text = _expression(origin.source)
        if origin.shape is None:
            taught = _free(_size_name(text, origin, problem), taken)
            taken.add(taught)
            inputs.sizes[name] = taught
            inputs.read_from[taught] = text
            inputs.values[taught] = origin.value
    stems: set[str] = set()
    for name, origin in zip(graph_arguments, captured.origins, strict=True):
        if origin.shape is None:
            continue
        if not is_contiguous(origin.shape, origin.strides):
            raise CannotTeach("an input that is not contiguous")
        text = _expression(origin.source)
        stem = _stem(text, stems)
        stems.add(stem)
        shape = tuple(_dimension(inputs, text, position, size) for position, size in enumerate(origin.shape))
        inputs.tensors[name] = Tensor(text, stem, shape, contiguous_strides(shape))
    return inputs


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether numbers of these strides lie side by side in order."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def contiguous_strides(shape: tuple[str, ...]) -> tuple[str, ...]:
    """Strides of a contiguous tensor as expressions."""
    return tuple(
        " * ".join(f"({one})" for one in shape[position + 1 :]) or "1" for position in range(len(shape))
    )


def _dimension(inputs: Inputs, text: str, position: int, size: int) -> str:
    read = f"{text}.shape[{position}]"
    return next((name for name, source in inputs.read_from.items() if source == read), str(size))


def _expression(source: str) -> str:
    """Dynamo's name of a source as Python in `forward`."""
    node = _Taught().visit(ast.parse(source, mode="eval").body)
    text = ast.unparse(node)
    if re.search(r"\b[LG]\[|__", text) or "(" in text:
        raise CannotTeach("an input from outside the module")
    return text


class _Taught(ast.NodeTransformer):
    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if isinstance(node.value, ast.Name) and node.value.id == "L" and isinstance(key, str):
            return ast.Name(key, ast.Load())
        rooms = ("_modules", "_parameters", "_buffers")
        if isinstance(node.value, ast.Attribute) and node.value.attr in rooms and isinstance(key, str):
            owner = node.value.value
            if key.isdigit():
                return ast.Subscript(owner, ast.Constant(int(key)), ast.Load())
            return ast.Attribute(owner, key, ast.Load())
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "size" and not node.args:
            return ast.Attribute(node.func.value, "shape", ast.Load())
        return node


def _size_name(text: str, origin: Origin, problem: Problem) -> str:
    """The problem's constant of these two values where there is one, else a name by place."""
    named = [
        name.lower()
        for name, value in problem.constants.items()
        if (value, problem.cpu_constants.get(name, value)) == (origin.value, origin.cpu_value)
    ]
    words = re.findall(r"\w+", text)
    if len(named) == 1:
        return named[0]
    if ".shape[" not in text:
        return words[-1]
    stem = "_".join(word for word in words[-4:-2] if word not in ("self",) and not word.isdigit())
    return f"{stem}_dim{words[-1]}"


def _stem(text: str, taken: set[str]) -> str:
    """The last name of a parameter, with its module's where two would be the same."""
    words = [word for word in re.findall(r"\w+", text) if word != "self"]
    words = [f"p{word}" if word[0].isdigit() else word for word in words]
    for count in range(1, len(words) + 1):
        stem = "_".join(words[-count:])
        if stem not in taken and not stem.startswith("p0"):
            return stem
    return _free("_".join(words), taken)


def _free(stem: str, taken: Mapping[str, object] | set[str]) -> str:
    if keyword.iskeyword(stem):
        stem += "_"
    number, name = 1, stem
    while name in taken:
        number, name = number + 1, f"{stem}{number + 1}"
    return name
