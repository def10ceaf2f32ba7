"""Scope analysis of a module's syntax tree, used by `canonical`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

MEANINGFUL = frozenset({"forward", "backward", "setup_context", "get_inputs", "get_init_inputs"})
"""Names that KernelBench or PyTorch gives meaning to; they are never the author's to choose."""

REGISTERING = frozenset({"register_buffer", "register_parameter", "register_module", "add_module"})
"""Methods of a module that make an attribute named by their first argument."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Scope:
    """The names that one module, class body, function, lambda or comprehension binds."""

    def __init__(self, bound: Iterable[str], parent: Scope | None) -> None:
        self.bound = frozenset(bound)
        self.parent = parent
        self.canonical: dict[str, str] = {}
        self.imported: dict[str, str] = {}
        """Bound name to the dotted path it was imported from."""

    def owner(self, name: str) -> Scope | None:
        """The innermost scope that binds a name; None for builtins and unknown names."""
        scope: Scope | None = self
        while scope is not None and name not in scope.bound:
            scope = scope.parent
        return scope


def bindings(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Each binding of a name by these statements in their own scope, in order, repeats included."""
    for node in nodes:
        if isinstance(node, Function | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (bound for bound, _ in import_paths(node))
        elif isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                yield node.id
        elif not isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            if isinstance(node, ast.ExceptHandler) and node.name:
                yield node.name
            yield from bindings(ast.iter_child_nodes(node))


def import_paths(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Pairs of bound name and dotted path."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            root = alias.name.partition(".")[0]
            yield root, root


def arguments_of(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter, in the order written."""
    extra = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def single_literals(tree: ast.Module, nodes: Sequence[ast.AST]) -> dict[str, ast.expr]:
    """Module-level constants assigned exactly once: `N = 1024`, `SHAPE = (4, 8)`."""
    counts = Counter(bindings(tree.body))
    redeclared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    literals: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target: ast.expr = node.targets[0]
        elif isinstance(node, ast.AnnAssign):
            target = node.target
        else:
            continue
        if not isinstance(target, ast.Name) or node.value is None or not _is_literal(node.value):
            continue
        if counts[target.id] == 1 and target.id not in redeclared:
            literals[target.id] = node.value
    return literals


def own_attributes(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Attributes and methods that a module's classes define on `self`."""
    names: set[str] = set()
    for cls in (node for node in nodes if isinstance(node, ast.ClassDef)):
        names.update(bindings(cls.body))
        for method in (node for node in cls.body if isinstance(node, Function)):
            names.update(_attributes_set_by(method))
    dunder = {name for name in names if name.startswith("__") and name.endswith("__")}
    return frozenset(names - MEANINGFUL - dunder)


def parameters_by_callee(nodes: Sequence[ast.AST]) -> dict[str, list[str]]:
    """Parameter names of each function, class and method of a module, without the receiver."""
    parameters: dict[str, list[str]] = {}
    methods: set[ast.AST] = set()
    for cls in (node for node in nodes if isinstance(node, ast.ClassDef)):
        for method in (node for node in cls.body if isinstance(node, Function)):
            methods.add(method)
            name = cls.name if method.name == "__init__" else method.name
            parameters.setdefault(name, [argument.arg for argument in arguments_of(method.args)[1:]])
    for node in nodes:
        if isinstance(node, Function) and node not in methods:
            parameters.setdefault(node.name, [argument.arg for argument in arguments_of(node.args)])
    return parameters


def is_main_guard(node: ast.stmt) -> bool:
    """True if a statement is `if __name__ == …`."""
    return isinstance(node, ast.If) and any(
        isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)
    )


def _attributes_set_by(method: Function) -> Iterator[str]:
    receiver = next((argument.arg for argument in arguments_of(method.args)), None)
    for node in ast.walk(method):
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if isinstance(node.value, ast.Name) and node.value.id == receiver:
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names_one = node.func.attr in REGISTERING and node.args and isinstance(node.args[0], ast.Constant)
            if names_one:
                yield str(node.args[0].value)  # type: ignore[attr-defined]


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_literal(node.operand)
    if isinstance(node, ast.Tuple | ast.List):
        return all(_is_literal(item) for item in node.elts)
    return isinstance(node, ast.Constant)
