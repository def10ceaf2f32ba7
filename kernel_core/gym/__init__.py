"""The judge: the only place that decides whether a kernel is honest, correct and fast."""

from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.pool.open_gym import open_gym

__all__ = ["GYM_VERSION", "open_gym"]
