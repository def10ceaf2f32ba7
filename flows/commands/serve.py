"""`dojo serve`: the judge as a service."""

from __future__ import annotations

import contextlib
import secrets
import socket
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.arguments import Port
from flows.terminal import say


def serve(
    *settings: Annotated[str, Parameter(name="key.sub=value", help="settings of ServeConfig")],
    host: str = "127.0.0.1",
    port: Port = 8900,
    keys: Path | None = None,
    store: str | None = None,
) -> int:
    """Serve until a signal, then finish the calls in work.

    Args:
        host: address to listen on
        keys: a file with lines of NAME KEY; one is made by default
        store: a folder where verdicts are kept and found again
    """
    import uvicorn

    from kernel_core.config import ServeConfig
    from kernel_core.dialogue.environment import open_source
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.runs.configure import build, override
    from kernel_core.runs.host_gpus import require_gpu
    from kernel_core.serve.app import create_app
    from kernel_core.serve.dispatcher import Dispatcher
    from kernel_core.serve.keys import Keys, read_keys
    from kernel_core.store import Store

    config = build(ServeConfig, override({}, list(settings)))
    require_gpu(gym=config.gym)
    new_key = secrets.token_urlsafe(24)
    known = read_keys(keys) if keys else Keys({"default": new_key})
    source = open_source(config.environment) if config.environment else None
    cache = Store(store) if store else None
    with _listen(host, port) as listener, open_gym(config.gym, cache=cache) as gym:
        dispatcher = Dispatcher(gym, config.capacity, share=known.share_of(config.capacity))
        app = create_app(dispatcher, known, source, only_known=config.only_known_problems)
        say(f"judge at http://{host}:{listener.getsockname()[1]}")
        if not keys:
            say(f"key {new_key}")
        server = uvicorn.Config(app, log_level="warning", access_log=False)
        with contextlib.suppress(KeyboardInterrupt):  # raised again once all calls are answered
            uvicorn.Server(server).run(sockets=[listener])
    return 0


def _listen(host: str, port_: int) -> socket.socket:
    from kernel_core.errors import ConfigError

    try:
        return socket.create_server((host, port_), backlog=1024)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port_}: {error.strerror}; give another --port"
        ) from error
