"""Names: of kernels, of their arguments, and of the values in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from kernel_core.compiler_teacher.inductor_code import CompiledKernel
from kernel_core.compiler_teacher.simplify import target_of

_INDICES = ("row", "row_mask", "cols", "col_mask", "lanes", "start", "offsets", "mask", "xs", "ys")
"""Names that a kernel's own indices have."""
_VIEWS = (
    "unsafe_view",
    "view",
    "permute",
    "transpose",
    "expand",
    "unsqueeze",
    "squeeze",
    "clone",
    "native",
    "reshape",
    "t",
    "slice",
    "select",
    "detach",
    "to",
    "copy",
)


class Renamed(ast.NodeTransformer):
    """Other names in a tree."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


def names_in(
    kernel: CompiledKernel, body: Sequence[ast.stmt], renamed: dict[str, str], block_of: dict[str, str]
) -> dict[str, str]:
    """New names by Inductor's."""
    if kernel.heuristic == "pointwise" and len(block_of) == 1:
        fixed = {"xindex": "offsets", "xmask": "mask", "xoffset": "start", "XBLOCK": "BLOCK"}
    elif kernel.heuristic == "pointwise":
        fixed = {"XBLOCK": "BLOCK_X", "YBLOCK": "BLOCK_Y", "xindex": "xs", "yindex": "ys"}
        fixed |= {"xmask": "x_mask", "ymask": "y_mask", "xoffset": "x_start", "yoffset": "y_start"}
    else:
        fixed = {"XBLOCK": "BLOCK_ROWS", "R0_BLOCK": "BLOCK_COLS", "xindex": "row", "xmask": "row_mask"}
        fixed |= {"r0_index": "cols", "r0_mask": "col_mask", "r0_base": "lanes", "r0_offset": "start"}
        fixed |= {"xoffset": "first_row"}
    names = {**renamed, **fixed}
    taken = set(names.values()) | {"tl", "libdevice", "range", "float"}
    for statement in _flat(body):
        old = target_of(statement)
        if old is None or old in names or not isinstance(statement, ast.Assign):
            continue
        stem = _stem(old, statement.value, renamed)
        names[old] = _free(stem, taken)
        taken.add(names[old])
    return names


def _flat(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.For):
            yield from _flat(statement.body)


def _stem(old: str, value: ast.expr, renamed: dict[str, str]) -> str:
    """What a value is called: by the pointer that it is loaded from, or by its reduction."""
    text = ast.unparse(value)
    if text.startswith("tl.load("):
        pointer = re.findall(r"\w+", text)[2]
        return re.sub(r"_ptr$", "", renamed.get(pointer, "value"))
    for start, stem in (("tl.sum(", "total"), ("tl.max(", "largest"), ("tl.min(", "smallest")):
        if text.startswith(start):
            return stem
    if old.startswith("_tmp"):
        return "acc"
    return "value" if old.startswith("tmp") else f"i_{old}"


def _free(stem: str, taken: set[str]) -> str:
    if stem not in taken:
        return stem
    number = next(number for number in range(1, 1000) if f"{stem}{number}" not in taken)
    return f"{stem}{number}"


def unique(stem: str, taken: list[str]) -> str:
    """The name, numbered where it is taken; a number stands before `_ptr`."""
    number, name = 1, stem
    while name in taken:
        number += 1
        name = f"{stem.removesuffix('_ptr')}{number}{'_ptr' if stem.endswith('_ptr') else ''}"
    return name


def argument_name(argument: str, text: str) -> str:
    """What a kernel calls a size."""
    fixed = {"xnumel": "n", "ynumel": "n_y", "r0_numel": "length"}
    if argument in fixed:
        return fixed[argument]
    if text.isidentifier():
        return f"num_{text}" if text in _INDICES else text
    words = re.findall(r"[a-z_]\w*", text)
    joined = "_".join(words)
    return (
        joined
        if words and re.fullmatch(r"[\w* ]+", text) and len(joined) <= 28
        else argument.replace("ks", "size")
    )


def title_of(name: str, taken: list[str]) -> str:
    """`gelu_kernel` of `triton_poi_fused__unsafe_view_gelu_0`."""
    text = re.sub(r"_\d+$", "", name.split("_fused_", 1)[-1]).strip("_")
    text = text.replace("unsafe_view", "view").replace("_to_copy", "").replace("native_", "")
    words = [word for word in text.split("_") if word and word not in _VIEWS]
    while len("_".join(words)) > 32:
        words.pop()
    return unique("_".join([*words, "kernel"]) if words else "copy_kernel", taken)
