"""`dojo harvest`: problems from installed packages, into a folder."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from flows.arguments import NotNegative
from flows.terminal import say
from kernel_core.corpus.kernelbench_leaks import leak_rule
from kernel_core.errors import CallerError
from kernel_core.harvest.harvest import COMPOSITIONS, DEFAULT_PACKAGES
from kernel_core.harvest.harvest import harvest as harvest_problems
from kernel_core.harvest.packages import find_packages
from kernel_core.report.harvested import harvest_parts

MANIFEST = "harvest.json"
REPORT = "report.txt"


def harvest(
    out: Path, /, *, packages: str = ",".join(DEFAULT_PACKAGES), compositions: NotNegative = COMPOSITIONS
) -> int:
    """Write `train/` and `held_out/`, the manifest and the report; print the report.

    Args:
        out: a new folder
        packages: import names with commas between them; see docs/problems.md
        compositions: chains a package, at most
    """
    if out.exists() and any(out.iterdir()):
        raise CallerError(f"{out} is not empty; give a new folder, or remove what an earlier harvest wrote")
    sources = find_packages(packages.split(","))
    for folder in ("train", "held_out"):
        (out / folder).mkdir(parents=True)
    manifest = harvest_problems(
        sources,
        lambda file, text: (out / file).write_text(text, encoding="utf-8"),
        compositions,
        leak_rule(),
        lambda stage, done, total: say(f"{stage}: {done} definitions tried"),
    )
    (out / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    with (out / REPORT).open("w") as report:
        for part in harvest_parts(manifest):
            Console().print(part)
            Console(file=report, width=120).print(part)
    return 0
