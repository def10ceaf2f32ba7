"""Rewards of each published method, stage by stage, and our own.

| name        | reward of a turn                                                            | from       |
|-------------|-----------------------------------------------------------------------------|------------|
| `dojo`      | format, compile, correct and speed one after the other; log of the speed-up | here       |
| `seed`      | three stages with partial credit, then speed above parity                   | kernel_rl  |
| `kevin`     | 0.3·correct + speed-up                                                      | Kevin-32B  |
| `dr_kernel` | correct + min(speed-up, 3) + share of time in its own kernels               | Dr. Kernel |

In the last stage of `dojo` a correct kernel twice as fast as another earns a third more, from parity on, as
with `dr_kernel`. A change that makes 1.2× of parity pays where it adds less than 7 % risk of a failure.

`seed` has the weights of that project's three stages. Its gate, which paid nothing at all for an incorrect
kernel and so made the first two stages unlearnable, is left out, and its stages are entered by measurement.
`dr_kernel` is the paper's scale; the released code pays half of everything.
"""

from __future__ import annotations

from kernel_core.config import RewardWeights, StageConfig

_DOJO = (
    StageConfig(
        name="format",
        weights=RewardWeights(format=1.0, compile=0.2, correct=0.2),
        promote_metric="format_rate",
        promote_at=0.9,
    ),
    StageConfig(
        name="compile",
        weights=RewardWeights(format=0.2, compile=1.0, correct=0.5),
        promote_metric="compile_rate",
        promote_at=0.8,
        demote_at=0.3,
    ),
    StageConfig(
        name="correct",
        weights=RewardWeights(format=0.05, compile=0.15, correct=1.0, own_share=0.1),
        promote_metric="correct_rate",
        promote_at=0.5,
        demote_at=0.3,
    ),
    StageConfig(
        name="speed",
        weights=RewardWeights(compile=0.05, correct=0.5, speed=2.0, own_share=0.2),
        promote_metric="fast_1",
        promote_at=1.0,
        demote_at=0.15,
    ),
)

_SEED = (
    StageConfig(
        name="compile",
        weights=RewardWeights(format=0.3, compile=0.5, correct=0.2, partial_credit=True),
        promote_metric="compile_rate",
        promote_at=0.8,
    ),
    StageConfig(
        name="correct",
        weights=RewardWeights(format=0.1, compile=0.2, correct=0.7, partial_credit=True),
        promote_metric="correct_rate",
        promote_at=0.5,
        demote_at=0.3,
    ),
    StageConfig(
        name="speed",
        weights=RewardWeights(format=0.05, compile=0.1, correct=0.5, speed=0.35, speed_form="above_parity"),
        promote_metric="fast_1",
        promote_at=1.0,
        demote_at=0.15,
    ),
)

_KEVIN = (
    StageConfig(
        name="speed",
        weights=RewardWeights(correct=0.3, speed=1.0, speed_form="ratio"),
        promote_metric="fast_1",
        promote_at=1.0,
    ),
)

_DR_KERNEL = (
    StageConfig(
        name="speed",
        weights=RewardWeights(correct=1.0, speed=1.0, own_share=1.0, speed_form="clipped"),
        promote_metric="fast_1",
        promote_at=1.0,
    ),
)

REWARD_PRESETS: dict[str, tuple[StageConfig, ...]] = {
    "dojo": _DOJO,
    "seed": _SEED,
    "kevin": _KEVIN,
    "dr_kernel": _DR_KERNEL,
}
"""Presets by the name in `CurriculumConfig.rewards`."""
