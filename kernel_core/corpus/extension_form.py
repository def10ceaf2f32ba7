"""Sakana's CUDA C++ as a `ModelNew`: an inline extension under the archive's own functional module.

A row has the kernel with a pybind binding and, beside the reference, its functional form: `module_fn` takes
the weights as arguments, and a `Model` keeps them and calls `fn=module_fn`. The class becomes `ModelNew`, and
`module_fn` becomes a call of the binding. Nothing is compiled or run here.
"""

from __future__ import annotations

import ast
import re

from kernel_core.corpus.kernelbench_form import NotAdaptable

_FUNCTION = "module_fn"
_BINDING = re.compile(r'\bm\s*\.\s*def\s*\(\s*"(\w+)"')
_CUDA = re.compile(r"^CUDA = r'''\n(.*?)\n'''$", re.DOTALL | re.MULTILINE)
_BEFORE = """
from torch.utils.cpp_extension import load_inline

CUDA = {code}

extension = load_inline(name="{name}", cpp_sources="", cuda_sources=CUDA)


def module_fn(*arguments):
    return extension.{binding}(*arguments)


"""


def as_model_new(functional: str, code: str, name: str) -> str:
    """The kernel as a Python module that defines `ModelNew`. Raises `NotAdaptable`.

    `name` is the extension's: a word that no other kernel has.
    """
    bindings = _BINDING.findall(code)
    if "PYBIND11_MODULE" not in code or not bindings:
        raise NotAdaptable("the kernel binds no function to Python")
    if len(bindings) > 1 and "forward" not in bindings:
        raise NotAdaptable("several functions are bound and none is called forward")
    try:
        tree = ast.parse(functional)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise NotAdaptable("the functional module is not Python") from error
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "Model" not in classes or _FUNCTION not in functions:
        raise NotAdaptable(f"the functional module has no Model or no {_FUNCTION}")
    if not _calls_given_function(classes["Model"]):
        raise NotAdaptable(f"the functional Model does not take {_FUNCTION} as an argument of forward")
    lines = functional.splitlines(keepends=True)
    function = functions[_FUNCTION]
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    assert function.end_lineno is not None
    binding = "forward" if "forward" in bindings else bindings[0]
    before = _BEFORE.format(code=_literal(code), name=name, binding=binding)
    text = "".join((*lines[: first - 1], before, *lines[function.end_lineno :]))
    return re.sub(r"\bModel\b", "ModelNew", text)


def cuda_of(kernel: str) -> str:
    """The CUDA C++ in a kernel that `as_model_new` made; of any other the text itself."""
    match = _CUDA.search(kernel)
    return match[1] if match else kernel


def _calls_given_function(cls: ast.ClassDef) -> bool:
    for node in cls.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            defaults = [
                *node.args.defaults,
                *(default for default in node.args.kw_defaults if default is not None),
            ]
            return any(isinstance(default, ast.Name) and default.id == _FUNCTION for default in defaults)
    return False


def _literal(code: str) -> str:
    """As a raw literal, so that it can be read, where that says the same."""
    readable = "'''" not in code and not code.endswith(("\\", "'"))
    return f"r'''\n{code.strip()}\n'''" if readable else repr(code)
