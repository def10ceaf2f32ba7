"""Groups of families of the suite `modules`, of which a corpus may take more than an even draw gives."""

from __future__ import annotations

from kernel_core.config.corpus import FamilyGroup

CONVOLUTIONS = tuple(f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3))
"""A third of KernelBench's level 1 asks for one; a draw of all families has a tenth."""
CHAINS = (
    *("conv_elementwise", "conv_norm", "conv_reduce", "conv_pool"),
    *("linear_elementwise", "linear_reduction", "linear_pool", "linear_pair"),
    *("linear_softmax", "linear_layernorm", "linear_groupnorm", "linear_batchnorm"),
)
"""The forms of level 2."""
INDEXED = (
    *("axis_mapped", "axis_joined", "axis_reduced"),
    *("table_mapped", "table_joined", "table_reduced", "shared_values"),
)
"""Families of many operators: nearly each of their problems is another formula over other views."""
SCARCE = (
    *("window_pool", "pair_loss", "row_loss", "vector_norm"),
    *("softmax_row", "tensor_matmul", "heads_matmul", "rearranged"),
)
"""Families of many forms and few draws: the eleventh cold start had 17 of 48 pools and losses right."""
GROUPS: dict[FamilyGroup, tuple[str, ...]] = {
    "convolutions": CONVOLUTIONS,
    "chains": CHAINS,
    "indexed": INDEXED,
    "scarce": SCARCE,
}
"""By name. The position of a group seeds its draw."""
