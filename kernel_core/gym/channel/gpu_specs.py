"""Attainable rates of each GPU that times are predicted for.

Another GPU is added here, in `target_gpu.py`, in `launch_limits.py` and to the choices of `config/gym.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """Rates are a second; `operations_per_s` by kind, with products by the operands' type."""

    dram_bytes_per_s: float
    operations_per_s: dict[str, float]
    num_processors: int
    processor_bytes_per_s: float
    """The bytes that one multiprocessor can load in a second."""
    memory_bytes: int
    l2_bytes: int
    launch_ms: float = 0.004
    l2_over_dram: float = 2.5
    """L2 bandwidth over that of DRAM, as microbenchmarks of Hopper and Ampere find it."""

    def rate_of(self, kind: str) -> float:
        """Operations a second; a kind that no rate is known of is as slow as the slowest."""
        rates = self.operations_per_s
        return rates.get(_RATES.get(kind, kind), min(rates.values()))


_RATES = dict.fromkeys(("float16", "bfloat16", "fp16", "bf16"), "half") | {"fp64": "float64"}
"""The rate of each type of product, by torch's and Triton's names of the types."""

# Peaks: NVIDIA's data sheets (dense, without sparsity). Reachable shares: 0.9 of DRAM bandwidth (4.3 of
# 4.8 TB/s measured on an H200 with a streaming ReLU), 0.75 of arithmetic peaks. Integers: a multiprocessor
# gives 64 results of 32 bits a clock, where it gives 128 of fp32 on capability 8.9 and 9.0, and 64 on 8.0
# (CUDA C++ Programming Guide, "Arithmetic Instructions"). Each loads 64 bytes a clock from L2 (NVIDIA's
# whitepapers on the A100 and H100). Matrix products of fp32 run on fp32 cores in torch's default, and as TF32
# in Triton's (`tl.dot` without `input_precision`). Triton's IEEE products reach about half of a library's: 13
# to 43 TFLOPS on an H200, by nine kernels of benchmarks/judge_against_kernelbench.py, of which 24 is the
# geometric mean.


LIBRARY_PRODUCTS, TF32_PRODUCTS = "float32", "fp32"
"""Kinds of products on float32 values: by a library with TF32 off, and in TF32."""


def _rates(arithmetic: float, integer: float, ieee: float, tf32: float, float64: float) -> dict[str, float]:
    """Operations a second by kind. Products of fp32 by a library are as fast as other arithmetic."""
    products = {LIBRARY_PRODUCTS: arithmetic, "ieee": ieee, TF32_PRODUCTS: tf32}
    return {"float": arithmetic, "integer": integer, "half": 2 * tf32, "float64": float64, **products}


_GB, _MB = 10**9, 1 << 20
_HOPPER = _rates(50e12, 25e12, 24e12, 370e12, 50e12)
_AMPERE = _rates(14.6e12, 14.6e12, 7e12, 117e12, 14.6e12)
_ADA = _rates(22.7e12, 11.3e12, 11e12, 45e12, 0.35e12)
GPUS = {
    "H200": GpuSpec(4.3e12, _HOPPER, 132, 127e9, 141 * _GB, 50 * _MB),
    "H100": GpuSpec(3.0e12, _HOPPER, 132, 127e9, 80 * _GB, 50 * _MB),
    "A100": GpuSpec(1.8e12, _AMPERE, 108, 90e9, 80 * _GB, 40 * _MB),
    "L4": GpuSpec(0.27e12, _ADA, 58, 130e9, 24 * _GB, 48 * _MB),
}
