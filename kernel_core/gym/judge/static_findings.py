"""Static findings about a candidate's text. They label; they never decide."""

from __future__ import annotations

import ast

from kernel_core.records import Finding

_SUSPECT_MODULES = {
    *("gc", "inspect", "ctypes", "socket", "subprocess", "threading", "multiprocessing", "signal")
}
_LIBRARY_NAMES = {"matmul", "mm", "bmm", "addmm", "einsum", "conv1d", "conv2d", "conv3d", "linear"}


def inspect_source(tree: ast.Module) -> tuple[Finding, ...]:
    """Findings for a reader of the source, each rule at most once."""
    details: dict[str, str] = {}
    for node in ast.walk(tree):
        for rule, detail in _labels(node):
            details.setdefault(rule, f"line {getattr(node, 'lineno', 0)}: {detail}")
    return tuple(Finding(rule=rule, detail=detail) for rule, detail in sorted(details.items()))


def _labels(node: ast.AST) -> list[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            modules = [alias.name.split(".")[0] for alias in names]
            return [("suspect_import", name) for name in modules if name in _SUSPECT_MODULES]
        case ast.ImportFrom(module=str(module)) if module.split(".")[0] in _SUSPECT_MODULES:
            return [("suspect_import", module)]
        case ast.Try(handlers=[_, *_]) if any(
            isinstance(part, ast.Return) for handler in node.handlers for part in ast.walk(handler)
        ):
            return [("fallback", "an exception handler that returns")]
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in _LIBRARY_NAMES:
            is_own = isinstance(owner, ast.Name) and owner.id == "self"  # a module that may be Triton's
            return [] if is_own else [("library_compute", f"{name} of a library")]
        case ast.Attribute(value=ast.Attribute(attr="nn"), attr="functional"):
            return [("library_compute", "torch.nn.functional")]
        case ast.Attribute(attr="f_back" | "_getframe" | "f_locals" | "f_globals"):
            return [("frames", "walks the call stack")]
        case ast.Call(func=ast.Name(id="exec" | "eval" | "compile" | "__import__" as name)):
            return [("dynamic_code", name)]
    return []
