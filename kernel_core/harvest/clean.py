"""Cleaning of a package's definition: parts that a problem does not need are removed.

Decorators of the package, annotations of its types, long docstrings, logging, checks of arguments, and
branches for scripting and export go. Dropout and in-place writes are turned off: a problem computes the same
thing each time.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Sequence
from typing import TypeVar

_Function = TypeVar("_Function", bound=ast.FunctionDef)

_KEPT_DECORATORS = {"staticmethod", "classmethod", "property", "contextmanager"}
_ABSENT = re.compile(r"has_apex\w*|has_flash_attn\w*|_?HAS_TRITON|is_torch_npu|FLASH_AVAILABLE")
"""Names that say whether an optional package is there; none is."""
_TALKATIVE = {
    "logger",
    "_logger",
    "logging",
    "warnings",
    "_log_api_usage_once",
    "log_api_usage_once",
    "print",
}
_FALSE_CALLS = re.compile(
    r"(torch\.)?(jit\.(is_scripting|is_tracing)|compiler\.is_compiling|onnx\.is_in_onnx_export"
    r"|_dynamo\.is_compiling)|is_torchdynamo_compiling|is_scripting|is_compiling|is_exportable|is_scriptable"
    r"|is_in_onnx_export|use_fused_attn|is_torch_fx_proxy|is_tracing|KORNIA_CHECK.*"
)
_CHECKS = re.compile(r"KORNIA_CHECK|_?check_|_?assert_|_?validate_|_?verify_")
"""Functions that look at their arguments and raise; a problem's inputs are fixed."""
_PLAIN_TYPES = re.compile(r"(torch\.)?(Tensor|int|float|bool|str)|(torch\.)(Tensor)")
_BASES = {"GradientCheckpointingLayer": "nn.Module", "ModelMixin": "nn.Module"}
_NEVER_NEEDED = {"extra_repr", "__repr__", "_load_from_state_dict", "__extra_repr__", "extra_state"}
_ACTIVATION_TABLES = {"ACT2FN", "ACT2CLS"}
_DROPOUT = re.compile(r"drop|prob$", re.IGNORECASE)


def cleaned(node: ast.stmt) -> ast.stmt:
    """Return a cleaned copy of a top-level definition."""
    result = _Cleaner(ast.unparse(node)).visit(copy.deepcopy(node))
    if isinstance(result, ast.ClassDef):
        _drop_unused_methods(result)
    ast.fix_missing_locations(result)
    return result


class _Cleaner(ast.NodeTransformer):
    def __init__(self, text: str) -> None:
        self._is_gated = "gate" in text

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        doc = ast.get_docstring(node)
        if doc is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        node.decorator_list, node.keywords = [], []
        node.bases = [
            ast.parse(_BASES[base.id], mode="eval").body
            if isinstance(base, ast.Name) and base.id in _BASES
            else base
            for base in node.bases
        ]
        if doc is not None and (short := _first_sentence(doc)):
            node.body.insert(0, ast.Expr(ast.Constant(short)))
        node.body = node.body or [ast.Pass()]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if node.name in _NEVER_NEEDED:
            return None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        self.generic_visit(node)
        node.decorator_list = [decorator for decorator in node.decorator_list if _is_kept(decorator)]
        node.returns = _plain(node.returns)
        every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in (*every, node.args.vararg, node.args.kwarg):
            if argument is not None:
                argument.annotation = _plain(argument.annotation)
        _tame_defaults(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        return ast.Assign([node.target], node.value) if node.value else None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant):
            return None
        if isinstance(node.value, ast.Call):
            root = ast.unparse(node.value.func).split(".")[0]
            if root in _TALKATIVE or _CHECKS.match(root):
                return None
        self.generic_visit(node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id in _ACTIVATION_TABLES:
            name = ast.unparse(node.slice).lower()
            gated = self._is_gated and "'" not in name
            layer = "SiLU" if gated or "silu" in name or "swish" in name else "GELU"
            return ast.parse("nn.ReLU()" if "'relu'" in name else f"nn.{layer}()", mode="eval").body
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = ast.unparse(node.func)
        if _FALSE_CALLS.fullmatch(name):
            return ast.Constant(False)
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg == "inplace":
                keyword.value = ast.Constant(False)
        if re.fullmatch(r"nn\.Dropout\w*", name) and node.args and isinstance(node.args[0], ast.Constant):
            node.args[0] = ast.Constant(0.0)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        absent = isinstance(node.ctx, ast.Load) and _ABSENT.fullmatch(node.id)
        return ast.Constant(False) if absent else node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.Constant(not node.operand.value)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        deciding = isinstance(node.op, ast.Or)
        values: list[ast.expr] = []
        for value in node.values:
            if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                if value.value is deciding:
                    values.append(value)
                    break
                continue
            values.append(value)
        if not values:
            return ast.Constant(not deciding)
        node.values = values
        return node if len(values) > 1 else values[0]

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt] | None:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return (node.body if node.test.value else node.orelse) or None
        if _only_raises(node.orelse):
            node.orelse = []
        if _only_raises(node.body) and not node.orelse:
            return None
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Assert(self, node: ast.Assert) -> None:
        return None

    def visit_With(self, node: ast.With) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node

    def visit_Try(self, node: ast.Try) -> ast.AST:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        for handler in node.handlers:
            handler.body = handler.body or [ast.Pass()]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and all(isinstance(statement, ast.Raise) for statement in body)


def _is_kept(decorator: ast.expr) -> bool:
    name = ast.unparse(decorator)
    return name in _KEPT_DECORATORS or name.endswith(".setter")


def _plain(annotation: ast.expr | None) -> ast.expr | None:
    if annotation is None or not _PLAIN_TYPES.fullmatch(text := ast.unparse(annotation)):
        return None
    return ast.parse("torch.Tensor" if text.endswith("Tensor") else text, mode="eval").body


def _first_sentence(doc: str) -> str:
    line = " ".join(doc.strip().split("\n\n")[0].split())
    line = re.split(r"(?<=[.])\s", line)[0]
    return line if len(line) <= 120 and "http" not in line else ""


def _tame_defaults(node: ast.FunctionDef) -> None:
    positional = [*node.args.posonlyargs, *node.args.args]
    with_default = positional[len(positional) - len(node.args.defaults) :]
    node.args.defaults = [
        _tame(argument.arg, default)
        for argument, default in zip(with_default, node.args.defaults, strict=True)
    ]
    node.args.kw_defaults = [
        default and _tame(argument.arg, default)
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    ]


def _tame(name: str, default: ast.expr) -> ast.expr:
    if not isinstance(default, ast.Constant):
        return default
    if (
        isinstance(default.value, float | int)
        and not isinstance(default.value, bool)
        and _DROPOUT.search(name)
    ):
        return ast.Constant(0.0)
    return ast.Constant(False) if name == "inplace" else default


def _drop_unused_methods(node: ast.ClassDef) -> None:
    """Remove methods that neither constructor nor `forward` reach; keep all below a base that may call
    them."""
    if not _own_bases(node.bases):
        return
    methods = {statement.name: statement for statement in node.body if isinstance(statement, ast.FunctionDef)}
    reached = {name for name in methods if name == "forward" or name.startswith("__")}
    waiting: list[ast.AST] = [methods[name] for name in reached]
    waiting += [statement for statement in node.body if not isinstance(statement, ast.FunctionDef)]
    while waiting:
        for inner in ast.walk(waiting.pop()):
            name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", None)
            if name in methods and name not in reached:
                reached.add(name)
                waiting.append(methods[name])
    kept = [
        statement
        for statement in node.body
        if not isinstance(statement, ast.FunctionDef) or statement.name in reached
    ]
    node.body = kept or [ast.Pass()]


def _own_bases(bases: Sequence[ast.expr]) -> bool:
    return all(ast.unparse(base) in ("nn.Module", "torch.nn.Module", "Module") for base in bases)
