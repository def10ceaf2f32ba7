"""The GPU as a thing of which there are only so many."""

from __future__ import annotations

import contextlib
import os

GPU_LIMIT = "cuda"
"""Name of the global concurrency limit that `dojo deploy` makes."""


def gpu_slot(*devices: str) -> contextlib.AbstractContextManager[object]:
    """A slot on the GPU while the block lasts, if any device is `cuda` and a worker runs this.

    Strict: a limit that does not exist is an error, because two kernels would time each other's noise.
    """
    run_by_a_worker = "PREFECT__FLOW_RUN_ID" in os.environ
    if "cuda" not in devices or not run_by_a_worker:
        return contextlib.nullcontext()
    from prefect.concurrency.sync import concurrency

    return concurrency(GPU_LIMIT, occupy=1, strict=True)
