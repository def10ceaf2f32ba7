"""Tokens a second of the static decoder, the growing cache, and transformers' `generate`, side by side.

    python benchmarks/sampling_speed.py [--device cuda] [--batch 256 512] [--write]

One random Qwen3 policy (39 M weights by default), prompts of 128 tokens, 256 new ones each without an end
token, temperature 1. Each way is warmed up once and then timed `--repeat` times; the median is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine

from kernel_core.config import PolicyConfig
from kernel_core.policy import decode
from kernel_core.policy.fast_decode.graph_decoder import StaticDecoder
from kernel_core.policy.tiny_model import new_policy

RESULTS = Path(__file__).parents[1] / "docs" / "results"
NO_END = -1


def main() -> None:
    """Print a row for each batch size and way; with --write also a JSON file, anew after each batch size."""
    arguments = _arguments()
    policy = new_policy(
        PolicyConfig(
            hidden_size=arguments.hidden,
            num_layers=arguments.layers,
            num_heads=max(2, arguments.hidden // 64),
            max_context=1024,
            device=arguments.device,
            dtype="bfloat16" if arguments.device == "cuda" else "float32",
        ),
        [f"kernel {number}: tl.load(x_ptr + offs, mask=offs < n)\n" for number in range(500)],
        seed=0,
    )
    rows = []
    for batch in arguments.batch:
        for name, act in _ways(policy, batch, arguments.prompt, arguments.new).items():
            seconds = _timed(act, arguments.repeat, arguments.device)
            rows.append({"batch": batch, "way": name, "tokens_per_s": round(batch * arguments.new / seconds)})
            print(json.dumps(rows[-1]), flush=True)
        if arguments.write:
            result = {"machine": describe_machine(), "parameters": policy.num_parameters, "rows": rows}
            (RESULTS / "sampling_speed.json").write_text(json.dumps(result, indent=2) + "\n")


def _ways(policy: Any, batch: int, num_prompt: int, num_new: int) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(0)
    prompts = [
        rng.integers(10, policy.model.config.vocab_size, num_prompt).astype(np.int32) for _ in range(batch)
    ]
    ids = torch.from_numpy(np.stack(prompts).astype(np.int64)).to(policy.device)
    settings: dict[str, Any] = {
        "max_new": [num_new] * batch,
        "uniforms_B_T": rng.random((batch, num_new)),
        "temperature": 1.0,
        "end_ids": [NO_END],
        "pad_id": 0,
    }
    static = StaticDecoder(policy.model)

    def generate(cache: str | None) -> Any:
        return policy.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_new,
            min_new_tokens=num_new,
            do_sample=True,
            top_k=0,
            cache_implementation=cache,
            pad_token_id=0,
        )

    return {
        "static decoder": lambda: static.decode(prompts, **settings),
        "growing cache": lambda: decode.decode(policy.model, prompts, **settings),
        "generate, static cache": lambda: generate("static"),
        "generate, default cache": lambda: generate(None),
    }


def _timed(act: Callable[[], Any], repeat: int, device: str) -> float:
    """Median seconds of a call after one that is not counted."""
    seconds = []
    with torch.no_grad():
        for _ in range(repeat + 1):
            begun = time.monotonic()
            act()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.monotonic() - begun)
    return statistics.median(seconds[1:])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 512])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=256)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="write docs/results/sampling_speed.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
