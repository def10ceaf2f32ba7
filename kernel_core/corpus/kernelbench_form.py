"""KernelBook's modules in KernelBench's form: `Model`, `ModelNew` and a flat list of init inputs.

KernelBook names its class after what it does (`SumAggregator`, rewritten as `SumAggregatorNew`) and its
`get_init_inputs` returns a pair, `[[positional…], {keyword: …}]`. The names are replaced in the text and
the pair is laid out flat in the order of `__init__`'s parameters, so that layout and comments survive.
"""

from __future__ import annotations

import ast
import re

# Strings and comments are matched first, so that a name inside them is text and stays.
_WORDS = re.compile(
    r"\"{3}.*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|\#[^\n]*|[A-Za-z_]\w*", re.DOTALL
)


class NotAdaptable(ValueError):
    """A published row cannot be put into KernelBench's form, for the reason given."""


def in_kernelbench_form(reference: str, kernel: str, entry_point: str) -> tuple[str, str]:
    """The pair with classes `Model` and `ModelNew`. Raises `NotAdaptable`."""
    flat = _with_flat_init_inputs(reference, entry_point)
    renamed = _renamed(flat, entry_point, "Model")
    renamed_kernel = _renamed(kernel, f"{entry_point}New", "ModelNew")
    if "class ModelNew" not in renamed_kernel:
        raise NotAdaptable("the kernel has no class named after the entry point")
    return renamed, renamed_kernel


def _renamed(source: str, old: str, new: str) -> str:
    """The source with one identifier replaced."""
    if old == new:
        return source
    if new in _WORDS.findall(source):
        raise NotAdaptable("another class is called Model or ModelNew")
    return _WORDS.sub(lambda match: new if match.group() == old else match.group(), source)


def _with_flat_init_inputs(reference: str, entry_point: str) -> str:
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAdaptable("the reference is not Python") from error
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    function, cls = functions.get("get_init_inputs"), classes.get(entry_point)
    if function is None or cls is None:
        raise NotAdaptable("no get_init_inputs, or no class named after the entry point")
    values = _laid_out(*_returned_pair(function), cls, reference)
    if values is None:
        raise NotAdaptable("the init inputs' keywords do not follow __init__'s parameters")
    lines = reference.splitlines(keepends=True)
    new = f"def get_init_inputs():\n    return [{', '.join(values)}]\n"
    assert function.end_lineno is not None
    return "".join((*lines[: function.lineno - 1], new, *lines[function.end_lineno :]))


def _returned_pair(function: ast.FunctionDef) -> tuple[ast.List, ast.Dict]:
    match function.body:
        case [ast.Return(ast.List([ast.List() as positional, ast.Dict() as keywords]))]:
            return positional, keywords
        case [ast.Return(ast.Tuple([ast.List() as positional, ast.Dict() as keywords]))]:
            return positional, keywords
    raise NotAdaptable("the init inputs are not a literal pair of a list and a dictionary")


def _laid_out(positional: ast.List, keywords: ast.Dict, cls: ast.ClassDef, text: str) -> list[str] | None:
    values = [ast.get_source_segment(text, value) or "" for value in positional.elts]
    named = {
        key.value: ast.get_source_segment(text, value) or ""
        for key, value in zip(keywords.keys, keywords.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    if len(named) != len(keywords.keys):
        return None
    parameters = _init_parameters(cls)
    for name, default in list(parameters.items())[len(values) :]:
        if not named:
            break
        value = named.pop(name, default)
        if value is None:
            return None
        values.append(value)
    return None if named else values


def _init_parameters(cls: ast.ClassDef) -> dict[str, str | None]:
    """Positional parameters of `__init__` after the receiver, with the text of constant defaults."""
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)][1:]
            defaults = [ast.unparse(d) if isinstance(d, ast.Constant) else None for d in node.args.defaults]
            missing: list[str | None] = [None] * (len(names) - len(defaults))
            return dict(zip(names, [*missing, *defaults], strict=True))
    return {}
