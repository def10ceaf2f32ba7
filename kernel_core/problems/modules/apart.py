"""Problems written as libraries write them: functions or a layer do the work, and `Model` calls them.

Nothing here changes a value. A function has the lines of `forward`, and what these read of the module as
arguments. A layer is the whole module under another name; kernels then name its weights `layer.…`, too.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.syntax import syntax_tree

SHARE = 0.3
"""The share of the problems that are taught."""
_LAYER_SHARE = 0.4
"""The share of these that are layers where a function would do as well."""
_SPLIT_SHARE = 0.4
"""The share of functions that are divided, where there are lines enough."""
_ATTRIBUTES = ("layer", "layer", "block", "module", "op", "inner", "body")
_ENDINGS = ("Layer", "Block", "Module", "Op", "Head", "Unit")
_PREFIXES = ("", "", "", "_", "apply_", "compute_", "fused_")
_STATE = re.compile(r"self\.\w+ = nn\.|register_buffer|nn\.Parameter")
_MORE_THAN_READ = re.compile(r"self\.\w+\s*[(\[.]|self\.\w+ =")


def written_apart(draft: Draft) -> Draft:
    """The draft in one of these forms by a share of the texts, and as it is otherwise."""
    rng = random.Random(f"apart {draft.reference}")
    if rng.random() >= SHARE:
        return draft
    reference = None if rng.random() < _LAYER_SHARE else in_functions(draft.reference, draft.operators, rng)
    return as_layer(draft, rng) if reference is None else replace(draft, reference=reference)


def in_functions(reference: str, operators: Sequence[str], rng: random.Random) -> str | None:
    """`forward` calls a function above the class, or two; None where it calls layers of the module."""
    model, forward = _model_of(reference)
    arguments = [one.arg for one in forward.args.args[1:]]
    statements = forward.body[1:] if ast.get_docstring(forward) is not None else forward.body
    lines = reference.splitlines()
    body = textwrap.dedent("\n".join(lines[statements[0].lineno - 1 : forward.end_lineno]))
    read = list(dict.fromkeys(re.findall(r"self\.(\w+)", body)))
    names = {one.id for one in ast.walk(forward) if isinstance(one, ast.Name)}
    if _MORE_THAN_READ.search(body) or names.intersection(read) or set(arguments).intersection(read):
        return None
    body = re.sub(r"\bself\.(\w+)", r"\1", body)
    name = _fresh_name(rng.choice(_PREFIXES) + "_".join(operators[:2]), names)
    given = [*arguments, *(f"self.{one}" for one in read)]
    by_name = rng.random() < 0.4
    call = ", ".join(f"{one.removeprefix('self.')}={one}" if by_name else one for one in given)
    functions = _function(name, [*arguments, *read], body, rng)
    if len(statements) > 2 and rng.random() < _SPLIT_SHARE:
        functions = _two_functions(name, [*arguments, *read], body, rng) or functions
    head, tail = lines[: model.lineno - 1], lines[forward.end_lineno or 0 :]
    kept = [*lines[model.lineno - 1 : forward.body[0].lineno - 1], f"        return {name}({call})"]
    return "\n".join([*head, functions, *kept, *tail]) + "\n"


def as_layer(draft: Draft, rng: random.Random) -> Draft:
    """`Model` holds a layer of another class, which does the work. Kernels with weights do the same, so that
    these have the same names."""
    model, _ = _model_of(draft.reference)
    words = "".join(word.capitalize() for word in draft.operators[0].split("_"))
    name = _fresh_name(words + rng.choice(_ENDINGS), set())
    attribute = rng.choice(_ATTRIBUTES)
    reference = _wrapped(draft.reference, "Model", name, attribute, with_types=rng.random() < 0.5)
    kernels = draft.kernels
    if _STATE.search(ast.get_source_segment(draft.reference, model) or ""):
        kernels = tuple(_held(kernel, name, attribute) for kernel in kernels)
    return replace(draft, reference=reference, kernels=kernels)


def _held(kernel: GradedKernel, name: str, attribute: str) -> GradedKernel:
    return kernel.model_copy(update={"source": _wrapped(kernel.source, "ModelNew", name, attribute)})


def _wrapped(source: str, outer: str, name: str, attribute: str, *, with_types: bool = False) -> str:
    """The class `outer` under another name, and one behind it that holds it."""
    model, forward = _model_of(source, outer)
    inputs = [one.arg for one in forward.args.args[1:]]
    constructor = next((one for one in model.body if _is_named(one, "__init__")), None)
    assert constructor is None or isinstance(constructor, ast.FunctionDef)
    taken = [] if constructor is None else [one.arg for one in constructor.args.args[1:]]
    signature = "self" if constructor is None else ast.unparse(constructor.args)
    typed = ", ".join(f"{one}: torch.Tensor" if with_types else one for one in inputs)
    holder = [
        f"class {outer}(nn.Module):",
        f"    def __init__({signature}):",
        "        super().__init__()",
        f"        self.{attribute} = {name}({', '.join(taken)})",
        "",
        f"    def forward(self, {typed}){' -> torch.Tensor' if with_types else ''}:",
        f"        return self.{attribute}({', '.join(inputs)})",
    ]
    lines = source.splitlines()
    start, end = model.lineno - 1, model.end_lineno or len(lines)
    renamed = "\n".join(lines[start:end]).replace(f"class {outer}(", f"class {name}(", 1)
    renamed = renamed.replace(f"super({outer}, self)", f"super({name}, self)")
    return "\n".join([*lines[:start], renamed, "", "", *holder, *lines[end:]]) + "\n"


def _function(name: str, arguments: Sequence[str], body: str, rng: random.Random) -> str:
    result = " -> torch.Tensor" if rng.random() < 0.3 else ""
    return f"def {name}({', '.join(arguments)}){result}:\n{textwrap.indent(body, '    ')}\n\n"


def _two_functions(name: str, arguments: Sequence[str], body: str, rng: random.Random) -> str | None:
    """The first lines in a function of their own, where one value alone goes from them to the others."""
    statements = syntax_tree(body).body
    lines = body.splitlines()
    for cut in rng.sample(range(1, len(statements)), len(statements) - 1):
        first, last = statements[:cut], statements[cut:]
        made = {one.id for part in first for one in _names(part) if isinstance(one.ctx, ast.Store)}
        wanted = {one.id for part in last for one in _names(part) if isinstance(one.ctx, ast.Load)}
        passed = made & wanted
        read = {one.id for part in first for one in _names(part)}
        if len(passed) != 1 or not all(isinstance(part, ast.Assign) for part in first):
            continue
        value = passed.pop()
        helper = f"{name}_{rng.choice(('part', 'inner', 'step', 'first', 'term'))}"
        mine = [one for one in arguments if one in read]
        row = last[0].lineno - 1
        begin = "\n".join([*lines[:row], f"return {value}"])
        rest = "\n".join([f"{value} = {helper}({', '.join(mine)})", *lines[row:]])
        return _function(helper, mine, begin, rng) + "\n" + _function(name, arguments, rest, rng)
    return None


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in ast.walk(node) if isinstance(one, ast.Name)]


def _model_of(source: str, name: str = "Model") -> tuple[ast.ClassDef, ast.FunctionDef]:
    """The class of this name and its `forward`."""
    classes = (one for one in syntax_tree(source).body if isinstance(one, ast.ClassDef))
    model = next(one for one in classes if one.name == name)
    forward = next(one for one in model.body if _is_named(one, "forward"))
    assert isinstance(forward, ast.FunctionDef)
    return model, forward


def _is_named(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _fresh_name(text: str, taken: set[str]) -> str:
    name = re.sub(r"\W", "_", text)
    return f"{name}_of" if name in taken else name
