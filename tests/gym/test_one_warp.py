"""In the interpreter, lanes of one warp need no barrier, however a launch says that it has one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import torch
import triton
import triton.language as tl

from kernel_core.gym.untrusted.interpreter.memory_meter import Meter
from kernel_core.gym.untrusted.interpreter.meter_hooks import install
from kernel_core.gym.untrusted.interpreter.patches import prepare_interpreter

prepare_interpreter()
meter = Meter(counting=False)
install(meter)


@triton.jit
def turn(x, WIDTH: tl.constexpr):
    lane = tl.arange(0, WIDTH)
    tl.store(x + lane, lane)
    tl.store(x + lane, tl.load(x + WIDTH - 1 - lane))


@triton.jit
def share(x, WIDTH: tl.constexpr):
    tl.store(x, 7)
    tl.store(x + 1 + tl.arange(0, WIDTH), tl.load(x) + tl.zeros((WIDTH,), tl.int32))


@triton.jit
def collide(x, WIDTH: tl.constexpr):
    lane = tl.arange(0, WIDTH)
    tl.store(x + lane * 0, lane)


@triton.jit
def between_programs(x, WIDTH: tl.constexpr):
    tl.store(x, tl.load(x) + 1)


def tuned(warps):
    return triton.autotune([triton.Config({}, num_warps=warps)], key=[])(turn)


def chosen(warps):
    return triton.heuristics({"num_warps": lambda known: warps})(turn)


LAUNCHES = {
    "keyword 1": lambda x: turn[(1,)](x, 32, num_warps=1),
    "configuration 1": lambda x: tuned(1)[(1,)](x, 32),
    "heuristic 1": lambda x: chosen(1)[(1,)](x, 32),
    "number 1": lambda x: share[(1,)](x, 32, num_warps=1),
    "default": lambda x: turn[(1,)](x, 32),
    "keyword 4": lambda x: turn[(1,)](x, 32, num_warps=4),
    "configuration 4": lambda x: tuned(4)[(1,)](x, 32),
    "heuristic 4": lambda x: chosen(4)[(1,)](x, 32),
    "number 4": lambda x: share[(1,)](x, 32, num_warps=4),
    "several blocks": lambda x: turn[(1,)](x, 32, num_warps=1, num_ctas=2),
    "one address": lambda x: collide[(1,)](x, 32, num_warps=1),
    "programs": lambda x: between_programs[(2,)](x, 32, num_warps=1),
}
for name, launch in LAUNCHES.items():
    x = torch.zeros(64, dtype=torch.int32)
    meter.begin([x.untyped_storage()])
    try:
        launch(x)
    except Exception as error:
        assert "Race" in repr(error), (name, error)
    else:
        print(name)
"""


def test_lanes_of_one_warp_need_no_barrier(tmp_path: Path) -> None:
    """In a process of its own: an interpreter is for good."""
    file = tmp_path / "launches.py"
    file.write_text(_SCRIPT)
    path = filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")))
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["keyword 1", "configuration 1", "heuristic 1", "number 1"]
