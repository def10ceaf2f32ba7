"""Advantage estimators: how much better a turn turned out than others of its group.

Input is `returns_G_T`: the return of each turn (axis T) of each trajectory (axis G) of one problem's group.
A turn that did not take place is NaN; it enters no baseline and its advantage is 0. To have an absent turn
count instead, hand in what it stands for: then the baseline does not depend on which conversations stopped.

Every estimator gives `advantages_G_T` in the units of the returns, or in standard deviations where it says
so, and 0 everywhere for a group of one: without a second trajectory there is nothing to compare with.

| name       | baseline                                     | scale | unbiased               |
|------------|----------------------------------------------|-------|------------------------|
| `trloo`    | mean of the others at the same turn          | 1     | yes                    |
| `grpo`     | mean of all, itself included, at the turn    | 1     | (1 − 1/N) of the truth |
| `grpo_std` | the same                                     | 1/σ_t | no                     |
| `rloo`     | mean of the others' whole conversations      | 1     | yes                    |
| `dr_grpo`  | mean of all whole conversations              | 1     | (1 − 1/N) of the truth |
| `kevin`    | mean of all turns of all trajectories        | 1/σ   | no                     |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

ALIKE = 1e-8
"""Returns that differ by less are alike. Sums of the same rewards in another order differ by 1e-16, and a
group of these has nothing to say: every estimator gives exactly 0 instead of that noise."""


def trloo(returns_G_T: Floats) -> Floats:
    """Turn-level REINFORCE leave-one-out (Dr. Kernel).

    A(i,t) = G(i,t) − mean_{j≠i} G(j,t) = N_t / (N_t − 1) · (G(i,t) − mean_j G(j,t))

    The baseline of a sample does not contain it, so the expected gradient is the true one. Precondition:
    which trajectories reach turn t does not depend on their rewards. A turn that one trajectory reached
    has no baseline and gets 0; no variance gives exactly 0.
    """
    num_present_T = np.sum(~np.isnan(returns_G_T), axis=0)
    scale_T = np.where(num_present_T > 1, num_present_T / np.maximum(num_present_T - 1, 1), 0.0)
    return _absent_as_zero(scale_T * _centred_by_turn(returns_G_T))


def grpo(returns_G_T: Floats) -> Floats:
    """GRPO's group mean at each turn, without scaling, as Dr. Kernel compares against.

    A(i,t) = G(i,t) − mean_j G(j,t)

    The sample is in its own baseline, so the expected gradient is (1 − 1/N_t) of the true one: harmless
    where N is one constant, a bias between turns where it is not.
    """
    return _absent_as_zero(_centred_by_turn(returns_G_T))


def grpo_std(returns_G_T: Floats) -> Floats:
    """GRPO as first published: group mean and group standard deviation at each turn.

    A(i,t) = (G(i,t) − mean_j G(j,t)) / std_j G(j,t)     (population standard deviation)

    Scaling by the spread gives easy and hard problems (nearly all right, nearly all wrong) the largest
    steps. A turn without variance gets 0.
    """
    std_T = _nan_std(returns_G_T, axis=0)
    return _absent_as_zero(_scaled(_centred_by_turn(returns_G_T), std_T))


def rloo(returns_G_T: Floats) -> Floats:
    """REINFORCE leave-one-out over whole conversations (Ahmadian et al. 2024).

    A(i,·) = G(i,0) − mean_{j≠i} G(j,0), the same for each turn of trajectory i

    Unbiased, but a turn is also paid for what came before it. Precondition: every trajectory has turn 0.
    """
    return _spread_over_turns(trloo(returns_G_T[:, :1]), returns_G_T)


def dr_grpo(returns_G_T: Floats) -> Floats:
    """Dr. GRPO (Liu et al. 2025): the group mean over whole conversations, neither scaled by the spread nor
    by the length (the loss divides by a constant).

    A(i,·) = G(i,0) − mean_j G(j,0), the same for each turn of trajectory i
    """
    return _spread_over_turns(grpo(returns_G_T[:, :1]), returns_G_T)


def kevin(returns_G_T: Floats) -> Floats:
    """Kevin-32B: all turns of all trajectories of a problem are one population.

    A(i,t) = (G(i,t) − mean_{j,s} G(j,s)) / std_{j,s} G(j,s)

    Early turns look back on discounted success and late ones have context, so the turns' means differ and
    part of the advantage is the turn's index. A group without any variance gets 0.
    """
    if returns_G_T.shape[0] < 2:
        return np.zeros_like(returns_G_T)
    centred_G_T = returns_G_T - np.nanmean(returns_G_T)
    return _absent_as_zero(_scaled(centred_G_T, np.nanstd(returns_G_T)))


ESTIMATORS: dict[str, Callable[[Floats], Floats]] = {
    "trloo": trloo,
    "grpo": grpo,
    "grpo_std": grpo_std,
    "rloo": rloo,
    "dr_grpo": dr_grpo,
    "kevin": kevin,
}
"""Estimators by the name in `TrainConfig.estimator`."""


def _centred_by_turn(returns_G_T: Floats) -> Floats:
    """Less the mean over the trajectories that reached the turn; exactly 0 where all are alike."""
    present_G_T = ~np.isnan(returns_G_T)
    total_T = np.where(present_G_T, returns_G_T, 0.0).sum(axis=0)
    centred_G_T = returns_G_T - total_T / np.maximum(present_G_T.sum(axis=0), 1)
    highest_T = np.where(present_G_T, returns_G_T, -np.inf).max(axis=0)
    lowest_T = np.where(present_G_T, returns_G_T, np.inf).min(axis=0)
    result: Floats = np.where(highest_T - lowest_T > ALIKE, centred_G_T, np.where(present_G_T, 0.0, np.nan))
    return result


def _nan_std(values_G_T: Floats, axis: int) -> Floats:
    """Population standard deviation of what is present; 0 where nothing is."""
    present = ~np.isnan(values_G_T)
    squares = np.where(present, _centred_by_turn(values_G_T), 0.0) ** 2
    std: Floats = np.sqrt(squares.sum(axis=axis) / np.maximum(present.sum(axis=axis), 1))
    return std


def _scaled(centred: Floats, std: Floats | np.floating[npt.NBitBase]) -> Floats:
    result: Floats = np.where(std > ALIKE, centred / np.where(std > ALIKE, std, 1.0), 0.0)
    return result


def _spread_over_turns(advantages_G_1: Floats, returns_G_T: Floats) -> Floats:
    return _absent_as_zero(np.where(np.isnan(returns_G_T), np.nan, advantages_G_1))


def _absent_as_zero(advantages_G_T: Floats) -> Floats:
    return np.nan_to_num(advantages_G_T, nan=0.0)
