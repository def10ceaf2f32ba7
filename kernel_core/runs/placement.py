"""Which GPUs of this host learn, sample and judge, from their number.

| visible GPUs | learners                | sampler (`inline`, `copy`) | judges                            |
|--------------|-------------------------|----------------------------|-----------------------------------|
| one          | GPU 0                   | GPU 0                      | GPU 0, in turns with the others   |
| two          | GPU 0                   | GPU 0                      | GPU 1, while others write         |
| more         | GPU 0 to `learners` − 1 | GPU 0                      | the next, at most `gym.workers`   |

A judge with a GPU of its own times kernels undisturbed, so that conversations are written meanwhile.
`gym.gpus` names the judges' GPUs instead. A `rollout.overlap` that was set stays.
"""

from __future__ import annotations

from typing import TypeVar

from kernel_core.config.rollout import RolloutStageConfig

StageConfig = TypeVar("StageConfig", bound=RolloutStageConfig)


def judges_gpus(num_gpus: int, num_taken: int, workers: int) -> tuple[int, ...]:
    """The GPUs of at most `workers` judges where the first `num_taken` are the policy's."""
    free = range(num_taken, num_gpus)
    return tuple(free[:workers]) or tuple(range(min(workers, num_gpus)))


def placed(config: StageConfig, num_gpus: int) -> StageConfig:
    """The settings of a stage with the judges on GPUs of this host, of which `num_gpus` are visible.

    Unchanged where no judge of this host is on a GPU.
    """
    if config.gym.device != "cuda" or config.gym.cluster != "local" or not num_gpus:
        return config
    on_gpu = config.policy.kind == "torch" and config.policy.device == "cuda"
    num_taken = getattr(config, "learners", 1) if on_gpu else 0
    gpus = config.gym.gpus or judges_gpus(num_gpus, num_taken, config.gym.workers)
    update = {"gym": config.gym.model_copy(update={"gpus": gpus, "workers": len(gpus)})}
    if config.rollout.overlap is None:
        shared = any(gpu < num_taken for gpu in gpus)
        return config.model_copy(
            update={**update, "rollout": config.rollout.model_copy(update={"overlap": not shared})}
        )
    return config.model_copy(update=update)
