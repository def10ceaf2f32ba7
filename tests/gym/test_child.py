"""A caged process has so much time to answer; a judge that is busy, or waits for others, is not its fault."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.gym.sandbox.limits import MOST_FORGIVEN
from kernel_core.gym.workers.child import NO_ANSWER

REPOSITORY = Path(__file__).parents[2]
SCRIPT = """
import json, os, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
from kernel_core.config import GymConfig
from kernel_core.gym.processes import judge_main as judge_process
from kernel_core.gym.untrusted.candidate import runner
from kernel_core.gym.workers.workers import CpuWorkers
from kernel_core.gym.channel.messages import Loaded, NotLoaded
from kernel_core.gym.workers.payload import load_header
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.workers.child import Died
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.problems.load import load_file

DEADLINE_S, NEIGHBOURS = float(sys.argv[2]), int(sys.argv[3])
neighbours = []
if NEIGHBOURS:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    busy = [sys.executable, "-c", "while True: pass"]
    neighbours = [subprocess.Popen(busy) for _ in range(NEIGHBOURS)]
fork_server = ForkServer(judge_process._start_fork_server({"runner": runner.run}, ()))
problem = load_file(Path("tests/exploits/problems/softmax_rows.py"))
reference = Reference(problem, problem.cpu_constants)
with tempfile.TemporaryDirectory() as base:
    Path(base).chmod(0o711)
    workers = CpuWorkers(GymConfig(workers=1, deadline_s=DEADLINE_S), fork_server, base)

    def ask(seconds_before, source):
        with workers.open_child("runner") as talk:
            time.sleep(seconds_before)
            header, arena = load_header(reference, source, poison=0)
            begun = time.monotonic()
            claims, before = (Loaded, NotLoaded), len(os.listdir("/proc/self/fd"))
            turn, arenas = workers.share, (arena.descriptor,)
            answer = talk.ask(header, claims, descriptors=arenas, turn=turn, take_descriptors=True)
            left_open = len(os.listdir("/proc/self/fd")) - before
            arena.close()
            said = answer.reason if isinstance(answer, Died) else type(answer.claim).__name__
            return [said, time.monotonic() - begun, left_open]

    for together in json.loads(sys.argv[1]):
        with ThreadPoolExecutor(len(together)) as threads:
            for said in threads.map(ask, *zip(*together)):
                print(json.dumps(said), flush=True)
for neighbour in neighbours:
    neighbour.kill()
"""
QUICK = "class ModelNew:\n    def to(self, device): return self\n    def __call__(self, x): return x\n"
ENDLESS = "while True:\n    pass\n"


SLEEPING = "import time\ntime.sleep(60)\n"
WORK = "import time\nend = time.thread_time() + 0.75\nwhile time.thread_time() < end:\n    pass\n"


LEAKING = """
import os, sys
wire = sys.modules["kernel_core.gym.channel.framing"]
send, pipe = wire.send, os.pipe()
def forged(channel, header, *rest):
    for _ in range(50):
        for word in ("ready", "aside"):
            send(channel, {word: True}, b"", (pipe[0],) * 4)
            if word == "ready":
                wire.receive(channel)
    send(channel, LAST, b"", (pipe[0],) * 4)
wire.send = forged
"""


def _ask(
    asked: list[list[tuple[float, str]]], deadline_s: float = 1.0, neighbours: int = 0
) -> list[tuple[str, float, int]]:
    """The answer of each child, its seconds, and how many descriptors of its messages are still open. The
    children of one list are asked side by side, where their descriptors cannot be told apart."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(asked), str(deadline_s), str(neighbours)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


STEPPING_ASIDE = """
import sys, time
wire = sys.modules["kernel_core.gym.channel.framing"]
send = wire.send
def forged(channel, header, *rest):
    send(channel, {"ready": True})
    wire.receive(channel)
    send(channel, {"aside": True})
    time.sleep(SECONDS)
    send(channel, header, *rest)
wire.send = forged
"""
_GARBAGE = LEAKING.replace("LAST", '{"loaded": [], "of": "no known form"}')
_CLAIM = LEAKING.replace("LAST", "header")


@pytest.fixture(scope="module")
def answers() -> list[tuple[str, float, int]]:
    """Three children have a deadline, two send descriptors, two compile; one judge asks all seven."""
    timed = [(1.3, QUICK), (0.0, ENDLESS), (1.3, ENDLESS)]
    compiling = [STEPPING_ASIDE.replace("SECONDS", str(seconds)) + QUICK for seconds in (2.0, 60.0)]
    waiting = [*timed, *((0.0, source) for source in compiling)]
    return _ask([waiting, [(0.0, _GARBAGE + QUICK)], [(0.0, _CLAIM + QUICK)]])


def test_time_runs_only_while_the_process_is_asked(answers: list[tuple[str, float, int]]) -> None:
    late, endless, late_and_endless = answers[:3]
    assert late[0] == "Loaded"
    for said, seconds, _ in (endless, late_and_endless):
        assert said == "no result within 1 s"
        assert seconds > 0.95


@pytest.mark.exhaustive
@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count who waits for a processor"
)
def test_time_stands_still_for_who_has_no_processor() -> None:
    asked = [[(0.0, source)] for source in (WORK + QUICK, SLEEPING, ENDLESS)]
    worked, slept, endless = _ask(asked, deadline_s=1.0, neighbours=2)
    assert worked[0] == "Loaded", worked
    assert worked[1] > 1.0
    assert slept[0] == endless[0] == "no result within 1 s"
    assert slept[1] < 2.5
    assert 1.0 < endless[1] < 1.0 * (1 + MOST_FORGIVEN) + 2.0


def test_time_to_compile_does_not_count_up_to_a_limit(answers: list[tuple[str, float, int]]) -> None:
    compiled, endless = answers[3:5]
    assert compiled[0] == "Loaded" and compiled[1] > 2.0
    assert endless[0] == "no result within 1 s"
    assert 1.0 + MOST_FORGIVEN < endless[1] + 0.1 < 1.0 + MOST_FORGIVEN + 2.0


def test_descriptors_without_a_request_are_closed(answers: list[tuple[str, float, int]]) -> None:
    refused, loaded = answers[5:]
    assert refused[0] == NO_ANSWER and refused[2] == 0
    assert loaded[0] == "Loaded" and loaded[2] == 4
