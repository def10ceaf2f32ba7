"""A compiled kernel in the form that is taught: readable names, plain Triton, one mask an axis."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_core.compiler_teacher.inductor_code import CompiledKernel
from kernel_core.compiler_teacher.names import Renamed, names_in
from kernel_core.compiler_teacher.refusal import CannotTeach
from kernel_core.compiler_teacher.simplify import simplified, target_of

_IN_TRITON = frozenset(
    ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "abs", "floor", "ceil", "fma")
)
_IN_LIBDEVICE = frozenset(
    ("tanh", "log1p", "expm1", "pow", "atan", "atan2", "acos", "asin", "nearbyint", "trunc")
)
_HELPERS = {"maximum": "tl.maximum", "minimum": "tl.minimum", "max2": "tl.max", "min2": "tl.min"}
_POINTWISE_BLOCK = 1024
_TILE = 32
_LONGEST_BLOCK = 2048


@dataclass(frozen=True)
class WrittenKernel:
    """A kernel's text and how it is launched."""

    name: str
    text: str
    axes: tuple[str, ...]
    """Inductor's names of the grid's axes in order: `x` or `y`."""
    blocks: dict[str, int]
    """Block size by its constexpr argument, in order."""
    block_of: dict[str, str]
    """Constexpr argument by axis of the grid."""
    num_warps: int
    used: tuple[bool, ...]
    """Which of Inductor's arguments are left."""


def written_kernel(kernel: CompiledKernel, name: str, arguments: Sequence[str]) -> WrittenKernel:
    """The kernel under a name with these names of arguments. Raises `CannotTeach`."""
    renamed = dict(zip(kernel.arguments, arguments, strict=True))
    body = list(kernel.function.body)
    swap = "tl.num_programs" in ast.unparse(kernel.function)
    body = [_Plain(kernel, swap).visit(statement) for statement in _own(body)]
    for statement in body:
        _refuse_unknown(statement)
    sizes = frozenset(one for one in kernel.arguments if kernel.dtypes[one].startswith("i"))
    body = simplified(body, sizes)
    axes = tuple(axis for axis in ("x", "y") if f"{axis}index" in ast.unparse(ast.Module(body, [])))
    axes = ("y", "x") if swap and "y" in axes else axes or ("x",)
    blocks, block_of = _blocks(kernel, axes)
    names = names_in(kernel, body, renamed, block_of)
    renaming = Renamed(names)
    body = [renaming.visit(statement) for statement in body]
    text = "\n".join(ast.unparse(ast.fix_missing_locations(statement)) for statement in body)
    words = set(re.findall(r"\w+", text))
    used = tuple(new in words for new in arguments)
    kept = [new for new in arguments if new in words]
    blocks = {block: size for block, size in blocks.items() if block in words}
    parameters = [*kept, *(f"{block}: tl.constexpr" for block in blocks)]
    text = "\n".join("    " + line for line in text.splitlines())
    return WrittenKernel(
        name=name,
        text="@triton.jit\n" + signature(f"def {name}", parameters, ":") + "\n" + text,
        axes=axes,
        blocks=blocks,
        block_of=block_of,
        num_warps=8 if blocks.get("BLOCK_COLS", 0) >= _LONGEST_BLOCK else 4,
        used=used,
    )


def signature(head: str, parts: Iterable[str], tail: str, indent: str = "") -> str:
    """`head(parts)tail` in lines of at most a hundred characters."""
    whole = f"{indent}{head}({', '.join(parts)}){tail}"
    if len(whole) <= 100:
        return whole
    lines, line = [], f"{indent}    "
    for part in parts:
        if len(line) + len(part) > 96:
            lines.append(line.rstrip())
            line = f"{indent}    "
        line += f"{part}, "
    return "\n".join([f"{indent}{head}(", *lines, line.rstrip(), f"{indent}){tail}"])


def _own(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    """Without declarations of block sizes, which become arguments, and without assertions."""
    kept = []
    for statement in body:
        if isinstance(statement, ast.AnnAssign):
            continue
        if isinstance(statement, ast.Expr) and "device_assert" in ast.unparse(statement):
            continue
        kept.append(statement)
    return kept


class _Plain(ast.NodeTransformer):
    """Inductor's helpers as Triton's own functions."""

    def __init__(self, kernel: CompiledKernel, swap: bool) -> None:
        self.dtypes = kernel.dtypes
        self.swap = swap
        self.loops = any(isinstance(part, ast.For) for part in kernel.function.body)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        name = target_of(node)
        if self.swap and name in (
            "xoffset",
            "yoffset",
        ):  # the long axis goes first, where a grid has no limit
            axis = 0 if name == "yoffset" else 1
            return ast.parse(f"{name} = tl.program_id({axis}) * {(name or '')[0].upper()}BLOCK").body[0]
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        self.generic_visit(node)
        return node.value if ast.unparse(node.slice) == ":" else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        room, _, name = ast.unparse(node.func).rpartition(".")
        if room in ("libdevice", "tl_math") and name in _IN_TRITON:
            node.func = _expression(f"tl.{name}")
        elif room == "triton_helpers":
            return self._helper(node, name)
        elif (room, name) in (("tl", "maximum"), ("tl", "minimum")):
            return ast.Call(node.func, node.args[:2], [])
        elif (room, name) in (("tl", "sqrt_rn"), ("libdevice", "sqrt_rn")):
            node.func = _expression("tl.sqrt")
        elif (room, name) == ("tl", "div_rn"):
            return ast.BinOp(node.args[0], ast.Div(), node.args[1])
        elif (room, name) == ("tl", "load"):
            return self._load(node)
        elif (room, name) == ("tl", "store"):
            mask = [one for one in node.args[2:] if ast.unparse(one) != "None"]
            keywords = [ast.keyword("mask", mask[0])] if mask else []
            return ast.Call(node.func, node.args[:2], keywords)
        elif (room, name) == ("tl", "range"):
            return ast.Call(ast.Name("range", ast.Load()), node.args, [])
        elif (room, name) == ("tl", "full") and _is_one(node.args[0]):
            return node.args[1]
        elif (room, name) == ("tl", "broadcast_to") and self.loops:
            return node.args[0]
        elif (
            name == "to"
            and ast.unparse(node).endswith("[:, None].to(tl.float32)")
            and room.startswith("tl.sum(")
        ):
            return node.func.value  # type: ignore[attr-defined]
        elif (room, name) == ("tl", "sum"):
            return ast.Call(node.func, node.args[:1], [ast.keyword("axis", node.args[1])])
        elif (room, name) == ("tl", "full") and ast.unparse(node.args[1]) in ("0", "0.0"):
            shape = ast.Tuple(getattr(node.args[0], "elts", []), ast.Load())
            return ast.Call(_expression("tl.zeros"), [shape], [ast.keyword("dtype", node.args[2])])
        return node

    def _helper(self, node: ast.Call, name: str) -> ast.expr:
        if name == "promote_to_tensor":
            return node.args[0]
        if name in ("div_floor_integer", "remainder_integer"):  # sizes and indices are not negative
            operation = ast.FloorDiv() if name == "div_floor_integer" else ast.Mod()
            return ast.BinOp(node.args[0], operation, node.args[1])
        if name == "any":
            return _expression(
                f"tl.max({ast.unparse(node.args[0])}.to(tl.int32), axis={ast.unparse(node.args[1])}) > 0"
            )
        if name not in _HELPERS:
            raise CannotTeach(f"helper {name}")
        node.func = _expression(_HELPERS[name])
        if name in ("max2", "min2"):
            return ast.Call(node.func, node.args[:1], [ast.keyword("axis", node.args[1])])
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """`pointer + (a + b)` without its brackets."""
        self.generic_visit(node)
        is_pointer = isinstance(node.left, ast.Name) and self.dtypes.get(node.left.id, "").startswith("*")
        if not is_pointer:
            return node
        terms: list[ast.expr] = [node.right]
        while isinstance(terms[0], ast.BinOp) and isinstance(terms[0].op, ast.Add):
            terms[:1] = [terms[0].left, terms[0].right]
        result = node.left
        for term in terms:
            result = ast.BinOp(result, ast.Add(), term)
        return result

    def _load(self, node: ast.Call) -> ast.expr:
        mask = [one for one in node.args[1:2] if ast.unparse(one) != "None"]
        if not mask:
            return ast.Call(node.func, node.args[:1], [])
        pointer = next(
            (
                part.id
                for part in ast.walk(node.args[0])
                if isinstance(part, ast.Name)
                and part.id in self.dtypes
                and self.dtypes[part.id].startswith("*")
            ),
            "",
        )
        zero = 0.0 if "f" in self.dtypes.get(pointer, "*fp32") else 0
        given = next((keyword.value for keyword in node.keywords if keyword.arg == "other"), None)
        other = given if given is not None else ast.Constant(zero)
        return ast.Call(node.func, node.args[:1], [ast.keyword("mask", mask[0]), ast.keyword("other", other)])


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _is_one(shape: ast.expr) -> bool:
    return isinstance(shape, ast.List) and all(ast.unparse(one) == "1" for one in shape.elts)


def _refuse_unknown(statement: ast.stmt) -> None:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and node.id in ("triton_helpers", "tl_math", "AutotuneHint"):
            raise CannotTeach("a helper of the compiler's")
        if (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "libdevice"
            and node.attr not in _IN_LIBDEVICE
        ):
            raise CannotTeach(f"libdevice.{node.attr}")
        if isinstance(node, ast.Name) and node.id in ("zoffset", "r1_index"):
            raise CannotTeach("three axes")


def _blocks(kernel: CompiledKernel, axes: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Block sizes by argument and the argument of each axis."""
    if kernel.heuristic == "pointwise":
        if len(axes) == 1:
            return {"BLOCK": _POINTWISE_BLOCK}, {"x": "BLOCK"}
        return {"BLOCK_Y": _TILE, "BLOCK_X": _TILE}, {"y": "BLOCK_Y", "x": "BLOCK_X"}
    if len(axes) > 1:
        raise CannotTeach("a reduction over tiles")
    length = kernel.size_hints["r0_"]
    declared = {
        ast.unparse(one.target): int(ast.unparse(one.value))
        for one in kernel.function.body
        if isinstance(one, ast.AnnAssign) and one.value and ast.unparse(one.value).isdigit()
    }
    if kernel.heuristic == "persistent_reduction":
        held = declared["R0_BLOCK"]
        rows = declared.get("XBLOCK", max(1, _POINTWISE_BLOCK // held // 2))
        return {"BLOCK_ROWS": rows, "BLOCK_COLS": held}, {"x": "BLOCK_ROWS"}
    if kernel.is_inner or kernel.size_hints.get("x", 1) == 1:
        return {"BLOCK_ROWS": 1, "BLOCK_COLS": min(length, _LONGEST_BLOCK)}, {"x": "BLOCK_ROWS"}
    return {"BLOCK_ROWS": _TILE, "BLOCK_COLS": min(length, _TILE)}, {"x": "BLOCK_ROWS"}
