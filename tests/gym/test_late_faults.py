"""Right kernels, and changes of a line that show late: in a later turn, at a ragged edge, between warps, or
by the type of a scalar. The kernels are accepted, and none of the changed ones."""

from __future__ import annotations

import pytest

from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate

_PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F
{body}
def get_init_inputs():
    return []
"""
_KERNEL = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
_NORM_PROBLEM = """
ROWS = 4096
WIDTH = 20000

class Model(nn.Module):
    def forward(self, x, w, b):
        return F.layer_norm(x, x.shape[-1:], w, b)

def get_inputs():
    return [torch.randn(ROWS, WIDTH), torch.randn(WIDTH), torch.randn(WIDTH)]
"""
_NORM = """
@triton.jit
def norm(x_ptr, w_ptr, b_ptr, y_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = 0.0
    squares = 0.0
    count = 0.0
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0)
        here = tl.minimum(width - start, BLOCK).to(tl.float32)
        own_mean = tl.sum(x, axis=0) / here
        off = tl.where(at < width, x - own_mean, 0.0)
        delta = own_mean - mean
        total = count + here
        squares += tl.sum(off * off, axis=0) + delta * delta * count * here / total
        mean += delta * here / total
        count = total
    scale = 1.0 / tl.sqrt(squares / width + eps)
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0)
        w = tl.load(w_ptr + at, mask=at < width, other=0.0)
        b = tl.load(b_ptr + at, mask=at < width, other=0.0)
        tl.store(y_ptr + row * width + at, (x - mean) * scale * w + b, mask=at < width)

class ModelNew(nn.Module):
    def forward(self, x, w, b):
        y = torch.empty_like(x)
        norm[(x.shape[0],)](x, w, b, y, x.shape[1], 1e-5, BLOCK=4096)
        return y
"""
_SCAN_PROBLEM = """
ROWS = 512
WIDTH = 9000

class Model(nn.Module):
    def forward(self, x):
        return torch.cummax(x, -1).values + torch.cumsum(x, -1)

def get_inputs():
    return [torch.randn(ROWS, WIDTH)]
"""
_SCAN = """
@triton.jit
def larger(a, b):
    return tl.maximum(a, b)

@triton.jit
def scan(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    top = -float("inf")
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * width + at, mask=at < width, other=0.0)
        sums = tl.cumsum(x, axis=0) + carry
        tops = tl.maximum(tl.associative_scan(tl.where(at < width, x, -float("inf")), 0, larger), top)
        tl.store(y_ptr + row * width + at, sums + tops, mask=at < width)
        carry += tl.sum(x, axis=0)
        top = tl.maximum(top, tl.max(tl.where(at < width, x, -float("inf")), axis=0))

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scan[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
        return y
"""
_COLUMNS_PROBLEM = """
ROWS = 30000
WIDTH = 700

class Model(nn.Module):
    def forward(self, x):
        return x.mean(0), x.amax(0)

def get_inputs():
    return [torch.randn(ROWS, WIDTH)]
"""
_COLUMNS = """
@triton.jit
def columns(x_ptr, mean_ptr, top_ptr, rows, width, HEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([HEIGHT, BLOCK], tl.float32)
    top = tl.full([HEIGHT, BLOCK], -float("inf"), tl.float32)
    row = tl.arange(0, HEIGHT)
    ptr = x_ptr + row[:, None] * width + column[None, :]
    left = rows
    while left > 0:
        inside = (row[:, None] < left) & (column[None, :] < width)
        x = tl.load(ptr, mask=inside, other=-float("inf"))
        total += tl.where(inside, x, 0.0)
        top = tl.maximum(top, x)
        ptr += HEIGHT * width
        left -= HEIGHT
    tl.store(mean_ptr + column, tl.sum(total, axis=0) / rows, mask=column < width)
    tl.store(top_ptr + column, tl.max(top, axis=0), mask=column < width)

class ModelNew(nn.Module):
    def forward(self, x):
        rows, width = x.shape
        mean, top = torch.empty(width, device=x.device), torch.empty(width, device=x.device)
        columns[(triton.cdiv(width, 128),)](x, mean, top, rows, width, HEIGHT=32, BLOCK=128)
        return mean, top
"""
_WARPS_PROBLEM = """
ROWS = 2048
WIDTH = 1000

class Model(nn.Module):
    def forward(self, x):
        return torch.roll(x, 1, -1) + torch.flip(x, [-1]) * 0.5

def get_inputs():
    return [torch.randn(ROWS, WIDTH)]
"""
_WARPS = """
@triton.jit
def mix(x_ptr, s_ptr, y_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    tl.store(s_ptr + row + at, tl.load(x_ptr + row + at, mask=inside) * 1.0, mask=inside)
    tl.debug_barrier()
    rolled = tl.load(s_ptr + row + (at + width - 1) % width, mask=inside)
    flipped = tl.load(s_ptr + row + width - 1 - at, mask=inside)
    tl.debug_barrier()
    tl.store(s_ptr + row + at, rolled + flipped * 0.5, mask=inside)
    tl.store(y_ptr + row + at, rolled + flipped * 0.5, mask=inside)

class ModelNew(nn.Module):
    def forward(self, x):
        y, s = torch.empty_like(x), torch.empty_like(x)
        mix[(x.shape[0],)](x, s, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=4)
        return y
"""
_TYPED_PROBLEM = """
ROWS = 4096
WIDTH = 3000

class Model(nn.Module):
    def forward(self, x):
        y = (x * 1.0004 + 0.3001).clamp(min=-0.7)
        place = torch.arange(x.numel(), device=x.device).reshape(x.shape)
        return torch.where(place % 260 == 0, -y, y)

def get_inputs():
    return [torch.randn(ROWS, WIDTH)]
"""
_TYPED = """
@triton.jit
def affine(
    x_ptr, y_ptr, n, scale: tl.float32, shift: tl.float32, low: tl.float32, period: tl.int32,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = tl.maximum(x * scale + shift, low)
    tl.store(y_ptr + at, tl.where(at % period == 0, -y, y), mask=at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        affine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1.0004, 0.3001, -0.7, 260, BLOCK=1024)
        return y
"""
_PAIRS = {
    "norm": (_NORM_PROBLEM, _NORM),
    "scan": (_SCAN_PROBLEM, _SCAN),
    "columns": (_COLUMNS_PROBLEM, _COLUMNS),
    "warps": (_WARPS_PROBLEM, _WARPS),
    "typed": (_TYPED_PROBLEM, _TYPED),
}
_CHANGES = {
    "norm": {
        "mean_of_last_block": ("mean += delta * here / total", "mean = own_mean"),
        "no_cross_term": (" + delta * delta * count * here / total", ""),
        "count_of_whole_blocks": (
            "here = tl.minimum(width - start, BLOCK).to(tl.float32)",
            "here = BLOCK + 0.0",
        ),
        "padding_in_squares": ("off = tl.where(at < width, x - own_mean, 0.0)", "off = x - own_mean"),
        "weights_of_first_block": (
            "w = tl.load(w_ptr + at, mask=at < width, other=0.0)",
            "w = tl.load(w_ptr + at % BLOCK, mask=at < width, other=0.0)",
        ),
    },
    "scan": {
        "carry_of_last_block": ("carry += tl.sum(x, axis=0)", "carry = tl.sum(x, axis=0)"),
        "top_of_last_block": (
            'top = tl.maximum(top, tl.max(tl.where(at < width, x, -float("inf")), axis=0))',
            'top = tl.max(tl.where(at < width, x, -float("inf")), axis=0)',
        ),
        "carry_without_last_lane": (
            "carry += tl.sum(x, axis=0)",
            "carry += tl.sum(tl.where(at < start + BLOCK - 1, x, 0.0), axis=0)",
        ),
        "top_forgotten": (", 0, larger), top)", ', 0, larger), carry * 0.0 - float("inf"))'),
        "carry_in_half": (
            "carry += tl.sum(x, axis=0)",
            "carry = (carry + tl.sum(x, axis=0)).to(tl.float16).to(tl.float32)",
        ),
    },
    "columns": {
        "last_rows_left_out": ("while left > 0", "while left >= HEIGHT"),
        "step_of_one": ("ptr += HEIGHT * width", "ptr += width"),
        "padding_is_zero": ('mask=inside, other=-float("inf")', "mask=inside, other=0.0"),
        "width_unmasked": (
            "inside = (row[:, None] < left) & (column[None, :] < width)",
            "inside = (row[:, None] < left) & (column[None, :] >= 0)",
        ),
        "mean_of_padded_rows": (
            "tl.sum(total, axis=0) / rows",
            "tl.sum(total, axis=0) / (tl.cdiv(rows, HEIGHT) * HEIGHT)",
        ),
    },
    "warps": {
        "no_first_barrier": (
            "mask=inside) * 1.0, mask=inside)\n    tl.debug_barrier()\n",
            "mask=inside) * 1.0, mask=inside)\n",
        ),
        "no_second_barrier": (
            "width - 1 - at, mask=inside)\n    tl.debug_barrier()\n",
            "width - 1 - at, mask=inside)\n",
        ),
        "shared_scratch": (
            "rolled = tl.load(s_ptr + row +",
            "rolled = tl.load(s_ptr + width * (tl.program_id(0) // 2 * 2) +",
        ),
        "next_row": (
            "rolled = tl.load(s_ptr + row + (at + width - 1) % width",
            "rolled = tl.load(s_ptr + row + at - 1 + tl.where(at == 0, width, 0) - (at == 700) * width",
        ),
    },
    "typed": {
        "scale_in_half": ("scale: tl.float32", "scale: tl.float16"),
        "scale_in_bfloat16": ("scale: tl.float32", 'scale: "bf16"'),
        "shift_in_bfloat16": ("shift: tl.float32", "shift: tl.bfloat16"),
        "period_wraps": ("period: tl.int32", 'period: "i8"'),
        "period_unsigned": ("period: tl.int32", "period: tl.uint8"),
        "period_is_a_truth": ("period: tl.int32", 'period: "i1"'),
    },
}


def _is_accepted(gym: PooledGym, name: str, old: str = "", new: str = "") -> bool:
    problem, kernel = _PAIRS[name]
    if old:
        assert kernel.count(old) == 1, "the line is not there once"
        kernel = kernel.replace(old, new)
    request = JudgeRequest(
        problem=parse_problem(_PROBLEM.format(body=problem), id=name, suite="late"),
        candidate=Candidate.from_source(_KERNEL + kernel),
        seed=1,
    )
    (evaluation,) = gym.judge([request])
    return evaluation.correct


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", _PAIRS)
def test_the_kernel_before_its_change_is_accepted(gym: PooledGym, name: str) -> None:
    assert _is_accepted(gym, name)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, changes in _CHANGES.items() for change in changes]
)
def test_a_fault_that_shows_late_is_refused(gym: PooledGym, name: str, change: str) -> None:
    assert not _is_accepted(gym, name, *_CHANGES[name][change])
