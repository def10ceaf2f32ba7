"""`dojo harvest`: problems from installed packages, into a folder."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.arguments import NotNegative
from flows.terminal import say
from kernel_core.corpus.kernelbench_leaks import leak_rule
from kernel_core.errors import CallerError
from kernel_core.harvest.harvest import DEFAULT_PACKAGES, Manifest
from kernel_core.harvest.harvest import harvest as harvest_problems
from kernel_core.harvest.packages import find_package

MANIFEST = "harvest.json"
REPORT = "report.txt"


def harvest(
    out: Path, /, *, packages: str = ",".join(DEFAULT_PACKAGES), compositions: NotNegative = 60
) -> int:
    """Write `train/` and `held_out/`, the manifest and the report; print the report.

    Args:
        out: a new folder
        packages: import names with commas between them; see docs/problems.md
        compositions: chains a package, at most
    """
    if out.exists() and any(out.iterdir()):
        raise CallerError(f"{out} is not empty; give a new folder, or remove what an earlier harvest wrote")
    found = [find_package(name) for name in packages.split(",")]
    for folder in ("train", "held_out"):
        (out / folder).mkdir(parents=True)
    manifest = harvest_problems(
        found,
        lambda file, text: (out / file).write_text(text, encoding="utf-8"),
        compositions,
        leak_rule(),
        lambda stage, done, total: say(f"{stage}: {done} definitions tried"),
    )
    (out / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    _show(manifest, Console())
    with (out / REPORT).open("w") as report:
        _show(manifest, Console(file=report, width=120))
    return 0


def _show(manifest: Manifest, console: Console) -> None:
    kept = Table("package", "licence", "kind", "definitions", "train", "held out", title="harvested problems")
    for *words, definitions, train, held_out in manifest.kept():
        kept.add_row(*words, str(definitions), str(train), str(held_out))
    console.print(kept)
    left = Table("package and form", "reason", "definitions", title="left out")
    for name, reason, count in manifest.left_out():
        left.add_row(name, reason, str(count))
    console.print(left)
    held_out = sum(row.split == "held_out" for row in manifest.problems)
    console.print(
        f"{len(manifest.problems)} problems of {len({row.qualified_names for row in manifest.problems})} "
        f"definitions and chains: {len(manifest.problems) - held_out} for training, {held_out} held out"
    )
