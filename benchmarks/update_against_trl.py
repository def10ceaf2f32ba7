"""Claim: an update of the weights is at least 1.3 times as fast as that of TRL's GRPOTrainer.

Both take the same random Qwen3 policy (39 M weights by default), with float32 weights and, on CUDA, products
in bfloat16. Both take the same rows: a prompt of 400 tokens, an answer of 100 to 448, an advantage. TRL's
trainer runs its own loop, with batches of about as many tokens as ours and its own padding. It is given what
it would have generated and scored. One update of each is not counted; medians. Needs `trl`.

    python benchmarks/update_against_trl.py --device cuda --write
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from machine import describe_machine
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from update_speed import LONGEST, PROMPT, add_options, benchmark_policy, benchmark_rows

from kernel_core.config import RolloutConfig, SamplingConfig, TrainConfig
from kernel_core.learn.batch import Row
from kernel_core.learn.update import new_optimiser, update

RESULTS = Path(__file__).parents[1] / "docs" / "results"
GROUP = 8


def main() -> int:
    """Print both and the ratio; the exit code says whether the claim held."""
    arguments = _arguments()
    rows = benchmark_rows(arguments.rows, benchmark_policy(arguments).model.config.vocab_size)
    tokens = sum(len(row) for row in rows)
    seconds = {"ours": _ours(arguments, rows), "trl": _theirs(arguments, rows)}
    result = {
        "machine": describe_machine(),
        "rows": len(rows),
        "tokens": tokens,
        "tokens_per_s": {name: round(tokens / value) for name, value in seconds.items()},
        "ratio": round(seconds["trl"] / seconds["ours"], 2),
    }
    print(json.dumps(result, indent=2))
    if arguments.write:
        (RESULTS / "update_against_trl.json").write_text(json.dumps(result, indent=2) + "\n")
    return 0 if seconds["trl"] >= 1.3 * seconds["ours"] else 1


def _ours(arguments: argparse.Namespace, rows: Sequence[Row]) -> float:
    policy = benchmark_policy(arguments)
    config = TrainConfig(
        policy=policy.config,
        minibatch_tokens=arguments.batch_tokens,
        rollout=RolloutConfig(sampling=SamplingConfig(max_new_tokens=LONGEST)),
    )
    optimiser = new_optimiser(policy.model, config.lr)
    seconds = []
    for _ in range(arguments.repeat + 1):
        began = time.monotonic()
        update(policy, optimiser, rows, config)
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - began)
    return statistics.median(seconds[1:])


def _theirs(arguments: argparse.Namespace, rows: Sequence[Row]) -> float:
    policy = benchmark_policy(arguments)
    size = max(GROUP, arguments.batch_tokens // (PROMPT + LONGEST) // GROUP * GROUP)
    size = min(size, len(rows))
    clock = _StepClock(arguments.device)
    with tempfile.TemporaryDirectory() as scratch:
        config = GRPOConfig(
            output_dir=scratch,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=len(rows) // size,
            num_generations=GROUP,
            max_completion_length=LONGEST,
            max_steps=arguments.repeat + 1,
            loss_type="dr_grpo",
            beta=0.0,
            bf16=arguments.device == "cuda",
            use_cpu=arguments.device == "cpu",
            gradient_checkpointing=arguments.checkpointing,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = _Prepared(
            model=policy.model,
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_list([{"prompt": "a kernel"}] * len(rows)),
            processing_class=policy.tokenizer,
            callbacks=[clock],
        )
        trainer.batches = [
            _batch(rows[start : start + size], trainer.accelerator.device)
            for start in range(0, len(rows), size)
        ]
        trainer.train()
    return statistics.median(clock.seconds[1:])


class _Prepared(GRPOTrainer):  # type: ignore[misc]
    """Trains on batches that are there already, instead of generating and scoring them."""

    batches: Sequence[dict[str, torch.Tensor]] = ()

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, torch.Tensor]:
        return self.batches[self._step % len(self.batches)]


class _StepClock(TrainerCallback):  # type: ignore[misc]
    """Seconds of each optimiser step, with the gradients that were gathered for it."""

    def __init__(self, device: str) -> None:
        self.seconds: list[float] = []
        self._device = device
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()
        self.seconds.append(time.monotonic() - self._began)


def _batch(rows: Sequence[Row], device: torch.device) -> dict[str, torch.Tensor]:
    """Rows in TRL's form: prompts as they are (all of one length), answers padded to the longest of all."""
    answers, mask = torch.zeros(len(rows), LONGEST, dtype=torch.long), torch.zeros(len(rows), LONGEST)
    for number, row in enumerate(rows):
        answers[number, : len(row.answer_ids)] = torch.from_numpy(row.answer_ids)
        mask[number, : len(row.answer_ids)] = 1
    prompts = torch.stack([torch.from_numpy(row.prompt_ids).long() for row in rows])
    batch = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": answers,
        "completion_mask": mask.long(),
        "advantages": torch.tensor([row.advantage for row in rows]),
        "num_items_in_batch": mask.sum(),
    }
    return {name: value.to(device) for name, value in batch.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--write", action="store_true", help="write docs/results/update_against_trl.json")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
