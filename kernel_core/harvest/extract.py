"""Extraction of a definition with everything of its package that it needs, as one text."""

from __future__ import annotations

import ast
import builtins
import copy
import symtable
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_core.harvest.clean import cleaned
from kernel_core.harvest.packages import Library, Resolved

NEEDS = "needs the library "
"""Prefix of a reason that names a library other than torch."""
MOST_LINES = 140
"""Limit in lines: a definition that needs more is part of a model and no problem."""
MOST_DEFINITIONS = 12
_MOST_WRITTEN_LINES = 3 * MOST_LINES
_ALLOWED = {
    "torch", "math", "typing", "functools", "itertools", "collections", "numbers", "types", "copy", "enum",
    "operator", "contextlib", "__future__",
}  # fmt: skip
_USUAL_IMPORTS = {
    "torch": "import torch",
    "nn": "import torch.nn as nn",
    "F": "import torch.nn.functional as F",
}


class ExtractionRefused(Exception):
    """Reason why a definition does not become a problem."""


@dataclass
class Extract:
    """Definition as text, with its imports. `definitions` come in an order in which they can run."""

    name: str
    node: ast.ClassDef | ast.FunctionDef
    """Cleaned; the last of `definitions`."""
    imports: dict[str, str] = field(default_factory=dict)
    """Bound name to the statement."""
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    origins: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Bound name to module and name in the package."""
    num_lines: int = 0


def extract(library: Library, module: str, name: str) -> Extract:
    """Extract a definition with everything it needs. Raises `ExtractionRefused` with the reason."""
    definition = library.find(module, name)
    if definition is None or not isinstance(definition.node, ast.ClassDef | ast.FunctionDef):
        raise ExtractionRefused("not a class or function")
    made = Extract(name, definition.node)
    _add(library, definition, name, made, frozenset())
    node = made.definitions[name]
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    made.node = node
    return made


def is_module_class(library: Library, module: str, node: ast.ClassDef, depth: int = 0) -> bool:
    """Return True if a class is an `nn.Module`, as far as its bases in the package show."""
    for base in node.bases:
        text = ast.unparse(base)
        if text.startswith(("nn.", "torch.nn.")) or text == "Module":
            return True
        definition = library.find(module, text) if depth < 6 else None
        if definition is None:
            continue
        if definition.node is None and definition.module.startswith("torch.nn"):
            return True
        if isinstance(definition.node, ast.ClassDef) and is_module_class(
            library, definition.module, definition.node, depth + 1
        ):
            return True
    return False


def source_of(made: Extract) -> str:
    """Return the imports and definitions as one text; `torch` and `nn` are always imported."""
    imports = {"torch": _USUAL_IMPORTS["torch"], "nn": _USUAL_IMPORTS["nn"], **made.imports}
    ordered = sorted(dict.fromkeys(imports.values()), key=lambda line: ("torch" in line, line))
    texts = [ast.unparse(node) for node in made.definitions.values()]
    return "\n".join(ordered) + "\n\n\n" + "\n\n\n".join(texts) + "\n"


def _add(library: Library, definition: Resolved, bound: str, made: Extract, above: frozenset[str]) -> None:
    assert definition.node is not None
    origin = (definition.module, definition.name)
    if bound in made.origins:
        if made.origins[bound] != origin:
            raise ExtractionRefused("two definitions of one name")
        return
    if bound in above:
        raise ExtractionRefused("definitions that need each other")
    made.origins[bound] = origin
    node, num_lines, needed_names = _prepared(library, definition)
    made.num_lines += num_lines
    if len(made.origins) > MOST_DEFINITIONS or made.num_lines > MOST_LINES:
        raise ExtractionRefused("needs too much of the package")
    for name in needed_names:
        if name in (bound, definition.name) or hasattr(builtins, name):
            continue
        needed = library.find(definition.module, name)
        if needed is None:
            raise ExtractionRefused("a name that its module does not define")
        if needed.node is None:
            _add_import(name, needed, made)
        else:
            _add(library, needed, name, made, above | {bound})
    if definition.name != bound:
        node = _renamed(copy.deepcopy(node), definition.name, bound)
    made.definitions[bound] = node


def _prepared(library: Library, definition: Resolved) -> tuple[ast.stmt, int, tuple[str, ...]]:
    """Return the cleaned definition, its length in lines, and the names that it takes from its module."""
    assert definition.node is not None
    key = (definition.module, definition.name)
    if key not in library.prepared:
        written = (definition.node.end_lineno or 0) - definition.node.lineno
        if written > _MOST_WRITTEN_LINES:
            raise ExtractionRefused("needs too much of the package")
        node = cleaned(definition.node)
        text = ast.unparse(node)
        library.prepared[key] = (node, text.count("\n") + 1, _global_names(text))
    return library.prepared[key]


def _add_import(name: str, definition: Resolved, made: Extract) -> None:
    if definition.module.split(".")[0] not in _ALLOWED:
        raise ExtractionRefused(f"{NEEDS}{definition.module.split('.')[0]}")
    if not definition.name:
        line = (
            f"import {definition.module}"
            if definition.module.split(".")[0] == name
            else f"import {definition.module} as {name}"
        )
        if name == "torch":
            line = _USUAL_IMPORTS["torch"]
    else:
        line = f"from {definition.module} import {definition.name}"
        line += f" as {name}" if name != definition.name else ""
    if (definition.module, definition.name) in (("torch", "nn"), ("torch.nn", "functional")):
        line = f"import {definition.module}.{definition.name} as {name}"
    if made.imports.setdefault(name, line) != line:
        raise ExtractionRefused("two imports of one name")


def _global_names(text: str) -> tuple[str, ...]:
    try:
        table = symtable.symtable(text, "<definition>", "exec")
    except SyntaxError as error:
        raise ExtractionRefused("cannot be written out again") from error
    return tuple(dict.fromkeys(_globals(table)))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or (top and not symbol.is_assigned())):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals(child)


def _renamed(node: ast.stmt, name: str, bound: str) -> ast.stmt:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id == name:
            inner.id = bound
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        node.name = bound
    return node
