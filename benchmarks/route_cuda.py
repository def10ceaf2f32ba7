"""Claim: a worker of the `cuda` pool takes a GPU stage that a pipeline on `cpu` started, and finishes it.

Needs a CUDA device and this environment on one host: server, workers and GPU beside each other. Starts
`dojo deploy --local`, then `nightly` on the cpu pool with an evaluation that asks for the GPU; then the same
with the child killed in the middle.

    python benchmarks/route_cuda.py --write
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, ClassVar

import torch
from faults import Trial, night, watched_run
from machine import describe_machine

from tests.fixtures.stack import REPOSITORY, Stack, stack

RESULTS = REPOSITORY / "docs" / "results" / "route_cuda.md"
ON_CUDA = {"gym": {"device": "cuda", "workers": 1}, "policy": {"device": "cuda"}}


class CudaTrial(Trial):
    """A night with an evaluation that needs the GPU."""

    settings: ClassVar[dict[str, Any]] = {**Trial.settings, **ON_CUDA}


def main() -> int:
    """A calm night and one with a killed child; the exit code says whether both were done on `cuda`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device here: this can only be shown on a GPU host", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "runs"
        began = time.monotonic()
        watched_run(root)
        print(f"a run to evaluate: {time.monotonic() - began:.0f} s", flush=True)
        with stack(Path(scratch)) as here:
            print(f"server and workers: {time.monotonic() - began:.0f} s", flush=True)
            rows = []
            for number, kill in ((1, False), (2, True)):
                rows.append(_night(here, root, number, kill=kill))
                report = _page(rows)
                print(report, flush=True)
                if arguments.write:
                    RESULTS.write_text(report)
    held = all(
        row["parent"] == "Completed" and {pool for pool, _ in row["children"]} == {"cuda"} for row in rows
    )
    return 0 if held else 1


def _page(rows: list[dict[str, Any]]) -> str:
    """The nights so far."""
    lines = ["| night | parent | children: pool, state | seconds |", "|---|---|---|---|"]
    for row in rows:
        children = "; ".join(f"{pool}, {state}" for pool, state in row["children"])
        lines.append(f"| {row['name']} | {row['parent']} | {children} | {row['seconds']:.0f} |")
    head = ["# Routing on CUDA", "", "    python benchmarks/route_cuda.py --write", ""]
    return "\n".join([*head, f"Machine: {describe_machine()}.", "", *lines, ""])


def _night(here: Stack, root: Path, number: int, *, kill: bool) -> dict[str, Any]:
    began = time.monotonic()
    trial = CudaTrial(here, root, night(number))
    if kill:
        child = trial.until_child_works()
        os.kill(here.process_of(child["id"]), signal.SIGKILL)
    parent = here.wait(trial.parent, 900)
    for run in (parent, *trial.children()):
        if run["state_name"] != "Completed":
            print(
                run["name"], run["state_name"], run["state"]["message"], here.last_words(run["id"]), sep="\n"
            )
    children = [(child["work_pool_name"], child["state_name"]) for child in trial.children()]
    return {
        "name": "its child killed" if kill else "calm",
        "parent": parent["state_name"],
        "children": children,
        "seconds": time.monotonic() - began,
    }


if __name__ == "__main__":
    sys.exit(main())
