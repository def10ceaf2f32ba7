"""Claim: the families of `modules` have the operators of KernelBench's levels 1 and 2.

Reads operators from syntax trees: layers (`nn.Conv2d`), functions (`torch.cumsum`, `F.gelu`) and methods of
tensors (`x.mean`) of `Model`. A problem is covered when one family has all of them (level 1) or when each is
in some family (level 2 has chains).

    KERNELBENCH_ROOT=../KernelBench python benchmarks/kernelbench_coverage.py [--write]
"""

from __future__ import annotations

import argparse
import ast
import random
from collections import defaultdict
from pathlib import Path

from kernel_core.problems.load import load_kernelbench
from kernel_core.problems.modules.generate import FAMILIES

DRAWS = 150
PAGE = Path(__file__).parents[1] / "docs" / "results" / "kernelbench_coverage.md"
NO_WORK = frozenset(
    {
        "Module",
        "Parameter",
        "super",
        "randn",
        "rand",
        "zeros",
        "ones",
        "empty",
        "tensor",
        "view",
        "reshape",
        "size",
        "dim",
        "unsqueeze",
        "squeeze",
        "clone",
        "contiguous",
        "to",
        "float",
        "shape",
        "expand",
        "item",
        "flatten",
        "int",
        "long",
        "Tensor",
        "nn",
        "device",
        "detach",
        "numel",
        "cat",
    }
)
"""Names that build, shape or copy, and compute nothing."""
SAME = {
    "swish": "silu",
    "matmul": "mm",
    "bmm": "mm",
    "einsum": "mm",
    "clamp_min": "clamp",
    "adaptiveavgpool": "mean",
}


def main() -> None:
    """Print the table; with `--write` keep it as a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    by_family = {family: _operators_of_family(family) for family in FAMILIES}
    everything = set().union(*by_family.values())
    lines = ["# Operators of KernelBench in the families of `modules`", ""]
    lines += ["    KERNELBENCH_ROOT=../KernelBench python benchmarks/kernelbench_coverage.py --write", ""]
    for level in (1, 2):
        rows, missing = [], defaultdict(list)
        for problem in load_kernelbench([level]):
            wanted = operators(problem.source)
            holders = [family for family, known in by_family.items() if wanted and wanted <= known]
            is_covered = bool(holders) if level == 1 else wanted <= everything
            for name in wanted - everything:
                missing[name].append(problem.name.split("_")[0])
            found = ", ".join(holders[:3]) if level == 1 else ""
            rows.append((problem.name, ", ".join(sorted(wanted)), "yes" if is_covered else "no", found))
        covered = sum(row[2] == "yes" for row in rows)
        lines += [f"## Level {level}: {covered} of {len(rows)} covered", ""]
        if missing:
            lost = "; ".join(f"`{name}` ({', '.join(ids)})" for name, ids in sorted(missing.items()))
            lines += [f"Operators in no family: {lost}.", ""]
        lines += ["| problem | operators | covered | families |", "|---|---|---|---|"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
        lines.append("")
    text = "\n".join(lines)
    print(text)
    if arguments.write:
        PAGE.write_text(text)


def _operators_of_family(family: str) -> set[str]:
    rng = random.Random(family)
    return set().union(*(operators(FAMILIES[family](rng).reference) for _ in range(DRAWS)))


def operators(source: str) -> set[str]:
    """Names of layers, functions, tensor methods and signs that `Model` computes with, in lower case."""
    model = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "Model"
    )
    found = set()
    for node in ast.walk(model):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if owner != "self" and node.func.attr not in NO_WORK:
                found.add(node.func.attr.lower().replace("_", "").removesuffix("loss"))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            found.add("mm")
    return {SAME.get(name, name) for name in found if name != "init"}


if __name__ == "__main__":
    main()
