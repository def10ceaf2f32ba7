"""One matrix product in kernels that differ in the precision of their factors alone, and its problem."""

from __future__ import annotations

from kernel_core.problems.source import parse_problem
from kernel_core.records import ProductPrecision

SIZE = 2048
PROBLEM = parse_problem(
    f"""# cpu: N=64
import torch
import torch.nn as nn

N = {SIZE}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [0.1 * torch.randn(N, N), 0.1 * torch.randn(N, N)]


def get_init_inputs():
    return []
""",
    id="planted/product",
    suite="planted",
)
_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, out_ptr, N, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, N, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * N + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
        total = {step}
    tl.store(out_ptr + rows[:, None] * N + columns[None, :], tl.maximum(total, 0.0))


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty_like(a)
        N = a.shape[0]
        product[(N // 64, N // 64)](a, b, out, N, BM=64, BN=64, BK=32)
        return out
"""
_STEPS = {
    "default": "tl.dot(a, b, total)",
    "tf32": 'tl.dot(a, b, total, input_precision="tf32")',
    "ieee": 'tl.dot(a, b, total, input_precision="ieee")',
    "tf32x3": 'tl.dot(a, b, total, input_precision="tf32x3")',
    "bfloat16": "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)",
    "float16": "tl.dot(a.to(tl.float16), b.to(tl.float16), total)",
    "rounded": "total + tl.dot(a.to(tl.bfloat16).to(tl.float32), b, input_precision='ieee')",
}
PLANTED = {name: _KERNEL.replace("{step}", step) for name, step in _STEPS.items()}
"""Candidates by the way they multiply."""
PRECISION: dict[str, ProductPrecision] = {
    "default": "tf32",
    "tf32": "tf32",
    "ieee": "ieee",
    "tf32x3": "tf32x3",
    "bfloat16": "half",
    "float16": "half",
    "rounded": "half",
}
"""The precision that the judge has to find."""
