"""Claim: whatever candidates do and whatever dies, none is lost or kept twice, and no verdict is wrong.

Judges every file of `tests/exploits/` in shuffled rounds, each time as a candidate of its own, while judges
(and now and then the process that makes judges) are killed at random moments. Every verdict is compared with
what the file's header expects; at the end no process may be left, and memory must not have grown.

    python benchmarks/judge_faults.py --candidates 1000 --write
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from machine import describe_machine
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from kernel_core.config import GymConfig
from kernel_core.gym import open_gym
from kernel_core.gym.pool import PooledGym
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate, Evaluation
from kernel_core.store import Store

ROOT = Path(__file__).parents[1]
EXPLOITS = ROOT / "tests" / "exploits"
RESULTS = ROOT / "docs" / "results"
ROUND = 100
"""Candidates handed over at once."""


@dataclass
class Tally:
    """What was seen."""

    verdicts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    resident_mb: list[float] = field(default_factory=list)
    seconds: float = 0.0


def main() -> int:
    """Judge, kill, compare; the exit code is 1 if anything was lost, doubled, wrong or left."""
    arguments = _arguments()
    files = sorted(EXPLOITS.glob("*.py"))
    problems = {file.stem: load_file(file) for file in (EXPLOITS / "problems").glob("*.py")}
    rng = random.Random(arguments.seed)
    order = [
        file for _ in range(-(-arguments.candidates // len(files))) for file in rng.sample(files, len(files))
    ]
    order = order[: arguments.candidates]
    headers = {
        file: dict(re.findall(r"^# (problem|expect): (.*)$", file.read_text(), re.M)) for file in files
    }
    requests = [
        JudgeRequest(
            problem=problems[headers[file]["problem"]],
            candidate=Candidate.from_source(f"{file.read_text()}\n# candidate {number}\n"),
            seed=number,
        )
        for number, file in enumerate(order)
    ]
    tally, begun = Tally(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dojo-faults-") as folder, Progress(transient=True) as bar:
        shown = bar.add_task("judging", total=len(requests))
        cache = Store(folder)
        config = GymConfig(workers=arguments.judges, deadline_s=arguments.deadline_s)
        with open_gym(config, cache=cache) as gym:
            killer = _Killer(gym, rng, arguments.kill_every_s, tally)
            for start in range(0, len(requests), ROUND):
                part = requests[start : start + ROUND]
                for file, request, evaluation in zip(order[start:], part, gym.judge(part), strict=False):
                    _compare(file, headers[file]["expect"], request, evaluation, tally)
                tally.resident_mb.append(_resident_mb())
                bar.update(shown, completed=start + len(part))
            killer.stop()
            seen = _descendants(os.getpid())
        kept = sum(len(cache.names(f"evaluations/{part}")) for part in cache.names("evaluations"))
    if kept != len(requests):
        tally.faults.append(f"{kept} evaluations were kept for {len(requests)} candidates")
    left = [pid for pid in seen if Path(f"/proc/{pid}").exists()]
    if left:
        tally.faults.append(f"{len(left)} processes outlived the gym")
    tally.seconds = time.monotonic() - begun
    _report(tally, len(requests), arguments)
    return 1 if tally.faults else 0


def _compare(file: Path, expected: str, request: JudgeRequest, evaluation: Evaluation, tally: Tally) -> None:
    tally.verdicts[str(evaluation.verdict)] += 1
    as_expected = not evaluation.correct if expected == "not correct" else evaluation.verdict == expected
    if not as_expected:
        tally.faults.append(f"{file.stem}: {evaluation.verdict}, expected {expected}: {evaluation.feedback}")
    assert not isinstance(request.candidate, str)
    if evaluation.candidate_sha != request.candidate.sha256:  # type: ignore[union-attr]
        tally.faults.append(f"{file.stem}: the evaluation of another candidate")


class _Killer(threading.Thread):
    """Kills a judge every few seconds, and in one case of eight the nursery that makes them."""

    def __init__(self, gym: PooledGym, rng: random.Random, every_s: float, tally: Tally) -> None:
        super().__init__(daemon=True)
        self._gym, self._rng, self._every_s, self._tally = gym, rng, every_s, tally
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Until told to stop."""
        while not self._over.wait(self._rng.expovariate(1 / self._every_s)):
            nurseries = [pid for pid in _children(os.getpid()) if "gym.nursery" in _command(pid)]
            judges = [pid for nursery in nurseries for pid in _children(nursery)[1:]]
            what, pids = ("nursery", nurseries) if self._rng.random() < 1 / 8 else ("judge", judges)
            if pids:
                os.kill(self._rng.choice(pids), signal.SIGKILL)
                self._tally.kills[what] += 1

    def stop(self) -> None:
        """Kill no more."""
        self._over.set()
        self.join()


def _children(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return sorted(int(child) for child in listed.split())


def _descendants(pid: int) -> list[int]:
    found = _children(pid)
    return found + [below for child in found for below in _descendants(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _resident_mb() -> float:
    """Of this process and all below it; pages that are shared count in each."""
    pages = 0
    for pid in [os.getpid(), *_descendants(os.getpid())]:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _report(tally: Tally, count: int, arguments: argparse.Namespace) -> None:
    memory = tally.resident_mb
    rows = {
        "candidates": f"{count:,}",
        "seconds": f"{tally.seconds:.0f}",
        "verdicts": ", ".join(f"{number} {name}" for name, number in tally.verdicts.most_common()),
        "killed meanwhile": ", ".join(f"{number} × {name}" for name, number in tally.kills.items()),
        "resident after the first and the last round": f"{memory[0]:.0f} MB, {memory[-1]:.0f} MB",
        "faults (lost, doubled, wrong, left over)": str(len(tally.faults)),
    }
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
    for fault in tally.faults:
        print(fault)
    if arguments.write:
        words = f"--candidates {arguments.candidates} --seed {arguments.seed} --write"
        lines = [
            "# Faults",
            "",
            "Every file of `tests/exploits/`, judged again and again as a new candidate, while judges die.",
            "",
            f"    python benchmarks/judge_faults.py {words}",
            "",
            f"Machine: {describe_machine()}. {arguments.judges} judges, deadline {arguments.deadline_s:g} s.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            *(["", *(f"- {fault}" for fault in tally.faults)] if tally.faults else []),
        ]
        (RESULTS / "judge_faults_cpu.md").write_text("\n".join(lines) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--deadline-s", type=float, default=5.0)
    parser.add_argument("--kill-every-s", type=float, default=6.0, help="on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write docs/results/judge_faults_cpu.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
