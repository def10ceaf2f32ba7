# tokens: torch.randint(0, WORDS, (BATCH, TOKENS)) is (16, 2048) int64
# arange, embedding, mul, add: one kernel.
# embedding_kernel: n_elements = out.numel(). Fuses add, mul. Each program computes one block of elements.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def embedding_kernel(
    tokens_ptr, words_weight_ptr, positions_weight_ptr, out_ptr, n_elements, channels, inner,
    embedding_dim, BLOCK: tl.constexpr,
):
    # Each program computes one block of elements.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    outer = i // inner
    tokens = tl.load(tokens_ptr + outer, mask=mask, other=0)
    offset = i % inner
    words_weight = tl.load(words_weight_ptr + tokens * inner + offset, mask=mask, other=0.0)
    channel = i // inner % channels
    positions_weight_offsets = channel * inner + offset
    positions_weight = tl.load(
        positions_weight_ptr + positions_weight_offsets, mask=mask, other=0.0,
    )
    out = words_weight * embedding_dim + positions_weight
    tl.store(out_ptr + i, out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, words, tokens, width):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(tokens, width)

    def forward(self, tokens):
        tokens = tokens.contiguous()
        out = torch.empty(
            (*tokens.shape, self.words.weight.shape[-1]), device=tokens.device,
            dtype=self.words.weight.dtype,
        )
        n_elements = out.numel()
        embedding_kernel[(triton.cdiv(n_elements, 1024),)](
            tokens, self.words.weight, self.positions.weight, out, n_elements, tokens.shape[-1],
            self.words.weight.shape[-1], self.words.embedding_dim ** 0.5, BLOCK=1024,
        )
        return out
