"""Rebuild a candidate's JIT functions from its text, without running the rest of its module.

The compile gate and the replay use only what this module makes. That is the function's own syntax tree,
checked against the subset of Python that Triton can compile, and the names it uses. Names are resolved to
constants, other JIT functions or members of `triton.language`. Nothing else of the candidate's comes with it.
The interpreter and the compiler get that tree itself. Triton would read the text again, and might read it
otherwise than it was checked: by an encoding that it names, or from another line.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import linecache
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.jit import ConstexprFunction

from kernel_core.gym.channel.candidate_file import first_line
from kernel_core.gym.channel.kernel_description import DTYPES
from kernel_core.gym.untrusted.compile.kernel_whitelist import (
    BUILTINS,
    MODULES,
    KernelRefused,
    check_encoding,
    check_function,
    defined_names,
    forget_foreign_annotations,
    member_of_triton,
)
from kernel_core.gym.untrusted.interpreter.compiled_semantics import HELPERS, as_compiled

_UNSPECIALISED = ("do_not_specialize", "do_not_specialize_on_alignment")


def find_function(tree: ast.Module, name: str, line: int) -> ast.FunctionDef:
    """The function definition that starts (with its decorators) on a line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name and first_line(node) == line:
            return node
    raise KernelRefused(line, f"no function {name} is defined at line {line} of the candidate")


def build_kernels(source: str, filename: str, described: Sequence[dict[str, Any]]) -> list[Any]:
    """JIT functions for descriptions `{name, line, globals}`, in order; later ones may use earlier ones.

    One of CUDA C++ has its place, but nothing is built for it here. Errors in what is built name lines of
    `filename`, which is not read. Raises `KernelRefused`.
    """
    check_encoding(source)
    tree = ast.parse(source)
    defined = defined_names(tree)
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
        forget_foreign_annotations(node, names)
        text = _text_of(node, source)
        check_function(node, names, text, defined)
        built.append(_Rebuilt(node, text, names, filename, _unspecialised(definition)))
    return [part and part.jit for part in built]


class _PlainErrors(ast.NodeTransformer):
    """Every `raise` is of one kind. The compiler refuses each that a constant does not switch off, and the
    interpreter must not make the exception."""

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        """Without what is raised."""
        raised = ast.copy_location(ast.Name(id="AssertionError", ctx=ast.Load()), node)
        return ast.copy_location(ast.Raise(exc=raised, cause=None), node)


def _bare(node: ast.FunctionDef) -> ast.FunctionDef:
    """The function without its decorators and what it says that it returns, at its own lines. Defaults have
    the names of their parameters, under which their values are described."""
    parameters = copy.deepcopy(node.args)
    positional = [*parameters.posonlyargs, *parameters.args][-len(parameters.defaults) :]
    parameters.defaults = [*map(_default, parameters.defaults, positional)]
    parameters.kw_defaults = [*map(_default, parameters.kw_defaults, parameters.kwonlyargs)]
    function = ast.FunctionDef(
        name=node.name,
        args=parameters,
        body=[_PlainErrors().visit(part) for part in copy.deepcopy(node.body)],
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


def _default(value: Any, parameter: ast.arg) -> Any:
    if value is None or isinstance(value, ast.Constant):
        return value
    return ast.copy_location(ast.Name(id=parameter.arg, ctx=ast.Load()), value)


def _unspecialised(definition: ast.FunctionDef) -> dict[str, Any]:
    """The parameters that a decorator says to make no constants of. Where that is no literal, all of them."""
    arguments: dict[str, Any] = {}
    parameters = definition.args
    everything = [
        parameter.arg for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
    ]
    for decorator in definition.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg in _UNSPECIALISED:
                try:
                    value = ast.literal_eval(keyword.value)
                except ValueError:
                    value = everything
                arguments[keyword.arg] = value if isinstance(value, list | tuple) else everything
    return arguments


def _same(left: ast.Module, other: ast.Module) -> bool:
    return ast.dump(left) == ast.dump(other)


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
    """A function that was checked. Its tree is handed to the interpreter and the compiler."""

    node: ast.FunctionDef
    text: str
    names: dict[str, Any]
    filename: str
    unspecialised: dict[str, Any]

    @functools.cached_property
    def jit(self) -> Any:
        """The function as a JIT function, interpreted where Triton interprets."""
        return self._made_by(functools.partial(triton.jit, **self.unspecialised))

    @functools.cached_property
    def constexpr_function(self) -> Any:
        """The function as one that is evaluated during the compilation of a kernel."""
        return self._made_by(triton.constexpr_function)

    @functools.cached_property
    def function(self) -> Any:
        """The plain function, for a constant that is one."""
        return self.run(self._module())

    def _made_by(self, wrap: Callable[[Any], Any]) -> Any:
        # Triton's constructors read a function's text: they find this text, and get the tree afterwards.
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
        namespace |= {"__builtins__": BUILTINS, "__name__": "candidate"}
        exec(compile(module, self.filename, "exec", dont_inherit=True), namespace)
        return namespace[self.node.name]

    def _module(self) -> ast.Module:
        return ast.Module(body=[copy.deepcopy(self.node)], type_ignores=[])

    def _from_line_one(self) -> ast.Module:
        """The tree with Triton's line numbers: from the function's own first line."""
        module = self._module()
        ast.increment_lineno(module, 1 - self.node.lineno)
        return module

    def rewritten(self) -> Any:
        """The function for the interpreter: with the few names that it writes into a function, and no
        others."""
        before, module = _names_in(self.node), self._module()
        module = ast.fix_missing_locations(as_compiled({"tl", *self.names}).visit(module))
        added = _names_in(module) - before
        if added & self.names.keys():
            raise KernelRefused(self.node.lineno, f"names of the interpreter's: {', '.join(sorted(added))}")
        known = vars(interpreter)
        return self.run(module, **HELPERS, **{name: known[name] for name in added if name in known})


@dataclass(frozen=True)
class _Rewriter:
    """Replaces the interpreter's rewriter, which would read the text of a file."""

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
    for kind in ("jit", "constexpr_function", "function"):
        if kind in value and 0 <= int(value[kind]) < len(built):
            rebuilt = built[int(value[kind])]
            if rebuilt is not None:
                return getattr(rebuilt, kind)
    if "float" in value:
        return float(value["float"])
    if "tl" in value and value["tl"] in DTYPES:
        return DTYPES[value["tl"]]
    if "constexpr" in value:
        return tl.constexpr(_resolve(value["constexpr"], built, line))
    if "tuple" in value:
        return tuple(_resolve(item, built, line) for item in value["tuple"])
    if "module" in value and value["module"] in MODULES:
        return MODULES[value["module"]]
    if place := value.get("member") or value.get("evaluated"):
        module, name = place
        if str(module).startswith("triton.language"):
            member = member_of_triton(importlib.import_module(module), name, line)
            is_plain = "evaluated" in value and not isinstance(member, ConstexprFunction)
            return triton.constexpr_function(member) if is_plain else member
    raise KernelRefused(line, f"a kernel cannot use a global of this kind: {value}")
