"""An installed package, written by us, and one harvest of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

LAYERS = '''# Copyright 2024 The Lattice Authors
"""Layers."""

import logging
from typing import Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from .ops import gated, to_pair
from . import ops

logger = logging.getLogger(__name__)


def _register(cls):
    return cls


@_register
class GatedNorm(nn.Module):
    """GatedNorm normalises rows and gates them. A second sentence."""

    def __init__(self, dim: int, drop: float = 0.1, pool: Optional[int] = None):
        super().__init__()
        logger.warning("made")
        if dim <= 0:
            raise ValueError("dim")
        self.norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(drop)
        self.pool = to_pair(pool or 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_scripting():
            return x
        return self.drop(gated(self.norm(x)))

    def extra_repr(self):
        return "gated"


class Twin(nn.Module):
    """Computes what GatedNorm computes."""

    def __init__(self, dim: int, drop: float = 0.1, pool: Optional[int] = None):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(drop)
        self.pool = to_pair(pool or 1)

    def forward(self, x):
        return self.drop(gated(self.norm(x)))


class Residual(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)

    def forward(self, x):
        return x + F.relu(self.conv(x), inplace=True)


class Configured(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)

    def forward(self, hidden_states):
        return torch.tanh(self.dense(hidden_states)) / self.config.hidden_size


class Pair(nn.Module):
    def forward(self, x):
        return torch.exp(-x * x), x


class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return torch.sin(x) * self.calls


class Same(nn.Module):
    def forward(self, x):
        return x.clone()


class Forgetful(nn.Module):
    def forward(self, x, y):
        return torch.sin(x) + 0 * y


class Mysterious(nn.Module):
    def __init__(self, flux_capacitor):
        super().__init__()

    def forward(self, x):
        return x + 1


class WithNumpy(nn.Module):
    def forward(self, x):
        return x * float(np.pi)


class ThroughModule(nn.Module):
    def forward(self, x):
        return ops.gated(x)


class Hangs(nn.Module):
    def forward(self, x):
        import time
        time.sleep(600)
        return torch.sin(x)


class Dies(nn.Module):
    def forward(self, x):
        import os
        os._exit(1)


def squared_error(preds: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean squared error."""
    return ((preds - target) ** 2).mean()
'''
SHORT_DEADLINE = """import threading, time, types
import flows.cli
from kernel_core.harvest import cage

ask, thread = cage.Trials.ask, threading.local()

def with_little_time(trials, request):
    thread.passed_s = 298.0 if "time.sleep(600)" in str(request) else 0.0
    return ask(trials, request)

cage.DEADLINE_S, cage.Trials.ask = 300.0, with_little_time
cage.time = types.SimpleNamespace(monotonic=lambda: time.monotonic() - thread.passed_s)
flows.cli.main()
"""
"""The definition that never ends has two seconds; all others have as many as a busy machine may need."""
OPS = """import torch


def _pairs(n):
    def parse(x):
        return x if isinstance(x, tuple) else (x,) * n
    return parse


to_pair = _pairs(2)


def gated(x):
    return x * torch.sigmoid(x)
"""


def install(root: Path, name: str, licence: str, files: dict[str, str]) -> None:
    """Write a package and the metadata of its distribution."""
    (root / name).mkdir(parents=True)
    for file, text in {"__init__.py": "", **files}.items():
        (root / name / file).write_text(text)
    about = root / f"{name}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n{licence}\n")
    (about / "top_level.txt").write_text(f"{name}\n")


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """A folder of installed packages."""
    root = tmp_path_factory.mktemp("site")
    files = {"layers.py": LAYERS, "ops.py": OPS}
    install(root, "lattice", "License-Expression: MIT", files)
    install(root, "copyleft", "Classifier: License :: OSI Approved :: GNU General Public License v3", files)
    install(root, "mixed_terms", "License-Expression: MIT AND LGPL-2.1", files)
    return root


@pytest.fixture(scope="session")
def dojo(site: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`dojo` with the site's packages installed."""
    path = os.pathsep.join((str(Path(__file__).parents[2]), str(site)))
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("KERNELBENCH_ROOT", None)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SHORT_DEADLINE, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture(scope="session")
def harvested(dojo, tmp_path_factory) -> tuple[Path, dict, str]:
    """The output folder, the manifest, and what was printed."""
    out = tmp_path_factory.mktemp("harvest") / "out"
    done = dojo("harvest", str(out), "--packages", "copyleft,lattice,absent", "--compositions", "4")
    assert done.returncode == 0, done.stderr
    return out, json.loads((out / "harvest.json").read_text()), done.stdout
