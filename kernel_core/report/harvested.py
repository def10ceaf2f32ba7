"""Tables of a harvest for a terminal: rows kept and left out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from kernel_core.harvest.harvest import HarvestManifest


def harvest_parts(manifest: HarvestManifest) -> Iterator[RenderableType]:
    """Problems kept by package, definitions left out by reason, and a line with the counts."""
    kept = Table("package", "licence", "kind", "definitions", "train", "held out", title="harvested problems")
    for *words, definitions, train, held_out in manifest.kept():
        kept.add_row(*map(str, words), str(definitions), str(train), str(held_out))
    yield kept
    left = Table("package and form", "reason", "definitions", title="left out")
    for name, reason, count in manifest.left_out():
        left.add_row(name, reason, str(count))
    yield left
    definitions = len({row.qualified_names for row in manifest.problems})
    held_out = sum(row.split == "held_out" for row in manifest.problems)
    yield (
        f"{len(manifest.problems)} problems of {definitions} definitions and chains: "
        f"{len(manifest.problems) - held_out} for training, {held_out} held out"
    )
