"""The longest lines of arithmetic of a module's text, each as one kernel: `x * self.scale + shortcut`."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Sequence

from kernel_core.problems.layer_swap.parts import Part
from kernel_core.problems.layer_swap.sites import Edit, Site
from kernel_core.problems.syntax import Spans

_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_COMPARISONS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_OF_ONE = {name: f"tl.{name}" for name in ("exp", "log", "sqrt", "rsqrt", "abs", "sin", "cos", "sigmoid")}
_OF_MANY = {"maximum": ("tl.maximum", 2), "minimum": ("tl.minimum", 2), "where": ("tl.where", 3)}
_LIMITS = {"min": "tl.maximum", "max": "tl.minimum"}
_RESERVED = {"i", "mask", "count", "BLOCK", "out", "tl", "triton", "torch", "self"}
_SETTINGS = ("get_inputs", "get_init_inputs", "__init__", "setup_context")
_MOST_OPERANDS, _MOST_LINES = 6, 2
_NO_VALUES = (ast.Tuple, ast.List, ast.Dict, ast.Constant, ast.JoinedStr, ast.GeneratorExp, ast.ListComp)
_NUMBER = re.compile(r"[\w.]+\.(shape(\[[^\]]*\])?|size\([^)]*\)|ndim|dim\(\))|len\(.*\)|math\..*")
"""Texts of numbers, or of several in a tuple."""
_LINE = """\
@triton.jit
def @K({pointers}, out_ptr, {numbers}count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
{loads}
    tl.store(out_ptr + i, {line}, mask=mask)


def @F({arguments}):
{common}
    out = torch.empty_like({first})
    count = out.numel()
    @K[(triton.cdiv(count, 1024),)]({tensors}, out, {numbers}count, BLOCK=1024)
    return out
"""


def longest_lines(tree: ast.Module, spans: Spans) -> list[Site]:
    """At most two sites that differ, those with the most operators first.

    Names that are numbers, as far as the text shows, are given to the kernel as numbers. All others are taken
    for tensors of one precision, which is the judge's to say.
    """
    assigned = _assigned_numbers(tree)
    found = [
        one
        for function in _functions(tree)
        for one in _lines(function, assigned | _argument_numbers(function))
    ]
    chosen: dict[str, Site] = {}
    within: set[int] = set()
    for node, line in sorted(found, key=lambda one: -one[1].operators):
        if id(node) not in within and len(chosen) < _MOST_LINES:
            chosen.setdefault(line.part().text, _site(node, line, spans))
            within.update(map(id, ast.walk(node)))
    return list(chosen.values())


def _site(node: ast.expr, line: _Line, spans: Spans) -> Site:
    start, end = spans.start(node), spans.end(node)
    call = f"@F({', '.join(ast.unparse(one) for one in line.leaves())})"
    return Site(line.part(), (Edit(start, end, call, end - start),), False)


class _Line:
    """An expression as a line of a kernel, with operands in place of all that is no arithmetic."""

    def __init__(self, numbers: set[str]) -> None:
        self.operators = 0
        self._numbers = numbers
        self._tensors: dict[str, tuple[str, ast.expr]] = {}
        self._scalars: dict[str, tuple[str, ast.expr]] = {}
        self._text = ""

    def read(self, node: ast.expr) -> bool:
        """Whether the expression has operators, tensors and not too many operands."""
        self._text = ast.unparse(ast.parse(self._written(node), mode="eval"))
        are_values = not any(isinstance(one, _NO_VALUES) for one in self.leaves())
        return bool(self.operators and self._tensors and are_values) and len(self.leaves()) <= _MOST_OPERANDS

    def leaves(self) -> list[ast.expr]:
        """What the host is given, tensors first."""
        return [leaf for _, leaf in (*self._tensors.values(), *self._scalars.values())]

    def part(self) -> Part:
        """The line as a kernel."""
        tensors = [name for name, _ in self._tensors.values()]
        scalars = [name for name, _ in self._scalars.values()]
        names = ", ".join(tensors)
        common = [f"    {names} = torch.broadcast_tensors({names})"] if len(tensors) > 1 else []
        common.append(f"    {names} = {', '.join(f'{name}.contiguous()' for name in tensors)}")
        text = _LINE.format(
            pointers=", ".join(f"{name}_ptr" for name in tensors),
            numbers="".join(f"{name}, " for name in scalars),
            loads="\n".join(
                f"    {name} = tl.load({name}_ptr + i, mask=mask, other=0.0)" for name in tensors
            ),
            line=self._text,
            arguments=", ".join([*tensors, *scalars]),
            common="\n".join(common),
            first=tensors[0],
            tensors=names,
        )
        says = (
            f"a program loads a block of each operand once, computes `{self._text}` in registers and stores"
        )
        return Part("pointwise", "", text, says)

    def _written(self, node: ast.expr) -> str:
        match node:
            case ast.BinOp(op=ast.Pow(), left=left, right=ast.Constant(value=2)):
                self.operators += 1
                return f"({self._written(left)} * {self._written(left)})"
            case ast.BinOp(op=op) if type(op) in _OPERATORS:
                self.operators += 1
                return f"({self._written(node.left)} {_OPERATORS[type(op)]} {self._written(node.right)})"
            case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in _COMPARISONS:
                return f"({self._written(left)} {_COMPARISONS[type(op)]} {self._written(right)})"
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return f"(-{self._written(operand)})"
            case ast.Constant(value=int() | float()):
                return ast.unparse(node)
            case ast.Call() if (of := _function(node)) is not None:
                self.operators += 1
                name, operands = of
                return f"{name}({', '.join(map(self._written, operands))})"
            case ast.Call(func=ast.Attribute(value=value, attr="clamp"), args=[], keywords=limits):
                if all(one.arg in _LIMITS and _is_number(one.value) for one in limits):
                    self.operators += len(limits)
                    return _limited(self._written(value), limits)
        return self._operand(node)

    def _operand(self, node: ast.expr) -> str:
        text = ast.unparse(node)
        is_number = text in self._numbers or _NUMBER.fullmatch(text)
        kept = self._scalars if is_number else self._tensors
        if text not in kept:
            taken = {name for name, _ in (*self._tensors.values(), *self._scalars.values())}
            last = text.rsplit(".", 1)[-1]
            is_free = last.isidentifier() and not keyword.iskeyword(last) and last not in _RESERVED | taken
            kept[text] = (last if is_free else f"value_{len(taken)}", node)
        return kept[text][0]


def _function(call: ast.Call) -> tuple[str, Sequence[ast.expr]] | None:
    """Triton's name of a function of torch, or of a tensor's method, and what it is given."""
    if call.keywords or not isinstance(call.func, ast.Attribute):
        return None
    name, owner = call.func.attr, ast.unparse(call.func.value)
    if owner == "torch":
        wanted = (_OF_ONE[name], 1) if name in _OF_ONE else _OF_MANY.get(name)
        return (wanted[0], call.args) if wanted and len(call.args) == wanted[1] else None
    return (_OF_ONE[name], [call.func.value]) if name in _OF_ONE and not call.args else None


def _is_number(node: ast.expr) -> bool:
    constant = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(constant, ast.Constant) and isinstance(constant.value, int | float)


def _limited(text: str, limits: Sequence[ast.keyword]) -> str:
    for one in limits:
        text = f"{_LIMITS[one.arg or '']}({text}, {float(ast.literal_eval(one.value))})"
    return text


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name not in _SETTINGS:
            yield node


def _lines(function: ast.FunctionDef, numbers: set[str]) -> Iterator[tuple[ast.expr, _Line]]:
    """The expressions that a kernel can compute, outer ones first."""
    indices = {
        id(one)
        for node in ast.walk(function)
        if isinstance(node, ast.Subscript)
        for one in ast.walk(node.slice)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp | ast.Call) and id(node) not in indices:
            line = _Line(numbers)
            if line.read(node):
                yield node, line


def _argument_numbers(function: ast.FunctionDef) -> set[str]:
    """Arguments that are numbers, by their annotation or default."""
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    found = {
        one.arg for one in arguments if one.annotation and ast.unparse(one.annotation) in ("int", "float")
    }
    with_defaults = (
        arguments[len(arguments) - len(function.args.defaults) :] if function.args.defaults else []
    )
    for one, default in zip(with_defaults, function.args.defaults, strict=False):
        if isinstance(default, ast.Constant) and isinstance(default.value, int | float):
            found.add(one.arg)
    return found


def _assigned_numbers(tree: ast.Module) -> set[str]:
    """Names that the text gives a number, in any function."""
    found = set[str]()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        [target], value = node.targets, ast.unparse(node.value)
        if _NUMBER.fullmatch(value):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            found.update(ast.unparse(one) for one in names)
        elif isinstance(node.value, ast.Constant) or (
            isinstance(target, ast.Attribute) and not isinstance(node.value, ast.Call)
        ):
            found.add(ast.unparse(target))
    return found
