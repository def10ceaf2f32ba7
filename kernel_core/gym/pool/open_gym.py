"""Opens a gym on this machine or over a cluster."""

from __future__ import annotations

from kernel_core.config import GymConfig
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.gym.pool.judge_host import LocalHost
from kernel_core.gym.pool.judge_slot import JudgeSlot
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.pool.verdict_cache import Cache
from kernel_core.store import Store


def open_gym(config: GymConfig, cache: Store | None = None, gpus: tuple[int, ...] = ()) -> PooledGym:
    """Start the judges. With a `cache`, evaluations are kept under `evaluations/` and found again.

    On CUDA a judge is on each of `gpus`; without them `config.workers` are on the first.

    Raises `GymUnavailable` when they cannot be started.
    """
    if config.cluster == "ray":
        try:
            from kernel_core.gym.pool.ray_cluster import open_cluster
        except ImportError as error:
            raise ConfigError(
                f"gym.cluster=ray, but Ray is not installed ({error}); install kernel-dojo[cluster]"
            ) from error
        gym = PooledGym(config, Cache(cache))
        gym.own(open_cluster(config, gym))
        if not gym.places:
            gym.close()
            raise gym.none_left()
        return gym
    places = gpus or tuple(range(config.workers))
    if config.device == "cuda":
        _find_gpus(places)
    gym = PooledGym(config, Cache(cache))
    host = LocalHost(config, store=cache.root if cache is not None else None)
    gym.own(host)
    word = "GPU" if config.device == "cuda" else "judge"
    trusted = config.device == "cpu"
    gym.arrive(host, [JudgeSlot(host, place, f"{word} {place}", config, trusted=trusted) for place in places])
    return gym


def _find_gpus(wanted: tuple[int, ...]) -> None:
    """Refuse early, without bringing CUDA up in this process."""
    import torch

    visible = torch.cuda.device_count()
    if missing := [gpu for gpu in wanted if gpu >= visible]:
        raise GymUnavailable(
            f"gym.device=cuda with judges on the GPUs {list(wanted)}, but {visible} GPUs are visible and "
            f"{missing} are not among them; set gym.workers to the number of GPUs, or gym.device=cpu"
        )
