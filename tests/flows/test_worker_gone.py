"""A flow run goes on when the worker that started it is killed: its output has no pipe to the worker."""

import asyncio
import os
import sys

from prefect.utilities.processutils import run_process
from prefect.workers.process import ProcessJobConfiguration

from flows.deployments import load_deployments
from flows.presets import PREFECT_YAML

OUTPUTS = """
import os, sys
open(sys.argv[1], "w").write(" ".join(os.readlink(f"/proc/self/fd/{n}") for n in (1, 2)))
"""


def test_every_deployment_has_its_output_apart_from_the_worker():
    assert "stream_output" in ProcessJobConfiguration.model_fields
    made = load_deployments(PREFECT_YAML, os.environ | {"PWD": "."})
    piped = [
        each.name for each in made if each.entry.work_pool.job_variables.get("stream_output") is not False
    ]
    assert made and piped == []


def test_such_a_process_has_no_pipe(tmp_path):
    out = tmp_path / "out"
    asyncio.run(run_process([sys.executable, "-c", OUTPUTS, str(out)], stream_output=False))
    assert out.read_text() == "/dev/null /dev/null"
