"""The kernels under `tests/fixtures/kernelbench/`, each with KernelBench's own problem."""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "tests" / "fixtures" / "kernelbench"
MEASURED = KERNELS / "h200.json"
"""Speed-ups of the honest kernels that `judge_against_kernelbench.py --write` measured on an H200."""


@dataclass(frozen=True)
class Pair:
    """One candidate for one problem; `warps` is 0 for the kernel as it is."""

    key: str
    kind: str
    problem: Path
    warps: int = 0

    @property
    def name(self) -> str:
        """As it is reported."""
        return f"{self.key}_{self.kind}" + (f"_{self.warps}_warps" if self.warps else "")

    @property
    def kernel(self) -> Path:
        """The file it comes from."""
        return KERNELS / f"{self.key}_{self.kind}.py"

    @property
    def source(self) -> str:
        """The candidate's text."""
        text = self.kernel.read_text()
        return _with_warps(text, self.warps) if self.warps else text


def kernelbench_root() -> Path:
    """The checkout of KernelBench that KERNELBENCH_ROOT names; without one the script ends with 2."""
    root = os.environ.get("KERNELBENCH_ROOT")
    if root is None or not (Path(root) / "KernelBench" / "level1").is_dir():
        print("KERNELBENCH_ROOT must name a checkout of KernelBench", file=sys.stderr)
        raise SystemExit(2)
    return Path(root)


def kernelbench_pairs(root: Path) -> list[Pair]:
    """An honest and a wrong kernel for each problem; `root` is a checkout of KernelBench."""
    keys = sorted({file.stem.rpartition("_")[0] for file in KERNELS.glob("*_honest.py")}, key=order)
    pairs = []
    for key in keys:
        level, number = key.split("_")
        problem = next((root / "KernelBench" / f"level{level}").glob(f"{number}_*.py"))
        pairs += [Pair(key, kind, problem) for kind in ("honest", "wrong")]
    return pairs


def _with_warps(source: str, warps: int) -> str:
    """The same kernels, every launch of them with so many warps."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            kept = [keyword for keyword in node.keywords if keyword.arg != "num_warps"]
            node.keywords = [*kept, ast.keyword("num_warps", ast.Constant(warps))]
    return ast.unparse(tree)


def order(key: str) -> tuple[int, ...]:
    return tuple(int(part) for part in key.split("_"))
