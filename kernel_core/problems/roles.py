"""Roles of the identifiers in a problem's texts, read from their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernel_core.problems.syntax import syntax_tree

_LAYER = re.compile(r"(?:torch\.)?nn\.(?!Parameter\b)")


@dataclass
class Roles:
    """Roles of the identifiers in a problem's texts; ordered, so that draws are repeatable."""

    values: dict[str, None] = field(default_factory=dict)
    """Inputs, held numbers and parameters, named lines, loaded values, pointers."""
    stored: set[str] = field(default_factory=set)
    """Pointers that a kernel writes through."""
    held: set[str] = field(default_factory=set)
    """Attributes of the module that are no layers."""
    locals: dict[str, None] = field(default_factory=dict)
    kernels: dict[str, None] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    """Keywords of calls to torch and Triton."""


def roles_of(sources: Sequence[str]) -> Roles:
    """The roles in all texts that parse; a mistake may be a text that does not."""
    trees = []
    for source in sources:
        try:
            trees.append(syntax_tree(source))
        except SyntaxError:
            continue
    roles = Roles()
    own = {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)}
    for tree in trees:
        for statement in tree.body:
            if isinstance(statement, ast.ClassDef):
                _read_class(statement, roles)
            elif isinstance(statement, ast.FunctionDef) and _is_jit(statement):
                _read_kernel(statement, roles)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _callee(node) not in own:
                roles.fixed.update(keyword.arg for keyword in node.keywords if keyword.arg)
            elif isinstance(node, ast.arg):
                roles.locals[node.arg] = None
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                roles.locals[node.id] = None
    return roles


def _read_class(node: ast.ClassDef, roles: Roles) -> None:
    for function in (statement for statement in node.body if isinstance(statement, ast.FunctionDef)):
        arguments = [argument.arg for argument in function.args.args[1:]]
        if function.name == "__init__":
            held = dict.fromkeys(_held(function))
            roles.held.update(held)
            roles.values.update(dict.fromkeys(name for name in arguments if name in held))
            roles.values.update(held)
        elif function.name == "forward":
            roles.values.update(dict.fromkeys(arguments))
            if node.name == "Model":
                roles.values.update(dict.fromkeys(_assigned(function)))


def _held(function: ast.FunctionDef) -> Iterator[str]:
    """Attributes that the constructor sets to something else than a layer."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and not _LAYER.match(ast.unparse(node.value)):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    yield target.attr


def _assigned(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _is_jit(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "triton.jit" for decorator in function.decorator_list)


def _read_kernel(function: ast.FunctionDef, roles: Roles) -> None:
    roles.kernels[function.name] = None
    roles.values.update(
        {argument.arg: None for argument in function.args.args if argument.arg.endswith("_ptr")}
    )
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if any(_access(part) == "load" for part in ast.walk(node.value)):
                roles.values[node.targets[0].id] = None
        elif isinstance(node, ast.Call) and (access := _access(node)):
            place = node.args[0]
            while isinstance(place, ast.BinOp):
                place = place.left
            if isinstance(place, ast.Name):
                roles.values[place.id] = None
                if access != "load":
                    roles.stored.add(place.id)


def _access(node: ast.AST) -> str:
    """`load`, `store` or `atomic_…` where the node is such a call of Triton's."""
    called = node.func if isinstance(node, ast.Call) else None
    if not isinstance(called, ast.Attribute) or not isinstance(called.value, ast.Name):
        return ""
    is_access = called.value.id == "tl" and re.match("load$|store$|atomic_", called.attr)
    return called.attr if is_access else ""


def _callee(node: ast.Call) -> str:
    """The called function, or the kernel that is launched."""
    called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
    return called.id if isinstance(called, ast.Name) else ""
