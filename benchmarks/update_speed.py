"""Tokens a second of the update step, by number of GPUs.

    python benchmarks/update_speed.py [--device cuda] [--learners 1 2 4] [--write]

One random Qwen3 policy (39 M weights by default); rows of a prompt of 400 tokens and answers of 100 to 448,
every one with an advantage. Each number of learners takes the same rows; one update is not counted, and the
median of `--repeat` is printed. Tokens are of prompts and answers, without padding.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine

from kernel_core.config import PolicyConfig, TrainConfig
from kernel_core.learn.batch import Row
from kernel_core.learn.distributed.learner_group import LearnerGroup
from kernel_core.learn.update import keep_master_weights, new_optimiser, update
from kernel_core.policy.tiny_model import new_policy
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.progress import silent
from kernel_core.runs.placement import placed
from kernel_core.store import Store

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PROMPT, SHORTEST, LONGEST = 400, 100, 448
"""Tokens of a prompt, and of answers."""


def main() -> None:
    """Print a row for each number of learners; with --write also a JSON file."""
    arguments = _arguments()
    if len(arguments.learners) == 1:
        print(json.dumps(_measure(arguments, arguments.learners[0])), flush=True)
        return
    rows = []
    for learners in arguments.learners:
        # A process of its own each, so that each begins with an empty GPU.
        command = [sys.executable, __file__, *_same(arguments), "--learners", str(learners)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        rows[-1]["scaling"] = round(rows[-1]["tokens_per_s"] / rows[0]["tokens_per_s"], 2)
        print(json.dumps(rows[-1]), flush=True)
    if arguments.write:
        result = {"machine": describe_machine(), "rows": rows}
        (RESULTS / "update_speed.json").write_text(json.dumps(result, indent=2) + "\n")


def _measure(arguments: argparse.Namespace, learners: int) -> dict[str, float]:
    policy = benchmark_policy(arguments)
    asked = TrainConfig(policy=policy.config, learners=learners, minibatch_tokens=arguments.batch_tokens)
    config = placed(asked, torch.cuda.device_count())
    optimiser = new_optimiser(policy.model, config.lr)
    rows = benchmark_rows(arguments.rows, policy.model.config.vocab_size)
    store = Store(tempfile.mkdtemp())
    group = LearnerGroup(config, policy, store) if learners > 1 else None
    seconds = []
    for _ in range(arguments.repeat + 1):
        begun = time.monotonic()
        _ = group.update(rows, 1, silent) if group else update(policy, optimiser, rows, config)
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - begun)
    if group:
        group.close()
    median, tokens = statistics.median(seconds[1:]), sum(map(len, rows))
    return {"learners": learners, "tokens": tokens, "tokens_per_s": round(tokens / median)}


def benchmark_policy(arguments: argparse.Namespace) -> TorchPolicy:
    """A random policy that is ready to be trained, the same every time."""
    config = PolicyConfig(
        model="new",
        hidden_size=arguments.hidden,
        num_layers=arguments.layers,
        num_heads=max(2, arguments.hidden // 64),
        device=arguments.device,
        dtype="bfloat16" if arguments.device == "cuda" else "float32",
        gradient_checkpointing=arguments.checkpointing,
    )
    texts = [f"kernel {number}: tl.load(x_ptr + offs, mask=offs < n)\n" for number in range(500)]
    policy = new_policy(config, texts, seed=0)
    keep_master_weights(policy)
    return policy


def benchmark_rows(count: int, vocabulary: int) -> list[Row]:
    """Turns of random tokens, each with an advantage, the same every time."""
    rng = np.random.default_rng(0)
    return [
        Row(
            rng.integers(10, vocabulary, PROMPT).astype(np.int32),
            rng.integers(10, vocabulary, int(length)).astype(np.int32),
            float(rng.normal()) or 1.0,
            np.zeros(int(length), np.float32),
        )
        for length in rng.integers(SHORTEST, LONGEST + 1, count)
    ]


def _same(arguments: argparse.Namespace) -> list[str]:
    names = ("device", "hidden", "layers", "rows", "batch_tokens", "repeat")
    settings = [word for name in names for word in _flag(name, getattr(arguments, name))]
    return [*settings, *(["--checkpointing"] if arguments.checkpointing else [])]


def _flag(name: str, value: object) -> tuple[str, str]:
    return "--" + name.replace("_", "-"), str(value)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--learners", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--write", action="store_true", help="write docs/results/update_speed.json")
    return parser.parse_args()


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of each script that times an update: the policy, the rows, the repetitions."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing")


if __name__ == "__main__":
    main()
