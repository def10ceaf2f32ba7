"""Scaled dot-product attention: plain, causal, with grouped heads, with wide heads."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.modules.reduction.attention_kernels import FLASH, ONE_QUERY, WIDE
from kernel_core.problems.program import Size


@dataclass(frozen=True)
class _Form:
    """The drawn choices of an attention."""

    causal: bool
    grouped: bool
    wide: bool
    ieee: bool


def attention(rng: random.Random) -> Draft:
    """Attention over (batch, heads, length, width), one of several forms."""
    kind = rng.choice(("plain", "plain", "causal", "causal", "grouped", "wide", "wide"))
    form = _Form(
        causal=kind == "causal" or (kind in ("grouped", "wide") and rng.random() < 0.3),
        grouped=kind == "grouped",
        wide=kind == "wide",
        ieee=rng.random() < 0.5,
    )
    module = _module(rng, form)
    answers = _answers(form, module.forward_args)
    if form.causal:
        wrong = mistake(answers[1], " & (cols[None, :] <= rows[:, None])", "", "mask_not_causal")
    elif rng.random() < 0.6:
        wrong = mistake(answers[1], "acc / s[:, None]", "acc", "no_normalizer")
    else:
        wrong = mistake(answers[1], "p = tl.exp(scores - new_m[:, None])", "p = scores", "no_exponential")
    operators = ("attention", *(("causal",) if form.causal else ()), *(("grouped",) if form.grouped else ()))
    return draft(rng, "attention", operators, module, (*answers, wrong))


def _module(rng: random.Random, form: _Form) -> Module:
    batch, heads, length, width = rng.choice(_WIDE_SIZES if form.wide else _SIZES)
    cpu_length, cpu_width = rng.choice(((21, 12), (27, 20), (19, 24)))
    if form.wide:
        cpu_width = 80
    group = rng.choice((2, 4))
    names = rng.choice((("seq_len", "head_dim"), ("sequence_length", "embedding_dim"), ("tokens", "dim")))
    sizes = [Size("batch_size", batch, 1), Size("num_heads", heads, 4 if form.grouped else 2)]
    if form.grouped:
        sizes.append(Size("num_kv_heads", heads // group, 2))
    sizes += [Size(names[0], length, cpu_length), Size(names[1], width, cpu_width)]
    queries = f"(batch_size, num_heads, {', '.join(names)})"
    keys = queries.replace("num_heads", "num_kv_heads") if form.grouped else queries
    arguments = rng.choice((("q", "k", "v"), ("query", "key", "value"), ("Q", "K", "V")))
    source = rng.choice(("rand", "randn"))
    return Module(
        doc="Scaled dot-product attention" + (" in which no query sees a later key." if form.causal else "."),
        init_args=(),
        init_lines=(),
        forward_args=arguments,
        forward_lines=_reference_lines(rng, form, arguments),
        sizes=tuple(sizes),
        inputs=tuple(f"torch.{source}{shape}" for shape in (queries, keys, keys)),
        init_inputs=(),
    )


_SIZES = (
    (8, 16, 1024, 64), (16, 12, 512, 64), (4, 8, 2048, 64), (32, 8, 512, 32), (8, 12, 1000, 64),
    (2, 16, 2048, 128), (16, 8, 768, 64), (4, 32, 1024, 128), (8, 8, 1500, 96),
)  # fmt: skip
_WIDE_SIZES = (
    (8, 16, 512, 256), (16, 8, 512, 512), (8, 8, 256, 1024), (4, 16, 768, 512), (2, 8, 1024, 768),
    (4, 12, 640, 1024), (16, 16, 256, 256),
)  # fmt: skip


def _reference_lines(rng: random.Random, form: _Form, names: tuple[str, ...]) -> tuple[str, ...]:
    q, k, v = names
    call = rng.choice(("F", "torch.nn.functional")) + ".scaled_dot_product_attention"
    causal = ", is_causal=True" if form.causal else ""
    if form.grouped:
        if rng.random() < 0.5:
            return (f"return {call}({q}, {k}, {v}{causal}, enable_gqa=True)",)
        return (
            f"group = {q}.size(1) // {k}.size(1)",
            f"{k} = {k}.repeat_interleave(group, dim=1)",
            f"{v} = {v}.repeat_interleave(group, dim=1)",
            f"return {call}({q}, {k}, {v}{causal})",
        )
    if not form.causal and rng.random() < 0.3:
        return (
            f"scores = torch.matmul({q}, {k}.transpose(-2, -1)) / ({q}.size(-1) ** 0.5)",
            "weights = torch.softmax(scores, dim=-1)",
            f"return torch.matmul(weights, {v})",
        )
    return (f"return {call}({q}, {k}, {v}{causal})",)


def _answers(form: _Form, names: tuple[str, ...]) -> tuple[Answer, Answer, Answer]:
    values = {
        "HEADS": "group, " if form.grouped else "",
        "KEY_HEAD": "kv = head // group" if form.grouped else "",
        "KV": "kv" if form.grouped else "head",
        "PRECISION": ', input_precision="ieee"' if form.ieee else "",
    }
    valid = "(cols[None, :] < T)" + (" & (cols[None, :] <= rows[:, None])" if form.causal else "")
    early = "tl.minimum(T, (tl.program_id(0) % blocks + 1) * BLOCK_M)" if form.causal else "T"
    one_valid = "(cols < T) & (cols <= row)" if form.causal else "cols < T"
    tile = WIDE if form.wide else FLASH
    reason = (_WIDE_REASON if form.wide else _REASON) + (_IEEE_REASON if form.ieee else "")
    small, large = _WIDE_BLOCKS if form.wide else _BLOCKS
    return (
        Answer(
            "naive",
            (fill(ONE_QUERY, VALID=one_valid, END="T", **values),),
            _lines(form, names, 1, "BLOCK_N=16, BLOCK_D=triton.next_power_of_2(D)"),
            _ONE_REASON,
        ),
        Answer(
            "fused",
            (fill(tile, VALID=valid, END="T", **values),),
            _lines(form, names, small[0], small[1]),
            reason,
        ),
        Answer(
            "tuned",
            (fill(tile, VALID=valid, END=early, **values),),
            _lines(form, names, large[0], large[1]),
            reason + (_CAUSAL_REASON if form.causal else ""),
        ),
    )


_TILE = "BLOCK_D=max(16, triton.next_power_of_2(D))"
_BLOCKS = (
    (32, f"BLOCK_M=32, BLOCK_N=32, {_TILE}, num_stages=2"),
    (64, f"BLOCK_M=64, BLOCK_N=32, {_TILE},\n    num_warps=4 if D <= 64 else 8, num_stages=2"),
)
_WIDE_BLOCKS = (
    (16, f"BLOCK_M=16, BLOCK_N=16, {_TILE},\n    BLOCK_K=64, num_warps=8, num_stages=1"),
    (32, f"BLOCK_M=32, BLOCK_N=16, {_TILE},\n    BLOCK_K=64, num_warps=8, num_stages=1"),
)
_REASON = (
    "The matrix of scores is never stored: a program keeps a block of queries, walks over blocks of keys and "
    "rescales its output when the maximum of a row grows."
)
_WIDE_REASON = (
    "The head is too wide for one tile of queries and keys, so scores are added up in pieces along the head. "
    "Only the output of a few queries stays in registers while the keys pass by."
)
_ONE_REASON = (
    "One query a program: scores of a block of keys are sums along the head, and an online softmax rescales "
    "the output, so no score is stored."
)
_IEEE_REASON = " Full float32 products keep the result close to the reference."
_CAUSAL_REASON = " Keys behind the last query of a block are not visited."


def _lines(form: _Form, names: tuple[str, ...], queries: int, blocks: str) -> tuple[str, ...]:
    q, k, v = names
    grid = f"B * H * triton.cdiv(S, {queries})" if queries > 1 else "B * H * S"
    return (
        f"q, k, v = {q}.contiguous(), {k}.contiguous(), {v}.contiguous()",
        "B, H, S, D = q.shape",
        "T = k.shape[2]",
        *(("group = H // k.shape[1]",) if form.grouped else ()),
        "out = torch.empty_like(q)",
        f"attention_kernel[({grid},)](",
        f"    q, k, v, out, S, T, D, {'group, ' if form.grouped else ''}D ** -0.5,",
        *(f"    {line.strip()}" for line in f"{blocks},".split("\n")),
        ")",
        "return out",
    )
