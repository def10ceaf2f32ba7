"""An autotuner leaves out a configuration that the assembler refuses; one that stands alone is refused."""

import pytest

from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_all
from kernel_core.problems.source import parse_problem
from kernel_core.records import Verdict

PRODUCT = """
# cpu: SIZE=256
import torch
import torch.nn as nn

SIZE = 4096

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(SIZE, SIZE, dtype=torch.float16), torch.randn(SIZE, SIZE, dtype=torch.float16)]
"""

KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.autotune(configs=[{configurations}], key=["size"])
@triton.jit
def product(a_ptr, b_ptr, out_ptr, size, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, size, 32):
        inner = start + tl.arange(0, 32)
        a = tl.load(a_ptr + row[:, None] * size + inner[None, :], mask=(row < size)[:, None], other=0.0)
        b = tl.load(b_ptr + inner[:, None] * size + column[None, :], mask=(column < size)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    inside = (row < size)[:, None] & (column < size)[None, :]
    tl.store(out_ptr + row[:, None] * size + column[None, :], total.to(tl.float16), mask=inside)

class ModelNew(nn.Module):
    def forward(self, a, b):
        size = a.shape[0]
        out = torch.empty_like(a)
        grid = lambda meta: (triton.cdiv(size, meta["BLOCK"]), triton.cdiv(size, meta["BLOCK"]))
        product[grid](a, b, out, size)
        return out
"""
MANY_WARPS = 'triton.Config({"BLOCK": 256}, num_warps=32, num_stages=4)'
FEW = 'triton.Config({"BLOCK": 64}, num_warps=4)'


@pytest.mark.exhaustive
def test_a_configuration_without_registers_is_left_out_or_named(gym):
    own = parse_problem(PRODUCT.strip(), id="mine", suite="mine")
    sources = [KERNEL.format(configurations=text) for text in (f"{MANY_WARPS}, {FEW}", MANY_WARPS)]
    tuned, alone = judge_all(
        [request_of(own, source, {}, 1, "cpu") for source in sources], "cpu", gym.judge_each
    )
    assert tuned.outcome.correct, tuned.outcome
    assert alone.outcome.verdict is Verdict.NOT_COMPILED
    assert "Insufficient registers" in alone.outcome.feedback
