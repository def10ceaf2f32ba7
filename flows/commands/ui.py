"""`dojo ui`: the Prefect server, in the foreground."""

from __future__ import annotations

import os
import subprocess
import sys

from flows.server import announce_ui, prefect_home, prepare_environment
from flows.terminal import say


def serve_ui(port: int) -> int:
    """Serve until interrupted; runs started meanwhile use this server."""
    prepare_environment()
    api_url = f"http://127.0.0.1:{port}/api"
    # The UI asks the server where its API is; with another port than 4200 it must be told.
    environment = os.environ | {"PREFECT_API_URL": api_url, "PREFECT_UI_API_URL": api_url}
    announce_ui(api_url)
    say(f"Prefect UI: http://127.0.0.1:{port}   (database in {prefect_home()}; Ctrl-C ends it)")
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    return subprocess.call(command, env=environment)
