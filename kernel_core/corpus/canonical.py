"""Canonical names for a module's syntax tree, scope by scope, in order of first appearance.

The author's own names become `@0`, `@1`, … and attributes of `self` become `.0`, `.1`, …; names that come
from an import become their full dotted path; constants at module level are written where they are used.
Builtins, methods of library objects and the names KernelBench gives meaning to stay. Docstrings,
annotations and the main guard go. Nothing is executed.
"""

from __future__ import annotations

import ast

from kernel_core.corpus import scopes
from kernel_core.corpus.scopes import MEANINGFUL, REGISTERING, Function, Scope

OWN_NAME = "@"
OWN_ATTRIBUTE = "."


def canonical_tree(tree: ast.Module) -> ast.Module:
    """The module rewritten in canonical names; the given tree is consumed."""
    tree.body = [statement for statement in tree.body if not scopes.is_main_guard(statement)]
    return _Canonical(tree).rewritten()


class _Canonical(ast.NodeTransformer):
    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._scope = Scope(scopes.bindings(tree.body), None)
        nodes = list(ast.walk(tree))
        self._inlined = scopes.single_literals(tree, nodes)
        self._attributes = scopes.own_attributes(nodes)
        self._attribute_names: dict[str, str] = {}
        self._parameters = scopes.parameters_by_callee(nodes)
        self._receivers: list[str] = []
        self._num_names = 0

    def rewritten(self) -> ast.Module:
        for node in self._tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._visit_import(node)
        self._tree.body = self._block(self._tree.body)
        return self._tree

    def _name(self, name: str) -> str:
        scope = self._scope.owner(name)
        if scope is None or name in MEANINGFUL:
            return name
        if name in scope.imported:
            return scope.imported[name]
        if name not in scope.canonical:
            scope.canonical[name] = f"{OWN_NAME}{self._num_names}"
            self._num_names += 1
        return scope.canonical[name]

    def _attribute(self, name: str) -> str:
        if name not in self._attributes:
            return name
        return self._attribute_names.setdefault(name, f"{OWN_ATTRIBUTE}{len(self._attribute_names)}")

    # expressions

    def visit_Name(self, node: ast.Name) -> ast.expr:
        scope = self._scope.owner(node.id)
        if scope is not None and scope.parent is None and node.id in self._inlined:
            return self._inlined[node.id]
        return ast.Name(self._name(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        of_self = self._is_receiver(node.value)
        value = self.visit(node.value)
        if of_self:
            return ast.Attribute(value, self._attribute(node.attr), node.ctx)
        if isinstance(value, ast.Name) and not value.id.startswith(OWN_NAME):
            return ast.Name(f"{value.id}.{node.attr}", node.ctx)  # a library's name, in full
        return ast.Attribute(value, node.attr, node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        parameters = self._parameters.get(self._callee(node.func), [])
        registers = isinstance(node.func, ast.Attribute) and node.func.attr in REGISTERING
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            node.args = []  # `super(Model, self)` says no more than `super()`
        node.func = self.visit(node.func)
        node.args = [self.visit(argument) for argument in node.args]
        if registers and node.args and isinstance(node.args[0], ast.Constant):
            node.args[0] = ast.Constant(self._attribute(str(node.args[0].value)))
        for keyword in node.keywords:
            if keyword.arg in parameters:
                keyword.arg = f"parameter {parameters.index(keyword.arg)}"
            keyword.value = self.visit(keyword.value)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self._visit_defaults(node.args)
        outer = self._enter(argument.arg for argument in scopes.arguments_of(node.args))
        self._visit_arguments(node.args)
        node.body = self.visit(node.body)
        self._scope = outer
        return node

    def _visit_comprehension(self, node: ast.AST) -> ast.AST:
        targets = (child.target for child in ast.walk(node) if isinstance(child, ast.comprehension))
        outer = self._enter(scopes.bindings(targets))
        rewritten = self.generic_visit(node)
        self._scope = outer
        return rewritten

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    # statements

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | None:
        if isinstance(node.value, ast.Constant):  # a docstring, or nothing at all
            return None
        node.value = self.visit(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        first = node.targets[0]
        if self._scope.parent is None and isinstance(first, ast.Name) and first.id in self._inlined:
            return None
        node.value = self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        return None if node.value is None else self.visit_Assign(ast.Assign([node.target], node.value))

    def _visit_import(self, node: ast.Import | ast.ImportFrom) -> None:
        self._scope.imported.update(scopes.import_paths(node))

    visit_Import = visit_ImportFrom = _visit_import

    def _visit_declaration(self, node: ast.Global | ast.Nonlocal) -> None:
        """Scope analysis knows; the statement itself says nothing more."""

    visit_Global = visit_Nonlocal = _visit_declaration

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._name(node.name) if node.name else None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.name = self._name(node.name)
        node.bases = [self.visit(base) for base in node.bases]
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        outer = self._enter(scopes.bindings(node.body))
        body = self._scope
        rewritten: list[ast.stmt] = []
        for statement in node.body:
            if isinstance(statement, Function):
                self._scope = outer  # a method does not see the names of its class's body
                rewritten.append(self._function(statement, self._attribute(statement.name), is_method=True))
                self._scope = body
            else:
                body.canonical.update({name: self._attribute(name) for name in scopes.bindings([statement])})
                rewritten.extend(self._block([statement]))
        self._scope = outer
        node.body = rewritten
        return node

    def _visit_function(self, node: Function) -> Function:
        return self._function(node, self._name(node.name), is_method=False)

    visit_FunctionDef = visit_AsyncFunctionDef = _visit_function

    def _function(self, node: Function, name: str, is_method: bool) -> Function:
        node.name = name
        node.decorator_list = [self.visit(decorator) for decorator in node.decorator_list]
        node.returns = None
        self._visit_defaults(node.args)
        arguments = [argument.arg for argument in scopes.arguments_of(node.args)]
        outer = self._enter((*arguments, *scopes.bindings(node.body)))
        if is_method:
            self._receivers.append(arguments[0] if arguments else "")
        self._visit_arguments(node.args)
        node.body = self._block(node.body)
        if is_method:
            self._receivers.pop()
        self._scope = outer
        return node

    # parts of the above

    def _enter(self, bound: object) -> Scope:
        outer = self._scope
        self._scope = Scope(bound, outer)  # type: ignore[arg-type]
        return outer

    def _block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        visited = (self.visit(statement) for statement in body)
        return [statement for statement in visited if statement is not None]

    def _is_receiver(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and bool(self._receivers) and node.id == self._receivers[-1]

    def _callee(self, node: ast.expr) -> str:
        if isinstance(node, ast.Subscript):  # a Triton launch: kernel[grid](…)
            return self._callee(node.value)
        if isinstance(node, ast.Attribute):
            return node.attr if self._is_receiver(node.value) else ""
        return node.id if isinstance(node, ast.Name) else ""

    def _visit_defaults(self, arguments: ast.arguments) -> None:
        arguments.defaults = [self.visit(default) for default in arguments.defaults]
        arguments.kw_defaults = [None if d is None else self.visit(d) for d in arguments.kw_defaults]

    def _visit_arguments(self, arguments: ast.arguments) -> None:
        for argument in scopes.arguments_of(arguments):
            argument.arg = self._name(argument.arg)
            argument.annotation = None
