"""Tokens a second of supervised updates: padded rows as before, and packed rows.

    python benchmarks/cold_start_speed.py --device cuda [--model PATH] [--minibatch-tokens 16384] [--write]
    python benchmarks/cold_start_speed.py --shape tiny

Without `--model` the weights are random and have the shape of Qwen2.5-Coder-0.5B or a tiny one: the speed
depends on shapes alone. Prompts and answers are as long as those of the generator's kernels under the full
template, a quarter of them second turns. Every way takes the same rows and starts with the same weights; two
updates are not counted. Tokens are of prompts and answers, without padding. The file needs no Prefect.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine
from transformers import AutoModelForCausalLM, Qwen2Config

from kernel_core.config import PolicyConfig
from kernel_core.learn.batch import Row
from kernel_core.learn.cold_start.passes import Passes
from kernel_core.learn.decoder_layers import decoder_layers
from kernel_core.learn.update import (
    BETAS,
    clip_and_step,
    clip_and_step_unseen,
    keep_master_weights,
    new_optimiser,
)
from kernel_core.policy.fast_decode.patched_modules import lent
from kernel_core.policy.tiny_model import train_tokenizer
from kernel_core.policy.torch_policy import TorchPolicy

RESULTS = Path(__file__).parents[1] / "docs" / "results"
SHAPES = {
    "0.5b": {
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "tiny": {
        "vocab_size": 2048,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
FIRST, SECOND, ANSWER = (380, 520), (1000, 1500), (220, 620)
"""Tokens of prompts of first and of second turns, and of answers: from, to."""


@dataclass(frozen=True)
class Way:
    """A way to make updates."""

    name: str
    packed: bool
    again: bool = False
    compiled: bool = False

    @property
    def is_before(self) -> bool:
        """Whether it is as the cold start was: the optimiser in many kernels, and a wait in every update."""
        return not self.packed


WAYS = (
    Way("padded, computed again", packed=False, again=True),
    Way("padded", packed=False),
    Way("packed, computed again", packed=True, again=True),
    Way("packed", packed=True),
    Way("packed, layers compiled", packed=True, compiled=True),
)


def main() -> None:
    """Print a row a way as soon as it is measured; with --write also a JSON file."""
    arguments = _arguments()
    print(f"{'way':26} {'tokens/s':>9} {'x first':>8} {'peak GB':>8} {'padding':>8} {'loss':>7}", flush=True)
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        if arguments.ways and way.name not in arguments.ways:
            continue
        try:
            rows.append({"way": way.name, **_measure(way, arguments)})
        except Exception as error:  # a way that does not run here must not hide the others
            print(f"{way.name:26} {type(error).__name__}: {str(error).splitlines()[0][:120]}", flush=True)
            continue
        row = rows[-1]
        share = row["tokens_per_s"] / rows[0]["tokens_per_s"]
        print(
            f"{way.name:26} {row['tokens_per_s']:9.0f} {share:8.2f} {row['peak_gb']:8.1f} "
            f"{row['padding']:8.1%} {row['loss']:7.4f}",
            flush=True,
        )
    if arguments.write:
        result = {"machine": describe_machine(), "arguments": vars(arguments), "rows": rows}
        (RESULTS / "cold_start_speed.json").write_text(json.dumps(result, indent=2) + "\n")


def _measure(way: Way, arguments: argparse.Namespace) -> dict[str, float]:
    policy = _policy(way, arguments)
    passes = Passes(policy, arguments.minibatch_tokens, way.packed)
    optimiser = _optimiser(policy.model, way)
    batches = _batches(passes, policy.model.config.vocab_size, arguments)
    policy.model.train()
    with passes.prepared(), _compiled(policy.model, way.compiled):
        losses = [_update(passes, optimiser, way, rows) for rows in islice(batches, arguments.warm_up)]
        begun, read, real = _now(arguments.device), 0, 0
        for rows in islice(batches, arguments.updates):
            loss, num_read = _update(passes, optimiser, way, rows)
            losses.append((loss, num_read))
            read, real = read + num_read, real + sum(map(len, rows))
        seconds = _now(arguments.device) - begun
    peak = torch.cuda.max_memory_allocated() / 1e9 if arguments.device == "cuda" else 0.0
    loss = float(losses[-1][0])
    del policy, passes, optimiser, batches
    _let_go(arguments.device)
    return {"tokens_per_s": real / seconds, "peak_gb": peak, "padding": 1 - real / read, "loss": loss}


def _update(
    passes: Passes, optimiser: torch.optim.Optimizer, way: Way, rows: Sequence[Row]
) -> tuple[torch.Tensor, int]:
    num_answer_tokens = sum(len(row.answer_ids) for row in rows)
    total, num_read = torch.zeros((), device=passes.policy.device), 0
    for summed, num in passes.losses(rows):
        loss = summed / num_answer_tokens
        loss.backward()
        total += loss.detach()
        num_read += num
    step: Callable[..., Any] = clip_and_step
    if not way.is_before and passes.policy.device.type == "cuda":
        step = clip_and_step_unseen
    step(passes.policy.model, optimiser, 1.0)
    return total, num_read


def _optimiser(model: Any, way: Way) -> torch.optim.Optimizer:
    if way.is_before:
        return torch.optim.AdamW(model.parameters(), lr=1e-5, betas=BETAS, weight_decay=0.1)
    return new_optimiser(model, 1e-5, 0.1)


def _compiled(model: Any, wanted: bool) -> AbstractContextManager[None]:
    layers = decoder_layers(model) if wanted else []
    return lent([(layer, torch.compile(layer.forward, dynamic=True)) for layer in layers])


def _policy(way: Way, arguments: argparse.Namespace) -> TorchPolicy:
    on_gpu = arguments.device == "cuda"
    config = PolicyConfig(
        model=arguments.model or "new",
        device=arguments.device,
        dtype="bfloat16" if on_gpu else "float32",
        max_context=4096,
        gradient_checkpointing=way.again,
    )
    if arguments.model:
        policy = TorchPolicy.load(arguments.model, config)
    else:
        torch.manual_seed(0)
        settings = Qwen2Config(**SHAPES[arguments.shape], tie_word_embeddings=True)
        with torch.device(arguments.device):
            model = AutoModelForCausalLM.from_config(settings)
        policy = TorchPolicy(model, train_tokenizer(["x = 1\n"] * 4, 300), config, version="random")
    keep_master_weights(policy)
    return policy


def _batches(passes: Passes, vocabulary: int, arguments: argparse.Namespace) -> Iterator[list[Row]]:
    rng = np.random.default_rng(0)
    mean = sum(FIRST) * 3 / 8 + sum(SECOND) / 8 + sum(ANSWER) / 2
    count = int(1.2 * (arguments.warm_up + arguments.updates) * arguments.batch_tokens / mean) + 8
    rows = []
    for index in range(count):
        prompt, answer = (rng.integers(*span) for span in (FIRST if index % 4 else SECOND, ANSWER))
        rows.append(Row(*(rng.integers(3, vocabulary, n).astype(np.int32) for n in (prompt, answer))))
    lengths = [len(row) for row in rows]
    for members in passes.batches(lengths, arguments.batch_tokens, seed=0):
        yield [rows[index] for index in members]


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic()


def _let_go(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", help="a Hugging Face folder; without it random weights")
    parser.add_argument("--shape", choices=tuple(SHAPES), default="0.5b")
    parser.add_argument("--batch-tokens", type=int, default=65536)
    parser.add_argument("--minibatch-tokens", type=int, default=16384)
    parser.add_argument("--warm-up", type=int, default=2, help="updates that are not counted")
    parser.add_argument("--updates", type=int, default=6)
    parser.add_argument("--ways", nargs="*", help="only these; their names are in the table")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
