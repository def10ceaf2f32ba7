"""What `dojo deploy` would change on a server: read, compare, say; nothing is written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from flows.deployments import Deployment
from flows.presets import load_flow
from kernel_core.runs.stage_record import flat
from tasks.gpu import GPU_LIMIT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

T = TypeVar("T")
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
        yield Change("pool", pool, "same" if found(client.read_work_pool, pool) else "create")
    limit = found(client.read_global_concurrency_limit_by_name, GPU_LIMIT)
    yield Change("limit", GPU_LIMIT, "same" if limit else "create")
    for entry in automations:
        yield _automation_change(client, entry)
    for deployment in wanted:
        yield _deployment_change(client, deployment)


def pools_of(wanted: Iterable[Deployment]) -> list[str]:
    """The work pools that deployments name."""
    return sorted({deployment.pool for deployment in wanted if deployment.pool is not None})


def found(read: Callable[[str], T], name: str) -> T | None:
    """What the server has under a name; None without it. `read` is a method of the client."""
    from prefect.exceptions import ObjectNotFound

    try:
        return read(name)
    except ObjectNotFound:
        return None


def same_automation(wanted: Mapping[str, Any], there: Any) -> bool:
    """Whether a server's automation does what the file says; its switch is the operator's."""
    from prefect.events.schemas.automations import AutomationCore

    def essence(automation: Any) -> dict[str, Any]:
        checked = AutomationCore.model_validate(automation)
        described: dict[str, Any] = checked.model_dump(
            include={"description", "trigger", "actions"}, exclude={"trigger": {"id"}}
        )
        return described

    return essence(dict(wanted)) == essence(there.model_dump())


def _automation_change(client: SyncPrefectClient, wanted: dict[str, Any]) -> Change:
    there = client.read_automations_by_name(wanted["name"])
    if not there:
        return Change("automation", wanted["name"], "create")
    return Change("automation", wanted["name"], "same" if same_automation(wanted, there[0]) else "update")


def _deployment_change(client: SyncPrefectClient, wanted: Deployment) -> Change:
    name, there = wanted.name, found(client.read_deployment_by_name, wanted.name)
    if there is None:
        return Change("deployment", name, "create")
    new = _as_wanted(wanted)
    # What the file leaves to Prefect is no difference.
    old = flat({key: value for key, value in _as_found(there).items() if key in new})
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


def _as_found(there: Any) -> dict[str, Any]:
    limit, options = there.global_concurrency_limit, there.concurrency_options
    return {
        "description": there.description,
        "entrypoint": there.entrypoint,
        "tags": sorted(there.tags),
        "version": there.version,
        "pool": there.work_pool_name,
        "queue": there.work_queue_name,
        "job_variables": there.job_variables,
        "parameters": there.parameters,
        "limit": limit and limit.limit,
        "collision": limit and options and options.collision_strategy.value,
        "schedules": schedules_by_key(schedule.model_dump(exclude_none=True) for schedule in there.schedules),
        "pull": _numbered(there.pull_steps or []),
        "form": _form_digest(there.parameter_openapi_schema or {}),
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
