"""Claim: TRL's `GRPOTrainer`, unmodified, trains on our judge, in one turn and in several.

Five steps on a CPU. `--model random` is a tiny model with random weights. `--model shipped` is the small
policy of `data/policy/`, which writes kernels. TRL is an extra: install `kernel-dojo[trl]` first.

    python benchmarks/trl_steps.py --model shipped --turns 2
    python benchmarks/trl_steps.py --model random
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from kernel_core.config import EnvironmentConfig, GymConfig
from kernel_core.dialogue.environment import open_source
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.interop.trl_grpo import KernelReward, KernelRollout, rollout_reward, training_rows
from kernel_core.runs.configure import build
from kernel_core.serve.client import JudgeClient

POLICY = Path(__file__).parents[1] / "data" / "policy"


def main() -> int:
    """Train, and print what the trainer logged."""
    arguments = _arguments()
    settings = {
        "problems": {"suite": "generated", "limit": 8, "families": arguments.families},
        "rollout": {"turns": arguments.turns, "template": "compact"},
        "rewards": "dojo/correct",
    }
    source = open_source(build(EnvironmentConfig, settings))
    with _gym(arguments) as gym, tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(arguments, source, gym, folder)
        before = {name: value.clone() for name, value in trainer.model.named_parameters()}
        begun = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - begun
    moved = max((value - before[name]).abs().max().item() for name, value in trainer.model.named_parameters())
    for entry in trainer.state.log_history:
        if "reward" in entry:
            shown = {key: entry[key] for key in ("step", "reward", "reward_std", "loss", "grad_norm")}
            print("  ".join(f"{key} {float(value):.4g}" for key, value in shown.items()))
    print(
        f"TRL {trl.__version__}, torch {torch.__version__}, {arguments.model} model, "
        f"{arguments.turns} turns: {trainer.state.global_step} steps in {seconds:.0f} s; "
        f"largest change of a weight {moved:.2g}"
    )
    return 0 if trainer.state.global_step == arguments.steps else 1


def _trainer(arguments: argparse.Namespace, source, gym: Gym, folder: str) -> trl.GRPOTrainer:
    tokenizer = AutoTokenizer.from_pretrained(POLICY, padding_side="left")
    if arguments.model == "shipped":
        model = AutoModelForCausalLM.from_pretrained(POLICY, dtype=torch.float32)
    else:
        torch.manual_seed(0)
        model = Qwen3ForCausalLM(
            Qwen3Config(
                vocab_size=len(tokenizer),
                hidden_size=64,
                intermediate_size=128,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=16,
                tie_word_embeddings=True,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
    config = trl.GRPOConfig(
        output_dir=folder,
        max_steps=arguments.steps,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=arguments.tokens,
        learning_rate=1e-5,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    in_turns = {"reward_funcs": [rollout_reward], "rollout_func": KernelRollout(source, gym)}
    at_once = {"reward_funcs": [KernelReward(source, gym)]}
    return trl.GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(training_rows(source)),
        **(in_turns if arguments.turns > 1 else at_once),
    )


def _gym(arguments: argparse.Namespace):
    if arguments.url:
        return JudgeClient(arguments.url, os.environ["DOJO_SERVE_KEY"])
    return open_gym(GymConfig(workers=2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=("random", "shipped"), default="random")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--turns", type=int, default=1, help="1: a reward function; more: a rollout")
    parser.add_argument("--tokens", type=int, default=300, help="of an answer")
    parser.add_argument("--families", nargs="*", default=[], help="of the generated problems")
    parser.add_argument("--url", help="of a judge service; its key is in DOJO_SERVE_KEY")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
