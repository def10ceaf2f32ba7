"""What `prefect deploy` does before each deployment, as a build step of `prefect.yaml`.

Prefect's command creates deployments alone. This step makes what they stand on, and hands the file an
operator's switch: without it a schedule that was resumed would be off again.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from flows.automations import ALERT_BLOCK, AUTOMATIONS_YAML, alert_block, load_automations
from flows.on_server import GPU_SLOTS, found, same_automation
from kernel_core.errors import NotFound
from tasks.gpu import GPU_LIMIT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

NIGHTLY = "nightly/every-night"


@functools.cache
def server_state() -> dict[str, Any]:
    """Make the limit `cuda` and the automations; return whether the night's schedule is on, off at first."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        make_limit(client)
        make_automations(client, checked_automations(client))
        there = found(client.read_deployment_by_name, NIGHTLY)
        is_on = there is not None and any(schedule.active for schedule in there.schedules)
    return {"every_night_is_on": is_on}


def make_limit(client: SyncPrefectClient) -> None:
    """Make the limit of GPU stages, unless it is there with what an operator set."""
    from prefect.client.schemas.actions import GlobalConcurrencyLimitCreate

    if found(client.read_global_concurrency_limit_by_name, GPU_LIMIT) is None:
        client.create_global_concurrency_limit(GlobalConcurrencyLimitCreate(name=GPU_LIMIT, limit=GPU_SLOTS))


def checked_automations(client: SyncPrefectClient | None) -> list[dict[str, Any]]:
    """Return the automations of the file, with alerts through the block that `DOJO_ALERT_BLOCK` names."""
    named = alert_block(os.environ.get(ALERT_BLOCK))
    if named is None or client is None:
        return load_automations(AUTOMATIONS_YAML, None)
    from prefect.exceptions import ObjectNotFound

    kind, name = named
    try:
        block = client.read_block_document_by_name(name, kind, include_secrets=False)
    except ObjectNotFound as error:
        raise NotFound(f"{ALERT_BLOCK}={kind}/{name}: the server has no such block; make it first") from error
    return load_automations(AUTOMATIONS_YAML, {"type": kind, "id": str(block.id)})


def make_automations(client: SyncPrefectClient, wanted: list[dict[str, Any]]) -> None:
    """Create or update automations by name; one that was switched off stays off."""
    from prefect.events.schemas.automations import AutomationCore

    for entry in wanted:
        there = client.read_automations_by_name(entry["name"])
        if not there:
            client.create_automation(AutomationCore.model_validate(entry))
        elif not same_automation(entry, there[0]):
            kept = entry | {"enabled": there[0].enabled}
            client.update_automation(there[0].id, AutomationCore.model_validate(kept))
