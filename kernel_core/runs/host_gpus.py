"""GPUs of this host: whether settings ask for more than it has, and the place of each role on them."""

from __future__ import annotations

import logging

import pynvml

from kernel_core.config import GymConfig, PolicyConfig
from kernel_core.errors import ConfigError
from kernel_core.runs.placement import StageConfig, placed

log = logging.getLogger(__name__)


class NoGpu(ConfigError):
    """Settings that ask for a GPU which this host lacks."""


def has_gpu() -> bool:
    """Return True if this host has a GPU, by its driver's library: CUDA stays down."""
    try:
        pynvml.nvmlInit()
        return bool(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return False


def on_this_host(config: StageConfig) -> StageConfig:
    """Return settings with every role on GPUs of this host; `cuda` then is the policy's GPU in this thread.

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
