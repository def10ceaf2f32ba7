"""Attention schedule: a program owns a block of queries and reads keys and values in tiles.

The softmax is computed online: a running maximum and sum of each row rescale what is accumulated
(Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), so no score is written to memory.
"""

from __future__ import annotations

import torch

from kernel_core.generator.index import Group, Index, letters
from kernel_core.generator.ir import Value, is_point
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.schedules.gemm import aligned
from kernel_core.generator.schedules.written import Context, Written, store_outputs
from kernel_core.generator.sizes import product
from kernel_core.generator.values import HALF

SMALL_HEAD, LARGE_HEAD = 64, 128
"""Head sizes up to which a tile of keys has 64 and 32 rows; beyond them it has 16."""


def write(context: Context) -> Written:
    """Softmax of scores times values; batches and heads are an axis of the grid."""
    anchor = context.region.anchor
    scores = anchor.scores
    lead = anchor.rank - 2
    names = letters(anchor.rank)
    batch = Group("z", tuple(anchor.shape[:lead]), names[:lead])
    kernel = context.kernel([batch])
    sizes = {
        "M": anchor.shape[-2],
        "N": scores.shape[-1],
        "D": anchor.inputs[0].shape[-1],
        "E": anchor.shape[-1],
    }
    argument = {name: kernel.total(size, name) for name, size in sizes.items()}
    groups = {
        name: Group(name[0], (sizes[size],), (size,), view, f"{name[0]}{view} < {argument[size]}", depth)
        for name, size, view, depth in (
            ("m", "M", "[:, None]", 0), ("d_of_q", "D", "[None, :]", 0), ("d_of_k", "D", "[:, None]", 0),
            ("n", "N", "[None, :]", 1), ("n_of_v", "N", "[:, None]", 1), ("e", "E", "[None, :]", 0),
        )
    }  # fmt: skip
    kernel.name_sizes([batch, *groups.values()])
    z: list[Index] = [batch.digit(axis) for axis in range(lead)]
    own: list[Index] = [*z, groups["m"].digit(0), groups["e"].digit(0)]
    _write_lines(kernel, anchor, z, groups, argument, context.precision)
    kernel.done[id(anchor)] = ("acc", frozenset(), tuple(own))
    store_outputs(kernel, context.region, anchor, own)
    head = max(int(sizes["D"]), int(sizes["E"]))
    count = kernel.total(product(batch.sizes), "n_batches", is_argument=False)
    constants = {
        "BLOCK_M": "64" if head <= LARGE_HEAD else "32",
        "BLOCK_N": "64" if head <= SMALL_HEAD else "32" if head <= LARGE_HEAD else "16",
        "BLOCK_D": f"max(16, triton.next_power_of_2({argument['D']}))",
        "BLOCK_E": f"max(16, triton.next_power_of_2({argument['E']}))",
    }
    grid = f"(triton.cdiv({argument['M']}, {constants['BLOCK_M']}){f', {count}' if lead else ','})"
    plan = "Each program owns a block of queries, loops over tiles of keys, and keeps an online softmax."
    return context.finish(kernel, constants, grid, plan)


def _write_lines(
    kernel: Kernel,
    anchor: Value,
    z: list[Index],
    groups: dict[str, Group],
    argument: dict[str, str],
    precision: str,
) -> None:
    q, k, v = anchor.inputs[:3]
    is_half = anchor.dtype in HALF
    kind = {torch.float16: ".to(tl.float16)", torch.bfloat16: ".to(tl.bfloat16)"}.get(anchor.dtype, "")
    option = "" if is_half else f', input_precision="{precision}"'
    kernel.line("m = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)")
    kernel.line("d = tl.arange(0, BLOCK_D)")
    kernel.line("e = tl.arange(0, BLOCK_E)")
    if z:
        kernel.line("z = tl.program_id(1).to(tl.int64)")
    own = ("m", "d", "e", "n", "z", "qk", "scores", "top", "total", "acc", "new_top", "weights", "end")
    for name in (*own, "shrink", "shift"):
        kernel.fresh(name)
    place = {name: group.digit(0) for name, group in groups.items()}
    query = kernel.at(q, aligned([*z, place["m"], place["d_of_q"]], q))
    kernel.line('top = tl.full((BLOCK_M, 1), float("-inf"), dtype=tl.float32)')
    kernel.line("total = tl.zeros((BLOCK_M, 1), dtype=tl.float32)")
    kernel.line("acc = tl.zeros((BLOCK_M, BLOCK_E), dtype=tl.float32)")
    end = argument["N"]
    if _is_causal(anchor.scores):
        kernel.line(f"end = tl.minimum({end}, (tl.program_id(0) + 1) * BLOCK_M)")
        end = "end"
    with kernel.loop(f"for start in range(0, {end}, BLOCK_N):"):
        kernel.line("n = start + tl.arange(0, BLOCK_N)")
        key = kernel.at(k, aligned([*z, place["d_of_k"], place["n"]], k))
        kernel.line(f"qk = tl.dot({query}{kind}, {key}{kind}{option})")
        coords = [*z, place["m"], place["n"]]
        kernel.done[id(anchor.product)] = ("qk", frozenset(), tuple(coords))
        score = kernel.at(anchor.scores, coords)
        kernel.line(f'scores = tl.where({groups["n"].mask}, {score}, float("-inf"))')
        kernel.line("new_top = tl.maximum(top, tl.max(scores, axis=1, keep_dims=True))")
        kernel.line('shift = tl.where(new_top == float("-inf"), 0.0, new_top)')
        kernel.line("weights = tl.exp(scores - shift)")
        kernel.line("shrink = tl.exp(top - shift)")
        kernel.line("total = total * shrink + tl.sum(weights, axis=1, keep_dims=True)")
        value = kernel.at(v, aligned([*z, place["n_of_v"], place["e"]], v))
        kernel.line(f"acc = acc * shrink + tl.dot(weights{kind}, {value}{kind}{option})")
        kernel.line("top = new_top")
    kernel.line("acc = acc / total")


def _is_causal(scores: Value) -> bool:
    """Return True if keys behind a query have the score of minus infinity, and no other sum comes later."""
    if not is_point(scores, "where") or scores.inputs[2] != float("-inf"):
        return False
    condition = scores.inputs[0]
    if not is_point(condition, "le"):
        return False
    key, query = condition.inputs
    return all(
        isinstance(place, Value) and place.op == "iota" and place.inputs == (0, 1) and place.dim == axis
        for place, axis in ((key, condition.rank - 1), (query, condition.rank - 2))
    )
