"""Losses that need a whole row at a time: cross entropy, cosine, triplet margin, a target a column."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, mistake
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.modules.reduction.losses import FINISH
from kernel_core.problems.program import Size

_CROSS_ENTROPY = """
@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    # one program: log-sum-exp of one row of logits, less the logit of its class
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    m = float("-inf")
    s = 0.0
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
        new_m = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m
    target = tl.load(target_ptr + row)
    logit = tl.load(x_ptr + row * n + target)
    tl.store(partial_ptr + row, m + tl.log(s) - logit)
"""
_TWO_PASSES = """
@triton.jit
def cross_entropy_kernel(x_ptr, target_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    # one program: maximum, then sum of exponentials of one row of logits
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        top = tl.maximum(top, tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf")))
    m = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
        total += tl.exp(x - m)
    target = tl.load(target_ptr + row)
    logit = tl.load(x_ptr + row * n + target)
    tl.store(partial_ptr + row, m + tl.log(tl.sum(total, axis=0)) - logit)
"""
_COSINE = """
@triton.jit
def cosine_kernel(a_ptr, b_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    # one program: one pair of rows
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    ab = tl.zeros((BLOCK,), dtype=tl.float32)
    aa = tl.zeros((BLOCK,), dtype=tl.float32)
    bb = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        a = tl.load(a_ptr + row * n + cols, mask=cols < n, other=0.0)
        b = tl.load(b_ptr + row * n + cols, mask=cols < n, other=0.0)
        ab += a * b
        aa += a * a
        bb += b * b
    norm_a = tl.maximum(tl.sqrt(tl.sum(aa, axis=0)), 1e-8)
    norm_b = tl.maximum(tl.sqrt(tl.sum(bb, axis=0)), 1e-8)
    tl.store(partial_ptr + row, 1.0 - tl.sum(ab, axis=0) / (norm_a * norm_b))
"""
_TRIPLET = """
@triton.jit
def triplet_kernel(a_ptr, p_ptr, n_ptr, partial_ptr, n, margin, BLOCK: tl.constexpr):
    # one program: both distances of one anchor
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    near = tl.zeros((BLOCK,), dtype=tl.float32)
    far = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        mask = cols < n
        a = tl.load(a_ptr + row * n + cols, mask=mask, other=0.0)
        dp = a - tl.load(p_ptr + row * n + cols, mask=mask, other=0.0) + 1e-6
        dn = a - tl.load(n_ptr + row * n + cols, mask=mask, other=0.0) + 1e-6
        near += tl.where(mask, dp * dp, 0.0)
        far += tl.where(mask, dn * dn, 0.0)
    d = tl.sqrt(tl.sum(near, axis=0)) - tl.sqrt(tl.sum(far, axis=0))
    tl.store(partial_ptr + row, tl.maximum(d + margin, 0.0))
"""
_HINGE = """
@triton.jit
def hinge_kernel(p_ptr, t_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    # one program: one row of predictions; @WHOSE@
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        cols = start + offs
        mask = cols < n
        p = tl.load(p_ptr + row * n + cols, mask=mask, other=0.0)
        t = tl.load(@TARGET@)
        acc += tl.where(mask, tl.maximum(1.0 - p * t, 0.0), 0.0)
    tl.store(partial_ptr + row, tl.sum(acc, axis=0) / n)
"""


@dataclass(frozen=True)
class _RowLoss:
    """A loss of rows: `functions` by grade, the names of its tensors, and how a mistake changes a kernel."""

    name: str
    doc: str
    module: Module
    naive: str
    fused: str
    scalars: str
    wrong: tuple[str, str]
    reason: str


def row_loss(rng: random.Random) -> Draft:
    """A loss of rows, averaged over the batch."""
    one = rng.choice((_cross_entropy, _cross_entropy, _cosine, _triplet, _triplet, _hinge, _hinge))(rng)
    first = one.module.forward_args[0]
    tensors = ", ".join(one.module.forward_args)
    host = (
        f"{tensors} = {', '.join(f'{name}.contiguous()' for name in one.module.forward_args)}",
        f"rows, n = {first}.shape",
        f"partial = torch.empty(rows, device={first}.device, dtype=torch.float32)",
    )

    def launch(block: int, warps: int) -> str:
        warp = "" if warps == 4 else f", num_warps={warps}"
        return f"{one.name}_kernel[(rows,)]({tensors}, partial, n{one.scalars}, BLOCK={block}{warp})"

    def answer(grade: Grade, function: str, block: int, warps: int) -> Answer:
        return Answer(grade, (function,), (*host, launch(block, warps), "return partial.mean()"), one.reason)

    naive = answer("naive", one.naive, 1024, 4)
    fused = answer("fused", one.fused, 4096, 8)
    last = (
        f"out = torch.empty((), device={first}.device, dtype=torch.float32)",
        launch(2048, 4),
        "finish_kernel[(1,)](partial, out, rows, rows, BLOCK=1024)",
        "return out",
    )
    reason = one.reason + " A second small kernel averages the rows in a fixed order."
    tuned = Answer("tuned", (one.fused, FINISH), (*host, *last), reason)
    wrong = mistake(fused, *one.wrong, "wrong_op")
    summed = mistake(naive, "partial.mean()", "partial.sum()", "wrong_divisor")
    return draft(rng, "row_loss", (one.name,), one.module, (naive, fused, tuned, wrong, summed))


def _module(
    doc: str, layer: str, arguments: tuple[str, ...], lines: tuple[str, ...], sizes: tuple[Size, ...],
    inputs: tuple[str, ...], init: tuple[str, ...] = (), init_inputs: tuple[str, ...] = (),
) -> Module:  # fmt: skip
    shape = ", ".join(size.name for size in sizes)
    return Module(
        doc=doc,
        init_args=init,
        init_lines=(layer,) if layer else (),
        forward_args=arguments,
        forward_lines=lines,
        sizes=sizes,
        inputs=tuple(text.replace("@S@", shape) for text in inputs),
        init_inputs=init_inputs,
    )


def _cross_entropy(rng: random.Random) -> _RowLoss:
    batch, classes = rng.choice(
        ((4096, 5000), (8192, 2048), (16384, 1000), (20000, 4000), (65536, 300), (1024, 32000), (2048, 50257))
    )
    sizes = (Size("batch_size", batch, 5), Size("num_classes", classes, 300))
    layer, line = rng.choice(
        (
            ("", "return F.cross_entropy(predictions, targets)"),
            ("", "return torch.nn.functional.cross_entropy(predictions, targets)"),
            ("self.loss = nn.CrossEntropyLoss()", "return self.loss(predictions, targets)"),
            ("", "return F.nll_loss(F.log_softmax(predictions, dim=1), targets)"),
        )
    )
    logits = rng.choice(("torch.randn(@S@)", "torch.rand(@S@)", "torch.randn(@S@) * (1.0 + torch.rand(()))"))
    return _RowLoss(
        "cross_entropy",
        "Cross entropy of logits and class indices.",
        _module(
            "Cross entropy of logits and class indices.", layer, ("predictions", "targets"), (line,), sizes,
            (logits, "torch.randint(0, num_classes, (batch_size,))"),
        ),
        _TWO_PASSES, _CROSS_ENTROPY, "", ("m + tl.log(s)", "tl.log(s)"),
        "The loss of a row is its log-sum-exp less one logit, so no probability is ever stored: a program "
        "reads its row in blocks, loads the logit of its class and leaves one number.",
    )  # fmt: skip


def _cosine(rng: random.Random) -> _RowLoss:
    layer, lines = rng.choice(
        (
            ("", ("return torch.mean(1 - F.cosine_similarity(predictions, targets, dim=1))",)),
            ("", ("similarity = F.cosine_similarity(predictions, targets, dim=1)",
                  "return 1.0 - similarity.mean()")),
            ("self.cos = nn.CosineSimilarity(dim=1)",
             ("return (1 - self.cos(predictions, targets)).mean()",)),
        )
    )  # fmt: skip
    inputs = ("torch.randn(@S@) + torch.rand(())", "torch.randn(@S@) + 2.0 * torch.rand(())")
    doc = "One minus the cosine of two batches of vectors, averaged."
    return _RowLoss(
        "cosine", doc,
        _module(doc, layer, ("predictions", "targets"), lines, draw_sizes(rng, 2, 48_000_000), inputs),
        _COSINE, _COSINE, "", ("/ (norm_a * norm_b)", "/ norm_a"),
        "A cosine needs three sums of the same two rows. A program reads both rows once and keeps all three "
        "in registers, so nothing but one number a row is written.",
    )  # fmt: skip


def _triplet(rng: random.Random) -> _RowLoss:
    margin = rng.choice(("1.0", "1.0", "0.5", "2.0"))
    layer, line = rng.choice(
        (
            ("self.loss_fn = nn.TripletMarginLoss(margin=margin)",
             "return self.loss_fn(anchor, positive, negative)"),
            ("self.margin = margin",
             "return F.triplet_margin_loss(anchor, positive, negative, margin=self.margin)"),
        )
    )  # fmt: skip
    doc = "Triplet margin distance of anchors, positives and negatives."
    module = _module(
        doc, layer, ("anchor", "positive", "negative"), (line,), draw_sizes(rng, 2, 32_000_000),
        ("torch.rand(@S@) * torch.rand(())", "torch.rand(@S@) * (1.0 + torch.rand(()))", "torch.rand(@S@)"),
        ("margin: float = 1.0",), (margin,),
    )  # fmt: skip
    given = ", self.margin" if "self.margin" in layer else ", self.loss_fn.margin"
    return _RowLoss(
        "triplet", doc, module, _TRIPLET, _TRIPLET, given,
        ("- tl.sqrt(tl.sum(far, axis=0))", "+ tl.sqrt(tl.sum(far, axis=0))"),
        "The anchor takes part in both distances, so a program reads the three rows together and keeps both "
        "sums of squares in registers; the anchor is read once.",
    )  # fmt: skip


def _hinge(rng: random.Random) -> _RowLoss:
    by_row = rng.random() < 0.4
    rows, cols = draw_sizes(rng, 2, 64_000_000)
    count = rows.name if by_row else cols.name
    line = "return torch.mean(torch.clamp(1 - predictions * targets, min=0))"
    if by_row:
        line = line.replace("* targets", "* targets.unsqueeze(1)")
    doc = "Hinge distance with one sign " + ("a row." if by_row else "a column.")
    text = (
        _HINGE.replace("@WHOSE@", "its target is one number" if by_row else "targets lie along the row")
        .replace("@TARGET@", "t_ptr + row" if by_row else "t_ptr + cols, mask=mask, other=0.0")
    )  # fmt: skip
    module = _module(
        doc, "", ("predictions", "targets"), (line,), (rows, cols),
        ("torch.randn(@S@) * (1.0 + torch.rand(()))", f"torch.randint(0, 2, ({count},)).float() * 2 - 1"),
    )  # fmt: skip
    return _RowLoss(
        "hinge", doc, module, text, text, "", ("tl.maximum(1.0 - p * t, 0.0)", "(1.0 - p * t)"),
        "The targets are one vector that is broadcast over the matrix, so a program takes a row of "
        "predictions and " + ("one target." if by_row else "rereads the vector, which stays in cache."),
    )  # fmt: skip
