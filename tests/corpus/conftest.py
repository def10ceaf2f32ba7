"""Rows in the published schemas, written by us, that the corpus tests spoil in one way each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Row = dict[str, Any]
Writer = Callable[..., Path]

KERNELBOOK_REFERENCE = '''import torch
import torch.nn as nn


class RowScaler(nn.Module):
    """Scale every row, with RowScaler's own gain."""

    def __init__(self, width, gain=2.0, shift=0.0):
        super(RowScaler, self).__init__()
        self.width = width
        self.gain = gain
        self.shift = shift

    def forward(self, x):
        return torch.softmax(x * self.gain + self.shift, dim=-1)


def get_inputs():
    return [torch.rand([4, 4, 4, 4])]


def get_init_inputs():
    return [[4], {'shift': 0.5}]
'''
KERNELBOOK_KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def fused(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x * 2.0, mask=i < n)


class RowScalerNew(torch.nn.Module):
    def __init__(self, width, gain=2.0, shift=0.0):
        super(RowScalerNew, self).__init__()
        self.gain = gain

    def forward(self, x):
        y = torch.empty_like(x)
        fused[(1,)](x, y, x.numel(), BLOCK=256)
        return y
"""
SAKANA_REFERENCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num_features))

    def forward(self, x):
        return torch.cumsum(x, dim=1) * self.scale


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return [64]
"""
SAKANA_KERNEL = """#include <torch/extension.h>
// One thread a row.
__global__ void scan(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
torch::Tensor forward(torch::Tensor x, torch::Tensor scale) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""

_SAKANA_FLOATS = (
    "CUDA_Runtime",
    "PyTorch_Native_Runtime",
    "PyTorch_Compile_Runtime",
    "CUDA_Speedup_Native",
    "CUDA_Speedup_Compile",
    "Max_Diff",
)
_SAKANA_TEXTS = ("Error", "NCU_Profile", "Torch_Profile", "Clang_Tidy")


@pytest.fixture
def kernelbook_row() -> Callable[..., Row]:
    """A row in KernelBook's columns."""

    def row(uuid: int = 1, **changes: Any) -> Row:
        values: Row = {
            "entry_point": "RowScaler",
            "original_triton_code": "# compiler output",
            "python_code": KERNELBOOK_REFERENCE,
            "triton_code": KERNELBOOK_KERNEL,
            "repo_name": "someone/layers",
            "module_name": "RowScaler",
            "synthetic": False,
            "uuid": uuid,
            "licenses": ["MIT"],
            "stars": 3,
            "sha": "0" * 40,
            "repo_link": "https://example.org/someone/layers",
        }
        return values | changes

    return row


@pytest.fixture
def sakana_row() -> Callable[..., Row]:
    """A row in the Sakana archive's columns."""

    def row(index: int = 0, **changes: Any) -> Row:
        values: Row = {
            "Op_Name": "89_cumsum",
            "Level_ID": 1,
            "Task_ID": 89,
            "Kernel_Name": "89_cumsum_warp",
            "CUDA_Runtime": 0.02,
            "PyTorch_Native_Runtime": 0.03,
            "PyTorch_Compile_Runtime": 0.04,
            "CUDA_Speedup_Native": 1.5,
            "CUDA_Speedup_Compile": 2.0,
            "CUDA_Code": SAKANA_KERNEL,
            "PyTorch_Code_Module": SAKANA_REFERENCE,
            "PyTorch_Code_Functional": "def module_fn(x, scale): ...",
            "Correct": True,
            "Max_Diff": 1e-6,
            "Error": None,
            "NCU_Profile": "{'metrics': {'Occupancy': {'avg_value': 1.0}}}",
            "Torch_Profile": None,
            "Clang_Tidy": None,
            "__index_level_0__": index,
        }
        return values | changes

    return row


@pytest.fixture
def write_parquet(tmp_path: Path) -> Writer:
    """Rows as a Parquet file, typed as published."""

    def write(rows: list[Row], name: str = "rows.parquet", **types: pa.DataType) -> Path:
        known = {name: pa.float64() for name in _SAKANA_FLOATS} | {
            name: pa.string() for name in _SAKANA_TEXTS
        }
        inferred = pa.Table.from_pylist(rows).schema
        schema = pa.schema(
            [(field.name, types.get(field.name, known.get(field.name, field.type))) for field in inferred]
        )
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
        return path

    return write


@pytest.fixture
def write_jsonl(tmp_path: Path) -> Writer:
    """Rows as JSON lines; bytes are written as they are."""

    def write(rows: list[Row | bytes], name: str = "rows.jsonl") -> Path:
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path = tmp_path / name
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path

    return write
