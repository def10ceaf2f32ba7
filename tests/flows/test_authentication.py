"""A server that wants a password: refused in one clear line without it, used as ever with it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[2]
WORDS = "somebody:a-secret-of-this-test"


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """A server of its own behind a password; environment of its callers, without the password."""
    from flows.server import prepare_environment, starting_server

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("closed")))
        patch.setenv("PREFECT_SERVER_API_AUTH_STRING", WORDS)
        prepare_environment()
        with starting_server() as wait_for_url:
            settings = {name: value for name, value in os.environ.items() if "AUTH_STRING" not in name}
            yield settings | {"PREFECT_API_URL": wait_for_url(), "OMP_NUM_THREADS": "1"}


def dojo(environment, *words):
    command = [sys.executable, "-m", "flows.cli", *words]
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("command", [["deploy", "--dry-run"], ["deploy"], ["ingest", "generator_rows=5"]])
def test_without_the_password_every_command_is_refused_in_one_line(closed, command, tmp_path):
    words = [*command, *([f"root={tmp_path}"] if command[0] == "ingest" else [])]
    refused = dojo(closed, *words)
    assert refused.returncode == 2, refused.stderr
    told = [line for line in refused.stderr.splitlines() if line.startswith("dojo:")]
    assert len(told) == 1 and "PREFECT_API_AUTH_STRING" in told[0]
    assert "Traceback" not in refused.stderr


def test_a_server_that_is_away_is_one_line_too(closed, tmp_path):
    nobody = closed | {"PREFECT_API_URL": "http://127.0.0.1:1/api"}
    for command in (["deploy", "--dry-run"], ["ingest", f"root={tmp_path}"]):
        refused = dojo(nobody, *command)
        assert refused.returncode == 3 and "cannot be reached" in refused.stderr
        assert "Traceback" not in refused.stderr


def test_with_the_password_a_flow_runs_and_the_password_is_nowhere(closed, tmp_path):
    done = dojo(closed | {"PREFECT_API_AUTH_STRING": WORDS}, "ingest", "generator_rows=5", f"root={tmp_path}")
    assert done.returncode == 0, done.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    assert all(b"a-secret-of-this-test" not in path.read_bytes() for path in left)
    assert "a-secret-of-this-test" not in done.stdout + done.stderr
