"""A module's text: imports, kernels, what the constructor needs, and `ModelNew` with the new forward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from kernel_core.compiler_teacher.refusal import CannotTeach

_HEAD = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl"
_LIBDEVICE = "from triton.language.extra import libdevice"
_Definition = ast.ClassDef | ast.FunctionDef


def module_text(
    reference: str, kernels: Sequence[str], arguments: Sequence[str], lines: Sequence[str]
) -> str:
    """The text of a module that keeps the reference's constructor. Raises `CannotTeach`."""
    tree = ast.parse(reference)
    definitions = {node.name: node for node in tree.body if isinstance(node, _Definition)}
    kept = _constructor_parts(definitions)
    model = kept.pop("Model")
    assert isinstance(model, ast.ClassDef)
    forward = f"    def forward({_parameters(definitions, 'Model', arguments)}):\n"
    forward += "\n".join("        " + line for text in lines for line in text.splitlines())
    body = [_indented(ast.unparse(part)) for part in model.body if not isinstance(part, ast.Pass)]
    bases = ", ".join(ast.unparse(base) for base in model.bases) or "nn.Module"
    owner = "\n\n".join([f"class ModelNew({bases}):", *body, forward]).replace(":\n\n", ":\n", 1)
    helpers = [
        ast.unparse(node) for name, node in definitions.items() if name in kept for node in [kept[name]]
    ]
    code = "\n\n\n".join([*kernels, *helpers, owner])
    imports = _imports(tree, code)
    head = "\n".join([_HEAD, *([_LIBDEVICE] if "libdevice." in code else [])])
    constants = _constants(tree, "\n".join([*helpers, owner]))
    before = [text for text in ("\n".join([*imports, head]), "\n".join(constants)) if text]
    return "\n\n\n".join([*before, code]) + "\n"


def _parameters(definitions: dict[str, _Definition], owner: str, arguments: Sequence[str]) -> str:
    """The arguments of `forward` with their defaults, from the class or the first base that has it."""
    model = definitions.get(owner)
    for part in model.body if model else ():
        if isinstance(part, ast.FunctionDef) and part.name == "forward":
            return ast.unparse(_bare(part).args)
    if isinstance(model, ast.ClassDef) and model.bases:
        return _parameters(definitions, ast.unparse(model.bases[0]), arguments)
    return ", ".join(("self", *arguments))


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def _constructor_parts(definitions: dict[str, _Definition]) -> dict[str, _Definition]:
    """What building the model needs: classes with constructors and their methods, and functions."""
    kept: dict[str, _Definition] = {}
    wanted, methods = ["Model"], {"__init__"}
    while wanted:
        name = wanted.pop()
        kept[name] = _trimmed(definitions[name], methods)
        used = {node.id for node in ast.walk(kept[name]) if isinstance(node, ast.Name)}
        reached = {node.attr for node in ast.walk(kept[name]) if isinstance(node, ast.Attribute)} - methods
        own = {
            part.name
            for definition in definitions.values()
            for part in definition.body
            if isinstance(part, ast.FunctionDef)
        }
        if more := reached & own - {"forward"}:
            methods |= more
            wanted = ["Model"]
            kept.clear()
            continue
        wanted += [one for one in used if one in definitions and one not in kept and one not in wanted]
    return kept


def _trimmed(node: _Definition, methods: set[str]) -> _Definition:
    """A class without the methods that building it does not need; docstrings and annotations go."""
    if isinstance(node, ast.FunctionDef):
        return _bare(node)
    body = [
        _bare(part) if isinstance(part, ast.FunctionDef) else part
        for part in node.body
        if not (isinstance(part, ast.FunctionDef) and part.name not in methods) and not _is_text(part)
    ]
    return ast.ClassDef(node.name, node.bases, node.keywords, body or [ast.Pass()], [])


def _bare(node: ast.FunctionDef) -> ast.FunctionDef:
    body = [part for part in node.body if not _is_text(part)] or [ast.Pass()]
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): pass").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    for one in (*arguments.args.args, *arguments.args.kwonlyargs):
        one.annotation = None
    bare = ast.FunctionDef(node.name, arguments.args, body, node.decorator_list, None)
    return ast.fix_missing_locations(bare)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _imports(tree: ast.Module, code: str) -> list[str]:
    """The reference's other imports, as far as the code uses them."""
    found = []
    words = set(re.findall(r"\w+", code))
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        names = [one for one in node.names if (one.asname or one.name).split(".")[0] in words]
        text = ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), "names": names})) if names else ""
        if text and text not in _HEAD.splitlines():
            found.append(text)
    return found


def _constants(tree: ast.Module, code: str) -> Iterable[str]:
    """A constructor that reads a constant of the problem's has no form that holds at other sizes."""
    words = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id in words for one in targets):
                raise CannotTeach("the module reads a constant of its file")
    return []
