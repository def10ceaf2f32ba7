"""Rows taken by index: embeddings, sums of bags of embeddings, rows of a matrix."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.answer import Answer, draft, fill, mistake
from kernel_core.problems.program import Size

_ROWS = """
@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, D, BLOCK: tl.constexpr):
    # one program: one index, one row copied
    pid = tl.program_id(0).to(tl.int64)
    row = tl.load(index_ptr + pid)
    for start in range(0, D, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
        @MAP@
        tl.store(out_ptr + pid * D + cols, x, mask=cols < D)
"""
_BAG = """
@triton.jit
def bag_kernel(x_ptr, index_ptr, out_ptr, L, D, BLOCK: tl.constexpr):
    # one program: BLOCK columns of the sum of one bag of L rows
    blocks = tl.cdiv(D, BLOCK)
    bag = (tl.program_id(0) // blocks).to(tl.int64)
    cols = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(L):
        row = tl.load(index_ptr + bag * L + i)
        acc += tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    tl.store(out_ptr + bag * D + cols, acc@DIVIDED@, mask=cols < D)
"""
_WIDTHS = (256, 300, 512, 768, 1000, 1024)


def embedding(rng: random.Random) -> Draft:
    """An embedding, perhaps with a scale."""
    rows, width = rng.choice((10000, 30000, 32000, 50000)), rng.choice(_WIDTHS)
    scaled = rng.random() < 0.4
    sizes = (
        Size("num_embeddings", rows, 23),
        Size("embedding_dim", width, 37),
        Size("batch_size", rng.choice((32, 48, 64)), 3),
        Size("seq_len", rng.choice((512, 1000, 1024)), 5),
    )
    factor = "self.scale * " if scaled else ""
    module = Module(
        doc="Looks up a vector for each token" + (" and scales it." if scaled else "."),
        init_args=("num_embeddings: int", "embedding_dim: int"),
        init_lines=(
            "self.embedding = nn.Embedding(num_embeddings, embedding_dim)",
            *(("self.scale = embedding_dim ** 0.5",) if scaled else ()),
        ),
        forward_args=("tokens",),
        forward_lines=(f"return {factor}self.embedding(tokens)",),
        sizes=sizes,
        inputs=("torch.randint(0, num_embeddings, (batch_size, seq_len))",),
        init_inputs=("num_embeddings", "embedding_dim"),
    )
    function = fill(_ROWS, MAP="x = x * scale" if scaled else "")
    function = function.replace("out_ptr, D,", "out_ptr, D, scale,") if scaled else function
    more = ", self.scale" if scaled else ""
    operators = ("embedding", *(("mul",) if scaled else ()))

    def lines(block: str) -> tuple[str, ...]:
        return (
            "tokens = tokens.contiguous()",
            "weight = self.embedding.weight",
            "D = weight.shape[1]",
            "out = torch.empty((*tokens.shape, D), device=weight.device, dtype=weight.dtype)",
            f"gather_kernel[(tokens.numel(),)](weight, tokens, out, D{more}, BLOCK={block})",
            "return out",
        )

    naive = Answer("naive", (function,), lines("128"), _ROW_REASON)
    fused = Answer("fused", (function,), lines("min(1024, triton.next_power_of_2(D))"), _ROW_REASON)
    wrong = mistake(fused, "row * D + cols", "(row // 2) * D + cols", "wrong_row")
    return draft(rng, "embedding", operators, module, (naive, fused, wrong))


def embedding_bag(rng: random.Random) -> Draft:
    """The sum or mean of the embeddings of a bag."""
    mean = rng.random() < 0.5
    sizes = (
        Size("num_embeddings", rng.choice((10000, 50000, 100000)), 23),
        Size("embedding_dim", rng.choice((64, 128, 256, 300)), 37),
        Size("batch_size", rng.choice((16384, 20000, 32768)), 5),
        Size("bag_size", rng.choice((10, 20, 32, 50)), 7),
    )
    word = "mean" if mean else "sum"
    layer, text = rng.choice(
        (
            (f"nn.EmbeddingBag(num_embeddings, embedding_dim, mode='{word}')", "self.embedding(tokens)"),
            ("nn.Embedding(num_embeddings, embedding_dim)", f"self.embedding(tokens).{word}(dim=1)"),
        )
    )
    module = Module(
        doc=f"Takes the {word} of the embeddings of each bag of tokens.",
        init_args=("num_embeddings: int", "embedding_dim: int"),
        init_lines=(f"self.embedding = {layer}",),
        forward_args=("tokens",),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=("torch.randint(0, num_embeddings, (batch_size, bag_size))",),
        init_inputs=("num_embeddings", "embedding_dim"),
    )
    function = fill(_BAG, DIVIDED=" / L" if mean else "")
    reason = (
        "The embeddings of a bag are added up in registers, so the tensor of all looked-up rows is never "
        "stored. A program takes a block of columns of one bag and walks over its indices."
    )

    def lines(block: str) -> tuple[str, ...]:
        return (
            "tokens = tokens.contiguous()",
            "weight = self.embedding.weight",
            "B, L = tokens.shape",
            "D = weight.shape[1]",
            "out = torch.empty((B, D), device=weight.device, dtype=weight.dtype)",
            f"BLOCK = {block}",
            "bag_kernel[(B * triton.cdiv(D, BLOCK),)](weight, tokens, out, L, D, BLOCK=BLOCK)",
            "return out",
        )

    naive = Answer("naive", (function,), lines("64"), reason)
    fused = Answer("fused", (function,), lines("min(512, triton.next_power_of_2(D))"), reason)
    wrong = mistake(fused, "range(L)", "range(L - 1)", "dropped_tail")
    return draft(rng, "embedding_bag", ("embedding_bag", word), module, (naive, fused, wrong))


def row_gather(rng: random.Random) -> Draft:
    """Rows of a matrix by index."""
    sizes = (
        Size("num_rows", rng.choice((20000, 50000, 100000)), 13),
        Size("features", rng.choice(_WIDTHS), 45),
        Size("num_indices", rng.choice((16384, 30000, 32768)), 9),
    )
    text = rng.choice(("torch.index_select(x, 0, index)", "x[index]", "x.index_select(0, index)"))
    module = Module(
        doc="Selects rows of a matrix.",
        init_args=(),
        init_lines=(),
        forward_args=("x", "index"),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=("torch.randn(num_rows, features)", "torch.randint(0, num_rows, (num_indices,))"),
        init_inputs=(),
    )
    function = fill(_ROWS, MAP="")

    def lines(block: str) -> tuple[str, ...]:
        return (
            "x, index = x.contiguous(), index.contiguous()",
            "D = x.shape[1]",
            "out = torch.empty((index.numel(), D), device=x.device, dtype=x.dtype)",
            f"gather_kernel[(index.numel(),)](x, index, out, D, BLOCK={block})",
            "return out",
        )

    naive = Answer("naive", (function,), lines("128"), _ROW_REASON)
    fused = Answer("fused", (function,), lines("min(1024, triton.next_power_of_2(D))"), _ROW_REASON)
    wrong = mistake(fused, "row * D + cols", "(pid % 5) * D + cols", "index_not_used")
    return draft(rng, "row_gather", ("index_select",), module, (naive, fused, wrong))


_ROW_REASON = (
    "A lookup only moves memory: a program loads one index and copies that row, with neighbouring lanes on "
    "neighbouring columns. Offsets are 64 bits wide, for the table may be large."
)
