"""Claim: cancelled at any stage, a pipeline is gone within seconds, and goes on when it is started again.

A deployed pipeline is cancelled in each of its stages, as a person does in the UI, while the stage's child is
at work, and started again each time. In the end its scorecard is compared with that of an undisturbed
pipeline.

    python benchmarks/cancel_stages.py --write
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from faults import without_clocks
from machine import describe_machine

from tests.fixtures.stack import FINAL, REPOSITORY, Stack, descendants, stack

RESULTS = REPOSITORY / "docs" / "results" / "cancel_stages.md"
DEPLOYMENT = "pipeline/smoke"
STAGES = ("ingest", "index", "cold-start", "evaluate-before", "train", "evaluate-after", "best-of-n")
PATIENCE_S = 900.0
LEAD_S = 2.0
"""Between a stage's start and its cancellation: its flow has been imported, its work is under way."""


def main() -> int:
    """Cancel everywhere; the exit code says whether anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, stack(Path(scratch) / "stack") as here:
        calm = Pipeline(here, Path(scratch) / "runs", "calm")
        assert calm.ends()["state_type"] == "COMPLETED", calm.state()
        disturbed = Pipeline(here, Path(scratch) / "runs", "disturbed")
        rows = [disturbed.cancel_in(number, stage) for number, stage in enumerate(STAGES)]
        ended = disturbed.ends()
        same = ended["state_type"] == "COMPLETED" and disturbed.result() == calm.result()
    how = "the scorecard differs" if ended["state_type"] == "COMPLETED" else str(ended["state_name"])
    lost = "nothing" if same else how
    report = _report(rows, lost)
    print(report)
    if arguments.write:
        RESULTS.write_text(report)
    return 0 if same else 1


class Pipeline:
    """One run of the pipeline, started as often as it takes."""

    def __init__(self, here: Stack, root: Path, name: str) -> None:
        self._here = here
        self._folder = root / name
        self._parameters = here.deployment(DEPLOYMENT)["parameters"] | {"mode": "deployed"}
        config = self._parameters["config"] | {"run": name, "root": str(root)}
        self._parameters["config"] = config
        self._parent = self._start()

    def _start(self) -> str:
        return self._here.start(DEPLOYMENT, self._parameters)

    def ends(self) -> dict[str, Any]:
        """The flow run, when it has ended."""
        return self._here.wait(self._parent, PATIENCE_S)

    def state(self) -> str:
        """State of the flow run now."""
        return str(self._here.flow_run(self._parent)["state"])

    def cancel_in(self, number: int, stage: str) -> list[str]:
        """Cancel it in a stage, wait until nothing of it is left, start it again; a row of the table."""
        child = self._child_at_work(number)
        time.sleep(LEAD_S)
        pids = [self._here.process_of(run) for run in (self._parent, child["id"])]
        pids += [below for pid in pids if pid for below in descendants(pid)]
        at = time.monotonic()
        self._here.cancel(self._parent)
        while any(pid and Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.05)
        gone_s = time.monotonic() - at
        ended = [self._here.wait(run, PATIENCE_S)["state_name"] for run in (self._parent, child["id"])]
        self._parent = self._start()
        return [stage, f"{gone_s:.1f}", *ended]

    def _child_at_work(self, number: int) -> dict[str, Any]:
        """The child of the stage with this number among those of the newest parent."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            running = [run for run in self._here.children(self._parent) if run["state_type"] == "RUNNING"]
            if running and len(self._done()) == number:
                return running[-1]
            if self._here.flow_run(self._parent)["state_type"] in FINAL:
                break
            time.sleep(0.2)
        raise RuntimeError(f"stage {number} did not start: {self.state()}")

    def _done(self) -> set[str]:
        """Stages that have finished."""
        from kernel_core.runs.run_folder import Run

        run = Run(str(self._folder.parent), self._folder.name)
        return {record.stage for record in run.stages() if record.status == "done"}

    def result(self) -> str:
        """The last scorecard, without clocks."""
        scorecard = json.loads((self._folder / "evaluate-after" / "scorecard.json").read_text())
        return json.dumps(without_clocks(scorecard), sort_keys=True)


def _report(rows: list[list[str]], lost: str) -> str:
    return "\n".join(
        [
            "# Cancelled in each stage",
            "",
            "    python benchmarks/cancel_stages.py --write",
            "",
            f"Machine: {describe_machine()}. A deployed pipeline, cancelled and started again in each stage.",
            f"Lost in the end, compared with an undisturbed pipeline: {lost}.",
            "",
            "| cancelled in | until no process of it was left (s) | parent | child |",
            "|---|---|---|---|",
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
