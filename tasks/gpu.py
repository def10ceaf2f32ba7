"""Slots of the global concurrency limit of GPU stages."""

from __future__ import annotations

import contextlib
import os

from kernel_core.config.placement import PlacementConfig
from kernel_core.errors import ConfigError

GPU_LIMIT = "cuda"
"""Name of the global concurrency limit that `dojo deploy` makes."""


def gpu_slot(
    *devices: str, places: PlacementConfig | None = None
) -> contextlib.AbstractContextManager[object]:
    """Return slots on GPUs while the block lasts, if any device is `cuda` and a worker runs this.

    One for each GPU of `places`. Strict: a limit that does not exist is an error, because two kernels would
    time each other's noise. Raises `ConfigError` where the limit has fewer slots: no wait would end.
    """
    run_by_a_worker = "PREFECT__FLOW_RUN_ID" in os.environ
    if "cuda" not in devices or not run_by_a_worker:
        return contextlib.nullcontext()
    from prefect.concurrency.sync import concurrency

    named = places.gpus.values() if places is not None else ()
    count = max(1, len({gpu for gpus in named for gpu in gpus}))
    if count > 1:
        _check_slots(count)
    return concurrency(GPU_LIMIT, occupy=count, strict=True)


def _check_slots(count: int) -> None:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        slots = client.read_global_concurrency_limit_by_name(GPU_LIMIT).limit
    if slots < count:
        raise ConfigError(
            f"this stage works on {count} GPUs, but the limit {GPU_LIMIT} has {slots}: raise it by "
            f"`prefect gcl update {GPU_LIMIT} --limit {count}`, or place the stage on fewer GPUs"
        )
