"""Losses of two tensors of one shape, or with one target a row or a column, down to one number."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.modules.reduction.loss_terms import LOSSES, Loss
from kernel_core.problems.program import Size, draw_cpu_size

_BLOCKS = """
@triton.jit
def @K@_kernel(p_ptr, t_ptr, partial_ptr, numel, @COLS@BLOCK: tl.constexpr):
    # one program: one block of both tensors, one partial sum
    pid = tl.program_id(0)
    offs = pid.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    p = tl.load(p_ptr + offs, mask=mask, other=@OTHER@)
    t = tl.load(t_ptr + @AT@, mask=mask, other=@OTHER@)
    @TERM@
    tl.store(partial_ptr + pid, tl.sum(tl.where(mask, loss, 0.0), axis=0))
"""
_ATOMIC = """
@triton.jit
def @K@_kernel(p_ptr, t_ptr, out_ptr, numel, @COLS@count, BLOCK: tl.constexpr):
    # one program: one block of both tensors, added to the result
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < numel
    p = tl.load(p_ptr + offs, mask=mask, other=@OTHER@)
    t = tl.load(t_ptr + @AT@, mask=mask, other=@OTHER@)
    @TERM@
    tl.atomic_add(out_ptr, tl.sum(tl.where(mask, loss, 0.0), axis=0) / count)
"""
_MANY = """
@triton.jit
def @K@_kernel(p_ptr, t_ptr, partial_ptr, numel, @COLS@turns, BLOCK: tl.constexpr):
    # one program: several blocks of both tensors, one partial sum
    pid = tl.program_id(0)
    first = pid.to(tl.int64) * turns * BLOCK
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(turns):
        offs = first + i * BLOCK + tl.arange(0, BLOCK)
        mask = offs < numel
        p = tl.load(p_ptr + offs, mask=mask, other=@OTHER@)
        t = tl.load(t_ptr + @AT@, mask=mask, other=@OTHER@)
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
class _Targets:
    """Which target belongs to a value, as its index in Triton, its shape, and its name in `forward`."""

    at: str = "offs"
    shape: str = "@S@"
    torch: str = "targets"

    @property
    def cols(self) -> str:
        """The kernel's further argument, with a comma."""
        return "" if self.at == "offs" else "cols, "


_BROADCAST = (
    _Targets("offs % cols", "@LAST@"),
    _Targets("offs % cols", "@LAST@"),
    _Targets("offs // cols", "@FIRST@, 1"),
    _Targets("offs // cols", "@FIRST@", "targets.unsqueeze(1)"),
    _Targets("offs // cols", "@FIRST@", "targets[:, None]"),
)
_WITH_BROADCAST = ("mse", "l1", "hinge", "squared_hinge")


def pair_loss(rng: random.Random) -> Draft:
    """A loss that compares predictions with targets value by value; targets may be broadcast."""
    one = rng.choice(LOSSES)
    constant = rng.choice(one.constants)
    targets, forms = _Targets(), one.forms
    if one.name in _WITH_BROADCAST and rng.random() < 0.6:
        targets = rng.choice(_BROADCAST)
        forms = tuple(form for form in forms if not form[0] and "_loss(" not in form[1][0])
    sizes = _draw_shape(rng, one, targets)
    names = [size.name for size in sizes]
    shapes = {"@S@": ", ".join(names), "@FIRST@": names[0], "@LAST@": names[-1]}
    layer, forward = rng.choice(forms)
    predicted, expected = rng.choice(one.inputs)
    expected = expected.replace("@S@", targets.shape)
    for marker, text in shapes.items():
        predicted, expected = predicted.replace(marker, text), expected.replace(marker, text)
    module = Module(
        doc=one.doc,
        init_args=(),
        init_lines=(layer.replace("@C@", constant),) if layer else (),
        forward_args=("predictions", "targets"),
        forward_lines=tuple(
            line.replace("@C@", constant).replace("targets", targets.torch) for line in forward
        ),
        sizes=tuple(dict.fromkeys(sizes)),
        inputs=(predicted, expected),
        init_inputs=(),
    )
    return draft(rng, "pair_loss", (one.name,), module, _answers(one, constant, targets))


def _draw_shape(rng: random.Random, one: Loss, targets: _Targets) -> tuple[Size, ...]:
    """A size a dimension; one size is both where targets by column fit rows and columns alike."""
    if targets.at == "offs % cols" and rng.random() < 0.4:
        return (Size("batch_size", rng.choice(_SQUARES), draw_cpu_size(rng, 35, 50)),) * 2
    only_rows = one.per_row or targets.at != "offs"
    return draw_sizes(rng, 2 if only_rows else rng.choice((2, 2, 3, 4)), 64_000_000)


def _answers(one: Loss, constant: str, targets: _Targets) -> tuple[Answer, ...]:
    term = one.term.replace("@C@", constant)
    values = {"K": one.name, "OTHER": one.other, "TERM": term, "AT": targets.at, "COLS": targets.cols}
    count = "predictions.shape[0]" if one.per_row else "numel"
    reason = _INDEX_REASON if targets.cols else ""

    def answer(grade: Grade, functions: Sequence[str], host: Sequence[str], why: str) -> Answer:
        filled = tuple(fill(function, **values) for function in functions)
        lines = tuple(fill(line, COLS=targets.cols) for line in (*_host(targets), *host))
        return Answer(grade, filled, lines, reason + why)

    naive = answer("naive", (_ATOMIC,), _atomic(one.name, count), _ATOMIC_REASON)
    fused = answer("fused", (_BLOCKS,), _blocks(one.name, count), _BLOCK_REASON)
    tuned = answer("tuned", (_MANY, FINISH), _many(one.name, count), _MANY_REASON)
    old, new = (text.replace("@C@", constant) for text in one.wrong)
    wrong = mistake(fused, old, new, "wrong_op")
    undivided = mistake(tuned, "tl.sum(acc, axis=0) / count", "tl.sum(acc, axis=0) / parts", "wrong_divisor")
    return (naive, fused, tuned, wrong, undivided)


_SQUARES = (2500, 3000, 4096, 5000, 6144, 8000)
_INDEX_REASON = "The smaller tensor is indexed by row or column, never expanded. "


def _host(targets: _Targets) -> tuple[str, ...]:
    cols = ("cols = predictions.shape[-1]",) if targets.cols else ()
    return (
        "predictions, targets = predictions.contiguous(), targets.contiguous()",
        "numel = predictions.numel()",
        *cols,
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
        "out = torch.zeros((), device=predictions.device, dtype=torch.float32)",
        "grid = (triton.cdiv(numel, 4096),)",
        f"{name}_kernel[grid](predictions, targets, out, numel, @COLS@{count}, BLOCK=4096)",
        "return out",
    )


def _blocks(name: str, count: str) -> tuple[str, ...]:
    return (
        "grid = (triton.cdiv(numel, 4096),)",
        "partial = torch.empty(grid, device=predictions.device, dtype=torch.float32)",
        f"{name}_kernel[grid](predictions, targets, partial, numel, @COLS@BLOCK=4096)",
        f"return partial.sum() / {count}",
    )


def _many(name: str, count: str) -> tuple[str, ...]:
    return (
        "parts = min(1024, triton.cdiv(numel, 4096))",
        "turns = triton.cdiv(numel, parts * 4096)",
        "partial = torch.empty(parts, device=predictions.device, dtype=torch.float32)",
        "out = torch.empty((), device=predictions.device, dtype=torch.float32)",
        f"{name}_kernel[(parts,)]("
        "predictions, targets, partial, numel, @COLS@turns, BLOCK=4096, num_warps=8)",
        f"finish_kernel[(1,)](partial, out, parts, {count}, BLOCK=1024)",
        "return out",
    )
