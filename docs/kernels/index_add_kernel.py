# nodes: torch.randn(NODES, WIDTH) is (65536, 128) float32
# sources: torch.randint(0, NODES, (EDGES,)) is (524288,) int64
# targets: torch.randint(0, NODES, (EDGES,)) is (524288,) int64
# weights: torch.rand(EDGES) is (524288,) float32
# getitem, mul, zeros_like, index_add: one kernel.
# index_add_kernel: n_elements = sources.shape[-1] * nodes.shape[-1]. Each program loads one block of elements and adds it atomically at the indexed positions.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def index_add_kernel(
    targets_ptr, sources_ptr, nodes_ptr, weights_ptr, out_ptr, n_elements, inner, M,
    BLOCK: tl.constexpr,
):
    # Each program loads one block of elements and adds it atomically at the indexed positions.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    outer = i // inner
    targets = tl.load(targets_ptr + outer, mask=mask, other=0)
    sources = tl.load(sources_ptr + outer, mask=mask, other=0)
    offset = i % inner
    offsets = tl.where(sources < 0, sources + M, sources) * inner + offset
    nodes = tl.load(nodes_ptr + offsets, mask=mask, other=0.0)
    weights = tl.load(weights_ptr + outer, mask=mask, other=0.0)
    scaled = nodes * weights
    tl.atomic_add(out_ptr + targets * inner + offset, scaled, mask=mask)


class ModelNew(nn.Module):
    def forward(self, nodes, sources, targets, weights):
        nodes = nodes.contiguous()
        sources = sources.contiguous()
        targets = targets.contiguous()
        weights = weights.contiguous()
        out = torch.zeros_like(nodes)
        n_elements = sources.shape[-1] * nodes.shape[-1]
        index_add_kernel[(triton.cdiv(n_elements, 1024),)](
            targets, sources, nodes, weights, out, n_elements, nodes.shape[-1], nodes.shape[0],
            BLOCK=1024,
        )
        return out
