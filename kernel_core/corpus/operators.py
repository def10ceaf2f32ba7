"""Operators that a reference applies, in order of evaluation, under canonical names.

`nn.ReLU()(x)`, `F.relu(x)`, `torch.relu(x)` and `x.relu_()` are all `relu`; `a @ b` is `matmul`, a product
with a number is `scale`, `table[index]` is `gather`, `x[:, None]` is `newaxis`, a use of a parameter of the
module is `parameter`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from kernel_core.corpus.canonical import OWN_ATTRIBUTE, OWN_NAME

_INPUT_MAKERS = frozenset({"get_inputs", "get_init_inputs", "__init__"})
_BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
}
POINTWISE = frozenset(
    (
        *("add", "sub", "mul", "div", "pow", "scale", "shift", "neg", "abs", "square", "sqrt", "rsqrt"),
        *("reciprocal", "exp", "exp2", "expm1", "log", "log1p", "log2", "sin", "cos", "tan", "tanh", "atan"),
        *("sigmoid", "logsigmoid", "relu", "relu6", "leakyrelu", "prelu", "elu", "selu", "celu", "gelu"),
        *("silu", "mish", "softplus", "softsign", "hardsigmoid", "hardswish", "hardtanh", "tanhshrink"),
        *("erf", "sign", "round", "floor", "ceil", "clamp", "clip", "where", "maximum", "minimum", "dropout"),
    )
)
"""Operators that a kernel may exchange for one another without changing how it moves data."""

_AXIS_KEYWORDS = ("dim", "dims", "axis", "dim0", "dim1", "start_dim", "end_dim", "keepdim")
_MAX_AXIS = 4

_WITH_NUMBER = {"mul": "scale", "div": "scale", "add": "shift", "sub": "shift"}
# Calls that make, shape, store or describe values without computing any.
_SILENT = frozenset(
    (
        *("rand", "randn", "randint", "zeros", "ones", "empty", "full", "zeroslike", "oneslike", "emptylike"),
        *("tensor", "sequential", "modulelist", "moduledict"),
        *("size", "dim", "shape", "numel", "type", "device", "item", "keys", "values", "items"),
        *("contiguous", "clone", "detach", "to", "float", "half", "long", "int", "cuda", "cpu"),
        *("append", "extend", "join", "format"),
    )
)


def operators_of(tree: ast.Module) -> tuple[str, ...]:
    """The operators of a canonical tree, inner before outer, in the order the functions are written."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    layers = _layers(function for function in functions if function.name == "__init__")
    operators: list[str] = []
    for function in functions:
        if function.name not in _INPUT_MAKERS:
            for statement in function.body:
                operators.extend(_evaluated(statement, layers))
    return tuple(operators)


def axes_of(tree: ast.Module) -> tuple[str, ...]:
    """The dimensions that operators work along: small whole numbers given to calls, in order of the tree.

    `softmax(x, 1)` and `softmax(x, dim=0)` are different computations that differ in a number only.
    """
    axes: list[str] = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            # A positional argument of a constructor or an input maker is a size.
            nameless = function.name not in _INPUT_MAKERS
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                named = [keyword.value for keyword in call.keywords if keyword.arg in _AXIS_KEYWORDS]
                given = (*call.args, *named) if nameless else named
                axes.extend(axis for value in given for axis in _axes(value))
    return tuple(axes)


def _axes(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Tuple | ast.List):
        for item in value.elts:
            yield from _axes(item)
    elif isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub):
        yield from (f"-{axis}" for axis in _axes(value.operand))
    elif isinstance(value, ast.Constant) and type(value.value) is int and value.value <= _MAX_AXIS:
        yield str(value.value)


def inputs_of(tree: ast.Module) -> tuple[str, ...]:
    """Constructor and number of dimensions of each input, where the return of `get_inputs` shows them."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs" and node.body:
            returned = node.body[-1]
            if isinstance(returned, ast.Return) and isinstance(returned.value, ast.List | ast.Tuple):
                return tuple(_input(value) for value in returned.value.elts)
    return ()


def operator_name(path: str) -> str:
    """The name shared by all spellings of an operator: `torch.nn.CrossEntropyLoss` is `crossentropy`."""
    leaf = path.rpartition(".")[2].lower().replace("_", "")
    return leaf.removesuffix("loss") or leaf


def _layers(constructors: Iterable[ast.AST]) -> dict[str, list[str]]:
    """Attribute of `self` to the operators of the layers that `__init__` puts there."""
    layers: dict[str, list[str]] = {}
    for constructor in constructors:
        for statement in ast.walk(constructor):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
                target = statement.targets[0].attr
                layers.setdefault(target, []).extend(_evaluated(statement.value, {}))
    return layers


def _evaluated(node: ast.AST, layers: Mapping[str, list[str]]) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return  # walked on its own
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):  # a layer is applied after its arguments are there
        children = [*children[1:], children[0]]
    for child in children:
        yield from _evaluated(child, layers)
    if isinstance(node, ast.BinOp):
        if name := _BINARY.get(type(node.op)):
            with_number = isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant)
            yield _WITH_NUMBER.get(name, name) if with_number else name
    elif isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            yield "neg"
    elif isinstance(node, ast.Subscript):
        yield from _indexing(node.slice)
    elif isinstance(node, ast.Attribute) and node.attr.startswith(OWN_ATTRIBUTE):
        yield from layers.get(node.attr, ())
    elif isinstance(node, ast.Call) and (name := _called(node.func)) and name not in _SILENT:
        yield name


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Attribute) and not function.attr.startswith((OWN_ATTRIBUTE, "__")):
        return operator_name(function.attr)
    if isinstance(function, ast.Name) and "." in function.id and not function.id.startswith(OWN_NAME):
        return operator_name(function.id)
    return None


def _indexing(index: ast.expr) -> Iterator[str]:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    if any(isinstance(part, ast.Constant) and part.value is None for part in parts):
        yield "newaxis"
    elif any(isinstance(part, ast.Slice) and (part.lower or part.upper or part.step) for part in parts):
        yield "slice"
    elif any(isinstance(part, ast.Name | ast.Attribute) for part in parts):
        yield "gather"


def _input(value: ast.expr) -> str:
    if not isinstance(value, ast.Call):
        return type(value).__name__.lower()
    maker = _called(value.func) or "call"
    shapes = [argument for argument in value.args if isinstance(argument, ast.Tuple | ast.List)]
    return f"{maker}{len(shapes[0].elts) if shapes else len(value.args)}"
