"""Our own server: Prefect's, set up for one person at a terminal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CONNECTED = """
import asyncio, signal, sys
import sqlalchemy
from flows.server_app import create_app

signal.signal(signal.SIGTERM, print)
create_app()
assert signal.getsignal(signal.SIGTERM) is print, "once it is made, who serves it ends it in order"
from prefect.server.database.configurations import AioSqliteConfiguration

async def ask():
    engine = await AioSqliteConfiguration(f"sqlite+aiosqlite:///{sys.argv[1]}").engine()
    async with engine.connect() as connection:
        for name in ("busy_timeout", "journal_mode"):
            print((await connection.execute(sqlalchemy.text(f"PRAGMA {name}"))).scalar())

asyncio.run(ask())
"""

UNWANTED = """
import os, signal, threading
from flows.server_app import create_app

signal.signal(signal.SIGTERM, print)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
create_app()
print("made")
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A Prefect home of its own."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PREFECT_HOME": str(tmp_path)}


@pytest.mark.exhaustive
def test_a_locked_database_is_waited_for_by_seconds_not_a_minute(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CONNECTED, str(tmp_path / "one.db")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["10000", "wal"], "and all else is as Prefect sets it up"


def test_a_server_that_nobody_wants_any_more_ends_before_it_is_made(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNWANTED], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, ""), done.stderr
