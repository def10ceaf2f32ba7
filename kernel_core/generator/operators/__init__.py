"""Table of operators: one entry each, with torch's spellings, meaning and Triton text."""

import importlib

from kernel_core.generator.operators.pointwise import BUILDERS, pointwise

for _module in (
    *("arithmetic", "aten", "creation", "indexing", "layout", "losses", "order", "parts", "products"),
    *("reductions", "resample", "windows"),
):
    importlib.import_module(f"{__name__}.{_module}")

__all__ = ["BUILDERS", "pointwise"]
