"""Return of each turn, from the rewards of a conversation's turns.

Each turn is a sample of its own, so its return speaks of that turn and what it led to, and of nothing
before it. The discount makes a success now worth more than the same success later.

What a turn is paid for is a choice. By `progress` it is what its kernel adds to the one before. By
`rewards.reward` it is the kernel's whole worth, and nothing for a kernel handed in before (as published,
but for the repetition); then, after a success, breaking the kernel earns the small change of format and
compilation while keeping it earns nothing, and a policy learns to break it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def progress(worth_T: Sequence[float], penalty_T: Sequence[float]) -> list[float]:
    """R_t = (V_t − V_{t−1}) + P_t, with V_{−1} = 0: what each turn adds, and its own penalty.

    V is a kernel's worth without its penalty. With γ = 1 the rewards of a conversation sum to the worth of
    what it hands in last, so nothing can be gained by detours: the same kernel again adds 0, breaking it
    costs what it was worth, and mending it gives that back. Penalties are never given back.
    """
    return [now - then + p for now, then, p in zip(worth_T, given(worth_T), penalty_T, strict=True)]


def given(worth_T: Sequence[float]) -> list[float]:
    """V_{t−1}: what each turn of a conversation paid by `progress` begins with.

    Turns of different conversations are compared with it added to their returns. Otherwise a kernel that
    was right and is kept (which adds 0) looks worse than one that was wrong and is mended, only because
    the turn before was better. V_{t−1} is known before the turn is written, so it changes no expected
    gradient, only how noisy the gradient is (a potential, as in Ng, Harada and Russell 1999).
    """
    return [0.0, *worth_T[:-1]]


def discounted_sum(rewards_T: Sequence[float], gamma: float) -> Floats:
    """G_t = Σ_{t' ≥ t} γ^(t'−t) · R_t'  (Dr. Kernel with γ = 1; Kevin with γ = 0.4)."""
    returns_T = np.zeros(len(rewards_T))
    following = 0.0
    for t in range(len(rewards_T) - 1, -1, -1):
        following = rewards_T[t] + gamma * following
        returns_T[t] = following
    return returns_T


def discounted_max(rewards_T: Sequence[float], gamma: float) -> Floats:
    """G_t = max_{t' ≥ t} γ^(t'−t) · R_t': only the best thing a turn led to counts (Kevin's other form).

    That is the published rule, made for rewards ≥ 0. A negative reward (a penalty) would vanish in it as
    soon as anything better follows, so it is added to its own turn's return instead of competing in the
    maximum: G_t = R_t + γ · max(G_{t+1}, 0) where R_t < 0.
    """
    returns_T = np.zeros(len(rewards_T))
    following = 0.0
    for t in range(len(rewards_T) - 1, -1, -1):
        led_to = gamma * max(following, 0.0)
        following = max(rewards_T[t], led_to) if rewards_T[t] >= 0 else rewards_T[t] + led_to
        returns_T[t] = following
    return returns_T


def returns_of(rewards_T: Sequence[float], gamma: float, kind: Literal["sum", "max"]) -> Floats:
    """Return the returns of one conversation's turns under the configured rule."""
    return discounted_sum(rewards_T, gamma) if kind == "sum" else discounted_max(rewards_T, gamma)
