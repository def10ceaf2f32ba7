"""Inductor's module, taken apart: its Triton kernels, and the statements of `call` that launch them."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernel_core.compiler_teacher.refusal import CannotTeach

_HEURISTICS = ("pointwise", "reduction", "persistent_reduction")


@dataclass(frozen=True)
class CompiledKernel:
    """One Triton kernel as Inductor wrote it."""

    name: str
    heuristic: str
    """`pointwise`, `reduction` (it loops over what it reduces) or `persistent_reduction` (it holds a row)."""
    is_inner: bool
    """What a reduction sums over lies side by side in memory."""
    size_hints: dict[str, int]
    """Sizes by axis at the problem's own sizes, rounded up to powers of two."""
    dtypes: dict[str, str]
    """Type of each argument: `*fp32` of a pointer, `i32` of a size, `constexpr` of a block size."""
    function: ast.FunctionDef

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments without those of block sizes."""
        return tuple(
            one.arg for one in self.function.args.args if self.dtypes.get(one.arg, "") != "constexpr"
        )


@dataclass(frozen=True)
class InductorCode:
    """Kernels by name and the statements of `call`."""

    kernels: dict[str, CompiledKernel]
    statements: list[ast.stmt]


def read_code(code: str) -> InductorCode:
    """Take a module apart. Raises `CannotTeach` for code that is not only Triton."""
    kernels: dict[str, CompiledKernel] = {}
    statements: list[ast.stmt] = []
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            statements = node.body
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        called = ast.unparse(node.value.func)
        if called == "async_compile.triton":
            name, source = (ast.literal_eval(argument) for argument in node.value.args[:2])
            kernels[name] = _kernel(name, source)
        elif called.startswith("async_compile."):
            raise CannotTeach(f"code by {called}")
    return InductorCode(kernels=kernels, statements=statements)


def _kernel(name: str, source: str) -> CompiledKernel:
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    decorator = function.decorator_list[0]
    if not isinstance(decorator, ast.Call):
        raise CannotTeach("a kernel with a helper function")
    heuristic = ast.unparse(decorator.func).rpartition(".")[2]
    if heuristic not in _HEURISTICS:
        raise CannotTeach(f"a kernel of the kind {heuristic}")
    given = {keyword.arg: keyword.value for keyword in decorator.keywords}
    meta = given["triton_meta"]
    assert isinstance(meta, ast.Dict)
    signature = next(
        value for key, value in zip(meta.keys, meta.values, strict=True) if _is_text(key, "signature")
    )
    return CompiledKernel(
        name=name,
        heuristic=heuristic,
        is_inner="INNER" in ast.unparse(given.get("reduction_hint", ast.Constant(""))),
        size_hints=ast.literal_eval(given["size_hints"]),
        dtypes=ast.literal_eval(signature),
        function=function,
    )


def _is_text(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text
