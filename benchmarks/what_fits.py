"""Memory of an RL step by model, weights that train and number of GPUs: what fits, computed and measured.

    python benchmarks/what_fits.py [--write]
    python benchmarks/what_fits.py --measure 3B --full [--rows 16]
    python benchmarks/what_fits.py --measure 14B --lora [--rows 16]

The first prints a table that is computed from the shapes of Qwen2.5 (`tests/fixtures/step_memory.py`).
The others do a step with random weights of a shape on all GPUs of this host, sharded where there are several.
They print the computed memory of the first GPU beside the measured one, both without contexts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from machine import describe_machine
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from kernel_core.config import PolicyConfig, TrainConfig
from kernel_core.learn.batch import TokenRow
from kernel_core.learn.distributed.data_parallel import Share, reshard, shard
from kernel_core.learn.update import keep_master_weights, new_optimiser, update
from kernel_core.policy.decode import decode
from kernel_core.policy.tiny_model import train_tokenizer
from kernel_core.policy.torch_policy import TorchPolicy, uniforms
from tests.fixtures.step_memory import (
    GIB,
    QWEN,
    DecoderShape,
    StepWork,
    by_phase,
    peak,
    rows_that_fit,
)

PAGE = Path(__file__).parents[1] / "docs" / "results" / "what_fits.md"
GPU_BYTES = 79 * GIB
"""Memory that torch reports free on an 80 GB H100."""
RANK = 32
NUM_GPUS = (1, 2, 4, 8)
SHAPES = {"tiny": DecoderShape(64, 2, 4, 2, 128, 512, tied=True, head_dim=16), **QWEN}
"""`tiny` is for trying this script on a CPU, where no memory is measured."""
NEW = 64
"""Tokens that are sampled when measuring: the cache is as long as the prompt and these."""
EXAMPLE = "14B"
EXAMPLE_WORK = StepWork(2, RANK)


def main() -> None:
    """Print the table, or measure."""
    arguments = _arguments()
    if "RANK" in os.environ or (arguments.measure and _num_learners() == 1):
        _measure(arguments)
    elif arguments.measure:
        learners = f"--standalone --local-addr=localhost --nproc-per-node={_num_learners()}".split()
        command = [sys.executable, "-m", "torch.distributed.run", *learners, *sys.argv]
        raise SystemExit(subprocess.run(command).returncode)
    else:
        print(tables := _tables())
        if arguments.write:
            text = PAGE.read_text()
            begin, end = "<!-- computed -->\n", "<!-- end -->\n"
            before, after = text.partition(begin)[0], text.partition(end)[2]
            PAGE.write_text(f"{before}{begin}{tables}{end}{after}")


def _tables() -> str:
    """The table of models and GPUs, and an example by phase."""
    lines = [f"| model | trains | {' | '.join(f'{n} GPU' + 's' * (n > 1) for n in NUM_GPUS)} |"]
    lines.append("|---|---|" + "---|" * len(NUM_GPUS))
    for name, shape in QWEN.items():
        for trains, rank in (("all weights", None), (f"LoRA, rank {RANK}", RANK)):
            cells = [_cell(shape, StepWork(learners, rank)) for learners in NUM_GPUS]
            lines.append(f"| {name} | {trains} | {' | '.join(cells)} |")
    lines += ["", f"{EXAMPLE}, LoRA, rank {RANK}, {EXAMPLE_WORK.learners} GPUs, GiB by phase:", ""]
    lines += ["| phase | parts | together |", "|---|---|---|"]
    for phase, parts in by_phase(QWEN[EXAMPLE], EXAMPLE_WORK).items():
        summary = ", ".join(f"{part} {value / GIB:.1f}" for part, value in parts.items() if value)
        lines.append(f"| {phase} | {summary} | {sum(parts.values()) / GIB:.1f} |")
    return "\n".join(lines) + "\n"


def _cell(shape: DecoderShape, work: StepWork) -> str:
    phase, total = peak(shape, work)
    rows = rows_that_fit(shape, work, GPU_BYTES)
    if rows == work.sampled_rows:
        return f"{total / GIB:.0f} ({phase})"
    return f"{total / GIB:.0f} ({phase}): {f'fits with {rows} rows' if rows else '**no**'}"


def _measure(arguments: argparse.Namespace) -> None:
    """One learner's part of a step; the first one has the sampler's copy as well, and prints."""
    share = Share(int(os.environ.get("RANK", 0)), _num_learners())
    if torch.cuda.is_available():
        torch.cuda.set_device(share.rank)
    if share.size > 1:
        dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    shape, rank = SHAPES[arguments.measure], RANK if arguments.lora else None
    work = StepWork(share.size, rank)
    measured: dict[str, tuple[float, int]] = {}

    def phase(name: str, does: Callable[[], Any]) -> Any:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        begun, result = time.monotonic(), does()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        most = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        measured[name] = time.monotonic() - begun, most
        return result

    policy = phase("load", lambda: _learner(shape, rank, share))
    sampler = policy.model
    if share.size > 1:
        sampler = _random_model(shape, rank) if share.rank == 0 else None
    optimiser = new_optimiser(policy.model, 1e-6)
    rows = _rows(arguments.rows, shape, work)
    config = TrainConfig(policy=policy.config, learners=share.size, minibatch_tokens=work.minibatch_tokens)
    if sampler is not None:
        phase("sample, before moments", lambda: _sample(sampler, shape, work))
    phase("update, first", lambda: update(policy, optimiser, rows, config, share=share))
    phase("update", lambda: update(policy, optimiser, rows, config, share=share))
    reshard(policy.model)
    if sampler is not None:
        phase("sample", lambda: _sample(sampler, shape, work))
    if share.rank == 0:
        _print(arguments, shape, work, measured)
    if share.size > 1:
        dist.destroy_process_group()


def _print(
    arguments: argparse.Namespace, shape: DecoderShape, work: StepWork, measured: dict[str, tuple[float, int]]
) -> None:
    sampled = replace(work, row_tokens=work.row_tokens - work.answer_tokens + NEW, answer_tokens=NEW)
    phases = by_phase(shape, work) | {"sample": by_phase(shape, sampled)["sample"]}
    computed = {
        name: sum(value for part, value in parts.items() if part != "contexts")
        for name, parts in phases.items()
    }
    computed["update"] = max(computed["update"], computed["optimiser"])
    print(f"{describe_machine()}; {arguments.measure}, {work}, {arguments.rows} rows")
    if not torch.cuda.is_available():
        print(
            "no GPU: memory is not measured; seconds:",
            {name: round(s, 1) for name, (s, _) in measured.items()},
        )
        return
    print("| phase | computed GiB | measured GiB | measured / computed | s |\n|---|---|---|---|---|")
    for name, (seconds, most) in measured.items():
        expected = computed.get(name)
        columns = f"{expected / GIB:.1f} | {most / GIB:.1f} | {most / expected:.2f}" if expected else None
        print(f"| {name} | {columns or f'– | {most / GIB:.1f} | –'} | {seconds:.1f} |")


def _learner(shape: DecoderShape, rank: int | None, share: Share) -> TorchPolicy:
    """A policy with random weights that is ready to train, sharded among several learners."""
    config = PolicyConfig(
        model="new",
        device=_device(),
        dtype="bfloat16" if _device() == "cuda" else "float32",
        lora_rank=rank,
        gradient_checkpointing=True,
    )
    model = _random_model(shape, rank)
    policy = TorchPolicy(model, train_tokenizer(["kernel"], 300), config, version="random")
    if share.size > 1:
        shard(model, getattr(torch, config.dtype))
    else:
        keep_master_weights(policy)
    return policy


def _random_model(shape: DecoderShape, rank: int | None) -> Any:
    """A model of a shape, in bfloat16 on a GPU, with adapters in float32."""
    config = shape.model_config()
    dtype = torch.bfloat16 if _device() == "cuda" else torch.float32
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(_device())
    if rank is not None:
        model = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear", task_type="CAUSAL_LM"))
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in made:
                values = torch.empty_like(parameter, device=_device()).normal_(std=0.02)
                made[id(parameter)] = torch.nn.Parameter(values, parameter.requires_grad)
            setattr(module, name, made[id(parameter)])
    return model


def _sample(model: Any, shape: DecoderShape, work: StepWork) -> None:
    """Write a few tokens for groups that share a prompt."""
    rng = np.random.default_rng(0)
    length = work.row_tokens - work.answer_tokens
    distinct = [
        rng.integers(3, shape.vocabulary, length).astype(np.int32)
        for _ in range(work.sampled_rows // work.group_size)
    ]
    prompts = [prompt for prompt in distinct for _ in range(work.group_size)]
    with torch.autocast("cuda", torch.bfloat16, enabled=_device() == "cuda", cache_enabled=False):
        decode(
            model.eval(),
            prompts,
            max_new=[NEW] * len(prompts),
            uniforms_B_T=uniforms(0, range(len(prompts)), NEW),
            temperature=1.0,
            end_ids=[0],
            pad_id=0,
        )


def _rows(count: int, shape: DecoderShape, work: StepWork) -> list[TokenRow]:
    rng = np.random.default_rng(0)
    ids = rng.integers(3, shape.vocabulary, (count, work.row_tokens)).astype(np.int32)
    return [
        TokenRow(row[: -work.answer_tokens], row[-work.answer_tokens :], advantage)
        for row, advantage in zip(ids, np.linspace(-1.0, 2.0, count).tolist(), strict=True)
    ]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _num_learners() -> int:
    return int(os.environ.get("WORLD_SIZE", max(1, torch.cuda.device_count())))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="write docs/results/what_fits.md")
    parser.add_argument("--measure", choices=list(SHAPES), help="do a step of this shape")
    parser.add_argument("--rows", type=int, default=64, help="rows of the step that is measured")
    trains = parser.add_mutually_exclusive_group()
    trains.add_argument("--full", action="store_true", help="all weights train (the default)")
    trains.add_argument("--lora", action="store_true", help=f"LoRA adapters of rank {RANK} train")
    return parser.parse_args()


if __name__ == "__main__":
    main()
