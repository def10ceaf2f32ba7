"""Build step of `prefect.yaml`, which `prefect deploy` runs before each deployment.

Prefect's command creates deployments alone. This step makes the limit and the automations that they need, and
hands the file an operator's switch: without it a schedule that was resumed would be off again.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from flows.automations import AUTOMATIONS_YAML, load_automations
from kernel_core.errors import ConfigError, NotFound
from tasks.gpu import GPU_LIMIT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

T = TypeVar("T")
NIGHTLY = "nightly/every-night"
ALERT_BLOCK = "DOJO_ALERT_BLOCK"
GPU_SLOTS = 1
"""GPU stages at once when the limit is made; `prefect gcl update cuda --limit N` raises it."""


@functools.cache
def server_state() -> dict[str, Any]:
    """Make the limit `cuda` and the automations; return whether the night's schedule is on, off at first."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

    with get_client(sync_client=True) as client:
        if lookup(client.read_global_concurrency_limit_by_name, GPU_LIMIT) is None:
            limit = GlobalConcurrencyLimitCreate(name=GPU_LIMIT, limit=GPU_SLOTS)
            client.create_global_concurrency_limit(limit)
        make_automations(client, checked_automations(client))
        there = lookup(client.read_deployment_by_name, NIGHTLY)
        is_on = there is not None and any(schedule.active for schedule in there.schedules)
    return {"every_night_is_on": is_on}


def lookup(read: Callable[[str], T], name: str) -> T | None:
    """Return what a method of the client reads by name; None where the server has nothing of that name."""
    from prefect.exceptions import ObjectNotFound

    try:
        return read(name)
    except ObjectNotFound:
        return None


def checked_automations(client: SyncPrefectClient | None) -> list[dict[str, Any]]:
    """Return the automations of the file, with alerts through the block that `DOJO_ALERT_BLOCK` names."""
    words = os.environ.get(ALERT_BLOCK)
    if not words:
        return load_automations(AUTOMATIONS_YAML, None)
    kind, _, name = words.partition("/")
    if not (kind and name):
        raise ConfigError(f"{ALERT_BLOCK}={words!r} is not of the form TYPE/NAME, as webhook/ops")
    if client is None:
        return load_automations(AUTOMATIONS_YAML, None)
    block = lookup(functools.partial(client.read_block_document_by_name, block_type_slug=kind), name)
    if block is None:
        raise NotFound(f"{ALERT_BLOCK}={words}: the server has no such block; make it first")
    return load_automations(AUTOMATIONS_YAML, {"type": kind, "id": str(block.id)})


def make_automations(client: SyncPrefectClient, entries: list[dict[str, Any]]) -> None:
    """Create automations, or update those that differ; one that was switched off stays off."""
    from prefect.events.schemas.automations import AutomationCore

    content: Any = {"include": {"description", "trigger", "actions"}, "exclude": {"trigger": {"id"}}}
    for entry in entries:
        automation = AutomationCore.model_validate(entry)
        there = client.read_automations_by_name(automation.name)
        if not there:
            client.create_automation(automation)
        elif automation.model_dump(**content) != there[0].model_dump(**content):
            automation.enabled = there[0].enabled
            client.update_automation(there[0].id, automation)
