"""`dojo deploy`: check `prefect.yaml`, make pools and limits, then let Prefect create the deployments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flows.server import NoServer, prepare_environment, standing_server
from flows.terminal import say


def deploy(file: Path | None, *, dry_run: bool) -> int:
    """Create or update everything in the file; with `dry_run` only check it."""
    prepare_environment()
    from flows.deployments import load_deployments, routed_names
    from flows.presets import PREFECT_YAML

    path = (file or PREFECT_YAML).resolve()
    checked = load_deployments(path, os.environ)
    names = list(routed_names(checked))
    say(f"{path}: {len(names)} deployments, all valid: {', '.join(names)}")
    if dry_run:
        return 0
    url = standing_server()
    if url is None:
        raise NoServer("no Prefect server: start one with `dojo ui`, or set PREFECT_API_URL, then deploy")
    _make_pools_and_limits(url, {deployment.work_pool.name for deployment in checked.deployments})
    command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all", "--prefect-file", str(path)]
    result = subprocess.run(command, cwd=path.parent, env=os.environ | {"PREFECT_API_URL": url})
    if result.returncode != 0:
        raise NoServer(f"`prefect deploy --all` failed with exit code {result.returncode}; see above")
    say("start workers with `prefect worker start --pool cpu` (and `--pool cuda` on a GPU host)")
    return 0


def _make_pools_and_limits(url: str, pools: set[str]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate, WorkPoolCreate
    from prefect.exceptions import ObjectNotFound
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from tasks.gpu import GPU_LIMIT

    with temporary_settings(updates={PREFECT_API_URL: url}), get_client(sync_client=True) as client:
        for pool in sorted(pools):
            try:
                client.read_work_pool(pool)
            except ObjectNotFound:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        try:
            client.read_global_concurrency_limit_by_name(GPU_LIMIT)
        except ObjectNotFound:
            client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=GPU_LIMIT, limit=1))
