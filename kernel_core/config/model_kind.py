"""Settings by kind of model: our small policies, and models that were trained on more than kernels.

The defaults of `kernel_core/config/` suit a policy of a few million weights that was made here. For any other
model `PRETRAINED` replaces those settings that were left out; what is set, in a preset too, stays.

| setting                          | ours    | pretrained, all weights | pretrained, LoRA |
|----------------------------------|---------|-------------------------|------------------|
| `rollout.template`               | compact | full                    | full             |
| `rollout.prompt_budget`          | 1400    | 4608                    | 4608             |
| `rollout.sampling.max_new_tokens`| 400     | 1536                    | 1536             |
| `policy.max_context`             | 2048    | 6144                    | 6144             |
| `lr` (RL)                        | 2e-4    | 1e-6                    | 1e-5             |
| `cold_start.lr`                  | 1.5e-3  | 2e-5                    | 2e-4             |
| `cold_start.mistake_share`       | 0.35    | 0                       | 0                |
| `cold_start.naive_share`         | 0.35    | 0.1                     | 0.1              |
| `cold_start.lazy_share`          | 0       | 0                       | 0                |
| `checkpoint_minutes` (both)      | none    | 10                      | 10               |
| `mask_truncated`                 | false   | true                    | true             |

A prompt of 4,608 tokens holds the longest references of KernelBench's first two levels (3,000), the full
template and an earlier kernel. A shorter `policy.max_context` that was set makes both budgets smaller.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from kernel_core.config.base import Config
from kernel_core.config.policy import PolicyConfig

ConfigT = TypeVar("ConfigT", bound=Config)

LARGEST_OWN_VOCABULARY = 16_384
"""Tokenizers that are made here have a few thousand entries; those of language models 32,000 and more."""
PROMPT, ANSWER = 4608, 1536
"""Tokens of a prompt and of an answer."""
MINUTES = 10.0
"""Between checkpoints of some gigabytes."""


def is_pretrained(policy: PolicyConfig, weights: str | None = None) -> bool:
    """Return True if the model is neither the shipped one, nor a new one, nor a checkpoint of those.

    `weights` is the folder that is loaded in place of the model. A folder on this machine is judged by its
    vocabulary, one with adapters by their base, and anything else by its name.
    """
    if policy.kind in ("openai", "scripted"):
        return policy.kind == "openai"
    name = policy.model if policy.kind == "tinker" else weights or policy.model
    if name in ("shipped", "new"):
        return False
    about, config = (_values(Path(name) / file) for file in ("policy.json", "config.json"))
    adapted = about.get("base") or _values(Path(name) / "adapter_config.json").get("base_model_name_or_path")
    if adapted:
        return is_pretrained(policy, adapted)
    return int(config.get("vocab_size", LARGEST_OWN_VOCABULARY + 1)) > LARGEST_OWN_VOCABULARY


def is_untaught(policy: PolicyConfig) -> bool:
    """Return whether the model is pretrained and no folder that a cold start or a training left."""
    return is_pretrained(policy) and not (Path(policy.model) / "policy.json").is_file()


def learning_settings(policy: PolicyConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a pretrained model for RL, and those for the cold start."""
    adapted = policy.lora_rank is not None
    every = {"checkpoint_minutes": MINUTES}
    shares = {"mistake_share": 0.0, "naive_share": 0.1, "lazy_share": 0.0}
    learning = every | {"mask_truncated": True, "lr": 1e-5 if adapted else 1e-6}
    return learning, every | shares | {"lr": 2e-4 if adapted else 2e-5}


def completed(config: ConfigT, values: dict[str, Any]) -> ConfigT:
    """Return the config with these values for the fields that were left out."""
    left_out = {name: value for name, value in values.items() if name not in config.model_fields_set}
    return config.model_copy(update=left_out) if left_out else config


def _values(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
