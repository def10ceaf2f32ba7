"""`dojo serve`: the judge as a service."""

from __future__ import annotations

import contextlib
import secrets
import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flows.arguments import port
from flows.terminal import say


def add_serve_arguments(serve: ArgumentParser) -> None:
    """The arguments of `dojo serve`."""
    serve.add_argument("words", nargs="*", metavar="key.sub=value", help="settings of ServeConfig")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on")
    serve.add_argument("--port", type=port, default=8900)
    serve.add_argument("--keys", type=Path, metavar="FILE", help="lines of NAME KEY; one is made by default")
    serve.add_argument("--store", metavar="FOLDER", help="where verdicts are kept and found again")


def serve_judge(arguments: Namespace) -> int:
    """Serve until a signal, then finish the calls in work."""
    import uvicorn

    from kernel_core.config import ServeConfig
    from kernel_core.dialogue.environment import open_source
    from kernel_core.gym.pool.open_gym import open_gym
    from kernel_core.runs.configure import build, override
    from kernel_core.serve.app import create_app
    from kernel_core.serve.dispatcher import Dispatcher
    from kernel_core.serve.keys import Keys, read_keys
    from kernel_core.store import Store

    config = build(ServeConfig, override({}, arguments.words))
    new_key = secrets.token_urlsafe(24)
    keys = read_keys(arguments.keys) if arguments.keys else Keys({"default": new_key})
    source = open_source(config.environment) if config.environment else None
    with _listen(arguments.host, arguments.port) as listener:
        store = Store(arguments.store) if arguments.store else None
        with open_gym(config.gym, cache=store) as gym:
            dispatcher = Dispatcher(gym, config.capacity, share=keys.share_of(config.capacity))
            app = create_app(dispatcher, keys, source, only_known=config.only_known_problems)
            say(f"judge at http://{arguments.host}:{listener.getsockname()[1]}")
            if not arguments.keys:
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
