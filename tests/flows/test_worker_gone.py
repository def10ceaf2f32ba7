"""A flow run goes on when the worker that started it is killed, and with it the pipe for its output."""

import os
import subprocess
import sys

import pytest

CODE = """
import logging, sys
from rich.console import Console
from rich.logging import RichHandler
from flows.running import outlive_the_worker
if sys.argv[1] == "outlives":
    outlive_the_worker()
sys.stdin.read()  # until the reader of the output is gone
logging.basicConfig(handlers=[RichHandler(console=Console(stderr=True))], level="INFO")
for number in range(3):
    logging.info("line %d", number)
    Console().print("line", number)
    print("line", number, flush=True)
open(sys.argv[2], "w").write("done")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "is_done"), [("outlives", True), ("does not", False)])
def test_output_that_has_nowhere_to_go_ends_nothing(kind, is_done, tmp_path):
    done = tmp_path / "done"
    flow_run = subprocess.Popen(
        [sys.executable, "-c", CODE, kind, str(done)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ,
    )
    flow_run.stdout.close()
    flow_run.stderr.close()
    flow_run.stdin.close()
    flow_run.wait(timeout=60)
    assert done.exists() == is_done
    assert (flow_run.returncode == 0) == is_done
