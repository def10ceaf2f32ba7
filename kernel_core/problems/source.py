"""A problem's text, understood through its syntax tree and never executed."""

from __future__ import annotations

import ast
import difflib
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import cast, get_args

from kernel_core.errors import ConfigError, NotAProblem
from kernel_core.problems.evaluation_sizes import has_evaluation_sizes
from kernel_core.problems.syntax import syntax_tree
from kernel_core.records import Constant, Precision, Problem, sha256_text

_NO_INIT_INPUTS = "\n\ndef get_init_inputs():\n    return []\n"
"""Default `get_init_inputs`: `Model` is constructed without arguments."""
_MAKERS = ("get_inputs", "get_init_inputs")
LEAST_NUMBER = 16
"""The least number in `get_inputs` or `get_init_inputs` that is taken for a size: others count dimensions."""
_DIRECTIVE = re.compile(r"#\s*(cpu|family|tags|precision):\s*(.*\S)\s*$")
_LARGEST_CONSTANT = 1 << 63
_SMALLEST_HALF = 64
"""Lower limit of the halving of a size without a CPU size: smaller ones count groups, windows or layers."""

_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}


@dataclass(frozen=True)
class _Assignment:
    """A module-level `NAME = constant`, or one of `A, B = 1, 2`, and where the value stands (bytes, as `ast`
    counts). One of `A = B = 1` gets an assignment of its own behind that."""

    name: str
    value: Constant
    first_line: int
    first_byte: int
    last_line: int
    last_byte: int
    head: str = ""
    """Text to insert before a new value."""


def parse_problem(
    source: str,
    *,
    id: str,
    suite: str,
    name: str | None = None,
    level: int | None = None,
    family: str = "",
) -> Problem:
    """A `Problem` from a module's text in KernelBench's format.

    Directive comments at the beginning of a line (`# cpu: N=128, M=16`, `# family: softmax`,
    `# tags: a, b`, `# precision: bfloat16`) become fields and leave the text. CPU sizes may name members of
    tuples (`# cpu: shape[0]=8`), which are then among the constants, as `with_members` gives them. A text
    without `get_init_inputs` gets one that gives no arguments. Raises `NotAProblem` when the text is not
    Python or lacks `Model` or `get_inputs`.
    """
    directives, source = _split_directives(source)
    tree = _checked_tree(source, id)
    if not any(isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs" for node in tree.body):
        source = source.rstrip("\n") + _NO_INIT_INPUTS
        tree = _checked_tree(source, id)
    constants = {assignment.name: assignment.value for assignment in _assignments(tree)}
    if re.search(r"[\[.][^=,]*=", directives.get("cpu", "")):
        constants |= {assignment.name: assignment.value for assignment in _members(tree)}
    leaf = name or id.rpartition("/")[2]
    return Problem(
        id=id,
        suite=suite,
        level=level,
        name=leaf,
        family=directives.get("family") or family or _family_of(leaf),
        source=source,
        sha256=sha256_text(source),
        tags=tuple(re.split(r"\s*,\s*", directives["tags"])) if "tags" in directives else (),
        constants=constants,
        cpu_constants=_cpu_constants(directives.get("cpu", ""), constants, id),
        precision=_precision(directives.get("precision", "own"), id),
    )


def resize(problem: Problem, constants: Mapping[str, Constant]) -> Problem:
    """The same problem at other sizes: rewrites those module-level constants, leaves all other text.

    Raises `ConfigError` for a name that is not a constant of the problem, or a value of another type.
    """
    for name, value in constants.items():
        _check_size(problem, name, value)
    source = replace_constants(problem.source, constants)
    return problem.model_copy(
        update={
            "source": source,
            "sha256": sha256_text(source),
            "constants": {**problem.constants, **constants},
        }
    )


def replace_constants(
    source: str, values: Mapping[str, Constant], known: Mapping[str, Constant] | None = None
) -> str:
    """Rewrite module-level constants of a module's text, each in its place; with `known` only those that have
    its values."""
    lines = source.encode().split(b"\n")
    tree = syntax_tree(source)
    changed = [
        assignment
        for assignment in (*_assignments(tree), *_members(tree))
        if assignment.name in values and (known is None or assignment.value == known.get(assignment.name))
    ]
    for assignment in sorted(
        changed, key=lambda assignment: (assignment.first_line, assignment.first_byte), reverse=True
    ):
        head = lines[assignment.first_line - 1][: assignment.first_byte]
        tail = lines[assignment.last_line - 1][assignment.last_byte :]
        text = (assignment.head + repr(values[assignment.name])).encode()
        lines[assignment.first_line - 1 : assignment.last_line] = [head + text + tail]
    return b"\n".join(lines).decode()


def with_members(problem: Problem) -> Problem:
    """The problem with all whole numbers that may be sizes among its constants, which `resize` takes.

    `shape = (8, 3)` gives `shape[0]` and `shape[1]`, `def get_inputs(batch=64)` gives `get_inputs.batch`, and
    `torch.rand(64, 32)` in `get_inputs` gives `get_inputs[0]` and `get_inputs[1]`.
    """
    members = {assignment.name: assignment.value for assignment in _members(syntax_tree(problem.source))}
    return problem.model_copy(update={"constants": {**problem.constants, **members}})


def halved(problem: Problem, times: int) -> Problem:
    """The problem with its largest multiple of 4 halved, `times` in turn, so that it is judged sooner.

    No size gets below its CPU size, nor below `_SMALLEST_HALF` where it has none. Where all sizes together
    are those of an evaluation problem, one more is halved, if one can be. A size that divides another goes
    on dividing it. Numbers without a name that a CPU divides alike are
    halved together, as the width of an input and of the layer that reads it. Where
    a size changed, the id has `times`.
    """
    sizes, turns = dict(problem.constants), 0
    while times and (turns < times or has_evaluation_sizes(sizes.values())):
        halves = [half for name in sizes if (half := _half(problem, name, sizes)) is not None]
        if not halves:
            break
        largest = max(halves, key=lambda half: max((size, name) for name, size in half.items()))
        sizes.update(largest)
        turns += 1
    changed = {name: size for name, size in sizes.items() if size != problem.constants[name]}
    if not changed:
        return problem
    return resize(problem, changed).model_copy(update={"id": f"{problem.id}@halved-{times}"})


def _half(problem: Problem, name: str, sizes: Mapping[str, Constant]) -> dict[str, int] | None:
    together = [name] if name.isidentifier() else _divided_alike(problem, name)
    rest = [size for other, size in sizes.items() if other not in together]
    divisors = [other for other in rest if type(other) is int and other > 0]
    halves: dict[str, int] = {}
    for part in together:
        size, least = sizes[part], problem.cpu_constants.get(part, _SMALLEST_HALF)
        if type(size) is not int or type(least) is not int or size % 4 or size // 2 < least:
            return None
        if any(size % other == 0 and size // 2 % other for other in divisors if other != size):
            return None
        halves[part] = size // 2
    return halves or None


def _divided_alike(problem: Problem, name: str) -> list[str]:
    """Return the numbers without a name whose own and CPU sizes have the ratio of this one."""
    sizes = {other: problem.constants[other] for other in problem.constants if not other.isidentifier()}
    ratios = {
        other: Fraction(size, least)
        for other, size in sizes.items()
        if type(size) is int and type(least := problem.cpu_constants.get(other, size)) is int and least > 0
    }
    return [other for other in ratios if name in ratios and ratios[other] == ratios[name]]


def at_precision(problem: Problem, precision: Precision) -> Problem:
    """The same problem with its floating-point inputs and weights cast, and that said in its id."""
    if precision in ("own", problem.precision):
        return problem
    return problem.model_copy(update={"id": f"{problem.id}@{precision}", "precision": precision})


def _check_size(problem: Problem, name: str, value: Constant) -> None:
    if name not in problem.constants:
        near = difflib.get_close_matches(name, list(problem.constants), n=1, cutoff=0.0)
        known = ", ".join(problem.constants) or "none"
        hint = f"did you mean {near[0]}? its constants: {known}" if near else "it has no size constants"
        raise ConfigError(f"{problem.id} has no constant {name}: {hint}")
    was = problem.constants[name]
    widened = isinstance(was, float) and type(value) is int
    if type(value) is not type(was) and not widened:
        raise ConfigError(
            f"{name} = {value!r} in {problem.id}: wanted {type(was).__name__} as in {name} = {was!r}"
        )


def _checked_tree(source: str, id: str) -> ast.Module:
    try:
        tree = syntax_tree(source)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise NotAProblem(
            f"{id} is not Python: {error}; a problem is a module in KernelBench's format"
        ) from error
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = ["class Model"] * ("Model" not in classes)
    missing += ["def get_inputs"] * ("get_inputs" not in functions)
    if missing:
        raise NotAProblem(
            f"{id} lacks {', '.join(missing)}; a problem defines class Model and get_inputs, and "
            "get_init_inputs where Model takes arguments"
        )
    return tree


def _split_directives(source: str) -> tuple[dict[str, str], str]:
    """Directives of comments at the beginning of a line, and the text without them."""
    directives: dict[str, str] = {}
    kept: list[str] = []
    for line in source.splitlines(keepends=True):
        if match := _DIRECTIVE.match(line):
            directives[match[1]] = match[2]
        else:
            kept.append(line)
    text = "".join(kept)
    return directives, text.lstrip("\n") if directives else text


def _cpu_constants(directive: str, constants: Mapping[str, Constant], id: str) -> dict[str, Constant]:
    sizes: dict[str, Constant] = {}
    for assignment in filter(None, (part.strip() for part in directive.split(","))):
        name, _, text = (part.strip() for part in assignment.partition("="))
        try:
            value = _constant(ast.parse(text, mode="eval").body)
        except SyntaxError:
            value = None
        if value is None:
            raise NotAProblem(f"{id}: `# cpu: {directive}` is not of the form NAME=value, NAME=value")
        if name not in constants:
            raise NotAProblem(f"{id}: `# cpu:` names {name}, which is not a constant of the problem")
        sizes[name] = value
    return sizes


def _precision(directive: str, id: str) -> Precision:
    if directive not in get_args(Precision):
        known = ", ".join(get_args(Precision))
        raise NotAProblem(f"{id}: `# precision: {directive}` is none of {known}")
    return cast(Precision, directive)


def _assignments(tree: ast.Module) -> Iterator[_Assignment]:
    for node in tree.body:
        is_chain = isinstance(node, ast.Assign) and len(node.targets) > 1
        if isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        else:
            continue
        for target, value in pairs:
            constant = _constant(value)
            if not isinstance(target, ast.Name) or constant is None:
                continue
            if is_chain:
                assert node.end_lineno is not None and node.end_col_offset is not None
                end = node.end_lineno, node.end_col_offset
                yield _Assignment(target.id, constant, *end, *end, f"; {target.id} = ")
            else:
                yield _assigned(target.id, constant, value)


def _members(tree: ast.Module) -> Iterator[_Assignment]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in _MAKERS:
            yield from _numbers_in(node)
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple)):
            continue
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        for (position, member), name in itertools.product(enumerate(node.value.elts), names):
            value = _constant(member)
            if type(value) is int:
                yield _assigned(f"{name}[{position}]", value, member)


def _numbers_in(function: ast.FunctionDef) -> Iterator[_Assignment]:
    """The defaults of a function's parameters by their names, and the numbers of its body in their order."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = [
        *zip(reversed(positional), reversed(given.defaults), strict=False),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    for parameter, default in pairs:
        if default is not None and type(value := _constant(default)) is int:
            yield _assigned(f"{function.name}.{parameter.arg}", value, default)
    numbers = [
        (node.lineno, node.col_offset, node.value, node)
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value >= LEAST_NUMBER
    ]
    for position, (_, _, number, node) in enumerate(sorted(numbers, key=lambda entry: entry[:2])):
        yield _assigned(f"{function.name}[{position}]", number, node)


def _assigned(name: str, value: Constant, node: ast.expr) -> _Assignment:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _Assignment(name, value, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`H, W = 32, 32` are two assignments."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _constant(node: ast.expr) -> Constant | None:
    """The value of a literal or of arithmetic on literals (`1024 * 2`); None for anything else."""
    if isinstance(node, ast.Constant):
        literal = node.value
        return literal if isinstance(literal, int | float | bool | str) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return -inner if isinstance(inner, int | float) else None
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _constant(node.left), _constant(node.right)
        if isinstance(left, str) or isinstance(right, str) or left is None or right is None or right == 0:
            return None
        is_short = isinstance(left, int) and isinstance(right, int) and 0 < right < 64
        if isinstance(node.op, ast.Pow | ast.LShift) and not is_short:
            return None  # others need time and memory without a limit
        value = _ARITHMETIC[type(node.op)](left, right)
        return value if abs(value) < _LARGEST_CONSTANT else None
    return None


def _family_of(name: str) -> str:
    """`19_ReLU` -> `relu`: what a file's name says is computed."""
    return re.sub(r"^\d+_+", "", name).strip("_").lower() or "unknown"
