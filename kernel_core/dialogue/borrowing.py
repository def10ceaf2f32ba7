"""Answers that leave out what they keep of the problem's text.

Such an answer is an edit of the problem: new kernels, changed functions, and classes such as
`class ModelNew(Model)` or `class Block(Block)` that have the changed members alone. `with_definitions` adds
the definitions of the problem that the answer uses, so that a candidate is whole; `without_definitions`
leaves them out.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator, Sequence

from kernel_core.problems.syntax import syntax_tree

_MODEL, _NEW_MODEL = "Model", "ModelNew"
_INPUTS = frozenset({"get_inputs", "get_init_inputs"})


def with_definitions(answer: str, problem: str) -> str:
    """Return the answer with the problem's definitions that it uses and lacks.

    Text that lacks nothing, or that Python cannot parse, comes back as it is.
    """
    tree = tree_of(answer)
    if tree is None:
        return answer
    wanted = missing(tree) | _extended(tree)
    lender = tree_of(problem) if wanted else None
    if lender is None:
        return answer
    lent = {name: statement for statement in _lent(lender) for name in defined(ast.Module([statement], []))}
    own = {name: statement for statement in tree.body for name in defined(ast.Module([statement], []))}
    taken = set[ast.stmt]()
    while wanted:
        statement = lent.get(wanted.pop())
        if statement is not None and statement not in taken:
            taken.add(statement)
            wanted |= _loaded(statement) - own.keys()
    if not taken:
        return answer
    imports = [statement for statement in tree.body if isinstance(statement, ast.Import | ast.ImportFrom)]
    parts, placed = [_text(answer, statement) for statement in imports], set[ast.stmt](imports)
    for statement in _lent(lender):
        if statement in taken:
            parts.append(_text(problem, statement))
        # A replaced definition keeps its place: defaults of later functions may name it.
        revised = own.get(getattr(statement, "name", ""))
        if revised is not None and revised not in placed:
            parts.append(_text(answer, revised))
            placed.add(revised)
    parts += [_text(answer, statement) for statement in tree.body if statement not in placed]
    return "\n\n\n".join(_grouped(parts))


def without_definitions(answer: str, problem: str) -> str:
    """Return the answer without the definitions and members that it has from the problem.

    An answer that would lack a name comes back as it is.
    """
    tree, lender = tree_of(answer), tree_of(problem)
    if tree is None or lender is None:
        return answer
    same = {_dump(statement) for statement in _lent(lender)}
    classes = {node.name: node for node in lender.body if isinstance(node, ast.ClassDef)}
    parts = []
    for statement in tree.body:
        if _dump(statement) in same:
            continue
        changes = None
        if isinstance(statement, ast.ClassDef):
            older = classes.get(_MODEL if statement.name == _NEW_MODEL else statement.name)
            changes = None if older is None else _changes(answer, statement, older)
        parts.append(changes or _text(answer, statement))
    short = "\n\n\n".join(_grouped(parts))
    whole = tree_of(with_definitions(short, problem))
    return short if whole is not None and missing(whole) <= missing(tree) else answer


def tree_of(source: str) -> ast.Module | None:
    """Return the tree of a module's text; None where Python cannot parse it, or where it is empty."""
    try:
        return syntax_tree(source) if source else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def defined(tree: ast.Module | None) -> set[str]:
    """Return the names that a module binds in its own scope."""
    names: set[str] = set()
    for node in _statements(tree) if tree else ():
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {
                    name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                }
    return names


def missing(tree: ast.Module | None) -> set[str]:
    """Return the names that a module uses and binds nowhere."""
    used, bound = set(), defined(tree) | set(dir(builtins))
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                used.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.ExceptHandler(name=str(name)):
                bound.add(name)
    return used - bound


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module's scope, also under conditions and in `try`."""
    for inner in ast.iter_child_nodes(node):
        yield inner
        if isinstance(inner, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _statements(inner)


def _lent(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the definitions of a problem, without those of its inputs."""
    for node in tree.body:
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        if is_import or (defined(ast.Module([node], [])) and getattr(node, "name", "") not in _INPUTS):
            yield node


def _extended(tree: ast.Module) -> set[str]:
    """Return the names of the classes that extend one of their own name."""
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == node.name for base in node.bases)
    }


def _loaded(statement: ast.stmt) -> set[str]:
    names = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def _changes(answer: str, cls: ast.ClassDef, older: ast.ClassDef) -> str | None:
    """Return the class as an extension of the problem's; None where its members would not be the same."""
    heads = [(*node.bases, *node.keywords, *node.decorator_list) for node in (cls, older)]
    names_itself = any(
        isinstance(node, ast.Call) and getattr(node.func, "id", "") == "super" and node.args
        for node in ast.walk(older)
    )
    is_alike = [*map(ast.dump, heads[0])] == [*map(ast.dump, heads[1])] and not older.decorator_list
    if not is_alike or (names_itself and cls.name == older.name):
        return None
    before = {_dump(member) for member in older.body}
    kept = {key for member in older.body if (key := _key(member)) is not None}
    if not kept <= {_key(member) for member in cls.body}:
        return None
    members = [member for member in cls.body if _dump_as(member, cls.name, older.name) not in before]
    if any(getattr(member, "name", "") == "__init__" for member in members):
        return None  # its call of `super().__init__` is meant for another base
    lines = [_text(answer, member) for member in members if _key(member) is not None] or ["    pass"]
    return "\n".join([f"class {cls.name}({older.name}):", "\n\n".join(lines)])


def _key(member: ast.stmt) -> str | None:
    """Return the name that a member of a class binds; None for a docstring or `pass`."""
    if isinstance(member, ast.Expr | ast.Pass):
        return None
    return ", ".join(sorted(defined(ast.Module([member], [])))) or ast.dump(member)


def _dump_as(member: ast.stmt, name: str, older: str) -> str:
    return _dump(member).replace(f"Name(id='{name}'", f"Name(id='{older}'")


def _dump(statement: ast.stmt) -> str:
    """Return a statement's tree without docstrings, which answers leave out."""
    bare = copy.deepcopy(statement)
    for node in ast.walk(bare):
        if (
            isinstance(node, ast.ClassDef | ast.FunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(bare)


def _text(source: str, statement: ast.stmt) -> str:
    """Return the lines of a statement, with its decorators and the comment directly above."""
    lines = source.split("\n")
    decorators: Sequence[ast.expr] = getattr(statement, "decorator_list", ())
    start = min([statement.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return "\n".join(lines[start : statement.end_lineno])


def _grouped(parts: Sequence[str]) -> list[str]:
    """Join lines that follow each other, such as imports."""
    groups: list[str] = []
    after_line = False
    for part in parts:
        is_line = "\n" not in part
        if is_line and after_line:
            groups[-1] += f"\n{part}"
        else:
            groups.append(part)
        after_line = is_line
    return groups
