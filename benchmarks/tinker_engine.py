"""Claim: a Tinker server and the engine in this process learn the same from the same rows.

python benchmarks/tinker_engine.py BASE_FOLDER ENDPOINT [--steps 4]     (TINKER_API_KEY is set)

Fresh adapters are made on the server, exported, and put on the same base here. Both then make the same
updates: of RL (signed advantages) and of a cold start (mean cross entropy of an update's answer tokens).
Printed is, for each update, the loss before it and the mean log-probability of all answers after it.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from peft import PeftModel

from kernel_core.config import ColdStartConfig, IngestConfig, PolicyConfig, TrainConfig
from kernel_core.corpus.generator_source import generated_exemplars
from kernel_core.corpus.registry import SOURCES_FILE, read_registry
from kernel_core.dialogue.prompt import format_completion
from kernel_core.learn.batch import Row
from kernel_core.learn.cold_start.updater import open_updater
from kernel_core.learn.learner import open_learner
from kernel_core.policy.tinker_export import export_adapters
from kernel_core.policy.tinker_policy import TinkerPolicy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.policy.trainable import Trainable
from kernel_core.progress import silent
from kernel_core.store import Store

LR, ROWS = 1e-3, 8


def rows_of(policy: TorchPolicy) -> list[Row]:
    """Problems of the generator, each with a kernel of it as the answer; advantages of both signs."""
    found = generated_exemplars(
        read_registry(SOURCES_FILE).sources["generator"], IngestConfig(generator_rows=12, seed=5)
    )
    rows = []
    for index, one in enumerate(found):
        prompt = policy.encode_messages([{"role": "user", "content": one.reference_code}])
        answer = policy.encode_completion(format_completion("", one.kernel_code))
        if len(prompt) + len(answer) <= 384:
            rows.append(
                Row(prompt, answer, advantage=(-1.0) ** index * (0.5 + index % 3), conversation=index)
            )
    return rows[:ROWS]


def mean_logprob(policy: Trainable, rows: list[Row]) -> float:
    """Nats a token of all answers."""
    return float(np.concatenate([policy.logprobs(r.prompt_ids, r.answer_ids, 1.0) for r in rows]).mean())


def main() -> None:
    """Print both engines side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("endpoint")
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    config = PolicyConfig(kind="tinker", model=arguments.base, endpoint=arguments.endpoint, lora_rank=8)
    there = TinkerPolicy.load(None, config)
    with tempfile.TemporaryDirectory() as scratch:
        exported = str(Path(scratch) / "adapters")
        export_adapters(config, there.model.save("fresh-adapters").sampler, exported)
        here = TorchPolicy.load(arguments.base, PolicyConfig(model=arguments.base))
        here.model = PeftModel.from_pretrained(here.model, exported, is_trainable=True)
        rows = rows_of(here)
        print(f"{len(rows)} rows, {sum(len(row.answer_ids) for row in rows)} answer tokens, rate {LR:g}")
        print("| update | loss, torch | loss, server | log π after, torch | log π after, server |")
        print("|---|---|---|---|---|")
        changes = {"lr": LR, "max_grad_norm": 1e9, "mismatch": {"importance_cap": 2.0}}
        trained = TrainConfig.model_validate({"policy": config.model_dump(), **changes})
        learners = [open_learner(trained, policy, Store(scratch)) for policy in (here, there)]
        for step in range(1, arguments.steps + 1):
            drawn = [
                replace(row, sampler_logprobs=here.logprobs(row.prompt_ids, row.answer_ids, 1.0))
                for row in rows
            ]
            found = [learner.update(drawn, step, silent).loss for learner in learners]
            show(f"RL {step}", [float(loss or 0.0) for loss in found], here, there, rows)
        settings = ColdStartConfig(lr=LR, weight_decay=0.0)
        pair = [open_updater(policy, settings, 4096, Store(scratch)) for policy in (here, there)]
        for step in range(1, arguments.steps + 1):
            losses = [float(updater.update(rows, LR).loss) for updater in pair]
            show(f"cold start {step}", losses, here, there, rows)
    there.close()


def show(update: str, losses: list[float], here: Trainable, there: Trainable, rows: list[Row]) -> None:
    """One row of the table."""
    after = [mean_logprob(policy, rows) for policy in (here, there)]
    print(f"| {update} | {losses[0]:.5f} | {losses[1]:.5f} | {after[0]:.5f} | {after[1]:.5f} |", flush=True)


if __name__ == "__main__":
    main()
