"""What `dojo deploy` would change on a server: read, compare, say; nothing is written here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from flows.deployments import Deployment
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
    client: SyncPrefectClient, wanted: Sequence[Deployment], automations: list[dict[str, Any]]
) -> Iterator[Change]:
    """Every pool, limit, automation and deployment, in the order in which they are made."""
    for pool in pools_of(wanted):
        yield Change("pool", pool, "same" if has_pool(client, pool) else "create")
    yield Change("limit", GPU_LIMIT, "same" if has_limit(client) else "create")
    for entry in automations:
        yield _automation_change(client, entry)
    for deployment in wanted:
        yield _deployment_change(client, deployment)


def pools_of(wanted: Iterable[Deployment]) -> list[str]:
    """The work pools that deployments name."""
    return sorted({deployment.pool for deployment in wanted if deployment.pool is not None})


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


def _deployment_change(client: SyncPrefectClient, wanted: Deployment) -> Change:
    name, found = wanted.name, find_deployment(client, wanted.name)
    if found is None:
        return Change("deployment", name, "create")
    new = _as_wanted(wanted)
    # What the file leaves to Prefect is no difference.
    old = flat({key: value for key, value in _as_found(found).items() if key in new})
    new = flat(new)
    differences = tuple(
        f"{key}: {old.get(key)!r} → {new.get(key)!r}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )
    return Change("deployment", name, "update" if differences else "same", differences)


def _as_wanted(wanted: Deployment) -> dict[str, Any]:
    from prefect.utilities.callables import parameter_schema

    entry, (limit, collision) = wanted.entry, wanted.limit
    pool = entry.work_pool
    values = {
        "description": entry.description,
        "entrypoint": entry.entrypoint,
        "tags": sorted(entry.tags) if isinstance(entry.tags, list) else entry.tags,
        "version": entry.version,
        "pool": wanted.pool,
        "queue": pool.work_queue_name if pool is not None else None,
        "job_variables": pool.job_variables if pool is not None else {},
        "parameters": entry.parameters,
        "limit": limit,
        "collision": collision,
        "schedules": schedules_by_key(wanted.schedules),
        "pull": _numbered(wanted.pull) if wanted.pull is not None else None,
        "form": _form_digest(parameter_schema(load_flow(wanted.stage)).model_dump()),
    }
    left_to_prefect = ("description", "version", "pool", "queue", "collision", "pull")
    return {key: value for key, value in values.items() if value is not None or key not in left_to_prefect}


def _as_found(found: Any) -> dict[str, Any]:
    limit, options = found.global_concurrency_limit, found.concurrency_options
    return {
        "description": found.description,
        "entrypoint": found.entrypoint,
        "tags": sorted(found.tags),
        "version": found.version,
        "pool": found.work_pool_name,
        "queue": found.work_queue_name,
        "job_variables": found.job_variables,
        "parameters": found.parameters,
        "limit": limit and limit.limit,
        "collision": limit and options and options.collision_strategy.value,
        "schedules": schedules_by_key(schedule.model_dump(exclude_none=True) for schedule in found.schedules),
        "pull": _numbered(found.pull_steps or []),
        "form": _form_digest(found.parameter_openapi_schema or {}),
    }


def schedules_by_key(schedules: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Schedules by slug, or by what they say where they have none."""
    described = {}
    for one in schedules:
        timing = one["schedule"]
        timing = dict(timing) if isinstance(timing, Mapping) else timing.model_dump(exclude_none=True)
        # An interval without one is counted from when it was deployed.
        timing.pop("anchor_date", None)
        if "rrule" in timing:  # the server puts a beginning before a rule that has none
            timing["rrule"] = timing["rrule"].removeprefix("DTSTART:20200101T000000\n")
        timing.setdefault("timezone", "UTC")
        key = one.get("slug") or " ".join(map(str, timing.values()))
        described[key] = {"timing": {k: str(v) for k, v in timing.items()}, **(one.get("parameters") or {})}
    return described


def _numbered(steps: Sequence[Any]) -> dict[str, Any]:
    return {str(number): step for number, step in enumerate(steps)}


def _form_digest(schema: Mapping[str, Any]) -> str:
    """The form that the UI makes of a flow's parameters: another digest is another form."""
    from kernel_core.store import digest_of

    return digest_of({key: value for key, value in schema.items() if value})[:12]
