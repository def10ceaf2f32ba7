"""`dojo ui`: the Prefect server, in the foreground."""

from __future__ import annotations

import os
import subprocess

from flows.arguments import Port
from flows.server import announce_ui, prepare_environment, require_free, ui_server


def ui(*, port: Port = 4200) -> int:
    """Serve until interrupted; runs started meanwhile use this server."""
    require_free(port)
    prepare_environment()
    url, command, settings = ui_server(port)
    announce_ui(url)
    return subprocess.call(command, env=os.environ | settings)
