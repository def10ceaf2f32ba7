"""Claim: a judge without a GPU takes about a second for an honest kernel.

Judges every so-many-th file of `tests/exploits/` with one worker, and prints what its phases take together,
and the slowest candidates. With `--against` the package of another checkout judges the same files afterwards,
so that two versions are told apart on one machine; what it refuses is named, too.

    python benchmarks/judge_on_cpu.py --every 4 --against ../kernel-dojo-before --write
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from machine import describe_machine

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.load import load_file
from kernel_core.records import Candidate

ROOT = Path(__file__).parents[1]
EXPLOITS = ROOT / "tests" / "exploits"
PAGE = ROOT / "docs" / "results" / "judge_on_cpu.md"
DEADLINE_S = 120.0
NUM_SLOWEST = 8


def main() -> None:
    """Judge here, and, if asked, with the other checkout; print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kind", default="honest", help="how the files' names begin")
    parser.add_argument("--every", type=int, default=1, help="of so many files one")
    parser.add_argument("--against", type=Path, help="another checkout")
    parser.add_argument("--write", action="store_true", help="write the page to docs/results")
    parser.add_argument("--into", type=Path, help="write the figures there, for another process")
    arguments = parser.parse_args()
    files = [file for file in sorted(EXPLOITS.rglob(f"{arguments.kind}_*.py")) if not _is_for_a_gpu(file)]
    files = files[:: arguments.every]
    found = [_judge_all(files)]
    if arguments.into is not None:
        arguments.into.write_text(json.dumps(found[0]))
        return
    if arguments.against is not None:
        found.append(_judged_by(arguments.against.resolve()))
    page = _page(found, len(files))
    print(page)
    if arguments.write:
        PAGE.write_text(page)


def _judge_all(files: list[Path]) -> dict[str, Any]:
    requests = [
        JudgeRequest(
            problem=load_file(EXPLOITS / "problems" / f"{_problem_of(file)}.py"),
            candidate=Candidate.from_source(file.read_text()),
        )
        for file in files
    ]
    first = Candidate.from_source(files[0].read_text() + "\n# to begin with")
    with open_gym(GymConfig(workers=1, deadline_s=DEADLINE_S)) as gym:
        gym.judge([requests[0].model_copy(update={"candidate": first})])
        started = time.monotonic()
        evaluations = gym.judge(requests)
        wall_s = time.monotonic() - started
    phases: Counter[str] = Counter()
    for one in evaluations:
        phases.update(one.phases_s)
    slowest = sorted(zip(files, evaluations, strict=True), key=lambda pair: -pair[1].seconds)[:NUM_SLOWEST]
    return {
        "version": GYM_VERSION,
        "wall_s": wall_s,
        "phases_s": dict(phases.most_common()),
        "slowest": {file.stem: one.seconds for file, one in slowest},
        "refused": [file.stem for file, one in zip(files, evaluations, strict=True) if not one.correct],
    }


def _is_for_a_gpu(file: Path) -> bool:
    return "# cuda: correct" in file.read_text()


def _problem_of(file: Path) -> str:
    named = re.search(r"^# problem: (\S+)$", file.read_text(), re.MULTILINE)
    assert named is not None, file
    return named[1]


def _judged_by(checkout: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        given = [one for one in sys.argv[1:] if one not in ("--write",)]
        command = [sys.executable, str(Path(__file__).resolve()), *given, "--into", str(figures)]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        subprocess.run(command, cwd=checkout, env=environment, check=True)
        found: dict[str, Any] = json.loads(figures.read_text())
        return found


def _page(found: list[dict[str, Any]], num_files: int) -> str:
    names = list(dict.fromkeys(name for one in found for name in one["phases_s"]))
    lines = [
        "# Judging on a CPU",
        "",
        f"    python benchmarks/judge_on_cpu.py {' '.join(sys.argv[1:])}",
        "",
        f"Machine: {describe_machine()}.",
        "",
        f"{num_files} candidates, one after the other, by one judge; seconds of all together.",
        "",
        "| | " + " | ".join(f"GYM_VERSION {one['version']}" for one in found) + " |",
        "|" + "---|" * (len(found) + 1),
        "| **all** | " + " | ".join(f"**{one['wall_s']:.1f}**" for one in found) + " |",
        *(
            f"| {name} | " + " | ".join(f"{one['phases_s'].get(name, 0.0):.1f}" for one in found) + " |"
            for name in names
        ),
        "",
        "Longest: " + ", ".join(f"`{name}` {s:.1f}" for name, s in found[0]["slowest"].items()) + ".",
        "",
        *(
            f"Not correct by GYM_VERSION {one['version']}: {', '.join(one['refused']) or 'none'}."
            for one in found
        ),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
