"""Softmax and its logarithm along any dimension, and along rows of any length."""

from __future__ import annotations

import random

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import dim_module, draw_layout, draw_sizes
from kernel_core.problems.modules.reduction.skeletons import (
    ONLINE,
    ONLINE_START,
    ROW,
    ROW_SHIFT,
    ROW_WRITE,
    TILE,
    TILE_SHIFT,
    TILE_WRITE,
    VIEW,
    row_launch,
    tile_launch,
)

_ROW_ONLINE_START = """\
m = float("-inf")
s = 0.0"""
_ROW_ONLINE = """\
new_m = tl.maximum(m, tl.max(x, axis=0))
s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
m = new_m"""
_ROW_MAXIMUM_THEN_SUM = """\
m = tl.max(top, axis=0)
total = tl.zeros((BLOCK,), dtype=tl.float32)
for start in range(0, n, BLOCK):
    cols = start + offs
    x = tl.load(x_ptr + cols, mask=cols < n, other=float("-inf"))
    total += tl.exp(x - m)
s = tl.sum(total, axis=0)
"""
_LANE_START = """\
m = tl.full((BLOCK,), -1e30, dtype=tl.float32)
s = tl.zeros((BLOCK,), dtype=tl.float32)"""
_LANE = """\
new_m = tl.maximum(m, x)
s = s * tl.exp(m - new_m) + tl.exp(x - new_m)
m = new_m"""
_LANE_END = """\
top = tl.max(m, axis=0)
s = tl.sum(s * tl.exp(m - top), axis=0)
m = top
"""
_ROW_REASON = (
    "A row may be longer than any tile, so a program walks over it in blocks. One pass finds the maximum "
    "and the sum of exponentials together and rescales the sum when the maximum grows; a second writes."
)


_THREE_PASSES = (
    "Three passes over the row: the maximum, the sum of exponentials, the result. Each keeps one block in "
    "registers, so any row length fits."
)
_LANE_REASON = (
    "A program walks over its row in blocks; each lane keeps its own maximum and sum, so no reduction stalls "
    "the loop. The lanes are combined once, then a second pass writes."
)


def softmax_row(rng: random.Random) -> Draft:
    """Softmax or log-softmax of rows up to hundreds of thousands of values."""
    name = rng.choice(("softmax", "softmax", "log_softmax"))
    sizes = draw_sizes(rng, rng.choice((2, 2, 2, 3)))
    dim = "1" if len(sizes) == 2 and rng.random() < 0.6 else "-1"
    layer = "nn.Softmax" if name == "softmax" else "nn.LogSoftmax"
    forms: list[tuple[tuple[str, ...], str]] = [
        ((), f"torch.{name}(x, dim={dim})"),
        ((), f"F.{name}(x, dim={dim})"),
    ]
    forms.append(((f"self.{name} = {layer}(dim={dim})",), f"self.{name}(x)"))
    init_lines, text = rng.choice(forms)
    module = Module(
        doc="Turns each row into probabilities." if name == "softmax" else "Log-probabilities of each row.",
        init_args=(),
        init_lines=init_lines,
        forward_args=("x",),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=(f"torch.{rng.choice(('rand', 'randn'))}({', '.join(size.name for size in sizes)})",),
        init_inputs=(),
    )
    three = fill(
        _row(name), OTHER='float("-inf")', INIT='top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)',
        UPDATE="top = tl.maximum(top, x)", END=_ROW_MAXIMUM_THEN_SUM.rstrip(),
    )  # fmt: skip
    online = fill(_row(name), OTHER='float("-inf")', INIT=_ROW_ONLINE_START, UPDATE=_ROW_ONLINE, END="")
    lanes = fill(_row(name), OTHER='float("-inf")', INIT=_LANE_START, UPDATE=_LANE, END=_LANE_END.rstrip())
    naive = _row_answer("naive", name, three, 1024, _THREE_PASSES)
    fused = _row_answer("fused", name, online, 4096, _ROW_REASON)
    tuned = _row_answer("tuned", name, lanes, 4096, _LANE_REASON)
    old, new = (" / s", "") if name == "softmax" else (" - tl.log(s)", "")
    wrong = mistake(fused, old, new, "no_normalizer")
    return draft(rng, "softmax_row", (name,), module, (naive, fused, tuned, wrong))


def softmax_dim(rng: random.Random) -> Draft:
    """Softmax or log-softmax along any dimension."""
    name = rng.choice(("softmax", "softmax", "log_softmax"))
    layout = draw_layout(rng, (2, 3, 3, 4, 4))
    doc = "Normalizes the exponentials along one dimension."
    if name == "log_softmax":
        doc = "Computes log-probabilities along one dimension."
    text = rng.choice((f"torch.{name}(x, dim=self.dim)", f"F.{name}(x, dim=self.dim)"))
    inputs = rng.choice(("torch.randn(@S@)", "torch.rand(@S@)"))
    module = dim_module(layout, doc, (f"return {text}",), inputs, rng)
    value = "tl.exp(x - m[None, :]) / s[None, :]" if name == "softmax" else "x - (m + tl.log(s))[None, :]"
    tile = fill(
        TILE, K=name, MORE="", SCALARS="", SHIFT=TILE_SHIFT, OTHER='float("-inf")', INIT=ONLINE_START,
        UPDATE=ONLINE, FINISH=fill(TILE_WRITE, MAP=f"y = {value}"),
    )  # fmt: skip
    host = (*VIEW, "out = torch.empty_like(x)")
    reason = (
        "The tensor is (outer, n, inner); a program owns a block of inner positions. One pass over n keeps "
        "the maximum and the rescaled sum of exponentials, a second one writes, so n may be of any length."
    )
    small = tile_launch(name, "x, out, n, inner", 4096, 4)
    large = tile_launch(name, "x, out, n, inner", 8192, 8)
    fused = Answer("fused", (tile,), (*host, *small, "return out"), reason)
    tuned = Answer("tuned", (tile,), (*host, *large, "return out"), reason)
    old, new = (" / s[None, :]", "") if name == "softmax" else ("m + tl.log(s)", "tl.log(s)")
    wrong = mistake(fused, old, new, "no_normalizer")
    return draft(rng, "softmax_dim", (name,), module, (fused, tuned, wrong))


def _row(name: str) -> str:
    value = "tl.exp(x - m) / s" if name == "softmax" else "x - m - tl.log(s)"
    return fill(
        ROW, K=name, MORE="", SCALARS="", SHIFT=ROW_SHIFT,
        FINISH="@END@\n" + fill(ROW_WRITE, MAP=f"y = {value}"),
    )  # fmt: skip


def _row_answer(grade: Grade, name: str, function: str, block: int, reason: str) -> Answer:
    launch = row_launch(name, "x, out, n", block, 4 if block < 4096 else 8)
    lines = ("x = x.contiguous()", "n = x.shape[-1]", "outer = x.numel() // n", "out = torch.empty_like(x)")
    return Answer(grade, (function,), (*lines, launch, "return out"), reason)
