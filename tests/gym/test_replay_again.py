"""One process replays several candidates' traces, as beside a GPU: nothing of one shows in the next."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
SCRIPT = """
import contextlib, json, os, sys, tempfile
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"
sys.path.insert(0, "tests/fixtures")
from exploit_files import PROBLEMS, text_of
from kernel_core.config import GymConfig
from kernel_core.gym.processes import judge_main as judge_process
from kernel_core.gym.untrusted.candidate import dry_run as rehearsal, runner
from kernel_core.gym.untrusted.replay import replay
from kernel_core.gym.workers.workers import CpuWorkers
from kernel_core.gym.judge.cpu_judge import CpuJudge
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.sandbox.fork_server import ForkServer
from kernel_core.records import Candidate


class OneReplay(CpuWorkers):
    talk, stack, count, is_used = None, contextlib.ExitStack(), 0, False

    @contextlib.contextmanager
    def open_child(self, job, *, fresh=True, weight_bytes=0):
        if job != "replay":
            with super().open_child(job, weight_bytes=weight_bytes) as talk:
                yield talk
            return
        if self.is_used:  # for another pass of the same candidate
            self.talk.rest(self.share)
        if self.talk is None:
            opened = super().open_child(job, weight_bytes=weight_bytes)
            self.talk, self.count = self.stack.enter_context(opened), self.count + 1
        self.is_used = True
        yield self.talk

    def end(self, is_done):
        self.is_used = False
        if is_done:
            self.talk.rest(self.share)
        if not is_done or not self.talk.is_as_new:
            self.stack.close()
            self.talk = None


JOBS = {"runner": runner.run, "replay": replay.replay, "rehearse": rehearsal.rehearse}
judge_process.warm_up()
fork_server = ForkServer(judge_process._start_fork_server(JOBS, ()))
with tempfile.TemporaryDirectory() as base:
    Path(base).chmod(0o711)
    config = GymConfig(workers=1, deadline_s=120.0, compile_gate=False)
    workers = OneReplay(config, fork_server, base)
    judge = CpuJudge(config, workers, fork_server, base)
    problem = PROBLEMS["softmax_rows"]
    for name in sys.argv[1:]:
        candidate = Candidate.from_source(text_of(name))
        request = JudgeRequest(problem=problem, candidate=candidate, sizes=problem.cpu_constants)
        evaluation = judge.evaluate(request, 7)
        workers.end(evaluation.correct)
        traffic = evaluation.traffic.model_dump() if evaluation.traffic else None
        share = evaluation.provenance.own_kernel_share if evaluation.provenance else None
        print(json.dumps([evaluation.verdict, traffic, share, workers.count]), flush=True)
    workers.stack.close()
"""


@pytest.mark.exhaustive
def test_a_process_that_replayed_others_replays_as_a_fresh_one() -> None:
    names = ["honest_softmax", "honest_workspace", "honest_softmax", "decoy_overwritten", "honest_softmax"]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *names],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [verdict for verdict, *_ in rows] == ["correct", "correct", "correct", "hacked", "correct"]
    first, _, again, _, last = rows
    assert first[:3] == again[:3] == last[:3]
    processes = [row[3] for row in rows]
    assert processes == [1, 1, 1, 1, 2], "only after a refusal another process replays"
