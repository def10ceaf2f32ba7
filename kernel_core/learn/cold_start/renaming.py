"""New names for what Triton kernels call their functions, parameters and variables, alike in several texts.

A kernel in a prompt is read by a policy only where reading pays. With names that no weights can know, an
answer in the names of its exemplar can be had from the exemplar alone.
"""

from __future__ import annotations

import ast
import builtins
import io
import random
import re
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence

_FIRST = (
    "alpha", "amber", "arc", "base", "beam", "body", "bulk", "cell", "core", "crest", "data", "delta", "dot",
    "edge", "feed", "flux", "fold", "gap", "grain", "head", "item", "key", "lane", "leaf", "lift", "line",
    "loop", "mark", "mesh", "node", "orb", "pack", "part", "path", "peak", "pin", "port", "ray", "ring",
    "root", "seed", "side", "slot", "span", "stem", "strip", "tail", "tap", "tier", "unit", "wave", "zone",
)  # fmt: skip
_SECOND = ("", "", "a", "b", "in", "of", "at", "to", "up", "on", "buf", "idx", "len", "pos", "ptr", "val")
_MOST_DRAWS = 1000


def rename_alike(sources: Sequence[str], rng: random.Random) -> tuple[str, ...]:
    """The programs with drawn names for what kernels of several of them name, the same one in each.

    Names that a caller or a library knows stay: those of methods' parameters, attributes, imports and
    keywords. So does a name that one text alone has, and a text that is no Python.
    """
    parsed = [_parsed(source) for source in sources]
    kept, own = set(dir(builtins)), Counter[str]()
    for tree in parsed:
        if tree is not None:
            own.update(dict.fromkeys(_named_by_kernels(tree), 1))
            kept.update(_known_elsewhere(tree))
    taken = kept | set(own)
    names = {name: _drawn(name, rng, taken) for name, texts in own.items() if texts > 1 and name not in kept}
    return tuple(
        source if tree is None else _with_names(source, names)
        for source, tree in zip(sources, parsed, strict=True)
    )


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return None


def _kernels(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions under a decorator that ends in `jit`."""
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(one).split("(")[0].endswith("jit") for one in node.decorator_list)
    ]


def _named_by_kernels(tree: ast.Module) -> Iterator[str]:
    for kernel in _kernels(tree):
        yield kernel.name
        for node in ast.walk(kernel):
            if isinstance(node, ast.arg):
                yield node.arg
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _known_elsewhere(tree: ast.Module) -> Iterator[str]:
    """Names that must stay: of imports, classes, methods and their parameters, and of calls' keywords."""
    kernels = {kernel.name for kernel in _kernels(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.ClassDef):
            yield node.name
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield method.name
                    yield from (one.arg for one in ast.walk(method) if isinstance(one, ast.arg))
        elif isinstance(node, ast.Call) and not _is_of_kernel(node, kernels):
            yield from (one.arg for one in node.keywords if one.arg)


def _is_of_kernel(call: ast.Call, kernels: set[str]) -> bool:
    """Whether it launches a kernel or calls one from another."""
    function = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    return isinstance(function, ast.Name) and function.id in kernels


def _drawn(name: str, rng: random.Random, taken: set[str]) -> str:
    """A name that is free, in capitals where the old one is; it is taken afterwards."""
    for attempt in range(_MOST_DRAWS):
        words = [rng.choice(_FIRST), rng.choice(_SECOND), str(attempt) if attempt > 20 else ""]
        found = "_".join(filter(None, words))
        found = found.upper() if name.isupper() and len(name) > 1 else found
        if found not in taken:
            taken.add(found)
            return found
    raise ValueError(f"no free name for {name} in {_MOST_DRAWS} draws; the text has {len(taken)} names")


def _with_names(source: str, names: dict[str, str]) -> str:
    """The text with each name replaced, but not behind a dot; in comments and strings too, as a word."""
    lines = source.splitlines(keepends=True)
    found: list[tuple[tuple[int, int], str, str]] = []
    before = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        new = token.string
        if token.type == tokenize.NAME and before != ".":
            new = names.get(token.string, token.string)
        elif token.type == tokenize.COMMENT:
            new = re.sub(r"\w+", lambda match: names.get(match[0], match[0]), token.string)
        elif token.type == tokenize.STRING and token.string[1:-1] in names:
            new = f"{token.string[0]}{names[token.string[1:-1]]}{token.string[-1]}"
        if new != token.string:
            found.append((token.start, token.string, new))
        before = token.string
    for (row, column), old, new in reversed(found):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + new + line[column + len(old) :]
    return "".join(lines)
