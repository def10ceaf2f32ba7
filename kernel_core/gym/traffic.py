"""Predicted times: the roofline of each launch on a named GPU, plus the cost of launching it.

    time = Σ over launches of  launch + max(distinct / DRAM, accessed / L2, flops / peak + dots / dot peak)

after S. Williams, A. Waterman and D. Patterson, "Roofline" (CACM 52(4), 2009), with one level of cache.
A candidate is counted at small sizes; its counts are scaled to the problem's own sizes by how the
reference's counts grow (bytes with bytes, operations with operations), both taken on the meta device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from kernel_core.gym.problem_module import ProblemModule, own_seeds
from kernel_core.gym.reference import Reference
from kernel_core.gym.structure import flatten
from kernel_core.gym.work import GATHERS, OperatorCounter, Work
from kernel_core.records import Problem, Traffic


@dataclass(frozen=True, slots=True)
class Gpu:
    """What one GPU can do in practice. Rates are a second; `dot_flops_per_s` by the operands' type."""

    dram_bytes_per_s: float
    flops_per_s: float
    dot_flops_per_s: dict[str, float]
    launch_ms: float = 0.004
    l2_over_dram: float = 2.5
    """L2 bandwidth over that of DRAM, as microbenchmarks of Hopper and Ampere find it."""


# Peaks: NVIDIA's data sheets (dense, without sparsity). Reachable shares: 0.9 of DRAM bandwidth (4.3 of
# 4.8 TB/s measured on an H200 with a streaming ReLU), 0.75 of arithmetic peaks. Matrix products of fp32
# run on fp32 cores in torch's default, and as TF32 in Triton's (`tl.dot` without `input_precision`). Triton's
# IEEE products reach about half of a library's: 13 to 43 TFLOPS on an H200, by nine kernels of
# benchmarks/judge_against_kernelbench.py, of which 24 is the geometric mean.
GPUS = {
    "H200": Gpu(
        4.3e12, 50e12, {"float32": 50e12, "ieee": 24e12, "fp32": 370e12, "half": 740e12, "float64": 50e12}
    ),
    "H100": Gpu(
        3.0e12, 50e12, {"float32": 50e12, "ieee": 24e12, "fp32": 370e12, "half": 740e12, "float64": 50e12}
    ),
    "A100": Gpu(
        1.8e12,
        14.6e12,
        {"float32": 14.6e12, "ieee": 7e12, "fp32": 117e12, "half": 234e12, "float64": 14.6e12},
    ),
    "L4": Gpu(
        0.27e12,
        22.7e12,
        {"float32": 22.7e12, "ieee": 11e12, "fp32": 45e12, "half": 90e12, "float64": 0.35e12},
    ),
}


_RATES = dict.fromkeys(("float16", "bfloat16", "fp16", "bf16"), "half") | {"fp64": "float64"}
"""What torch and Triton call the types of products, by the names of their rates."""


@dataclass(frozen=True, slots=True)
class EagerTraffic:
    """The reference's works at its own sizes, how much larger they are, and what nobody can avoid."""

    works: tuple[Work, ...]
    bytes_ratio: float
    flops_ratio: float
    compulsory_bytes: int
    at_own_sizes: bool
    run_flops: int = 0
    """Operations at the run sizes."""


def count_eager(reference: Reference) -> EagerTraffic:
    """What eager mode does for the problem at its own sizes; falls back on the run sizes."""
    needed, problem, own_sizes = reference.inputs_that_matter(), reference.problem, True
    try:
        small, _ = _count(problem, reference.source, needed, "meta")
        full, compulsory = _count(problem, problem.source, needed, "meta")
    except Exception:
        # Operators that need data, or inputs that name a device: predict at the run sizes, and say so.
        full, compulsory = _count(problem, reference.source, needed, reference.device)
        small, own_sizes = full, False
    bytes_ratio = _ratio(sum(w.bytes_distinct for w in full), sum(w.bytes_distinct for w in small))
    flops_ratio = _ratio(_flops(full), _flops(small))
    return EagerTraffic(tuple(full), bytes_ratio, flops_ratio, compulsory, own_sizes, _flops(small))


def _flops(works: Sequence[Work]) -> int:
    return sum(work.flops + work.dot_flops for work in works)


def _ratio(large: int, small: int) -> float:
    return large / small if small else 1.0


def _count(problem: Problem, source: str, needed: Sequence[int], device: str) -> tuple[list[Work], int]:
    """The works of one eager pass, and the bytes that any program moves for it: outputs written once
    and inputs that matter read once (where the reference gathers, only outputs are certain)."""
    program = ProblemModule(source, problem.id, problem.precision, device)
    with own_seeds(device):
        module, inputs = program.construct(program.arguments()), program.inputs()
        with torch.device(device), torch.no_grad(), OperatorCounter() as counter:
            output = module(*inputs)
    certain = [leaf for leaf in flatten(output)[1] if isinstance(leaf, torch.Tensor)]
    if not any(work.name.startswith(GATHERS) for work in counter.works):
        certain += [inputs[i] for i in needed if isinstance(inputs[i], torch.Tensor)]
    return counter.works, sum(tensor.numel() * tensor.element_size() for tensor in certain)


def scaled(works: Sequence[Work], eager: EagerTraffic) -> list[Work]:
    """Works counted at the run sizes, as they would be at the problem's own."""
    return [
        replace(
            work,
            bytes_accessed=round(work.bytes_accessed * eager.bytes_ratio),
            bytes_distinct=round(work.bytes_distinct * eager.bytes_ratio),
            flops=round(work.flops * eager.flops_ratio),
            dot_flops=round(work.dot_flops * eager.flops_ratio),
        )
        for work in _with_least_flops(works, eager.run_flops)
    ]


def _with_least_flops(works: Sequence[Work], least: int) -> list[Work]:
    """Leaving out the padding of blocks excuses only operations beyond the reference's own `least`: what is
    padding is told from masks, and a candidate may load with any masks it likes."""
    padded = sum(work.padded_flops for work in works)
    missing = min(least, sum(max(work.padded_flops, work.flops + work.dot_flops) for work in works))
    missing = max(0, missing - _flops(works))
    return [
        _more_flops(work, missing * work.padded_flops // padded) if work.padded_flops else work
        for work in works
    ]


def _more_flops(work: Work, count: int) -> Work:
    if work.dot_dtype:
        return replace(work, dot_flops=work.dot_flops + count)
    return replace(work, flops=work.flops + count)


def launch_time_ms(work: Work, gpu: Gpu) -> float:
    """The roofline of one launch plus its cost, in milliseconds."""
    memory_s = max(
        work.bytes_distinct / gpu.dram_bytes_per_s,
        work.bytes_accessed / (gpu.dram_bytes_per_s * gpu.l2_over_dram),
    )
    rates = gpu.dot_flops_per_s
    # What no rate is known of is as slow as the slowest.
    peak = rates.get(_RATES.get(work.dot_dtype, work.dot_dtype), min(rates.values()))
    arithmetic_s = work.flops / gpu.flops_per_s + work.dot_flops / peak
    return gpu.launch_ms + 1e3 * max(memory_s, arithmetic_s)


def own_work_share(works: Sequence[Work], gpu_name: str) -> float:
    """The share, of what takes longer than a launch does, of own kernels that do more than copy."""
    gpu = GPUS[gpu_name]
    times = [launch_time_ms(work, gpu) - gpu.launch_ms for work in works]
    total_ms = math.fsum(times)
    working_ms = math.fsum(
        time for time, work in zip(times, works, strict=True) if work.own and not work.copies_only
    )
    return working_ms / total_ms if total_ms else 0.0


def predict(works: Sequence[Work], gpu_name: str, least_bytes: int = 0) -> tuple[Traffic, bool]:
    """The predicted traffic of a pass, and whether the count was below what nobody can avoid.

    `least_bytes` are those that any program must move; a smaller count is raised to it.
    """
    gpu = GPUS[gpu_name]
    times = [launch_time_ms(work, gpu) for work in works]
    total_ms = math.fsum(times)
    own_ms = math.fsum(time for time, work in zip(times, works, strict=True) if work.own)
    least_ms = gpu.launch_ms + 1e3 * least_bytes / gpu.dram_bytes_per_s
    traffic = Traffic(
        bytes_accessed=sum(work.bytes_accessed for work in works),
        bytes_distinct=sum(work.bytes_distinct for work in works),
        flops=sum(work.flops + work.dot_flops for work in works),
        num_launches=len(works),
        own_share=own_ms / total_ms if total_ms else None,
        gpu=gpu_name,
        predicted_ms=max(total_ms, least_ms),
    )
    return traffic, total_ms < least_ms * 0.999
