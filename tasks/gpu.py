"""The GPU as a thing of which there are only so many."""

from __future__ import annotations

import contextlib
import logging
import os

import pynvml

from kernel_core.config import GymConfig, PolicyConfig
from kernel_core.config.placement import PlacementConfig
from kernel_core.errors import ConfigError
from kernel_core.runs.placement import StageConfig, placed

log = logging.getLogger(__name__)

GPU_LIMIT = "cuda"
"""Name of the global concurrency limit that `dojo deploy` makes."""


class NoGpu(ConfigError):
    """Settings ask for a GPU that this host lacks."""


def has_gpu() -> bool:
    """Whether this host has a GPU, by its driver's library: CUDA stays down."""
    try:
        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return False


def on_this_host(config: StageConfig) -> StageConfig:
    """The settings with every role on GPUs of this host; `cuda` means the policy's GPU in this thread then.

    Raises `ConfigError` where GPUs are missing.
    """
    if not (config.samples_on_gpu or config.judges_on_gpu):
        return config
    import torch

    settled = placed(config, torch.cuda.device_count())
    place = settled.placement
    log.info(
        "%s, overlap=%s",
        ", ".join(f"{role} on {list(g)}" for role, g in place.gpus.items()),
        settled.rollout.overlap,
    )
    if policys := place.learn or place.sample:
        torch.cuda.set_device(policys[0])
    return settled


def require_gpu(policy: PolicyConfig | None = None, gym: GymConfig | None = None) -> None:
    """Raise `NoGpu` if settings ask for a GPU that this host lacks: before a model is fetched."""
    asked = {
        "policy.device": policy is not None and policy.kind == "torch" and policy.device == "cuda",
        "gym.device": gym is not None and gym.cluster == "local" and gym.device == "cuda",
    }
    names = [name for name, is_asked in asked.items() if is_asked]
    if names and not has_gpu():
        raise NoGpu(
            f"{' and '.join(names)} = cuda, but this host has no GPU: set "
            f"{' '.join(f'{name}=cpu' for name in names)}, or run it on a worker of the pool cuda"
        )


def require_gpu_here(option: str) -> None:
    """Raise `ConfigError` where an option of a command asks for a GPU that this host lacks."""
    if not has_gpu():
        raise ConfigError(f"{option} cuda, but this host has no GPU: use {option} cpu, or a host with one")


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
