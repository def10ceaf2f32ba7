"""`dojo deploy`: check the files, make the pools, let Prefect deploy.

Prefect itself creates the deployments (`prefect deploy --all`). This adds what it lacks: checks before, the
order, and that what an operator paused stays paused.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from flows.arguments import Port
from flows.server import NoServer, prepare_environment, require_access, standing_server
from flows.terminal import say
from kernel_core.python_module import module_command

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

    from flows.deployments import Deployment


def deploy(*, dry_run: bool = False, local: bool = False, port: Port = 4200, file: Path | None = None) -> int:
    """Check prefect.yaml, then create or update its deployments.

    Args:
        dry_run: only check
        local: start a server and a worker for each pool too
        port: of the server that --local starts
        file: another prefect.yaml
    """
    if local and not dry_run:
        from flows.commands.local import serve_local

        return serve_local(port, file)
    return deploy_file(file, dry_run=dry_run)


def deploy_file(file: Path | None, *, dry_run: bool, api_url: str | None = None) -> int:
    """Create or update everything in the files; with `dry_run` only check them."""
    prepare_environment()
    from flows.deploy_steps import checked_automations
    from flows.deployments import load_deployments
    from flows.presets import PREFECT_YAML

    path = (file or PREFECT_YAML).resolve()
    checked = load_deployments(path, os.environ | {"PWD": str(path.parent)})
    say(f"{path}: {len(checked)} deployments, all valid")
    url = api_url or standing_server()
    if url is None:
        checked_automations(None)
        if dry_run:
            return 0
        raise NoServer("no Prefect server: start one with `dojo ui`, or set PREFECT_API_URL, then deploy")
    with _client(url) as client:
        checked_automations(client)
        if dry_run:
            return 0
        _make_pools(client, checked)
        _deploy_all(client, url, path)
    if api_url is None:
        say("start workers with `prefect worker start --pool cpu` (and `--pool cuda` on a GPU host)")
    return 0


@contextlib.contextmanager
def _client(url: str) -> Iterator[SyncPrefectClient]:
    """A client of the server; one that refuses or cannot be reached is one clear line."""
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    try:
        require_access(url)
        with temporary_settings(updates={PREFECT_API_URL: url}), get_client(sync_client=True) as client:
            yield client
    except httpx.TransportError as error:
        raise NoServer(f"the Prefect server at {url} cannot be reached: {error}") from error


def _make_pools(client: SyncPrefectClient, deployments: list[Deployment]) -> None:
    """Make the pools before Prefect asks for them; its build step makes the limit and the automations."""
    from prefect.client.schemas.actions import WorkPoolCreate

    from flows.deploy_steps import lookup

    for pool in sorted({deployment.pool for deployment in deployments if deployment.pool is not None}):
        if lookup(client.read_work_pool, pool) is None:
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))


def _deploy_all(client: SyncPrefectClient, url: str, path: Path) -> None:
    """`prefect deploy --all`, on a copy of the file in which operators' switches stand as they are."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "prefect.yaml"
        copy.write_text(yaml.safe_dump(_with_switches_kept(client, path), sort_keys=False))
        command = module_command("prefect", "--no-prompt", "deploy", "--all")
        result = subprocess.run(
            [*command, "--prefect-file", str(copy)],
            cwd=path.parent,
            env=os.environ | {"PREFECT_API_URL": url, "PWD": str(path.parent)},
            capture_output=True,
            text=True,
        )
    if result.returncode != 0:
        say(result.stdout + result.stderr)
        raise NoServer(f"`prefect deploy --all` failed with exit code {result.returncode}; see above")


def _with_switches_kept(client: SyncPrefectClient, path: Path) -> dict[str, Any]:
    """Return the file's content, with each deployment, schedule and named trigger on or off as it is now.

    Schedules are known by their slug. Prefect replaces one without a slug, so it starts as the file has it.
    """
    from flows.deploy_steps import lookup
    from flows.presets import stage_of
    from kernel_core.config.yaml_lines import load_yaml

    content: dict[str, Any] = load_yaml(path)
    for entry in content["deployments"]:
        name = f"{stage_of(entry['entrypoint'])}/{entry['name']}"
        if (there := lookup(client.read_deployment_by_name, name)) is None:
            continue
        entry["paused"] = there.paused
        for trigger in entry.get("triggers") or ():
            for automation in client.read_automations_by_name(trigger.get("name", "")):
                trigger["enabled"] = automation.enabled
        active = {schedule.slug: schedule.active for schedule in there.schedules if schedule.slug}
        for schedule in entry.get("schedules") or ():
            if schedule.get("slug") in active:
                schedule["active"] = active[schedule["slug"]]
    return content
