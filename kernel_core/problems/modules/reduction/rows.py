"""Rows with two halves or a mask, and rows taken by index: families that are mostly held out whole."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size

_GATES = (
    ("glu", "return F.glu(x, dim=-1)"),
    ("glu", "a, b = x.chunk(2, dim=-1)|return a * torch.sigmoid(b)"),
    ("swiglu", "gate, value = x.chunk(2, dim=-1)|return F.silu(gate) * value"),
    ("geglu", "value, gate = x.chunk(2, dim=-1)|return value * F.gelu(gate)"),
    ("reglu", "gate, value = torch.chunk(x, 2, dim=-1)|return F.relu(gate) * value"),
)
_WIDTHS = (256, 300, 512, 768, 1000, 1024)


def gated(rng: random.Random) -> Draft:
    """A gated linear unit of the two halves of each row."""
    name, text = rng.choice(_GATES)
    batch, length, half = rng.choice(
        ((16, 512, 2048), (8, 1024, 2816), (32, 256, 3000), (4, 2048, 4096), (64, 200, 1024), (8, 1000, 1500))
    )
    sizes = (Size("batch_size", batch, 3), Size("seq_len", length, 5), Size("features", 2 * half, 74))
    return Module(
        doc="Multiplies one half of each row with a gate from the other.",
        forward_lines=tuple(text.split("|")),
        sizes=sizes,
        inputs=("torch.randn(batch_size, seq_len, features)",),
    ).draft((name,), draw_style(rng))


def rotary(rng: random.Random) -> Draft:
    """Rotary position embedding of queries or keys."""
    batch, heads, length, width = rng.choice(
        ((8, 16, 1024, 64), (4, 32, 2048, 64), (16, 12, 512, 128), (8, 8, 2000, 96), (2, 16, 4096, 128))
    )
    sizes = (
        Size("batch_size", batch, 2), Size("num_heads", heads, 2), Size("seq_len", length, 7),
        Size("head_dim", width, 12),
    )  # fmt: skip
    return Module(
        doc="Rotates pairs of features by an angle for each position.",
        forward_args=("x", "cos", "sin"),
        forward_lines=(
            "a, b = x.chunk(2, dim=-1)",
            "return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)",
        ),
        sizes=sizes,
        inputs=(
            "torch.randn(batch_size, num_heads, seq_len, head_dim)",
            "torch.randn(seq_len, head_dim // 2)",
            "torch.randn(seq_len, head_dim // 2)",
        ),
    ).draft(("rotary",), draw_style(rng))


def masked_softmax(rng: random.Random) -> Draft:
    """Softmax of scaled scores with an additive mask."""
    batch, heads, length = rng.choice(
        ((8, 12, 512), (4, 16, 1000), (16, 8, 512), (2, 16, 1024), (4, 12, 768))
    )
    sizes = (Size("batch_size", batch, 1), Size("num_heads", heads, 3), Size("seq_len", length, 11))
    factor = rng.choice(("0.125", "0.1", "0.25", "0.0884"))
    return Module(
        doc="Softmax of scaled scores under an additive mask.",
        init_args=("scale: float",),
        init_lines=("self.scale = scale",),
        forward_args=("scores", "mask"),
        forward_lines=rng.choice(
            (
                ("return torch.softmax(scores * self.scale + mask, dim=-1)",),
                ("scores = scores * self.scale + mask", "return F.softmax(scores, dim=-1)"),
            )
        ),
        sizes=sizes,
        inputs=(
            f"{rng.choice(('8.0', '10.0'))} * torch.randn(batch_size, num_heads, seq_len, seq_len)",
            "torch.randn(seq_len, seq_len)",
        ),
        init_inputs=(factor,),
    ).draft(("mul", "add", "softmax"), draw_style(rng))


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
    operators = ("embedding", *(("mul",) if scaled else ()))
    return module.draft(operators, draw_style(rng))


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
    return Module(
        doc=f"Takes the {word} of the embeddings of each bag of tokens.",
        init_args=("num_embeddings: int", "embedding_dim: int"),
        init_lines=(f"self.embedding = {layer}",),
        forward_args=("tokens",),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=("torch.randint(0, num_embeddings, (batch_size, bag_size))",),
        init_inputs=("num_embeddings", "embedding_dim"),
    ).draft(("embedding_bag", word), draw_style(rng))


def row_gather(rng: random.Random) -> Draft:
    """Rows of a matrix by index."""
    sizes = (
        Size("num_rows", rng.choice((20000, 50000, 100000)), 13),
        Size("features", rng.choice(_WIDTHS), 45),
        Size("num_indices", rng.choice((16384, 30000, 32768)), 9),
    )
    text = rng.choice(("torch.index_select(x, 0, index)", "x[index]", "x.index_select(0, index)"))
    return Module(
        doc="Selects rows of a matrix.",
        forward_args=("x", "index"),
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=("torch.randn(num_rows, features)", "torch.randint(0, num_rows, (num_indices,))"),
    ).draft(("index_select",), draw_style(rng))
