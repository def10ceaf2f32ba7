"""Scaled dot-product attention: plain, causal, with grouped heads, with wide heads."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size

_SIZES = (
    (8, 16, 1024, 64), (16, 12, 512, 64), (4, 8, 2048, 64), (32, 8, 512, 32), (8, 12, 1000, 64),
    (2, 16, 2048, 128), (16, 8, 768, 64), (4, 32, 1024, 128), (8, 8, 1500, 96),
)  # fmt: skip
_WIDE_SIZES = (
    (8, 16, 512, 256), (16, 8, 512, 512), (8, 8, 256, 1024), (4, 16, 768, 512), (2, 8, 1024, 768),
    (4, 12, 640, 1024), (16, 16, 256, 256),
)  # fmt: skip


def attention(rng: random.Random) -> Draft:
    """Attention over (batch, heads, length, width), one of several forms."""
    kind = rng.choice(("plain", "plain", "causal", "causal", "grouped", "wide", "wide"))
    causal = kind == "causal" or (kind in ("grouped", "wide") and rng.random() < 0.3)
    grouped = kind == "grouped"
    batch, heads, length, width = rng.choice(_WIDE_SIZES if kind == "wide" else _SIZES)
    cpu_length, cpu_width = rng.choice(((21, 12), (27, 20), (19, 24)))
    if kind == "wide":
        cpu_width = 80
    group = rng.choice((2, 4))
    names = rng.choice((("seq_len", "head_dim"), ("sequence_length", "embedding_dim"), ("tokens", "dim")))
    sizes = [Size("batch_size", batch, 1), Size("num_heads", heads, 4 if grouped else 2)]
    if grouped:
        sizes.append(Size("num_kv_heads", heads // group, 2))
    sizes += [Size(names[0], length, cpu_length), Size(names[1], width, cpu_width)]
    queries = f"(batch_size, num_heads, {', '.join(names)})"
    keys = queries.replace("num_heads", "num_kv_heads") if grouped else queries
    arguments = rng.choice((("q", "k", "v"), ("query", "key", "value"), ("Q", "K", "V")))
    source = rng.choice(("rand", "randn"))
    return Module(
        doc="Scaled dot-product attention" + (" in which no query sees a later key." if causal else "."),
        forward_args=arguments,
        forward_lines=_reference_lines(rng, arguments, causal=causal, grouped=grouped),
        sizes=tuple(sizes),
        inputs=tuple(f"torch.{source}{shape}" for shape in (queries, keys, keys)),
    ).draft(("attention", *["causal"] * causal, *["grouped"] * grouped), draw_style(rng))


def _reference_lines(
    rng: random.Random, names: tuple[str, ...], *, causal: bool, grouped: bool
) -> tuple[str, ...]:
    q, k, v = names
    call = rng.choice(("F", "torch.nn.functional")) + ".scaled_dot_product_attention"
    given = ", is_causal=True" if causal else ""
    if grouped:
        if rng.random() < 0.5:
            return (f"return {call}({q}, {k}, {v}{given}, enable_gqa=True)",)
        return (
            f"group = {q}.size(1) // {k}.size(1)",
            f"{k} = {k}.repeat_interleave(group, dim=1)",
            f"{v} = {v}.repeat_interleave(group, dim=1)",
            f"return {call}({q}, {k}, {v}{given})",
        )
    if not causal and rng.random() < 0.3:
        return (
            f"scores = torch.matmul({q}, {k}.transpose(-2, -1)) / ({q}.size(-1) ** 0.5)",
            "weights = torch.softmax(scores, dim=-1)",
            f"return torch.matmul(weights, {v})",
        )
    return (f"return {call}({q}, {k}, {v}{given})",)
