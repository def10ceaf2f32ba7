"""Share of calls of torch's operators by kind, in the source text of installed packages.

    python benchmarks/operator_calls.py --packages transformers

Counts calls such as `torch.cat(…)`, `F.gelu(…)`, `nn.Conv2d(…)` and `x.mean(…)` of operators that `graphs`
draws, and the sign `@`. Other signs are left out: a text does not say which of them are of tensors.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from kernel_core.generator.draw.choice import operator_families

_ROOTS = frozenset({"torch", "F", "nn", "functional", "special", "linalg"})


def called(tree: ast.AST) -> Iterator[str]:
    """Yield the names of operators and layers that a module's text calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield "matmul"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name, owner = node.func.attr, node.func.value
        root = getattr(owner, "id", getattr(owner, "attr", ""))
        if root in _ROOTS or (root not in ("np", "math", "tf", "jnp") and hasattr(torch.Tensor, name)):
            yield name


def kinds_of(files: Iterable[Path]) -> tuple[Counter[str], Counter[str]]:
    """Return numbers of calls by kind and by operator."""
    kind_of = {name: kind for kind, names in operator_families().items() for name in names}
    kinds: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for file in files:
        for name in called(ast.parse(file.read_text(encoding="utf-8"))):
            if name in kind_of:
                kinds[kind_of[name]] += 1
                names[name] += 1
    return kinds, names


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the kinds, then the most used operators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--packages", default="transformers", help="import names with commas between them")
    parser.add_argument("--operators", type=int, default=60, help="most used operators that are printed")
    given = parser.parse_args(arguments)
    files = [
        file
        for package in given.packages.split(",")
        for root in importlib.util.find_spec(package).submodule_search_locations or ()  # type: ignore[union-attr]
        for file in sorted(Path(root).rglob("*.py"))
    ]
    kinds, names = kinds_of(files)
    for kind, count in kinds.most_common():
        print(f"{100 * count / kinds.total():5.1f} %  {kind}")
    print(", ".join(f"{name} {count}" for name, count in names.most_common(given.operators)))


if __name__ == "__main__":
    main()
