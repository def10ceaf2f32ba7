"""Claim: after `kill -9` at any moment the same command goes on, and ends with the tables of a calm run.

Runs a small pipeline undisturbed, then again in another root, killing its process at a random moment of
every stage, several times each, and starting the same command again. At the end every table, metric, weight
and winner is compared with the undisturbed run's; wall-clock fields are left out. Processes that outlive
their killed parent are counted. Exits with 1 if anything differs or outlives.

    python benchmarks/resume.py --kills 3
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from machine import describe_machine
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file

RUN = "resume"
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "resume.md"
GRACE_S = 20.0
"""A killed pipeline's children may take so long to notice and go."""

UNCOMPARED_KEYS = re.compile(r"seconds(/.*)?|.*_seconds|.*_s|.*_at|python_rng|rng\..*")
"""Wall clock, and the generators of the process: every draw that matters is seeded by what it is for."""
UNCOMPARED = ("logs.log", "state.json", "config.json", "manifest.json")
"""Files about the process and not about its result; manifests hold checksums of what is compared here."""
UNCOMPARED_FOLDERS = ("stages", "tensorboard", "cache", "judgements", "objects")


@dataclass
class StageKills:
    """Kills in one stage and their results."""

    stage: str
    seconds_calm: float
    moments_s: list[float] = field(default_factory=list)
    """Seconds from the start of the stage to each kill."""
    outlived: int = 0
    """Processes that were still there long after their parent was killed."""


def main() -> int:
    """Calm run, killed run, comparison, table; the exit code says whether all is equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="smoke")
    parser.add_argument("--kills", type=int, default=2, help="in each stage")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--keep", type=Path, default=None, help="keep both runs in this folder")
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    parser.add_argument("settings", nargs="*", metavar="key.sub=value")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        calm, killed = folder / "calm", folder / "killed"
        print("undisturbed run …", flush=True)
        started = time.monotonic()
        _finish(_start(calm, arguments))
        print(f"done in {time.monotonic() - started:.0f} s", flush=True)
        stages = {r["stage"]: StageKills(r["stage"], r["seconds"]) for r in _stage_records(calm)}
        moments = random.Random(arguments.seed)
        for aim in stages:
            for _ in range(arguments.kills):
                if _status(killed, aim) != "done":
                    _kill(aim, stages, killed, arguments, moments)
        _finish(_start(killed, arguments))
        unequal = list(_differences(calm / RUN, killed / RUN))
        compared = sum(1 for _ in _compared_files(calm / RUN))
    _show(list(stages.values()))
    verdict = f"{compared} files compared, {len(unequal)} differ" + "".join(f"\n  {line}" for line in unequal)
    print(verdict)
    if arguments.write:
        _write(list(stages.values()), verdict, arguments)
    return 1 if unequal or any(stage.outlived for stage in stages.values()) else 0


def _start(root: Path, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flows.cli", "pipeline", arguments.preset]
    command += [f"run={RUN}", f"root={root}", *arguments.settings]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate()
    if process.returncode != 0:
        raise SystemExit(f"the pipeline left with {process.returncode}: {errors.strip()[-2000:]}")


def _kill(
    aim: str,
    stages: dict[str, StageKills],
    root: Path,
    arguments: argparse.Namespace,
    moments: random.Random,
) -> None:
    """Start the command, wait for a stage to begin, and kill it at a random moment from then on.

    The kill counts for the stage that is at work at that moment, which can be a later one.
    """
    process = _start(root, arguments)
    while _at_work_for_s(root, aim, process.pid) is None and process.poll() is None:
        time.sleep(0.01)
    time.sleep(moments.uniform(0, 0.8 * stages[aim].seconds_calm))
    offspring = _offspring(process.pid)
    moments_s = {name: _at_work_for_s(root, name, process.pid) for name in stages}
    process.kill()
    outlived = _end_outliving(offspring)
    process.communicate()
    for name, moment_s in moments_s.items():
        if moment_s is not None:
            stages[name].moments_s.append(round(moment_s, 2))
            stages[name].outlived += outlived


def _at_work_for_s(root: Path, stage: str, pid: int) -> float | None:
    """Seconds that this very process has been at the stage; None if it is not at it."""
    record, state = root / RUN / "stages" / f"{stage}.json", root / RUN / "state.json"
    if not state.exists() or _status(root, stage) != "begun":
        return None
    owner = _read(state)
    began = record.stat().st_mtime
    left_over = began < datetime.datetime.fromisoformat(owner["started_at"]).timestamp()
    return None if owner["pid"] != pid or left_over else time.time() - began


def _status(root: Path, stage: str) -> str:
    record = root / RUN / "stages" / f"{stage}.json"
    return str(_read(record).get("status", "")) if record.exists() else ""


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _stage_records(root: Path) -> list[dict[str, Any]]:
    records = [_read(path) for path in (root / RUN / "stages").glob("*.json")]
    return sorted(records, key=lambda record: record["begun_at"])


def _end_outliving(offspring: dict[int, str]) -> int:
    """Kill the descendants of a killed process that outlive the grace period, and return their number."""
    deadline = time.monotonic() + GRACE_S
    while (left := _alive(offspring)) and time.monotonic() < deadline:
        time.sleep(0.2)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return len(left)


def _offspring(pid: int) -> dict[int, str]:
    """Children, their children and so on: process id and start time, which name a process for ever."""
    processes = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    offspring: dict[int, str] = {}
    parents = {pid}
    while parents:
        children = {child for child, stat in processes.items() if stat and int(stat[1]) in parents}
        offspring |= {child: stat[19] for child in children if (stat := processes[child])}
        parents = children
    return offspring


def _alive(offspring: dict[int, str]) -> list[int]:
    stats = {pid: _stat(Path(f"/proc/{pid}")) for pid in offspring}
    return [pid for pid, stat in stats.items() if stat and stat[0] != "Z" and stat[19] == offspring[pid]]


def _stat(process: Path) -> list[str]:
    """Fields of `/proc/PID/stat` after the command's name; empty for a process that has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _compared_files(run: Path) -> Iterator[Path]:
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run)
        about_process = name.name in UNCOMPARED or name.parts[0] in UNCOMPARED_FOLDERS
        if path.is_file() and not about_process and not name.name.startswith(".tmp-"):
            yield name


def _differences(calm: Path, killed: Path) -> Iterator[str]:
    names, others = list(_compared_files(calm)), set(_compared_files(killed))
    for name in names:
        if name not in others:
            yield f"{name}: only in the undisturbed run"
        elif _content(calm / name) != _content(killed / name):
            yield f"{name}: differs"
    yield from (f"{name}: only in the killed run" for name in sorted(others - set(names)))


def _content(path: Path) -> Any:
    """A file's content without what is not compared; bytes that are no table, by their hash."""
    if path.suffix == ".parquet":
        return _timeless(pq.read_table(path).to_pylist())
    if path.suffix == ".json":
        return _timeless(json.loads(path.read_text()))
    if path.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
    if path.suffix == ".safetensors":
        return _timeless({name: tensor.tobytes() for name, tensor in load_file(path).items()})
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(part) for key, part in value.items() if not UNCOMPARED_KEYS.fullmatch(key)}
    if isinstance(value, list):
        return [_timeless(part) for part in value]
    return value


_COLUMNS = ("stage", "calm s", "kills", "at seconds", "processes that outlived")


def _cells(stage: StageKills) -> list[str]:
    moments = ", ".join(f"{moment:g}" for moment in stage.moments_s)
    kills = str(len(stage.moments_s))
    return [stage.stage, f"{stage.seconds_calm:.1f}", kills, moments, str(stage.outlived)]


def _show(stages: list[StageKills]) -> None:
    table = Table(*_COLUMNS, title="kill -9 and go on")
    for stage in stages:
        table.add_row(*_cells(stage))
    Console(width=120).print(table)


def _write(stages: list[StageKills], verdict: str, arguments: argparse.Namespace) -> None:
    settings = "".join(f" {setting}" for setting in arguments.settings)
    lines = [
        "# Kill -9 and go on",
        "",
        "A pipeline is killed at random moments of each stage and started again with the same command.",
        "Its tables, metrics, weights and winners are then compared with an undisturbed run's.",
        "",
        f"    python benchmarks/resume.py --preset {arguments.preset} --kills {arguments.kills} "
        f"--seed {arguments.seed} --write{settings}",
        "",
        verdict + ".",
        "",
        f"Machine: {describe_machine()}.",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|" + "---|" * len(_COLUMNS),
        *("| " + " | ".join(_cells(stage)) + " |" for stage in stages),
    ]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main())
