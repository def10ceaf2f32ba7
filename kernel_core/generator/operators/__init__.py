"""Table of operators: one entry each, with torch's spellings, meaning and Triton text."""

from kernel_core.generator.operators import arithmetic, aten, indexing, layout, products, reductions, resample
from kernel_core.generator.operators.pointwise import BUILDERS, pointwise

__all__ = [
    "BUILDERS",
    "arithmetic",
    "aten",
    "indexing",
    "layout",
    "pointwise",
    "products",
    "reductions",
    "resample",
]
