"""Claim: TRL's `GRPOTrainer`, unmodified, trains on our judge, in one turn and in several.

Five steps on a CPU, twice: a tiny model with random weights and a reward function, then the small policy of
`data/policy/`, which writes kernels, and a rollout of two turns. TRL is an extra: install `kernel-dojo[trl]`.

    python benchmarks/trl_steps.py --write
    python benchmarks/trl_steps.py --model FOLDER --device cuda     # a model of yours, one turn
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import trl
from datasets import Dataset
from machine import describe_machine
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Qwen3Config,
    Qwen3ForCausalLM,
    TrainerCallback,
)

from kernel_core.config import EnvironmentConfig, GymConfig
from kernel_core.dialogue.environment import EpisodeSource, open_source
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.interop.trl_grpo import KernelReward, KernelRollout, rollout_reward, training_rows
from kernel_core.runs.configure import build
from kernel_core.serve.client import JudgeClient

ROOT = Path(__file__).parents[1]
POLICY, RESULTS = ROOT / "data" / "policy", ROOT / "docs" / "results" / "trl.md"
RUNS = (("random", 1), ("shipped", 2))
TITLES = {"random": "Random weights", "shipped": "The policy of data/policy"}
TOKENS = {"random": 64, "shipped": 250}
"""Of an answer."""
LOGGED = ("step", "reward", "reward_std", "loss", "grad_norm")


def main() -> int:
    """Train twice, and print what the trainer logged."""
    arguments = _arguments()
    lines: list[str] = []
    with _gym(arguments) as gym:
        for model, turns in [(arguments.model, 1)] if arguments.model else RUNS:
            lines += _train(model, turns, gym, arguments)
    print("\n".join(lines))
    if arguments.write:
        head = ["# TRL on our judge", "", "    python benchmarks/trl_steps.py --write", ""]
        machine = f"Machine: {describe_machine()}. TRL {trl.__version__}, unmodified."
        RESULTS.write_text("\n".join([*head, machine, *lines]) + "\n")
    return 0


def _train(name: str, turns: int, gym: Gym, arguments: argparse.Namespace) -> list[str]:
    steps = arguments.steps
    settings = {
        "problems": {"suite": "generated", "limit": 8, "families": ["elementwise_chain", "row_reduce"]},
        "rollout": {"turns": turns, "template": "compact" if name in TITLES else "full"},
        "rewards": "dojo/correct",
    }
    source = open_source(build(EnvironmentConfig, settings))
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(name, turns, arguments, source, gym, folder)
        before = {key: value.clone() for key, value in trainer.model.named_parameters()}
        begun = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - begun
    assert trainer.state.global_step == steps
    moved = max((value - before[key]).abs().max().item() for key, value in trainer.model.named_parameters())
    rows = [_row(entry) for entry in trainer.state.log_history if "reward" in entry]
    return [
        "",
        f"## {TITLES.get(name, Path(name).name)}, {turns} {'turn' if turns == 1 else 'turns'}",
        "",
        f"{steps} steps of 8 answers in {seconds:.0f} s; the largest change of a weight is {moved:.2g}.",
        "",
        f"| {' | '.join(LOGGED)} |",
        f"|{'---|' * len(LOGGED)}",
        *rows,
    ]


def _row(entry: dict[str, Any]) -> str:
    return f"| {' | '.join(f'{float(entry[key]):.4g}' for key in LOGGED)} |"


class _Shown(TrainerCallback):
    """Each step's row as soon as the step is over."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **rest: Any) -> None:
        """What the trainer logged last; its number of the step is in the state."""
        if logs and "reward" in logs:
            print(_row({"step": state.global_step, **logs}), flush=True)


def _trainer(
    name: str, turns: int, arguments: argparse.Namespace, source: EpisodeSource, gym: Gym, folder: str
) -> trl.GRPOTrainer:
    model_folder = arguments.model or POLICY
    tokenizer = AutoTokenizer.from_pretrained(model_folder, padding_side="left")
    if name != "random":
        model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32)
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
        max_completion_length=TOKENS.get(name, arguments.tokens),
        learning_rate=1e-5,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=arguments.device == "cpu",
        bf16=False,
    )
    in_turns = {"reward_funcs": [rollout_reward], "rollout_func": KernelRollout(source, gym)}
    at_once = {"reward_funcs": [KernelReward(source, gym)]}
    return trl.GRPOTrainer(
        model=model,
        args=config,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(training_rows(source)),
        callbacks=[_Shown()],
        **(in_turns if turns > 1 else at_once),
    )


def _gym(arguments: argparse.Namespace):
    if arguments.url:
        return JudgeClient(arguments.url, os.environ["DOJO_SERVE_KEY"])
    return open_gym(GymConfig(device=arguments.device, workers=1 if arguments.device == "cuda" else 2))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    of_page = parser.add_mutually_exclusive_group()
    of_page.add_argument("--model", default="", help="folder of a model; else the two of the page")
    parser.add_argument("--tokens", type=int, default=600, help="of an answer of --model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="of the model and the judge")
    of_page.add_argument("--write", action="store_true", help="write docs/results/trl.md")
    parser.add_argument("--url", help="of a judge service; its key is in DOJO_SERVE_KEY")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
