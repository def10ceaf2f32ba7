"""What `dojo deploy` would change on a server: read, compare, say; nothing is written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flows.deployments import Deployment, DeploymentFile
from flows.presets import load_flow
from kernel_core.runs.stage_record import flat
from tasks.gpu import GPU_LIMIT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

POOL_TYPE = "process"
GPU_SLOTS = 1
"""GPU stages at once when the limit is made; `prefect gcl update cuda --limit N` raises it."""


class Change(NamedTuple):
    """One thing on the server, and what becomes of it."""

    kind: Literal["pool", "limit", "automation", "deployment"]
    name: str
    action: Literal["create", "update", "same"]
    differences: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = "".join(f"\n    {difference}" for difference in self.differences)
        return f"{self.action:<6} {self.kind} {self.name}{shown}"


def plan(
    client: SyncPrefectClient, wanted: DeploymentFile, automations: list[dict[str, Any]], folder: Path
) -> Iterator[Change]:
    """Every pool, limit, automation and deployment, in the order in which they are made."""
    for pool in sorted({deployment.work_pool.name for deployment in wanted.deployments}):
        yield Change("pool", pool, "same" if has_pool(client, pool) else "create")
    yield Change("limit", GPU_LIMIT, "same" if has_limit(client) else "create")
    for entry in automations:
        yield _automation_change(client, entry)
    for deployment in wanted.deployments:
        yield _deployment_change(client, deployment, folder)


def has_pool(client: SyncPrefectClient, name: str) -> bool:
    """Whether the server has this work pool."""
    from prefect.exceptions import ObjectNotFound

    try:
        client.read_work_pool(name)
    except ObjectNotFound:
        return False
    return True


def has_limit(client: SyncPrefectClient) -> bool:
    """Whether the server has the limit of GPU stages."""
    from prefect.exceptions import ObjectNotFound

    try:
        client.read_global_concurrency_limit_by_name(GPU_LIMIT)
    except ObjectNotFound:
        return False
    return True


def find_deployment(client: SyncPrefectClient, name: str) -> Any:
    """The server's deployment `stage/name`; None without one."""
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def same_automation(wanted: Mapping[str, Any], found: Any) -> bool:
    """Whether a server's automation does what the file says; its switch is the operator's."""
    from prefect.events.schemas.automations import AutomationCore

    def essence(automation: Any) -> dict[str, Any]:
        checked = AutomationCore.model_validate(automation)
        described: dict[str, Any] = checked.model_dump(
            include={"description", "trigger", "actions"}, exclude={"trigger": {"id"}}
        )
        return described

    return essence(dict(wanted)) == essence(found.model_dump())


def _automation_change(client: SyncPrefectClient, wanted: dict[str, Any]) -> Change:
    found = client.read_automations_by_name(wanted["name"])
    if not found:
        return Change("automation", wanted["name"], "create")
    return Change("automation", wanted["name"], "same" if same_automation(wanted, found[0]) else "update")


def _deployment_change(client: SyncPrefectClient, wanted: Deployment, folder: Path) -> Change:
    name = f"{wanted.stage}/{wanted.name}"
    found = find_deployment(client, name)
    if found is None:
        return Change("deployment", name, "create")
    old, new = flat(_as_found(found)), flat(_as_wanted(wanted, folder))
    differences = tuple(
        f"{key}: {old.get(key)!r} → {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )
    return Change("deployment", name, "update" if differences else "same", differences)


def _as_wanted(wanted: Deployment, folder: Path) -> dict[str, Any]:
    from prefect.utilities.callables import parameter_schema

    limit = wanted.concurrency_limit
    return {
        "description": wanted.description,
        "entrypoint": wanted.entrypoint,
        "folder": str(folder),
        "tags": sorted(wanted.tags),
        "pool": wanted.work_pool.name,
        "job_variables": wanted.work_pool.job_variables,
        "parameters": wanted.parameters,
        "limit": limit and limit.limit,
        "collision": limit and limit.collision_strategy,
        "schedules": {schedule.slug: f"{schedule.cron} {schedule.timezone}" for schedule in wanted.schedules},
        "form": _form_digest(parameter_schema(load_flow(wanted.stage)).model_dump()),
    }


def _as_found(found: Any) -> dict[str, Any]:
    steps = [step for pull in found.pull_steps or () for step in pull.values()]
    limit, options = found.global_concurrency_limit, found.concurrency_options
    return {
        "description": found.description,
        "entrypoint": found.entrypoint,
        "folder": next((step["directory"] for step in steps if "directory" in step), None),
        "tags": sorted(found.tags),
        "pool": found.work_pool_name,
        "job_variables": found.job_variables,
        "parameters": found.parameters,
        "limit": limit and limit.limit,
        "collision": limit and options and options.collision_strategy.value,
        "schedules": {
            str(entry.slug): f"{entry.schedule.cron} {entry.schedule.timezone}" for entry in found.schedules
        },
        "form": _form_digest(found.parameter_openapi_schema or {}),
    }


def _form_digest(schema: Mapping[str, Any]) -> str:
    """The form that the UI makes of a flow's parameters: another digest is another form."""
    from kernel_core.store import digest_of

    return digest_of({key: value for key, value in schema.items() if value})[:12]
