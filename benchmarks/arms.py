"""What the arms of `claims.py` differ in: settings, the sampler of the rollouts, lost profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernel_core.gym.contract.requests import Gym, JudgeRequest, TakenOut
from kernel_core.policy.sampler import CopySampler
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation

PUBLISHED_BAND = 0.001
"""Dr. Kernel's; the base's is ten times as wide, and rejects no turn here."""
LOST_SHARE = 0.7
"""Share of correct kernels without a profile; in the published runs' own logs nearly all lost theirs."""
_LARGEST_FLOAT8 = 448.0
_NO_PROFILE = (
    "curriculum.stages=[{name: speed, promote_metric: fast_1, promote_at: 1.0, "
    "weights: {correct: 1.0, speed: 1.0, speed_form: clipped}}]"
)


@dataclass(frozen=True, slots=True)
class Arm:
    """How some runs are trained."""

    settings: tuple[str, ...] = ()
    samples_in_float8: bool = False
    loses_profiles: bool = False


@dataclass(frozen=True, slots=True)
class Claim:
    """Two arms that differ in one thing."""

    name: str
    says: str
    with_it: str
    without: str


ARMS = {
    "base": Arm(),
    "grpo": Arm(("estimator=grpo",)),
    "no-profile": Arm((_NO_PROFILE, "profile_rejection=none")),
    "regressions-masked": Arm(("mask_regressions=true",)),
    "float8": Arm((f"mismatch.band={PUBLISHED_BAND}",), samples_in_float8=True),
    "float8-not-rejected": Arm(("mismatch.band=null", "mismatch.veto=null"), samples_in_float8=True),
    "profiles-lost": Arm(loses_profiles=True),
    "profiles-lost-published": Arm(("profile_rejection=published",), loses_profiles=True),
}
CLAIMS = (
    Claim("estimator", "TRLOO against GRPO", "base", "grpo"),
    Claim("profile", "profile in reward and rejection (PR + PRS) against neither", "base", "no-profile"),
    Claim("regressions", "regressions in the loss against the published mask", "base", "regressions-masked"),
    Claim(
        "mismatch",
        "mismatch rejection against none, with the sampler's weights in float8",
        "float8",
        "float8-not-rejected",
    ),
    Claim(
        "unknown_shares",
        f"corrected profile rejection against the published one, where {LOST_SHARE:.0%} of profiles are lost",
        "profiles-lost",
        "profiles-lost-published",
    ),
)


class Float8Sampler(CopySampler):
    """Writes with weights as servers in float8 have them: linear layers in E4M3, a scale for each output; all
    else in `policy.dtype`."""

    @torch.no_grad()
    def publish(self, policy: TorchPolicy) -> None:
        """Copy, and round."""
        super().publish(policy)
        head = self._policy.model.get_output_embeddings()
        for module in self._policy.model.modules():
            if isinstance(module, torch.nn.Linear) and module is not head:
                scale = module.weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / _LARGEST_FLOAT8
                rounded = (module.weight / scale).to(torch.float8_e4m3fn)
                module.weight.copy_(rounded.to(module.weight.dtype) * scale)


class ForgetfulGym:
    """A gym that loses what it knows of own kernels for some correct ones, always the same."""

    def __init__(self, gym: Gym) -> None:
        self._gym = gym

    @property
    def version(self) -> str:
        """The gym's."""
        return self._gym.version

    @property
    def taken_out(self) -> tuple[TakenOut, ...]:
        """The gym's."""
        return self._gym.taken_out

    def judge(self, requests: Sequence[JudgeRequest], progress: Progress = silent) -> list[Evaluation]:
        """The gym's evaluations, some of them without a share of own kernels."""
        return [_forget(one) for one in self._gym.judge(requests, progress)]

    def close(self) -> None:
        """The gym's."""
        self._gym.close()


def _forget(evaluation: Evaluation) -> Evaluation:
    if not evaluation.correct or int(evaluation.candidate_sha[:8], 16) / 16**8 >= LOST_SHARE:
        return evaluation
    changes = {
        name: record.model_copy(update={field: None})
        for name, field in (("provenance", "own_kernel_share"), ("traffic", "own_share"))
        if (record := getattr(evaluation, name)) is not None
    }
    return evaluation.model_copy(update=changes)
