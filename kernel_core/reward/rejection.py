"""Profiling-based rejection (Dr. Kernel): removes turns from the loss by their own-kernel share.

A correct kernel that does little of the work by its own launches owes its result to the library. Its turn is
kept with probability

    p = clip((share − 0.3) / 0.1, 0, 1)

of the share of device time in its own kernels. As `published` (the released code, which the paper's formula
differs from) only correct turns are drawn, and a share that is not known counts as 0: where the profiler
fails, every correct turn is lost and only failures are learned from. `corrected` keeps what is unknown.

A turn that is left out still counts in returns and baselines: leaving it out there as well would make the
baseline depend on the turn's own outcome.
"""

from __future__ import annotations

from typing import Literal

LOWEST_SHARE = 0.3
"""Share at or below which a turn is always left out."""
SOFTNESS = 0.1
"""Width of the band above it in which chance decides; the soft cut beat a hard one in the paper."""

ProfileRejection = Literal["none", "published", "corrected"]


def keep_probability(correct: bool, own_share: float | None, rule: ProfileRejection) -> float:
    """Return the probability that a turn stays in the loss, in [0, 1]."""
    if rule == "none" or not correct:
        return 1.0
    if own_share is None:
        return 0.0 if rule == "published" else 1.0
    return min(max((own_share - LOWEST_SHARE) / SOFTNESS, 0.0), 1.0)
