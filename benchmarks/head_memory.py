"""Memory and time of one update batch with a vocabulary of 152,000: all its logits at once, and in parts.

    python benchmarks/head_memory.py --write

A Qwen3 policy with two narrow layers, so that its head is nearly all of it; 12 rows of a prompt of 200 tokens
and an answer of 300, in float32 on the CPU. Each way has a process of its own; its largest resident size is
what the system says of it.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine
from transformers import AutoModelForCausalLM, Qwen3Config

from kernel_core.learn import chunked_logits as head
from kernel_core.learn.batch import Row, collate
from kernel_core.learn.loss import token_logprobs

RESULTS = Path(__file__).parents[1] / "docs" / "results" / "head_memory.md"
VOCABULARY, ROWS, PROMPT, ANSWER = 151_936, 12, 200, 300
WAYS = {"all at once": 1 << 62, "in parts": 0}


def main() -> None:
    """A row for each way; with --write also the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/results/head_memory.md")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(_measure(WAYS[arguments.way])))
        return
    lines = [
        "# The head in parts",
        "",
        "    python benchmarks/head_memory.py --write",
        "",
        f"Machine: {describe_machine()}. One run. {ROWS * ANSWER:,} answer tokens, a vocabulary of "
        f"{VOCABULARY:,}.",
        "",
        "| logits | peak memory | forward and backward |",
        "|---|---|---|",
    ]
    for way in WAYS:
        command = [sys.executable, __file__, "--way", way]
        gigabytes, seconds = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        lines.append(f"| {way} | {gigabytes:.1f} GB | {seconds:.1f} s |")
    print("\n".join(lines))
    if arguments.write:
        RESULTS.write_text("\n".join(lines) + "\n")


def _measure(logits_bytes: int) -> tuple[float, float]:
    head.LOGITS_BYTES = logits_bytes
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
    )
    model = AutoModelForCausalLM.from_config(config)
    rng = np.random.default_rng(0)
    rows = [
        Row(*(rng.integers(3, VOCABULARY, n).astype(np.int32) for n in (PROMPT, ANSWER))) for _ in range(ROWS)
    ]
    batch = collate(rows, 0, "cpu")
    begun = time.monotonic()
    logprobs, _ = head.by_token(model, batch, functools.partial(token_logprobs, temperature=1.0))
    torch.autograd.backward((logprobs * batch.mask_B_C).sum())
    seconds = time.monotonic() - begun
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, seconds


if __name__ == "__main__":
    main()
