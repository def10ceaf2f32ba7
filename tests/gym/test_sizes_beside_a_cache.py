"""Larger sizes keep a dimension that costs few bytes, as the heads of queries beside a cache."""

import pytest

from kernel_core.gym.oracle.small_sizes import with_other_sizes, with_small_sizes
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_all
from kernel_core.problems.source import parse_problem
from kernel_core.records import Verdict

SCORES = """
import torch
import torch.nn as nn

BATCH = 16
HEADS = 32
WIDTH = 256
PAGE = 64
PAGES = 32

class Model(nn.Module):
    def forward(self, query, cache):
        return query @ cache.flatten(1, 2).transpose(1, 2)

def get_inputs():
    return [torch.randn(BATCH, HEADS, WIDTH), torch.randn(BATCH, PAGES, PAGE, WIDTH)]
"""

TILES_OF_16_HEADS = """
import torch
import torch.nn as nn
import triton
import triton.language as tl

@triton.jit
def scores(query_ptr, cache_ptr, out_ptr, heads, steps, WIDTH: tl.constexpr):
    batch, tile, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    head = batch * heads + tile * 16 + tl.arange(0, 16)
    step = block * 64 + tl.arange(0, 64)
    column = tl.arange(0, WIDTH)
    query = tl.load(query_ptr + head[:, None] * WIDTH + column[None, :])
    cache = tl.load(cache_ptr + (batch * steps + step)[None, :] * WIDTH + column[:, None])
    tl.store(out_ptr + head[:, None] * steps + step[None, :], tl.dot(query, cache){error})

class ModelNew(nn.Module):
    def forward(self, query, cache):
        batch, heads, width = query.shape
        steps = cache.shape[1] * cache.shape[2]
        out = torch.empty(batch, heads, steps, device=query.device)
        scores[(batch, triton.cdiv(heads, 16), steps // 64)](query, cache, out, heads, steps, WIDTH=width)
        return out
"""


def test_larger_sizes_keep_what_costs_few_bytes():
    small = with_small_sizes(parse_problem(SCORES, id="mine", suite="mine"))
    (larger,) = with_other_sizes(small, Verdict.CRASHED)
    assert small.cpu_constants["HEADS"] < 16
    assert larger.cpu_constants == {"BATCH": small.cpu_constants["BATCH"]}, "only the batch costs much"


@pytest.mark.exhaustive
def test_a_kernel_with_tiles_of_heads_is_judged_once_more_with_all_heads(gym):
    own = parse_problem(SCORES, id="mine", suite="mine")
    sources = [TILES_OF_16_HEADS.format(error=error) for error in ("", " + 0.01 * tile")]
    right, wrong = judge_all(
        [request_of(own, source, {}, 1, "cpu") for source in sources], "cpu", gym.judge_each
    )
    assert right.outcome.correct, right.outcome
    assert not wrong.outcome.correct
