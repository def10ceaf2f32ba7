"""Policies: what writes kernels. `open_policy` opens the one that a config names."""

from __future__ import annotations

import contextlib

from kernel_core.config import PolicyConfig
from kernel_core.data_folder import DATA
from kernel_core.errors import ConfigError, NotFound
from kernel_core.policy.protocol import Policy

SHIPPED = DATA / "policy"
"""The cold-started tiny policy of this repository."""


def open_policy(config: PolicyConfig, checkpoint: str | None = None) -> Policy:
    """Open the policy that a config names, or with `checkpoint` the weights saved in that folder.

    Raises `NotFound` for a model or checkpoint that is not there, `Corrupt` for a damaged one.
    """
    if config.kind == "openai":
        from kernel_core.policy.openai_policy import OpenAIPolicy

        return OpenAIPolicy(config)
    if config.kind == "scripted":
        from kernel_core.policy.scripted import ScriptedPolicy

        return ScriptedPolicy.load(config.model)
    if config.kind == "tinker":
        from kernel_core.policy.tinker_policy import TinkerPolicy

        return TinkerPolicy.load(checkpoint, config)
    from kernel_core.policy.torch_policy import TorchPolicy

    if checkpoint is not None:
        return TorchPolicy.load(checkpoint, config)
    if config.model == "new":
        raise ConfigError(
            "policy.model = new has no weights yet: its tokenizer and cold start come from a snapshot; "
            "run `dojo train` (which makes it), or name a checkpoint"
        )
    if config.model == "shipped":
        if not SHIPPED.is_dir():
            raise NotFound(
                f"the shipped policy is not in {SHIPPED}; run from a whole checkout, "
                "or set policy.model to `new`, a Hugging Face name or a folder"
            )
        return TorchPolicy.load(str(SHIPPED), config)
    return TorchPolicy.load(config.model, config)


def check_policy(config: PolicyConfig) -> None:
    """Raise what is wrong with a policy as far as it is seen without a download: model, endpoint or key."""
    if config.kind == "openai":
        from kernel_core.policy.openai_policy import OpenAIPolicy

        with contextlib.closing(OpenAIPolicy(config)) as asked:
            asked.check()
    elif config.kind == "tinker":
        from kernel_core.policy.tinker_model import TinkerModel

        with contextlib.closing(TinkerModel(config)) as there:
            there.check()
    elif config.kind == "torch" and config.model not in ("shipped", "new") and "://" not in config.model:
        from kernel_core.policy.folder import require_model

        require_model(config.model, config.revision)
