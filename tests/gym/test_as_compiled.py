"""Conformance of the interpreter with compiled kernels: scalars, running sums, atomics, races of lanes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import json
import torch
import triton
import triton.language as tl

from kernel_core.gym.untrusted.interpreter.memory_meter import Meter
from kernel_core.gym.untrusted.interpreter.meter_hooks import install
from kernel_core.gym.untrusted.interpreter.patches import prepare_interpreter

prepare_interpreter()
meter = Meter(counting=False)
install(meter)


def run(kernel, *values, **options):
    tensors = [one.untyped_storage() for one in values if isinstance(one, torch.Tensor)]
    meter.begin(tensors)
    try:
        kernel[(1,)](*values, **options)
    except Exception as error:
        return type(error.__cause__ or error).__name__
    return next(one for one in values if isinstance(one, torch.Tensor)).double().flatten().tolist()


@triton.jit
def half(y, v: tl.float16):
    tl.store(y, v.to(tl.float32))


@triton.jit
def brain(y, v: "bf16"):
    tl.store(y, v.to(tl.float32))


@triton.jit
def byte(y, v: "i8"):
    tl.store(y, v.to(tl.float32))


@triton.jit
def single(y, v: tl.float32 = 0.1):
    tl.store(y, v.to(tl.float64))


@triton.jit
def plain(y, v):
    tl.store(y, v * 1.0)


@triton.jit
def running(y, N: tl.constexpr, REVERSE: tl.constexpr):
    lane = tl.arange(0, N)
    tl.store(y + lane, tl.cumsum(tl.load(y + lane), axis=0, reverse=REVERSE))


@triton.jit
def product(y, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.store(y + lane, tl.cumprod(tl.load(y + lane), axis=0))


@triton.jit
def add(y, x, SAME: tl.constexpr, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.atomic_add(y + lane * (1 - SAME), tl.load(x + lane), mask=lane < N - 1)


@triton.jit
def turn(x, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.store(x + lane, tl.load(x + N - 1 - lane))


@triton.jit
def turn_with_barrier(x, N: tl.constexpr):
    lane = tl.arange(0, N)
    value = tl.load(x + N - 1 - lane)
    tl.debug_barrier()
    tl.store(x + lane, value)


@triton.jit
def square(x, N: tl.constexpr):
    lane = tl.arange(0, N)
    tl.store(x + lane, tl.load(x + lane) * 2)


@triton.jit
def shift(x, N: tl.constexpr):
    lane = tl.arange(0, N)
    for step in range(3):
        tl.store(x + lane, tl.load(x + lane + 1, mask=lane < N - 1, other=0.0))


@triton.jit
def after_sum(x, N: tl.constexpr):
    lane = tl.arange(0, N)
    value = tl.load(x + lane)
    tl.store(x + N - 1 - lane, tl.sum(value) + value)


@triton.jit
def over_a_row(x, N: tl.constexpr):
    lane = tl.arange(0, N)
    row = tl.load(x + lane)
    tl.store(x + 5, 1.0)
    tl.store(x + N + lane, row)


empty, one = lambda: torch.zeros(1, dtype=torch.float64), torch.ones
grow = torch.full((4096,), 0.1)
print(json.dumps({
    "half": run(half, empty(), 0.1),
    "half of little": run(half, empty(), 1e-8),
    "half of much": run(half, empty(), 7e4),
    "brain": run(brain, empty(), 0.1),
    "byte": run(byte, empty(), 300),
    "byte of a float": run(byte, empty(), 0.5),
    "default": run(single, empty()),
    "keyword": run(half, empty(), v=0.1),
    "plain": run(plain, empty(), 0.5),
    "running": run(running, grow.clone(), 4096, False)[-1],
    "backward": run(running, torch.arange(8.0), 8, True),
    "whole": run(running, torch.arange(8, dtype=torch.int32), 8, False),
    "product": run(product, torch.arange(1.0, 9.0), 8),
    "bf16 atomics": run(add, torch.zeros(64).bfloat16(), one(64).bfloat16(), 0, 64),
    "bf16 atomics at one place": run(add, 255 * one(1).bfloat16(), one(64).bfloat16(), 1, 64),
    "turn": run(turn, torch.arange(64.0), 64),
    "turn in one warp": run(turn, torch.arange(64.0), 64, num_warps=1)[:2],
    "turn of a warp": run(turn, torch.arange(32.0), 32)[:2],
    "turn with barrier": run(turn_with_barrier, torch.arange(64.0), 64)[:2],
    "square": run(square, torch.arange(64.0), 64)[:2],
    "shift": run(shift, torch.arange(64.0), 64),
    "after a sum": run(after_sum, torch.zeros(64), 64)[:2],
    "over a row": run(over_a_row, torch.zeros(128), 64),
}))
"""

_EXPECTED = {
    "half": [0.0999755859375],
    "half of little": [0.0],
    "half of much": [float("inf")],
    "brain": [0.10009765625],
    "byte": [44.0],
    "byte of a float": "TypeError",
    "default": [0.10000000149011612],
    "keyword": [0.0999755859375],
    "plain": [0.5],
    "backward": [28.0, 28.0, 27.0, 25.0, 22.0, 18.0, 13.0, 7.0],
    "whole": [0.0, 1.0, 3.0, 6.0, 10.0, 15.0, 21.0, 28.0],
    "product": [1.0, 2.0, 6.0, 24.0, 120.0, 720.0, 5040.0, 40320.0],
    "bf16 atomics": [1.0] * 63 + [0.0],
    "bf16 atomics at one place": [256.0],
    "turn": "Race",
    "turn in one warp": [63.0, 62.0],
    "turn of a warp": [31.0, 30.0],
    "turn with barrier": [63.0, 62.0],
    "square": [0.0, 2.0],
    "shift": "Race",
    "after a sum": [0.0, 0.0],
    "over a row": "Race",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, object]:
    script = tmp_path_factory.mktemp("compiled") / "script.py"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, str(script)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", _EXPECTED)
def test_gives_what_a_compiled_kernel_gives(results, name):
    assert results[name] == _EXPECTED[name]


def test_a_running_sum_errs_as_little_as_a_tree(results):
    assert abs(results["running"] - 409.6) < 2e-4
