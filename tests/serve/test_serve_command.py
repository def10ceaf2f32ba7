"""`dojo serve` from outside: mistakes in one line, and a life from its first line to its end by a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from http_server import is_healthy
from waiting import LIMIT_S, eventually

from flows.cli import run
from kernel_core.serve.client import JudgeClient
from kernel_core.serve.messages import JudgeCall
from tests.fixtures.stack import free_port

PROBLEM = Path("tests/exploits/problems/softmax_rows.py").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gym.wrkers=2"], "did you mean gym.workers"),
        (["capacity=0"], "capacity"),
        (["only_known_problems=true"], "only_known_problems needs"),
        (["environment.rewards=best"], "known: dojo/format"),
        (["--keys", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_said_before_judges_start(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert run(["serve", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_taken_port_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port" in capsys.readouterr().err


def test_it_says_its_address_and_key_judges_and_ends_on_a_signal(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "flows.cli", "serve", "--port", str(port), "--store", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "gym.workers=1", "gym.trials=1", "gym.compile_gate=false"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path.cwd())},
    )
    try:
        assert process.stdout is not None
        url, key = (process.stdout.readline().split()[-1] for _ in range(2))
        assert eventually(lambda: is_healthy(url) or process.poll() is not None) and process.poll() is None
        with JudgeClient(url, key) as client:
            call = JudgeCall(id="the-first", problem=PROBLEM, no_kernel="nothing was written")
            assert client.ask(call).verdict == "malformed"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LIMIT_S) == 0
    assert list(tmp_path.rglob("*.json"))
