"""The Prefect API of our own server, as uvicorn loads it."""

from __future__ import annotations

import gc
import signal
from typing import Any

_SQLITE_WAITS_MS = 10_000


def create_app() -> Any:
    """The app, made with the garbage collector off.

    A `dojo` command waits for its server, which spends its start on imports: their objects stay, and looking
    for garbage among them takes a second. A command with a mistake does not wait for the server either:
    uvicorn heeds a signal once it has started, but up to here nothing was begun that would need an end.
    """
    gc.disable()
    heeded = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    from prefect.server.api.server import create_app as create_prefects_app

    _wait_less_for_sqlite()
    app = create_prefects_app()
    signal.signal(signal.SIGTERM, heeded)
    gc.freeze()
    gc.enable()
    return app


def _wait_less_for_sqlite() -> None:
    """Have a writer give up on a locked database after seconds; the server then answers "later", and clients
    ask again. Prefect has it wait for a minute, and now and then (one command in some fifty) all writers do.
    """
    from sqlalchemy import event
    from sqlalchemy.pool import Pool

    def wait_less(connection: Any, record: Any, proxy: Any) -> None:
        if type(connection).__module__.endswith("aiosqlite"):
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout = {_SQLITE_WAITS_MS}")
            cursor.close()

    event.listen(Pool, "checkout", wait_less)
