"""Families around a matrix product: matmul with an epilogue, and attention of rows to a small memory."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from kernel_core.problems import rowwise
from kernel_core.problems.families.elementwise import chain
from kernel_core.problems.families.rows import scale
from kernel_core.problems.frames import BIAS_NAMES, names_for, row_frame
from kernel_core.problems.ops import ACTIVATIONS, binary
from kernel_core.problems.program import Argument, Frame, Opening, Program, Size, draw_cpu_size
from kernel_core.problems.steps import PROBE_COLS, Step

_WEIGHT_NAMES = ("w", "weight", "proj", "kern")
_PROBE_VALUES = np.random.default_rng(7).standard_normal((PROBE_COLS, 16))
_SCORE_BENDS = ("tanh", "mul", "add", "softsign", "leaky_relu", "clamp", "sin", "elu", "relu", "softplus")
_SIZE_NAMES = (("M", "K", "N"), ("batch_size", "in_features", "out_features"), ("B", "D_IN", "D_OUT"))


def matmul_epilogue(rng: random.Random) -> Program:
    """A product with a weight, a bias over columns, an activation and what follows.

    The inner size is small, so that the epilogue's memory traffic is worth saving.
    """
    x, v = names_for(rng, 2)
    weight = rng.choice(_WEIGHT_NAMES)
    m, k, n = rng.choice(_SIZE_NAMES)
    sizes = (
        Size(m, rng.choice((4096, 8192, 16384)), draw_cpu_size(rng, 35, 75)),
        Size(k, rng.choice((64, 80, 96, 128)), draw_cpu_size(rng, 33, 60)),
        Size(n, rng.choice((1024, 2000, 2048, 4096)), draw_cpu_size(rng, 35, 75)),
    )
    parameter = rng.random() < 0.5
    table = Argument(weight, (k, n), parameter)
    bias = Argument(rng.choice([name for name in BIAS_NAMES if name not in (x, v)]), (n,), parameter)
    with_bias = rng.random() < 0.6
    steps: list[Step] = []
    if with_bias:
        steps.append(binary("+", v, bias.name, "vector", torch_argument=bias.in_forward))
    steps += chain(rng, v, 1, ACTIVATIONS) + chain(rng, v, rng.randint(1 - with_bias, 2))
    arguments = (Argument(x, (m, k)), table, *([bias] if with_bias else []))
    frame, opening = _tile_frame(x, table, v), _product(x, table, v)
    return Program("matmul_epilogue", v, arguments, sizes, frame, opening, tuple(steps))


def _product(x: str, table: Argument, v: str) -> Opening:
    weight = table.name
    return Opening(
        kind="matmul",
        word=f"{v} = {x} @ {weight}",
        torch=(f"{v} = {x} @ {table.in_forward}",),
        tile=_product_lines(x, weight, v),
        rivals=(
            ("wrong_index", _product_lines(x, weight, v, weight_at="j * inner + k[:, None]")),
            ("dropped_op", _product_lines(x, weight, v, accumulate=False)),
        ),
    )


def _product_lines(
    x: str, weight: str, v: str, *, weight_at: str = "k[:, None] * cols + j", accumulate: bool = True
) -> tuple[str, ...]:
    sum_so_far = f"{v}, " if accumulate else ""
    return (
        f"{v} = tl.zeros((BLOCK, BLOCK), tl.float32)",
        "for start in range(0, inner, BLOCK):",
        "    k = start + tl.arange(0, BLOCK)",
        "    left = (row < rows) & (k[None, :] < inner)",
        "    right = (k[:, None] < inner) & (j < cols)",
        f"    lhs = tl.load({x}_ptr + row * inner + k[None, :], mask=left, other=0.0)",
        f"    rhs = tl.load({weight}_ptr + {weight_at}, mask=right, other=0.0)",
        f'    {v} = tl.dot(lhs, rhs, {sum_so_far}input_precision="ieee")',
    )


def _tile_frame(x: str, table: Argument, v: str) -> Frame:
    return Frame(
        layout="tiles",
        setup=(f"rows, inner = {x}.shape", f"cols = {table.in_forward}.shape[1]"),
        scalars=("rows", "cols", "inner"),
        prologue=(
            "row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))[:, None]",
            "j = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]",
            "i = row * cols + j",
            "mask = (row < rows) & (j < cols)",
        ),
        grid="(triton.cdiv(rows, {block}), triton.cdiv(cols, {block}))",
        constexprs=(("BLOCK", "{block}"),),
        allocation=f"torch.empty(rows, cols, device={x}.device)",
        store=f"tl.store(out_ptr + i, {v}, mask=mask)",
        blocks=(32, 32, 64),
    )


def attention(rng: random.Random) -> Program:
    """Each row of queries attends to a small memory of keys and values."""
    q, k, v = rng.choice((("q", "k", "v"), ("query", "key", "value"), ("x", "keys", "values")))
    s = rng.choice(("s", "score", "att", "h"))
    dim = rng.choice((32, 48, 64))
    sizes = (
        Size("T", rng.choice((16384, 32768, 65536)), draw_cpu_size(rng, 5, 14)),
        Size("S", rng.choice((64, 96, 128)), draw_cpu_size(rng, 9, 30)),
        Size("D", dim, draw_cpu_size(rng, 10, 30)),
    )
    steps = [scale(s, str(round(dim**-0.5, 3)), rng)]
    steps += chain(rng, s, rng.randint(0, 2), _SCORE_BENDS)
    steps += [rowwise.softmax(s, -1), _weighted_values(s, v)]
    arguments = (Argument(q, ("T", "D")), Argument(k, ("S", "D")), Argument(v, ("S", "D")))
    setup = (f"rows, dim = {q}.shape", f"cols = {k}.shape[0]")
    frame = row_frame(s, setup, f"torch.empty_like({q})", cols=sizes[1].gpu)
    widths = ("d = tl.arange(0, WIDTH)", "pair = mask[:, None] & (d < dim)[None, :]")
    frame = replace(
        frame,
        store=f"tl.store(out_ptr + row * dim + d, {s}, mask=d < dim)",
        scratch=f"torch.empty(rows, cols, device={q}.device)",
        scalars=("cols", "dim"),
        prologue=(*frame.prologue, *widths),
        constexprs=(*frame.constexprs, ("WIDTH", "triton.next_power_of_2(dim)")),
        tuned_warps=8,
    )
    return Program("attention", s, arguments, sizes, frame, _scores(q, k, s), tuple(steps), len(steps) - 1)


def _scores(q: str, k: str, s: str) -> Opening:
    loads = (
        f"{q} = tl.load({q}_ptr + row * dim + d, mask=d < dim, other=0.0)",
        f"{k} = tl.load({k}_ptr + j[:, None] * dim + d[None, :], mask=pair, other=0.0)",
    )
    return Opening(
        kind="scores",
        word=f"{s} = {q} @ {k}.T",
        torch=(f"{s} = {q} @ {k}.T",),
        tile=(*loads, f"{s} = tl.sum({k} * {q}[None, :], axis=1)"),
        rivals=(("wrong_op", (*loads, f"{s} = tl.sum({k} + {q}[None, :], axis=1)")),),
    )


def _weighted_values(s: str, v: str) -> Step:
    load = f"{v} = tl.load({v}_ptr + j[:, None] * dim + d[None, :], mask=pair, other=0.0)"
    right = Step(
        kind="weighted_values",
        word=f"@ {v}",
        torch=(f"{s} = {s} @ {v}",),
        tile=(load, f"{s} = tl.sum({s}[:, None] * {v}, axis=0)"),
        # A product with the same numbers for every row shows what differs in the weights.
        value=lambda x, arguments: np.asarray(x[:, :PROBE_COLS] @ _PROBE_VALUES),
        must_change=False,
    )
    wrong = replace(
        right,
        tile=(load, f"{s} = tl.max({s}[:, None] * {v}, axis=0)"),
        value=lambda x, arguments: np.zeros((x.shape[0], _PROBE_VALUES.shape[1])),
    )
    return replace(right, rivals=(lambda rng: ("wrong_reduction", wrong),))
