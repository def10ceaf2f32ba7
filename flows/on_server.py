"""What is on a Prefect server beside what the files say: pools, automations, and switches of an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from flows.deployments import Deployment

T = TypeVar("T")
POOL_TYPE = "process"
GPU_SLOTS = 1
"""GPU stages at once when the limit is made; `prefect gcl update cuda --limit N` raises it."""


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
