"""Data-flow hash of a module's return value, independent of the order of independent statements.

`forward` is evaluated symbolically: a variable is replaced by its expression, a layer by its constructor and
a method by its body. Numbers are erased, and the operands of `+` and `*` are sorted. So the hash ignores
names, numbers, temporaries and the order of independent statements. It covers every operator and its
operands. Statements that branch or loop are hashed as they are.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping

from kernel_core.corpus.canonical import OWN_ATTRIBUTE, OWN_NAME
from kernel_core.corpus.scopes import Function

_COMMUTATIVE = (ast.Add, ast.Mult)
_MAX_DEPTH = 4
"""Methods that call methods are followed so far."""


def dataflow_of(tree: ast.Module) -> str:
    """Hash what `forward` and the module's helper functions return, of a tree in canonical names.

    With several classes it covers all of them.
    """
    flows = [_Flow(node).of_method("forward", ()) for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [node for node in tree.body if isinstance(node, Function) and node.name.startswith(OWN_NAME)]
    flows += [_Flow().of_function(function) for function in functions]
    return _hash("module", *sorted(flows))


class _Flow:
    """Follows the methods of one class, or a function."""

    def __init__(self, cls: ast.ClassDef | None = None) -> None:
        body = cls.body if cls is not None else []
        self._methods = {node.name: node for node in body if isinstance(node, Function)}
        self._depth = 0
        self._layers: dict[str, str] = {}
        constructor = self._methods.get("__init__")
        if constructor is not None:
            self._layers = {
                name: value
                for name, value in self._followed(constructor, _own_arguments(constructor)).items()
                if name.startswith(OWN_ATTRIBUTE)
            }

    def of_method(self, name: str, arguments: tuple[str, ...]) -> str:
        """Hash a method's return value for `arguments`, or for its own parameters where none are given."""
        method = self._methods.get(name)
        if method is None or self._depth > _MAX_DEPTH:
            return _hash("method", name, *arguments)
        own = _own_arguments(method)
        self._depth += 1
        values = self._followed(method, dict(zip(own, arguments, strict=False)) if arguments else own)
        self._depth -= 1
        return values.get("return", "nothing")

    def of_function(self, function: Function) -> str:
        """Hash a function's return value for its own parameters."""
        names = (argument.arg for argument in function.args.args)
        values = {name: f"argument {index}" for index, name in enumerate(names)}
        return self._followed(function, values).get("return", "nothing")

    def _followed(self, function: Function, values: dict[str, str]) -> dict[str, str]:
        """Each variable's value at the end, and what is returned under `return`."""
        for statement in function.body:
            self._follow(statement, values)
        return values

    def _follow(self, statement: ast.stmt, values: dict[str, str]) -> None:
        if isinstance(statement, ast.Return):
            value = self._value(statement.value, values) if statement.value else "nothing"
            values["return"] = _hash("return", values.get("return", ""), value)
        elif isinstance(statement, ast.Assign):
            value = self._value(statement.value, values)
            for target in statement.targets:
                _assign(target, value, values)
        elif isinstance(statement, ast.AugAssign):
            before = self._value(statement.target, values)
            _assign(
                statement.target, _binary(statement.op, before, self._value(statement.value, values)), values
            )
        elif not (isinstance(statement, ast.Expr) and _calls_super(statement.value)):
            value = self._generic(statement, values)
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    values[node.id] = value
            if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
                values["return"] = _hash("return", values.get("return", ""), value)

    def _value(self, node: ast.AST, values: Mapping[str, str]) -> str:
        if isinstance(node, ast.Constant):
            is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            return "0" if is_number else repr(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, values)
            return value if value == "0" else _hash("neg", value)
        if isinstance(node, ast.Name):
            return values.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and node.attr.startswith(OWN_ATTRIBUTE):
            return values.get(node.attr) or self._layers.get(node.attr, "attribute")
        if isinstance(node, ast.BinOp):
            return _binary(node.op, self._value(node.left, values), self._value(node.right, values))
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in self._methods
        ):
            return self.of_method(
                node.func.attr, tuple(self._value(argument, values) for argument in node.args)
            )
        return self._generic(node, values)

    def _generic(self, node: ast.AST, values: Mapping[str, str]) -> str:
        """A node of any other kind: its type, its words and its children, in order."""
        words = [value for _, value in ast.iter_fields(node) if isinstance(value, str)]
        children = [self._value(child, values) for child in ast.iter_child_nodes(node)]
        return _hash(type(node).__name__, *words, *children)


def _own_arguments(function: Function) -> dict[str, str]:
    """A method's parameters by their place."""
    return {argument.arg: f"argument {index}" for index, argument in enumerate(function.args.args[1:])}


def _assign(target: ast.expr, value: str, values: dict[str, str]) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        for index, item in enumerate(target.elts):
            _assign(item, _hash("item", str(index), value), values)
    elif isinstance(target, ast.Name):
        values[target.id] = value
    elif isinstance(target, ast.Attribute):
        values[target.attr] = value
    elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        name = target.value.id
        values[name] = _hash("stored", values.get(name, name), value)


def _binary(operator: ast.operator, left: str, right: str) -> str:
    operands = sorted((left, right)) if isinstance(operator, _COMMUTATIVE) else [left, right]
    return _hash(type(operator).__name__, *operands)


def _calls_super(node: ast.expr) -> bool:
    return "super" in (name.id for name in ast.walk(node) if isinstance(name, ast.Name))


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
