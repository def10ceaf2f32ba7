"""Families that leave one number of a dimension: sums, extremes, positions of extremes, log-sum-exp."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import dim_module, draw_layout
from kernel_core.problems.modules.reduction.skeletons import (
    COLUMN,
    ONLINE,
    ONLINE_START,
    ROW,
    TILE,
    TILE_STORE,
    VIEW,
    column_launch,
    either_launch,
    row_launch,
    tile_launch,
)


@dataclass(frozen=True)
class _Reduction:
    """Triton's parts for a running value `acc` of any shape, combined along axis 0 at the end."""

    name: str
    doc: str
    torch: tuple[str, ...]
    """Ways to write it with `dim=self.dim` and, after `@KEEP@`, keepdim."""
    start: str
    update: str
    over: str
    """The result from `acc`; `@LAST@` is true in its last position."""
    after: str = ""
    inputs: tuple[str, ...] = ("torch.randn(@S@)", "torch.rand(@S@)")
    most_n: int = 1_000_000


_REDUCTIONS = (
    _Reduction(
        "sum", "Adds up a tensor along one dimension.",
        ("torch.sum(x, dim=self.dim@KEEP@)", "x.sum(dim=self.dim@KEEP@)"),
        "0.0", "acc += x", "tl.sum(acc, axis=0)",
    ),
    _Reduction(
        "mean", "Averages a tensor over one dimension.",
        ("torch.mean(x, dim=self.dim@KEEP@)", "x.mean(dim=self.dim@KEEP@)"),
        "0.0", "acc += x", "tl.sum(acc, axis=0)", " / n", ("torch.randn(@S@)",), 8192,
    ),
    _Reduction(
        "max", "Finds the largest value along one dimension.",
        ("torch.max(x, dim=self.dim@KEEP@)[0]", "torch.max(x, dim=self.dim@KEEP@).values",
         "torch.amax(x, dim=self.dim@KEEP@)"),
        'float("-inf")', "acc = tl.maximum(acc, x)", "tl.max(acc, axis=0)",
    ),
    _Reduction(
        "min", "Finds the smallest value along one dimension.",
        ("torch.min(x, dim=self.dim@KEEP@)[0]", "x.min(dim=self.dim@KEEP@).values",
         "torch.amin(x, dim=self.dim@KEEP@)"),
        'float("inf")', "acc = tl.minimum(acc, x)", "tl.min(acc, axis=0)",
    ),
    _Reduction(
        "prod", "Multiplies the values along one dimension.",
        ("torch.prod(x, dim=self.dim@KEEP@)", "x.prod(dim=self.dim@KEEP@)"),
        "1.0", "acc *= x", "tl.sum(tl.where(@LAST@, tl.cumprod(acc, axis=0), 0.0), axis=0)", "",
        ("0.1 * torch.rand(@S@) + 0.95", "1.0 + 0.02 * torch.randn(@S@)"), 2048,
    ),
    _Reduction(
        "sum_squares", "Adds up the squares along one dimension.",
        ("torch.sum(x ** 2, dim=self.dim@KEEP@)", "(x * x).sum(dim=self.dim@KEEP@)"),
        "0.0", "acc += x * x", "tl.sum(acc, axis=0)",
    ),
    _Reduction(
        "abs_mean", "Averages the absolute values over one dimension.",
        ("torch.mean(torch.abs(x), dim=self.dim@KEEP@)", "x.abs().mean(dim=self.dim@KEEP@)"),
        "0.0", "acc += tl.abs(x)", "tl.sum(acc, axis=0)", " / n", ("torch.randn(@S@)",), 8192,
    ),
)  # fmt: skip
_BY_NAME = {one.name: one for one in _REDUCTIONS}


def reduce_dim(rng: random.Random) -> Draft:
    """A sum, mean, product, largest or smallest value along any dimension of any rank."""
    names = ("sum", "sum", "mean", "mean", "max", "max", "min", "min", "prod", "sum_squares", "abs_mean")
    one = _BY_NAME[rng.choice(names)]
    layout = draw_layout(rng, most_n=one.most_n)
    keep = rng.random() < 0.5
    text = rng.choice(one.torch).replace("@KEEP@", ", keepdim=True" if keep else "")
    module = dim_module(layout, one.doc, (f"return {text}",), rng.choice(one.inputs), rng)
    other = {"max": 'float("-inf")', "min": 'float("inf")', "prod": "1.0"}.get(one.name, "0.0")
    tile = _tile_function(one, other)
    host = (*VIEW, _empty(keep, "x.dtype"))
    row, column = _row_function(one, other), _column_function(one, other)
    launch = either_launch(
        row_launch(f"{one.name}_row", "x, out, n"),
        (column_launch(f"{one.name}_column", "x, out, n, inner"),),
    )
    naive = Answer("naive", (row, column), (*host, *launch, "return out"), _EITHER_REASON)
    fused = _tile_answer("fused", one.name, (tile,), host, 4096, 4)
    tuned = _tile_answer("tuned", one.name, (tile,), host, 8192, 8)
    wrong = mistake(fused, "range(0, n, BLOCK_N)", "range(0, n - BLOCK_N, BLOCK_N)", "dropped_tail")
    return draft(rng, "reduce_dim", (one.name,), module, (naive, fused, tuned, wrong))


def arg_extreme(rng: random.Random) -> Draft:
    """The position of the largest or smallest value along any dimension, the first of equals."""
    name = rng.choice(("argmax", "argmin"))
    word = "largest" if name == "argmax" else "smallest"
    layout = draw_layout(rng)
    keep = rng.random() < 0.4
    kept = ", keepdim=True" if keep else ""
    text = rng.choice((f"torch.{name}(x, dim=self.dim{kept})", f"x.{name}(dim=self.dim{kept})"))
    doc = f"Finds the position of the {word} value along one dimension."
    module = dim_module(layout, doc, (f"return {text}",), rng.choice(_ANY), rng)
    host = (*VIEW, _empty(keep, "torch.int64"))
    tile = _arg_function(name)
    column = _arg_column(name)
    fused = _tile_answer("fused", name, (tile,), host, 2048, 4)
    tuned = _tile_answer("tuned", name, (tile,), host, 4096, 8)
    wrong = mistake(
        fused, f"tl.{name[3:]}(best, axis=0)", f"tl.{'min' if name == 'argmax' else 'max'}(best, axis=0)",
        "wrong_extreme",
    )  # fmt: skip
    answers = [fused, tuned, wrong]
    if not layout.last:
        lines = (*host, column_launch(name, "x, out, n, inner"), "return out")
        answers.insert(0, Answer("naive", (column,), lines, _COLUMN_REASON))
    return draft(rng, "arg_extreme", (name,), module, answers)


def logsumexp(rng: random.Random) -> Draft:
    """The logarithm of a sum of exponentials along any dimension."""
    layout = draw_layout(rng)
    keep = rng.random() < 0.4
    kept = ", keepdim=True" if keep else ""
    doc = "Takes the logarithm of the sum of exponentials over one dimension."
    lines = (f"return torch.logsumexp(x, dim=self.dim{kept})",)
    module = dim_module(layout, doc, lines, rng.choice(_ANY), rng)
    host = (*VIEW, _empty(keep, "x.dtype"))
    tile = fill(
        TILE, K="logsumexp", MORE="", SCALARS="", SHIFT="", OTHER='float("-inf")', INIT=ONLINE_START,
        UPDATE=ONLINE, FINISH=TILE_STORE.replace("@RESULT@", "m + tl.log(s)"),
    )  # fmt: skip
    fused = _tile_answer("fused", "logsumexp", (tile,), host, 4096, 4)
    tuned = _tile_answer("tuned", "logsumexp", (tile,), host, 8192, 8)
    wrong = mistake(fused, "m + tl.log(s)", "tl.log(s)", "maximum_not_added")
    return draft(rng, "logsumexp", ("logsumexp",), module, (fused, tuned, wrong))


_ANY = ("torch.randn(@S@)", "torch.rand(@S@)")


def _empty(keep: bool, dtype: str) -> str:
    one = "1, " if keep else ""
    shape = f"(*x.shape[:dim], {one}*x.shape[dim + 1:])"
    return f"out = torch.empty({shape}, device=x.device, dtype={dtype})"


def _tile_function(one: _Reduction, other: str) -> str:
    result = one.over.replace("@LAST@", "rows[:, None] == BLOCK_N - 1") + one.after
    return fill(
        TILE, K=one.name, MORE="", SCALARS="", SHIFT="", OTHER=other, UPDATE=one.update,
        INIT=f"acc = tl.full((BLOCK_N, BLOCK_C), {one.start}, dtype=tl.float32)",
        FINISH=TILE_STORE.replace("@RESULT@", result),
    )  # fmt: skip


def _row_function(one: _Reduction, other: str) -> str:
    result = one.over.replace("@LAST@", "offs == BLOCK - 1") + one.after
    return fill(
        ROW, K=f"{one.name}_row", MORE="", SCALARS="", SHIFT="", OTHER=other, UPDATE=one.update,
        INIT=f"acc = tl.full((BLOCK,), {one.start}, dtype=tl.float32)",
        FINISH=f"tl.store(out_ptr + row, {result})",
    )  # fmt: skip


def _column_function(one: _Reduction, other: str) -> str:
    return fill(
        COLUMN, K=f"{one.name}_column", MORE="", SCALARS="", SHIFT="", OTHER=other, UPDATE=one.update,
        INIT=f"acc = tl.full((BLOCK,), {one.start}, dtype=tl.float32)",
        FINISH=f"tl.store(out_ptr + outer * inner + cols, acc{one.after}, mask=mask)",
    )  # fmt: skip


def _arg_function(name: str) -> str:
    largest = name == "argmax"
    other = 'float("-inf")' if largest else 'float("inf")'
    finish = f"""\
top = tl.{name[3:]}(best, axis=0)
first = tl.min(tl.where(best == top[None, :], index, n), axis=0)
tl.store(out_ptr + outer * inner + cols, first.to(tl.int64), mask=cols < inner)"""
    return fill(
        TILE, K=name, MORE="", SCALARS="", SHIFT="", OTHER=other,
        INIT=(
            f"best = tl.full((BLOCK_N, BLOCK_C), {other}, dtype=tl.float32)\n"
            "index = tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.int32)"
        ),
        UPDATE=(
            f"better = x {'>' if largest else '<'} best\n"
            "index = tl.where(better, r, index)\n"
            "best = tl.where(better, x, best)"
        ),
        FINISH=finish,
    )  # fmt: skip


def _arg_column(name: str) -> str:
    other = 'float("-inf")' if name == "argmax" else 'float("inf")'
    return fill(
        COLUMN, K=name, MORE="", SCALARS="", SHIFT="", OTHER="0.0",
        INIT=(
            f"best = tl.full((BLOCK,), {other}, dtype=tl.float32)\n"
            "index = tl.zeros((BLOCK,), dtype=tl.int32)"
        ),
        UPDATE=(
            f"better = x {'>' if name == 'argmax' else '<'} best\n"
            "index = tl.where(better, i, index)\n"
            "best = tl.where(better, x, best)"
        ),
        FINISH="tl.store(out_ptr + outer * inner + cols, index.to(tl.int64), mask=mask)",
    )  # fmt: skip


def _tile_answer(
    grade: str, name: str, functions: tuple[str, ...], host: tuple[str, ...], elements: int, warps: int
) -> Answer:
    launch = tile_launch(name, "x, out, n, inner", elements, warps)
    reason = (
        "The tensor is (outer, n, inner). A program keeps a tile of running values, so each load is wide and "
        "independent of the one before; one reduction over the tile at the end gives the results. "
        "Every element is read once."
    )
    return Answer("tuned" if grade == "tuned" else "fused", functions, (*host, *launch, "return out"), reason)


_COLUMN_REASON = (
    "Neighbouring inner positions lie next to each other, so a program takes a block of them and steps "
    "through the reduced dimension. Loads are contiguous and no lanes have to be combined."
)
_EITHER_REASON = (
    "Any dimension makes the tensor (outer, n, inner). With inner 1 a row lies in one piece, so a program "
    "reduces it in blocks; else a program steps through n for a block of neighbouring inner positions. Both "
    "loads are contiguous."
)
