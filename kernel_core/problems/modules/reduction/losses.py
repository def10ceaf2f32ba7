"""Losses of two tensors of one shape, down to one number."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import draw_sizes

_BLOCKS = """
@triton.jit
def @K@_kernel(p_ptr, t_ptr, partial_ptr, numel, BLOCK: tl.constexpr):
    # one program: one block of both tensors, one partial sum
    pid = tl.program_id(0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    p = tl.load(p_ptr + offs, mask=mask, other=@OTHER@)
    t = tl.load(t_ptr + offs, mask=mask, other=@OTHER@)
    @TERM@
    tl.store(partial_ptr + pid, tl.sum(tl.where(mask, loss, 0.0), axis=0))
"""
_ATOMIC = """
@triton.jit
def @K@_kernel(p_ptr, t_ptr, out_ptr, numel, count, BLOCK: tl.constexpr):
    # one program: one block of both tensors, added to the result
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    p = tl.load(p_ptr + offs, mask=mask, other=@OTHER@)
    t = tl.load(t_ptr + offs, mask=mask, other=@OTHER@)
    @TERM@
    tl.atomic_add(out_ptr, tl.sum(tl.where(mask, loss, 0.0), axis=0) / count)
"""
_MANY = """
@triton.jit
def @K@_kernel(p_ptr, t_ptr, partial_ptr, numel, turns, BLOCK: tl.constexpr):
    # one program: several blocks of both tensors, one partial sum
    pid = tl.program_id(0)
    first = pid.to(tl.int64) * turns * BLOCK
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(turns):
        offs = first + i * BLOCK + tl.arange(0, BLOCK)
        mask = offs < numel
        p = tl.load(p_ptr + offs, mask=mask, other=@OTHER@)
        t = tl.load(t_ptr + offs, mask=mask, other=@OTHER@)
        @TERM@
        acc += tl.where(mask, loss, 0.0)
    tl.store(partial_ptr + pid, tl.sum(acc, axis=0))
"""
FINISH = """
@triton.jit
def finish_kernel(partial_ptr, out_ptr, parts, count, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, parts, BLOCK):
        acc += tl.load(partial_ptr + start + offs, mask=start + offs < parts, other=0.0)
    tl.store(out_ptr, tl.sum(acc, axis=0) / count)
"""


@dataclass(frozen=True)
class _Loss:
    """`@C@` is the drawn constant; the terms compute `loss` from `p` and `t`."""

    name: str
    doc: str
    forms: tuple[tuple[str, tuple[str, ...]], ...]
    """Constructor line (or empty) and lines of `forward`."""
    term: str
    wrong: tuple[str, str]
    """A text of the term and a wrong one in its place."""
    inputs: tuple[tuple[str, str], ...]
    constants: tuple[str, ...] = ("1.0",)
    other: str = "0.0"
    per_row: bool = False
    """Divided by the batch size, not by the number of elements."""


_SCALED = (
    ("torch.rand(@S@) * torch.rand(())", "torch.rand(@S@)"),
    ("torch.randn(@S@) * (1.0 + torch.rand(()))", "torch.randn(@S@)"),
    ("torch.randn(@S@)", "torch.randn(@S@) + torch.rand(())"),
)
_SIGNED = (
    ("torch.randn(@S@) * (1.0 + torch.rand(()))", "torch.randint(0, 2, (@S@,)).float() * 2 - 1"),
    ("torch.randn(@S@) * (0.5 + torch.rand(()))", "torch.sign(torch.randn(@S@))"),
)
_LOSSES = (
    _Loss(
        "mse", "Mean of squared differences.",
        (
            ("", ("return torch.mean((predictions - targets) ** 2)",)),
            ("", ("return F.mse_loss(predictions, targets)",)),
            ("self.loss = nn.MSELoss()", ("return self.loss(predictions, targets)",)),
            ("", ("diff = predictions - targets", "return (diff * diff).mean()")),
        ),
        "loss = (p - t) * (p - t)", ("(p - t) * (p - t)", "tl.abs(p - t)"), _SCALED,
    ),
    _Loss(
        "l1", "Mean of absolute differences.",
        (
            ("", ("return torch.mean(torch.abs(predictions - targets))",)),
            ("", ("return F.l1_loss(predictions, targets)",)),
            ("self.loss = nn.L1Loss()", ("return self.loss(predictions, targets)",)),
        ),
        "loss = tl.abs(p - t)", ("tl.abs(p - t)", "(p - t)"), _SCALED,
    ),
    _Loss(
        "smooth_l1", "Smooth L1 distance: squares for small differences, absolute values for large ones.",
        (
            ("", ("return F.smooth_l1_loss(predictions, targets, beta=@C@)",)),
            ("self.loss = nn.SmoothL1Loss(beta=@C@)", ("return self.loss(predictions, targets)",)),
        ),
        "d = tl.abs(p - t)\nloss = tl.where(d < @C@, 0.5 * d * d / @C@, d - 0.5 * @C@)",
        ("0.5 * d * d / @C@", "d * d / @C@"), _SCALED, ("1.0", "1.0", "0.5"),
    ),
    _Loss(
        "huber", "Huber distance of predictions and targets.",
        (
            ("", ("return F.huber_loss(predictions, targets, delta=@C@)",)),
            ("self.loss = nn.HuberLoss(delta=@C@)", ("return self.loss(predictions, targets)",)),
        ),
        "d = tl.abs(p - t)\nloss = tl.where(d < @C@, 0.5 * d * d, @C@ * (d - 0.5 * @C@))",
        ("0.5 * d * d", "d * d"), _SCALED, ("1.0", "0.5", "0.75", "2.0"),
    ),
    _Loss(
        "hinge", "Hinge distance for targets of minus one and one.",
        (
            ("", ("return torch.mean(torch.clamp(1 - predictions * targets, min=0))",)),
            ("", ("return F.relu(1.0 - predictions * targets).mean()",)),
        ),
        "loss = tl.maximum(1.0 - p * t, 0.0)", ("tl.maximum(1.0 - p * t, 0.0)", "1.0 - p * t"), _SIGNED,
    ),
    _Loss(
        "squared_hinge", "Squared hinge distance for targets of minus one and one.",
        (("", ("margin = torch.clamp(1 - predictions * targets, min=0)", "return torch.mean(margin ** 2)")),),
        "m = tl.maximum(1.0 - p * t, 0.0)\nloss = m * m", ("loss = m * m", "loss = m"), _SIGNED,
    ),
    _Loss(
        "bce_with_logits", "Binary cross entropy from logits.",
        (
            ("", ("return F.binary_cross_entropy_with_logits(predictions, targets)",)),
            ("self.loss = nn.BCEWithLogitsLoss()", ("return self.loss(predictions, targets)",)),
        ),
        "loss = tl.maximum(p, 0.0) - p * t + tl.log(1.0 + tl.exp(-tl.abs(p)))", ("- p * t", "- t"),
        (
            ("torch.randn(@S@) * (1.0 + 2.0 * torch.rand(()))", "torch.rand(@S@)"),
            ("3.0 * torch.randn(@S@) * torch.rand(())", "torch.randint(0, 2, (@S@,)).float()"),
        ),
    ),
    _Loss(
        "kl_div", "Kullback-Leibler divergence, averaged over the batch.",
        (
            ("", ("return F.kl_div(torch.log(predictions), targets, reduction='batchmean')",)),
            ("self.loss = nn.KLDivLoss(reduction='batchmean')",
             ("return self.loss(predictions.log(), targets)",)),
        ),
        "loss = tl.where(t > 0, t * (tl.log(t) - tl.log(p)), 0.0)",
        ("tl.log(t) - tl.log(p)", "tl.log(p) - tl.log(t)"),
        (
            ("torch.softmax(torch.rand(@S@) * torch.rand(()), dim=-1)", "torch.rand(@S@).softmax(dim=-1)"),
            ("(2.0 * torch.randn(@S@)).softmax(dim=-1)", "torch.softmax(torch.randn(@S@), dim=-1)"),
        ),
        other="1.0", per_row=True,
    ),
    _Loss(
        "kl_div_log", "Divergence of log-probabilities from target probabilities, averaged over the batch.",
        (
            ("", ("return F.kl_div(predictions, targets, reduction='batchmean')",)),
            ("self.loss = nn.KLDivLoss(reduction='batchmean')", ("return self.loss(predictions, targets)",)),
        ),
        "loss = tl.where(t > 0, t * (tl.log(t) - p), 0.0)", ("tl.log(t) - p", "p - tl.log(t)"),
        (("torch.log_softmax(2.0 * torch.randn(@S@), dim=-1)", "torch.softmax(torch.randn(@S@), dim=-1)"),),
        other="1.0", per_row=True,
    ),
)  # fmt: skip


def pair_loss(rng: random.Random) -> Draft:
    """A loss that compares two tensors of one shape value by value."""
    one = rng.choice(_LOSSES)
    constant = rng.choice(one.constants)
    sizes = draw_sizes(rng, 2 if one.per_row else rng.choice((2, 2, 3, 4)), 64_000_000)
    shape = ", ".join(size.name for size in sizes)
    layer, forward = rng.choice(one.forms)
    inputs = rng.choice(one.inputs)
    module = Module(
        doc=one.doc,
        init_args=(),
        init_lines=(layer.replace("@C@", constant),) if layer else (),
        forward_args=("predictions", "targets"),
        forward_lines=tuple(line.replace("@C@", constant) for line in forward),
        sizes=sizes,
        inputs=tuple(text.replace("@S@", shape) for text in inputs),
        init_inputs=(),
    )
    values = {"K": one.name, "OTHER": one.other, "TERM": one.term.replace("@C@", constant)}
    count = "predictions.shape[0]" if one.per_row else "numel"
    naive = Answer("naive", (fill(_ATOMIC, **values),), _atomic(one.name, count), _ATOMIC_REASON)
    fused = Answer("fused", (fill(_BLOCKS, **values),), _blocks(one.name, count), _BLOCK_REASON)
    tuned = Answer("tuned", (fill(_MANY, **values), FINISH), _many(one.name, count), _MANY_REASON)
    old, new = (text.replace("@C@", constant) for text in one.wrong)
    wrong = mistake(fused, old, new, "wrong_op")
    undivided = mistake(tuned, "tl.sum(acc, axis=0) / count", "tl.sum(acc, axis=0) / parts", "wrong_divisor")
    return draft(rng, "pair_loss", (one.name,), module, (naive, fused, tuned, wrong, undivided))


_HOST = (
    "predictions, targets = predictions.contiguous(), targets.contiguous()",
    "numel = predictions.numel()",
)
_ATOMIC_REASON = (
    "Both tensors are read once, and nothing but one number is written. Each program adds the mean's share "
    "of its block to a zeroed scalar."
)
_BLOCK_REASON = (
    "Both tensors are read once, a block a program, and the differences stay in registers. Each program "
    "stores one partial sum; adding these few numbers costs nothing and has a fixed order."
)
_MANY_REASON = (
    "About a thousand programs keep the GPU full; each walks over many blocks with a running sum a lane, so "
    "few partial sums remain and a second small kernel adds them."
)


def _atomic(name: str, count: str) -> tuple[str, ...]:
    return (
        *_HOST,
        "out = torch.zeros((), device=predictions.device, dtype=torch.float32)",
        "grid = (triton.cdiv(numel, 4096),)",
        f"{name}_kernel[grid](predictions, targets, out, numel, {count}, BLOCK=4096)",
        "return out",
    )


def _blocks(name: str, count: str) -> tuple[str, ...]:
    return (
        *_HOST,
        "grid = (triton.cdiv(numel, 4096),)",
        "partial = torch.empty(grid, device=predictions.device, dtype=torch.float32)",
        f"{name}_kernel[grid](predictions, targets, partial, numel, BLOCK=4096)",
        f"return partial.sum() / {count}",
    )


def _many(name: str, count: str) -> tuple[str, ...]:
    return (
        *_HOST,
        "parts = min(1024, triton.cdiv(numel, 4096))",
        "turns = triton.cdiv(numel, parts * 4096)",
        "partial = torch.empty(parts, device=predictions.device, dtype=torch.float32)",
        "out = torch.empty((), device=predictions.device, dtype=torch.float32)",
        f"{name}_kernel[(parts,)](predictions, targets, partial, numel, turns, BLOCK=4096, num_warps=8)",
        f"finish_kernel[(1,)](partial, out, parts, {count}, BLOCK=1024)",
        "return out",
    )
