"""Limits of a policy on a Tinker server, checked when the settings are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernel_core.config.train import TrainConfig


def check_trained_there(config: TrainConfig) -> None:
    """Raise `ValueError` for settings of training that need the weights in this process."""
    if config.policy.kind != "tinker":
        return
    refused = {
        "policy.lora_rank is null: a server trains adapters; set policy.lora_rank=32": (
            config.policy.lora_rank is None
        ),
        f"sampler.kind={config.sampler.kind}: the server samples; leave it out": (
            config.sampler.kind != "inline"
        ),
        f"learners={config.learners}: the server has its own; set learners=1": config.num_learners > 1,
        f"updates_per_step={config.updates_per_step}: later passes need the clips of this project's loss; "
        "set updates_per_step=1": config.updates_per_step > 1,
        f"kl_coefficient={config.kl_coefficient:g}: no reference is held there; set kl_coefficient=0": (
            config.kl_coefficient > 0
        ),
        f"entropy_coefficient={config.entropy_coefficient:g}: its loss has no entropy term; "
        "set entropy_coefficient=0": config.entropy_coefficient > 0,
        f"rollout.sampling.temperature={config.rollout.sampling.temperature:g}: a server scores at 1; "
        "set rollout.sampling.temperature=1": config.rollout.sampling.temperature != 1.0,
        "policy.gradient_checkpointing: it is the server's to choose; leave it out": (
            config.policy.gradient_checkpointing
        ),
    }
    if reasons := [reason for reason, is_set in refused.items() if is_set]:
        raise ValueError("policy.kind=tinker cannot do this: " + "; ".join(reasons))
