"""Claim: orchestration costs a 10-minute pipeline under 3 %, a finished one under 20 s, 1,000 rows under 2 s.

Starts a server with a new database and with one that is there, runs a pipeline (`dojo pipeline`) and the same
command a few times more, then publishes tables. What is not inside a stage is counted as overhead: starting
Python and the server, opening runs, reports, and results. A new database is made once on a machine, so it has
a row of its own. Python compiles what it imports once, unless PYTHONDONTWRITEBYTECODE is set: then each start
of ours takes seconds longer, and `python -m compileall` of the environment mends that.

    python benchmarks/overhead.py train.minutes=7 train.steps=1000 --write
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe_machine

from kernel_core.runs.run_folder import Run

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "docs" / "results" / "overhead.md"
ROWS, REPEATS = 1000, 5


def main() -> int:
    """Two runs and some tables; the exit code says whether the claim held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("assignments", nargs="*", help="settings of the pipeline, as key.sub=value")
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["PREFECT_HOME"] = f"{scratch}/prefect"
        new_s, there_s = _server(), _server()
        words = [arguments.preset, f"root={scratch}", "run=overhead", *arguments.assignments]
        first_s = _pipeline(words)
        stages_s = sum(record.seconds or 0.0 for record in Run(scratch, "overhead").stages())
        again_s = [_pipeline(words) for _ in range(REPEATS)]
        publish_s = _publish()
    share = (first_s - stages_s) / stages_s
    chosen = " ".join([arguments.preset, *arguments.assignments])
    table = [
        "# Overhead of orchestration",
        "",
        f"    python benchmarks/overhead.py --preset {chosen} --write",
        "",
        f"Machine: {describe_machine()}; load {os.getloadavg()[1]:.1f} (5 min). One run.",
        "",
        "| | measured | bar |",
        "|---|---|---|",
        f"| pipeline `{arguments.preset}`, all of it | {first_s:.0f} s | |",
        f"| … of it inside stages | {stages_s:.0f} s | |",
        f"| … the rest | {first_s - stages_s:.0f} s, {100 * share:.1f} % | 3 % of a 10-minute pipeline |",
        f"| the same command again, nothing to do | {statistics.median(again_s):.0f} s (median of {REPEATS}; "
        f"the longest {max(again_s):.0f} s) | 20 s |",
        f"| a server, with its database there / with a new one | {there_s:.1f} s / {new_s:.1f} s | |",
        f"| {ROWS} evaluation rows published | {publish_s:.2f} s (median of {REPEATS}) | 2 s |",
        "",
    ]
    print("\n".join(table))
    if arguments.write:
        RESULTS.write_text("\n".join(table))
    return 0 if share < 0.03 and max(again_s) < 20 and publish_s < 2 else 1


def _pipeline(words: list[str]) -> float:
    command = [sys.executable, "-m", "flows.cli", "pipeline", *words]
    began = time.monotonic()
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def _server() -> float:
    """How long a server takes to come up."""
    from flows.server import own_server, prepare_environment

    prepare_environment()
    began = time.monotonic()
    with own_server():
        return time.monotonic() - began


def _publish() -> float:
    from flows.commands.stages import api
    from flows.server import prepare_environment

    prepare_environment()
    from prefect import flow

    from kernel_core.evaluation.tables import PROBLEM_SCHEMA
    from tasks.artifacts import table

    rows = [
        {
            name: f"{name} {row}" if "id" in name or name == "family" else row / 7
            for name in PROBLEM_SCHEMA.names
        }
        for row in range(ROWS)
    ]
    seconds = []

    @flow
    def publishing() -> None:
        for _ in range(REPEATS):
            began = time.monotonic()
            table("overhead", rows, "A thousand rows.")
            seconds.append(time.monotonic() - began)

    with api() as wait_for_api:
        wait_for_api()
        publishing()
    return sorted(seconds)[REPEATS // 2]


if __name__ == "__main__":
    sys.exit(main())
