"""Claim: whatever candidates do and whatever dies, none is lost or kept twice, and no verdict is wrong.

Judges every file of `tests/exploits/` in shuffled rounds, each time as a candidate of its own. Meanwhile
judges, now and then their fork servers, and the fork root are killed at random moments.
With `--cluster ray` two nodes judge; every two minutes one is killed, and another joins. Every verdict is
compared with what the file's header expects; at the end no process may be left, nor may memory have grown.

    python benchmarks/judge_faults.py --candidates 1000 --write
    python benchmarks/judge_faults.py --candidates 1000 --cluster ray --write
    python benchmarks/judge_faults.py --candidates 200 --device cuda --judges 1 --write
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from machine import describe_machine
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate, Evaluation
from kernel_core.store import Store

ROOT = Path(__file__).parents[1]
EXPLOITS = ROOT / "tests" / "exploits"
RESULTS = ROOT / "docs" / "results"
ROUND = 100
"""Candidates handed over at once."""
PRINT_EVERY = 20
"""Candidates between two lines of the log, where there is no progress bar."""
NODE_EVERY_S = 120.0
MAY_GROW = 1.3
"""Memory after the last round over that after the first."""


@dataclass
class Tally:
    """What was seen."""

    verdicts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    memory_mb: list[float] = field(default_factory=list)
    gpu_memory_mb: list[float] = field(default_factory=list)
    taken_out: list[str] = field(default_factory=list)
    seconds: float = 0.0


def main() -> int:
    """Judge, kill, compare; the exit code is 1 if anything was lost, doubled, wrong or left."""
    arguments = _arguments()
    files = sorted(file for file in EXPLOITS.rglob("*.py") if file.parent.name != "problems")
    problems = {file.stem: load_file(file) for file in (EXPLOITS / "problems").glob("*.py")}
    rng = random.Random(arguments.seed)
    order = [
        file for _ in range(-(-arguments.candidates // len(files))) for file in rng.sample(files, len(files))
    ]
    order = order[: arguments.candidates]
    headers = {file: _header(file, arguments.device) for file in files}
    requests = [
        JudgeRequest(
            problem=problems[headers[file]["problem"]],
            candidate=Candidate.from_source(f"{file.read_text()}\n# candidate {number}\n"),
            sizes=problems[headers[file]["problem"]].cpu_constants,
            seed=number,
        )
        for number, file in enumerate(order)
    ]
    tally, begun = Tally(), time.monotonic()
    before = set(_descendants(os.getpid()))
    with (
        tempfile.TemporaryDirectory(prefix="dojo-faults-") as folder,
        Progress(transient=True) as bar,
        _nodes(arguments, tally) as (address, refill),
    ):
        shown = bar.add_task("judging", total=len(requests))
        cache = Store(folder)
        config = GymConfig(
            device=arguments.device,
            workers=arguments.judges,
            deadline_s=arguments.deadline_s,
            cluster=arguments.cluster,
            ray_address=address,
        )
        with open_gym(config, cache=cache) as gym:
            killer = _Killer(rng, arguments, tally)
            for start in range(0, len(requests), ROUND):
                part = requests[start : start + ROUND]

                def show_progress(_: str, done: int, __: int, start: int = start) -> None:
                    bar.update(shown, completed=start + done)
                    if not bar.console.is_terminal and done and done % PRINT_EVERY == 0:
                        after_s = time.monotonic() - begun
                        print(f"{start + done} judged after {after_s:.0f} s; {dict(tally.kills)}", flush=True)

                evaluations = gym.judge(part, show_progress)
                for file, request, evaluation in zip(order[start:], part, evaluations, strict=False):
                    _compare(file, headers[file]["expect"], request, evaluation, tally)
                tally.memory_mb.append(_memory_mb())
                tally.gpu_memory_mb.append(_gpu_memory_mb() if arguments.device == "cuda" else 0.0)
                refill()
            killer.stop()
            tally.taken_out = [f"{entry.place}: {entry.reason}" for entry in gym.taken_out]
            seen = _descendants(os.getpid())
        kept = sum(len(cache.names(f"evaluations/{part}")) for part in cache.names("evaluations"))
    if kept != len(requests):
        tally.faults.append(f"{kept} evaluations were kept for {len(requests)} candidates")
    left = [pid for pid in seen if pid not in before and Path(f"/proc/{pid}").exists()]
    if left:
        tally.faults.append(f"{len(left)} processes outlived the gym: {', '.join(map(_command, left))}")
    for memory in (tally.memory_mb, tally.gpu_memory_mb):
        if memory[-1] > MAY_GROW * memory[0]:
            tally.faults.append(f"memory has grown from {memory[0]:.0f} to {memory[-1]:.0f} MB")
    tally.seconds = time.monotonic() - begun
    _report(tally, len(requests), arguments)
    return 1 if tally.faults else 0


def _header(file: Path, device: str) -> dict[str, str]:
    header = dict(re.findall(r"^# (problem|expect|cuda): (.*)$", file.read_text(), re.M))
    if device == "cuda" and "cuda" in header:
        header["expect"] = header["cuda"]
    return header


@contextlib.contextmanager
def _nodes(arguments: argparse.Namespace, tally: Tally) -> Iterator[tuple[str, Callable[[], None]]]:
    """With Ray, a cluster of two nodes beside the caller's own. The oldest is killed again and again; what is
    yielded after the address lets others join, which Ray allows to the main thread alone."""
    if arguments.cluster == "local":
        yield "auto", lambda: None
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes: list[object] = []
    over = threading.Event()

    def refill() -> None:
        while len(nodes) < 2:
            nodes.append(cluster.add_node(num_cpus=arguments.judges))

    def kill_oldest() -> None:
        while not over.wait(NODE_EVERY_S):
            if len(nodes) == 2:
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
                tally.kills["Ray node"] += 1

    refill()
    killing = threading.Thread(target=kill_oldest, daemon=True)
    killing.start()
    try:
        yield cluster.address, refill
    finally:
        over.set()
        killing.join()
        cluster.shutdown()


def _compare(file: Path, expected: str, request: JudgeRequest, evaluation: Evaluation, tally: Tally) -> None:
    tally.verdicts[str(evaluation.verdict)] += 1
    as_expected = not evaluation.correct if expected == "not correct" else evaluation.verdict == expected
    if not as_expected:
        tally.faults.append(f"{file.stem}: {evaluation.verdict}, expected {expected}: {evaluation.feedback}")
    assert not isinstance(request.candidate, str)
    if evaluation.candidate_sha != request.candidate.sha256:  # type: ignore[union-attr]
        tally.faults.append(f"{file.stem}: the evaluation of another candidate")


class _Killer(threading.Thread):
    """Kills a judge every few seconds; in one case of eight its fork server, in another the fork root."""

    def __init__(self, rng: random.Random, arguments: argparse.Namespace, tally: Tally) -> None:
        super().__init__(daemon=True)
        self._rng, self._every_s, self._tally = rng, arguments.kill_every_s, tally
        self._is_first_a_judge = arguments.device == "cuda"
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Until told to stop."""
        while not self._over.wait(self._rng.expovariate(1 / self._every_s)):
            fork_roots = [
                pid for pid in _descendants(os.getpid()) if "gym.processes.fork_root" in _command(pid)
            ]
            fork_roots = [pid for pid in fork_roots if _parent(pid) not in fork_roots]
            judges = [pid for root in fork_roots for pid in _children(root)[not self._is_first_a_judge :]]
            fork_servers = [pid for judge in judges for pid in _children(judge)]
            [(what, pids)] = self._rng.choices(
                [("judge", judges), ("fork_server", fork_servers), ("fork_root", fork_roots)],
                weights=[6, 1, 1],
            )
            if pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._rng.choice(pids), signal.SIGKILL)
                    self._tally.kills[what] += 1

    def stop(self) -> None:
        """Kill no more."""
        self._over.set()
        self.join()


def _children(pid: int) -> list[int]:
    """Children of all its threads, oldest first."""
    children: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children += map(int, task.read_text().split())
    return sorted(children)


def _descendants(pid: int) -> list[int]:
    children = _children(pid)
    return children + [below for child in children for below in _descendants(child)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _memory_mb() -> float:
    """Memory of this process and all below it; a shared page counts once (proportional set size)."""
    kilobytes = 0
    for pid in [os.getpid(), *_descendants(os.getpid())]:
        try:
            rolled = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        kilobytes += int(re.findall(r"^Pss:\s+(\d+)", rolled, re.M)[0])
    return kilobytes / 1024


def _gpu_memory_mb() -> float:
    """In use on all GPUs that are visible here, by whomever."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    if visible := os.environ.get("CUDA_VISIBLE_DEVICES"):
        command.append(f"--id={visible}")
    return sum(map(float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))


def _report(tally: Tally, count: int, arguments: argparse.Namespace) -> None:
    memory = tally.memory_mb
    rows = {
        "candidates": f"{count:,}",
        "seconds": f"{tally.seconds:.0f}",
        "verdicts": ", ".join(f"{number} {name}" for name, number in tally.verdicts.most_common()),
        "killed meanwhile": ", ".join(f"{number} × {name}" for name, number in tally.kills.items()),
        "places taken out": "; ".join(tally.taken_out) or "none",
        f"memory after each round of {ROUND}": ", ".join(f"{megabytes:.0f}" for megabytes in memory) + " MB",
        "GPU memory after each round": ", ".join(f"{megabytes:.0f}" for megabytes in tally.gpu_memory_mb)
        + " MB",
        "faults (lost, doubled, wrong, left over)": str(len(tally.faults)),
    }
    if arguments.device == "cpu":
        del rows["GPU memory after each round"]
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
    for fault in tally.faults:
        print(fault)
    if arguments.write:
        words = " ".join(sys.argv[1:])
        name = f"judge_faults_{arguments.device if arguments.cluster == 'local' else arguments.cluster}.md"
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
        (RESULTS / name).write_text("\n".join(lines) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cluster", choices=("local", "ray"), default="local")
    parser.add_argument("--judges", type=int, default=2, help="of this host or of each node; on CUDA, GPUs")
    parser.add_argument("--deadline-s", type=float, default=5.0)
    parser.add_argument("--kill-every-s", type=float, default=15.0, help="on average")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="write docs/results/judge_faults_*.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
