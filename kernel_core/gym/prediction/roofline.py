"""Predicted times: the roofline of each launch on a named GPU, plus the cost of launching it.

    time = Σ over launches of  launch + max(distinct / DRAM, accessed / L2, Σ over kinds of operations / peak)

after S. Williams, A. Waterman and D. Patterson, "Roofline" (CACM 52(4), 2009), with one level of cache.
A candidate is counted at small sizes; its counts are scaled to the problem's own sizes by how the
reference's counts grow (bytes with bytes, operations with operations), both taken on the meta device.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from kernel_core.gym.channel.decoy_thresholds import PLAIN_COPY
from kernel_core.gym.channel.gpu_specs import GPUS, LIBRARY_PRODUCTS, TF32_PRODUCTS, GpuSpec
from kernel_core.gym.channel.pytree import flatten
from kernel_core.gym.channel.torch_ops import GATHERS
from kernel_core.gym.channel.work import ELEMENTWISE, OperatorCounter, Work
from kernel_core.gym.oracle.problem_module import ProblemModule, own_seeds
from kernel_core.gym.oracle.reference import Reference
from kernel_core.records import Problem, ProductPrecision, Traffic, fair_kinds

_SLOWEST_FIRST = GPUS["H200"].rate_of
"""The order of the kinds of operations."""


@dataclass(frozen=True, slots=True)
class EagerTraffic:
    """The reference's works at its own sizes, the ratio to the run sizes, and the compulsory traffic."""

    works: tuple[Work, ...]
    bytes_ratio: float
    operations_ratio: float
    compulsory_bytes: int
    at_own_sizes: bool
    run_operations: int = 0
    compulsory_ratio: float = 1.0
    """The growth of the compulsory traffic from the run sizes."""

    def bytes_factor(self, growth: float) -> float:
        """Return the factor of a kernel's bytes whose programs grow by `growth` from the run sizes.

        Where a large weight keeps its size, all bytes together grow less than those of a kernel behind it.
        What any program moves, each kernel may.
        """
        least = max(self.bytes_ratio, self.compulsory_ratio)
        return min(max(growth, least), max(least, self.operations_ratio))


def count_eager(reference: Reference) -> EagerTraffic:
    """The work of eager mode at the problem's own sizes; falls back on the run sizes."""
    needed, problem, own_sizes = reference.inputs_that_matter(), reference.problem, True
    try:
        small, least = _count(problem, reference.source, needed, "meta")
        full, compulsory = _count(problem, problem.source, needed, "meta")
    except Exception:
        # Operators that need data, or inputs that name a device: predict at the run sizes, and say so.
        full, compulsory = _count(problem, reference.source, needed, reference.device)
        small, least, own_sizes = full, compulsory, False
    bytes_ratio = _ratio(sum(w.bytes_distinct for w in full), sum(w.bytes_distinct for w in small))
    run_operations = _num_operations(small)
    operations_ratio = _ratio(_num_operations(full), run_operations)
    return EagerTraffic(
        tuple(full),
        bytes_ratio,
        operations_ratio,
        compulsory,
        own_sizes,
        run_operations,
        _ratio(compulsory, least),
    )


def _num_operations(works: Sequence[Work]) -> int:
    return sum(work.num_operations for work in works)


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


def scaled(
    works: Sequence[Work], eager: EagerTraffic, growth: Mapping[str, float] | None = None
) -> list[Work]:
    """Works counted at the run sizes, as they would be at the problem's own.

    `growth` is the factor by which the programs of each own kernel grow, as far as it is known.
    """
    larger = []
    for work in _with_least_operations(works, eager.run_operations):
        factor = eager.bytes_factor((growth or {}).get(work.name, 0.0) if work.own else 0.0)
        operations = {kind: round(n * eager.operations_ratio) for kind, n in work.operations.items()}
        accessed, distinct = (round(n * factor) for n in (work.bytes_accessed, work.bytes_distinct))
        larger.append(replace(work, bytes_accessed=accessed, bytes_distinct=distinct, operations=operations))
    return [as_much_as_all(work, eager) for work in larger]


def as_much_as_all(work: Work, eager: EagerTraffic) -> Work:
    """A work of unknown cost may be all that the reference does, and counts so."""
    if not work.is_unknown:
        return work
    whole: Counter[str] = Counter()
    for counted in eager.works:
        whole.update(counted.operations)
    return replace(work, operations=dict(whole))


def _with_least_operations(works: Sequence[Work], least: int) -> list[Work]:
    """Leaving out the padding of blocks excuses only operations beyond the reference's own `least`: what is
    padding is told from masks, and a candidate may load with any masks it likes. Which of its operations
    those masks belong to is not told, so the slowest are given back first."""
    counts = [Counter(work.operations) for work in works]
    missing = max(0, least - sum(count.total() for count in counts))
    padding = [
        (_SLOWEST_FIRST(kind), index, kind, padded - counts[index][kind])
        for index, work in enumerate(works)
        for kind, padded in work.padded.items()
    ]
    for _, index, kind, lost in sorted(padding):
        given = min(missing, max(0, lost))
        counts[index][kind] += given
        missing -= given
    return [replace(work, operations=dict(count)) for work, count in zip(works, counts, strict=True)]


def launch_time_ms(work: Work, gpu: GpuSpec) -> float:
    """The roofline of one launch plus its cost, in milliseconds. Few programs use few multiprocessors,
    and many do where few of them work."""
    busy = gpu.num_processors
    if work.programs:
        busy = min(busy, max(1, round(work.programs * work.balance)))
    memory_s = max(
        work.bytes_distinct / gpu.dram_bytes_per_s,
        work.bytes_accessed / (gpu.dram_bytes_per_s * gpu.l2_over_dram),
        work.bytes_accessed / (busy * gpu.processor_bytes_per_s),
    )
    arithmetic_s = math.fsum(count / gpu.rate_of(kind) for kind, count in work.operations.items())
    arithmetic_s *= gpu.num_processors / busy
    return gpu.launch_ms + 1e3 * max(memory_s, arithmetic_s)


def work_time_ms(work: Work, gpu_name: str) -> float:
    """The roofline of one launch, without the cost of launching it."""
    gpu = GPUS[gpu_name]
    return launch_time_ms(work, gpu) - gpu.launch_ms


def least_time_ms(eager: EagerTraffic, gpu_name: str) -> float:
    """The least time for the problem: to move the compulsory bytes or to do the reference's products,
    whichever takes longer."""
    gpu = GPUS[gpu_name]
    products: Counter[str] = Counter()
    for work in eager.works:
        products.update({kind: n for kind, n in work.operations.items() if kind not in ELEMENTWISE})
    arithmetic_s = math.fsum(count / gpu.rate_of(kind) for kind, count in products.items())
    return 1e3 * max(eager.compulsory_bytes / gpu.dram_bytes_per_s, arithmetic_s)


def own_work_share(works: Sequence[Work], gpu_name: str) -> float:
    """The share, of what takes longer than a launch does, of own kernels that do more than copy. The
    library's plain copies count for nothing either."""
    times = [
        (work_time_ms(work, gpu_name), work.own and not work.copies_only)
        for work in works
        if work.own or work.name != PLAIN_COPY
    ]
    total_ms = math.fsum(time for time, _ in times)
    working_ms = math.fsum(time for time, works_itself in times if works_itself)
    return working_ms / total_ms if total_ms else 0.0


def at_precision(works: Sequence[Work], precision: ProductPrecision | None) -> list[Work]:
    """Return works with the library's products of float32 at the rate of TF32, unless the candidate's
    products are exact.

    The counterpart of `records.fair_kinds` in predicted times: a switch of precision earns nothing.
    """
    if "eager_tf32" not in fair_kinds(precision):
        return list(works)
    return [replace(work, operations=_as_tf32(work.operations)) for work in works]


def _as_tf32(operations: Mapping[str, int]) -> dict[str, int]:
    counts = Counter(operations)
    counts[TF32_PRODUCTS] += counts.pop(LIBRARY_PRODUCTS, 0)
    return dict(+counts)


def predict(works: Sequence[Work], gpu_name: str, least_bytes: int = 0) -> tuple[Traffic, bool]:
    """The predicted traffic of a pass, and whether the count was below the compulsory bytes.

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
        flops=_num_operations(works),
        num_launches=len(works),
        own_share=own_ms / total_ms if total_ms else None,
        gpu=gpu_name,
        predicted_ms=max(total_ms, least_ms),
    )
    return traffic, total_ms < least_ms * 0.999
