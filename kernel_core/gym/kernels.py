"""Rebuild a candidate's JIT functions from its text, without running the rest of its module.

The compile gate and the replay use only what this module makes: the function's own syntax tree, checked
against the little Python that Triton can compile, and the names it uses, resolved to constants, other
JIT functions or members of `triton.language`. Nothing else of the candidate's comes with it. What is run and
what is compiled is that tree itself: its text is not read again, as Triton does by itself, because a file may
be read otherwise than it was checked (by an encoding that it names, or from another line).
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import io
import linecache
import math
import symtable
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter

from kernel_core.gym.meaning import HELPERS, as_compiled

_BUILTINS: dict[str, Any] = {
    function.__name__: function
    for function in (range, len, min, max, abs, int, float, bool, isinstance, tuple, list, print, sum, zip)
}
_BUILTINS |= {"enumerate": enumerate, "AssertionError": AssertionError}
_MODULES: dict[str, Any] = {"triton": triton, "triton.language": tl, "math": math}
_TRITON_MEMBERS = ("cdiv", "next_power_of_2", "language", "jit", "constexpr")
_UNSPECIALISED = ("do_not_specialize", "do_not_specialize_on_alignment")
_VALUES = (tl.tensor, tl.tensor_descriptor, tl.constexpr, tl.tuple, tl.block_type, tl.pointer_type)
_TYPES = (tl.float32, tl.int32)
_VALUE_ATTRIBUTES = (
    frozenset(name for kind in _VALUES for name in dir(kind) if not name.startswith("_"))
    | frozenset(name for one in _TYPES for name in vars(one) if not name.startswith("_"))
    | {"shape", "strides", "block_shape", "dtype", "type", "value", "values", "element_ty"}
)
"""What a value in a kernel can be asked for; instances have some that their types do not show."""
_COMPILABLE = (
    ast.arguments, ast.arg, ast.keyword, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
    ast.Expr, ast.Pass, ast.Return, ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For,
    ast.While, ast.With, ast.withitem, ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Tuple, ast.List, ast.Starred, ast.ListComp, ast.comprehension, ast.BinOp, ast.UnaryOp, ast.BoolOp,
    ast.Compare, ast.IfExp, ast.Call, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
"""What Triton's compiler takes of Python's syntax; the interpreter would run all of it."""


class KernelRefused(Exception):
    """A function that is not a Triton kernel; `line` is the candidate's own line number."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def find_function(tree: ast.Module, name: str, line: int) -> ast.FunctionDef:
    """The function definition that starts (with its decorators) on a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if first == line:
                return node
    raise KernelRefused(line, f"no function {name} is defined at line {line} of the candidate")


def build_kernels(source: str, filename: str, described: Sequence[dict[str, Any]]) -> list[Any]:
    """JIT functions for descriptions `{name, line, globals}`, in order; later ones may use earlier ones.

    One of CUDA C++ has its place, but nothing is built for it here. Errors in what is built name lines of
    `filename`, which is not read. Raises `KernelRefused`.
    """
    _check_encoding(source)
    tree = ast.parse(source)
    built: list[_Rebuilt | None] = []
    for description in described:
        if description.get("extension"):
            built.append(None)
            continue
        name, line = str(description["name"]), int(description["line"])
        definition = find_function(tree, name, line)
        node = _bare(definition)
        names = {
            key: _resolve(value, built, line)
            for key, value in description["globals"].items()
            if not key.startswith("__")
        }
        _forget_foreign_annotations(node, names)
        text = _text_of(node, source)
        _check(node, names, text)
        built.append(_Rebuilt(node, text, names, filename, _unspecialised(definition)))
    return [one and one.kernel for one in built]


def _check_encoding(source: str) -> None:
    """A file of this text must say the same to everybody who reads it, whatever encoding it names."""
    try:
        data = source.encode()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        is_same = data.decode(encoding) == source.removeprefix("\ufeff")
    except (SyntaxError, LookupError, ValueError):
        is_same = False
    if not is_same:
        raise KernelRefused(1, "the file names an encoding in which it is another text")


def _bare(node: ast.FunctionDef) -> ast.FunctionDef:
    """The function without its decorators and what it says that it returns, at its own lines."""
    function = ast.FunctionDef(
        name=node.name,
        args=node.args,
        body=node.body,
        decorator_list=[],
        returns=None,
        type_comment=None,
        lineno=node.lineno,
        col_offset=node.col_offset,
        end_lineno=node.end_lineno,
        end_col_offset=node.end_col_offset,
    )
    if "type_params" in ast.FunctionDef._fields:
        function.type_params = []  # type: ignore[attr-defined, unused-ignore]
    return function


def _unspecialised(definition: ast.FunctionDef) -> dict[str, Any]:
    """The parameters that a decorator says to make no constants of. Where that is no literal, all of them."""
    found: dict[str, Any] = {}
    parameters = definition.args
    everything = [one.arg for one in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)]
    for decorator in definition.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg in _UNSPECIALISED:
                try:
                    value = ast.literal_eval(keyword.value)
                except ValueError:
                    value = everything
                found[keyword.arg] = value if isinstance(value, list | tuple) else everything
    return found


def _same(one: ast.Module, other: ast.Module) -> bool:
    return ast.dump(one) == ast.dump(other)


def _text_of(node: ast.FunctionDef, source: str) -> str:
    """A text of which it is certain that it says just this: the candidate's lines, if they alone do."""
    module = ast.Module(body=[node], type_ignores=[])
    own = textwrap.dedent("\n".join(source.split("\n")[node.lineno - 1 : node.end_lineno]))
    try:
        for text in (own, ast.unparse(module)):
            try:
                if _same(ast.parse(text), module):
                    return text
            except SyntaxError:
                continue
    except (ValueError, RecursionError) as error:
        raise KernelRefused(node.lineno, f"{node.name} cannot be written down: {error}") from error
    raise KernelRefused(node.lineno, f"{node.name} cannot be written down as it was read")


@dataclass(frozen=True)
class _Rebuilt:
    """A function that was checked; whoever runs or compiles it is handed its tree."""

    node: ast.FunctionDef
    text: str
    names: dict[str, Any]
    filename: str
    unspecialised: dict[str, Any]

    @functools.cached_property
    def kernel(self) -> Any:
        """As a JIT function, interpreted where Triton interprets."""
        return self._made_by(functools.partial(triton.jit, **self.unspecialised))

    @functools.cached_property
    def constexpr_function(self) -> Any:
        """As a function that is evaluated while a kernel is compiled."""
        return self._made_by(triton.constexpr_function)

    def _made_by(self, wrap: Callable[[Any], Any]) -> Any:
        # Triton's constructors read a function's text: they find this, and are told the tree afterwards.
        lines = [*["\n"] * (self.node.lineno - 1), *ast.unparse(self.node).splitlines(keepends=True)]
        linecache.cache[self.filename] = (len(lines), None, lines, self.filename)
        try:
            made = wrap(self.run(self._module()))
        finally:
            linecache.cache.pop(self.filename, None)
        if isinstance(made, interpreter.InterpretedFunction):
            made.rewriter = _Rewriter(self)
            return made
        made._unsafe_update_src(self.text)
        made.parse = self._from_line_one
        if not (_same(ast.parse(made.src), self._module()) and _same(made.parse(), self._module())):
            raise KernelRefused(self.node.lineno, f"{self.node.name} is not what was checked")
        return made

    def run(self, module: ast.Module, **added: Any) -> Any:
        """The function that a module defines, with the names that were resolved for it and these."""
        namespace: dict[str, Any] = {"tl": tl, **self.names, **added}
        namespace |= {"__builtins__": _BUILTINS, "__name__": "candidate"}
        exec(compile(module, self.filename, "exec", dont_inherit=True), namespace)
        return namespace[self.node.name]

    def _module(self) -> ast.Module:
        return ast.Module(body=[copy.deepcopy(self.node)], type_ignores=[])

    def _from_line_one(self) -> ast.Module:
        """As Triton numbers lines: from the function's own first one."""
        module = self._module()
        ast.increment_lineno(module, 1 - self.node.lineno)
        return module

    def rewritten(self) -> Any:
        """As the interpreter runs it: with the few names that it writes into a function, and no others."""
        before, module = _names_in(self.node), self._module()
        module = ast.fix_missing_locations(as_compiled({"tl", *self.names}).visit(module))
        added = _names_in(module) - before
        if added & self.names.keys():
            raise KernelRefused(self.node.lineno, f"names of the interpreter's: {', '.join(sorted(added))}")
        known = vars(interpreter)
        return self.run(module, **HELPERS, **{name: known[name] for name in added if name in known})


@dataclass(frozen=True)
class _Rewriter:
    """In the place of the interpreter's, which would read the text of a file."""

    rebuilt: _Rebuilt

    def rewrite_ast(self) -> Any:
        """The name that the interpreter calls."""
        return self.rebuilt.rewritten()


def _names_in(tree: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}


def _resolve(value: Any, built: Sequence[_Rebuilt | None], line: int) -> Any:
    """A described global: a constant, or a reference to something that both sides have."""
    if not isinstance(value, dict):
        return value
    for kind in ("jit", "constexpr_function"):
        if kind in value and 0 <= int(value[kind]) < len(built):
            rebuilt = built[int(value[kind])]
            if rebuilt is not None:
                return rebuilt.kernel if kind == "jit" else rebuilt.constexpr_function
    if "float" in value:
        return float(value["float"])
    if "constexpr" in value:
        return tl.constexpr(_resolve(value["constexpr"], built, line))
    if "tuple" in value:
        return tuple(_resolve(item, built, line) for item in value["tuple"])
    if "module" in value and value["module"] in _MODULES:
        return _MODULES[value["module"]]
    if "member" in value:
        module, name = value["member"]
        if str(module).startswith("triton.language"):
            return _member(importlib.import_module(module), name, line)
    raise KernelRefused(line, f"a kernel cannot use a global of this kind: {value}")


def _member(parent: Any, name: str, line: int) -> Any:
    found = getattr(parent, name, None) if not name.startswith("__") else None
    if found is None or not _belongs_to_triton(found):
        raise KernelRefused(line, f"{name} is not a member of triton.language")
    return found


def _belongs_to_triton(value: Any) -> bool:
    if isinstance(value, functools.partial):
        value = value.func
    if value is print or value is tl.PropagateNan:  # static_print; an enumeration in C++
        return True
    if isinstance(value, bool | int | float | str) or type(value).__module__.startswith("triton."):
        return True
    module = value.__name__ if hasattr(value, "__path__") or hasattr(value, "__spec__") else None
    home = module or getattr(value, "__module__", None) or ""
    return home.startswith(("triton.language", "triton.runtime.interpreter"))


def _forget_foreign_annotations(node: ast.FunctionDef, names: dict[str, Any]) -> None:
    """`x: torch.Tensor` says nothing to Triton; what might stays, and is checked."""
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.annotation is None or "constexpr" in ast.unparse(argument.annotation):
            continue
        try:
            for part in ast.walk(argument.annotation):
                _check_node(part, set(), names, node.lineno)
        except KernelRefused:
            argument.annotation = None


def _check(node: ast.FunctionDef, names: dict[str, Any], text: str) -> None:
    """Refuse whatever could reach outside a kernel; Triton's own compiler refuses the rest."""
    for inner in ast.walk(node.args):
        _check_node(inner, set(), names, node.lineno)
    for part in node.body:
        for inner in ast.walk(part):
            if not isinstance(inner, _COMPILABLE):
                _check_node(inner, set(), names, node.lineno)
    local = _local_names(node, text)
    for part in node.body:
        for inner in ast.walk(part):
            _check_node(inner, local, names, node.lineno)


def _local_names(node: ast.FunctionDef, text: str) -> set[str]:
    """The names that are the function's own wherever it uses them: a comprehension's are so in it alone."""
    try:
        waiting = symtable.symtable(text, node.name, "exec").get_children()
    except (SyntaxError, ValueError, RecursionError) as error:
        raise KernelRefused(node.lineno, f"{node.name} cannot be understood: {error}") from error
    own: set[str] = set()
    outer: set[str] = set()
    while waiting:
        scope = waiting.pop()
        waiting.extend(scope.get_children())
        for symbol in scope.get_symbols():
            # Not `is_global`, which takes a function of the name "top" for a module.
            is_own = symbol.is_local() or symbol.is_free()
            (own if is_own else outer).add(symbol.get_name())
    if own & outer:
        raise KernelRefused(node.lineno, f"names that mean two things: {', '.join(sorted(own & outer))}")
    return own


def _check_node(node: ast.AST, local: set[str], names: dict[str, Any], first_line: int) -> None:
    line = getattr(node, "lineno", first_line)
    if not isinstance(node, _COMPILABLE):
        raise KernelRefused(line, f"unsupported in a kernel: {type(node).__name__}")
    if isinstance(node, ast.Attribute):
        hidden = node.attr.startswith("__") or node.attr == "handle"
        if hidden or isinstance(node.ctx, ast.Store | ast.Del):
            raise KernelRefused(line, f"unsupported in a kernel: attribute {node.attr}")
        _check_chain(node, local, names, line)
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        known = node.id in local or node.id in names or node.id in _BUILTINS
        if not known or node.id.startswith("__"):
            raise KernelRefused(line, f"name '{node.id}' is not defined in the kernel")


def _check_chain(node: ast.Attribute, local: set[str], names: dict[str, Any], line: int) -> None:
    """`tl.math.exp` must stay inside Triton's language, whatever modules it imports itself.

    What is not such a chain of names may be any object, a module too, and is asked only for what a value of
    Triton's has.
    """
    parts = [node.attr]
    root: ast.expr = node.value
    while isinstance(root, ast.Attribute):
        parts.append(root.attr)
        root = root.value
    if not isinstance(root, ast.Name) or root.id in local or root.id not in names:
        if node.attr not in _VALUE_ATTRIBUTES:
            raise KernelRefused(line, f"unsupported in a kernel: attribute {node.attr}")
        return
    value = names[root.id]
    if value is math:
        return
    for part in reversed(parts):
        if value is triton and part not in _TRITON_MEMBERS:
            raise KernelRefused(line, f"unsupported in a kernel: triton.{part}")
        inside = getattr(value, part, None)
        if inside is None:
            raise KernelRefused(line, f"{root.id} has no attribute '{part}'")
        if value is not triton and not _belongs_to_triton(inside):
            raise KernelRefused(line, f"unsupported in a kernel: {ast.unparse(node)}")
        value = inside
