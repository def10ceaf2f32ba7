"""Our own server: Prefect's, set up for one person at a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONNECTED = """
import asyncio, sys
import sqlalchemy
from flows.server_app import create_app

create_app()
from prefect.server.database.configurations import AioSqliteConfiguration

async def ask():
    engine = await AioSqliteConfiguration(f"sqlite+aiosqlite:///{sys.argv[1]}").engine()
    async with engine.connect() as connection:
        for name in ("busy_timeout", "journal_mode"):
            print((await connection.execute(sqlalchemy.text(f"PRAGMA {name}"))).scalar())

asyncio.run(ask())
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A Prefect home of its own."""
    return os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "PREFECT_HOME": str(tmp_path)}


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
