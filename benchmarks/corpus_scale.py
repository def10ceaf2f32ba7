"""Claim: a corpus of 48,777 rows is read, cleaned, embedded and indexed on two cores in under 4 GB, and the
cleaning finds what was planted and keeps what is distinct.

Twice over the same files: with KernelBench in use every Sakana row must go by its task's id; without it the
whole corpus goes through cleaning and into the index.

    python benchmarks/corpus_scale.py --write
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from report import Report
from synthetic_corpus import KERNELBOOK_ROWS, SAKANA_ROWS, Truth, write_corpus

from kernel_core.config import IndexConfig, IngestConfig
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.retrieval.index import build_index
from kernel_core.store import Store

_SAMPLE_S = 0.05
_STEP_COLUMNS = ("step", "rows", "seconds", "CPU s", "rows/s", "rows/CPU s", "peak MB")


@dataclass
class Step:
    """What one step took."""

    name: str
    rows: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0

    def cells(self) -> list[str]:
        """A table row."""
        speeds = [
            f"{self.rows / taken:,.0f}" if self.rows and taken else ""
            for taken in (self.seconds, self.cpu_seconds)
        ]
        times = [f"{self.seconds:.1f}", f"{self.cpu_seconds:.1f}"]
        return [self.name, f"{self.rows:,}", *times, *speeds, f"{self.peak_mb:,.0f}"]


class Stopwatch:
    """A `Progress` that times each step from the end of the one before, and watches memory."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._since, self._cpu_since = time.perf_counter(), time.process_time()
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self, name: str, done: int, total: int | None = None) -> None:
        """Told of progress by the work itself."""
        now, cpu = time.perf_counter(), time.process_time()
        if not self.steps or self.steps[-1].name != name:
            self.steps.append(Step(name))
        step = self.steps[-1]
        step.rows, step.peak_mb = done, max(step.peak_mb, _resident_mb())
        step.seconds += now - self._since
        step.cpu_seconds += cpu - self._cpu_since
        self._since, self._cpu_since = now, cpu

    def stop(self) -> None:
        """No more watching."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(_SAMPLE_S):
            if self.steps:
                self.steps[-1].peak_mb = max(self.steps[-1].peak_mb, _resident_mb())


def main() -> int:
    """Write the corpus, take it through every step, compare with the truth, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kernelbook", type=int, default=KERNELBOOK_ROWS)
    parser.add_argument("--sakana", type=int, default=SAKANA_ROWS)
    parser.add_argument("--embedder", default="offline")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--write", action="store_true", help="write the figures to docs/results")
    arguments = parser.parse_args()
    chosen = (
        f"--kernelbook {arguments.kernelbook} --sakana {arguments.sakana} --embedder {arguments.embedder}"
    )
    report = Report("corpus_scale", chosen, __doc__)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        truth = write_corpus(folder, arguments.kernelbook, arguments.sakana)
        os.environ["KERNELBENCH_ROOT"] = str(folder / "KernelBench")
        for suites in (("dojo", "kernelbench"), ("dojo",)):
            steps, found = _run(folder, truth, suites, arguments)
            against = f"held against {' and '.join(suites)}"
            report.table(f"steps, {against}", _STEP_COLUMNS, [step.cells() for step in steps])
            report.table(f"planted, {against}", ("what", "figure", "of", "share"), found)
    report.note(
        "`CPU s` is the process's time on all cores, which a busy machine leaves alone. rows/s are of the "
        "wall clock. `peak MB` is resident memory while the step ran."
    )
    report.finish(arguments.write)
    return 0


def _run(
    folder: Path, truth: Sequence[Truth], suites: tuple[str, ...], arguments: argparse.Namespace
) -> tuple[list[Step], list[list[str]]]:
    store = Store(folder / "-".join(suites))
    files = [
        str(folder / name) for name in ("kernelbook.parquet", "sakana.parquet") if (folder / name).exists()
    ]
    watch = Stopwatch()
    config = IngestConfig(sources=tuple(files), decontaminate_against=suites)
    build_snapshot(config, store.child("snapshot"), watch)
    watch("write snapshot", 0)
    kept = {row.id.replace(".parquet/", "/") for row in load_snapshot(store.child("snapshot"))}
    watch("read snapshot", len(kept))
    index = IndexConfig(embedder=arguments.embedder, device=arguments.device)
    manifest = build_index(index, store.child("snapshot"), store.child("index"), watch)
    watch("index", int(manifest.meta["num_references"]))
    watch.stop()
    return watch.steps, _against_truth(truth, kept, "kernelbench" in suites)


def _against_truth(truth: Sequence[Truth], kept: set[str], kernelbench: bool) -> list[list[str]]:
    """Duplicates found, distinct rows lost and leaks removed."""
    rows: list[list[str]] = []
    in_use = [row for row in truth if _gives_away(row, kernelbench)]
    for kind in sorted({_leak_kind(row) for row in in_use}):
        planted = [row for row in in_use if _leak_kind(row) == kind]
        removed = sum(row.key not in kept for row in planted)
        rows.append(_share(f"leaks removed: {kind}", removed, len(planted)))
    left = [row for row in truth if not _gives_away(row, kernelbench) and not row.planted.startswith("leak")]
    groups: dict[str, list[Truth]] = {}
    for row in left:
        groups.setdefault(row.group, []).append(row)
    survivors = {group: sum(row.key in kept for row in members) for group, members in groups.items()}
    repeats = len(left) - len(groups)
    missed = sum(max(0, count - 1) for count in survivors.values())
    rows.append(_share("duplicates found", repeats - missed, repeats))
    for kind, count in _missed_kinds(groups, kept).most_common():
        rows.append([f"  missed: {kind}", f"{count:,}", "", ""])
    rows.append(_share("distinct rows lost", sum(count == 0 for count in survivors.values()), len(groups)))
    return rows


def _missed_kinds(groups: dict[str, list[Truth]], kept: set[str]) -> Counter[str]:
    missed: Counter[str] = Counter()
    for members in groups.values():
        left = [row for row in members if row.key in kept]
        missed.update(row.planted or "first" for row in sorted(left, key=lambda row: bool(row.planted))[1:])
    return missed


def _gives_away(row: Truth, kernelbench: bool) -> bool:
    if row.key.startswith("sakana"):
        return kernelbench
    return row.planted.startswith("leak") and (kernelbench or row.group.startswith("dojo"))


def _leak_kind(row: Truth) -> str:
    return "by id" if row.key.startswith("sakana") else row.planted.removeprefix("leak: ")


def _share(what: str, count: int, total: int) -> list[str]:
    return [what, f"{count:,}", f"{total:,}", f"{count / max(1, total):.2%}"]


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
