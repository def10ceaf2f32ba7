"""The Prefect API of our own server, as uvicorn loads it."""

from __future__ import annotations

import gc
from typing import Any


def create_app() -> Any:
    """The app, made with the garbage collector off.

    A `dojo` command waits for its server, whose start is mostly imports: what they make stays, and looking
    through it for garbage again and again takes a second.
    """
    gc.disable()
    from prefect.server.api.server import create_app as create_prefects_app

    app = create_prefects_app()
    gc.freeze()
    gc.enable()
    return app
