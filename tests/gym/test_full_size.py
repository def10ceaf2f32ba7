"""What a candidate's host code does at its problem's own sizes shows in the prediction, or is said not to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernel_core.gym.channel.gpu_specs import GPUS
from kernel_core.gym.channel.launch_limits import grid_fault
from kernel_core.gym.channel.work import Work
from kernel_core.gym.prediction.full_size import Rehearsal, taken_over, works_at_own_sizes
from kernel_core.gym.prediction.roofline import EagerTraffic, launch_time_ms, predict
from kernel_core.records import Evaluation, Verdict

_EAGER = EagerTraffic((), bytes_ratio=10.0, operations_ratio=100.0, compulsory_bytes=0, at_own_sizes=True)
_PROBLEM = """
N = 4096

class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    return [torch.randn(N, N)]

def get_init_inputs():
    return []
"""
_KERNELS = """
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.maximum(tl.load(x_ptr + index, mask=index < n), 0.0), mask=index < n)


@triton.jit
def relu_of_many(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.maximum(tl.load(x_ptr + index, mask=index < n), 0.0), mask=index < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        CHOICE
        kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
        return out
"""


def _kernel(name: str = "k", **counts: Any) -> Work:
    return Work(name, True, **{"bytes_accessed": 0, "bytes_distinct": 0} | counts)


def test_kernels_are_spread_over_the_launches_at_own_sizes() -> None:
    works = [_kernel(bytes_accessed=8, bytes_distinct=4, operations={"float": 2})]
    large = works_at_own_sizes(works, _EAGER, Rehearsal((("k", 7), ("k", 9)), ()), "H200")
    assert [(work.bytes_accessed, work.bytes_distinct, work.programs) for work in large] == [
        (40, 20, 7),
        (40, 20, 9),
    ]
    assert [work.operations for work in large] == [{"float": 100}] * 2


def test_each_kernel_keeps_its_own_launches() -> None:
    works = [_kernel("first", bytes_accessed=8, bytes_distinct=8), _kernel("second")]
    rehearsal = Rehearsal((("first", 200), ("second", 1)), ())
    first, second = works_at_own_sizes(works, _EAGER, rehearsal, "H200")
    assert (first.bytes_accessed, first.programs) == (80, 200)
    assert (second.bytes_accessed, second.programs) == (0, 1)


@pytest.mark.parametrize(
    ("programs", "factor"),
    [(5, 10), (30, 30), (10**6, 100)],
    ids=["as all bytes", "as its programs", "at most as the operations"],
)
def test_bytes_of_a_kernel_grow_with_its_programs_between_bytes_and_operations_of_the_reference(
    programs: int, factor: int
) -> None:
    works = [_kernel(bytes_accessed=8, bytes_distinct=8)]
    [large] = works_at_own_sizes(works, _EAGER, Rehearsal((("k", programs),), ()), "H200", [("k", 1)])
    assert (large.bytes_accessed, large.bytes_distinct) == (8 * factor, 8 * factor)


def test_a_small_kernel_beside_a_product_is_no_decoy_where_small_sizes_keep_the_weight(
    judge_text: Callable[..., Evaluation],
) -> None:
    problem = """
BATCH = 16384
WIDTH = 2048

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 1024)
    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(BATCH, WIDTH)]

def get_init_inputs():
    return [WIDTH]
"""
    kernels = _KERNELS.partition("class ModelNew")[0]
    text = f"""{kernels}class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 1024)
    def forward(self, x):
        x = self.linear(x)
        out = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
    evaluation = judge_text(problem, text, BATCH=64)
    assert evaluation.verdict is Verdict.CORRECT
    # Output read and written, beside a product at the rate of exact float32.
    own_ms = 2 * 16384 * 1024 * 4 / GPUS["H200"].dram_bytes_per_s * 1e3
    assert evaluation.provenance is not None and evaluation.traffic is not None
    own_share = evaluation.provenance.own_kernel_share
    assert own_share is not None
    assert own_share * evaluation.traffic.predicted_ms == pytest.approx(own_ms, rel=0.3)


def test_library_operators_are_counted_as_they_are_there() -> None:
    works = [_kernel(), Work("aten::sum", False, 8, 8)]
    rehearsal = Rehearsal((("k", 500),), (Work("aten::mm", False, 10**9, 10**9),))
    large = works_at_own_sizes(works, _EAGER, rehearsal, "H200")
    assert [work.name for work in large] == ["k", "aten::mm"]
    assert large[1].bytes_distinct == 10**9


def test_a_rehearsal_makes_nobody_faster() -> None:
    works = [_kernel(bytes_accessed=10**9, bytes_distinct=10**9), Work("aten::mm", False, 10**9, 10**9)]
    before = works_at_own_sizes(works, _EAGER, None, "H200")
    told = works_at_own_sizes(works, _EAGER, Rehearsal((("k", 5000),), ()), "H200")
    assert predict(told, "H200") == predict(before, "H200")


def test_few_programs_use_few_multiprocessors() -> None:
    gpu = GPUS["H200"]

    def time_ms(programs: int) -> float:
        return launch_time_ms(_kernel(operations={"float": 10**10}, programs=programs), gpu) - gpu.launch_ms

    assert time_ms(1) == pytest.approx(132 * time_ms(132))
    assert time_ms(132) == time_ms(10_000) == time_ms(0)


def test_many_programs_of_which_one_works_are_one() -> None:
    def time_ms(programs: int, balance: float) -> float:
        work = _kernel(bytes_accessed=10**9, bytes_distinct=10**9, programs=programs, balance=balance)
        return launch_time_ms(work, GPUS["H200"])

    assert time_ms(500, 1 / 500) == time_ms(1, 1.0) > 30 * time_ms(500, 0.5)


def _judged(judge_text: Callable[..., Evaluation], choice: str) -> tuple[Evaluation, set[str]]:
    evaluation = judge_text(_PROBLEM, _KERNELS.replace("CHOICE", choice), N=64)
    return evaluation, {finding.rule for finding in evaluation.findings}


def test_who_chooses_a_kernel_by_size_is_told_that_one_was_not_judged(
    judge_text: Callable[..., Evaluation],
) -> None:
    plain, rules = _judged(judge_text, "kernel = relu")
    assert not rules
    chosen, rules = _judged(judge_text, "kernel = relu_of_many if n > 10**6 else relu")
    assert rules == {"other_kernels_at_own_sizes", "not_exercised"}
    assert plain.predicted_speedup == chosen.predicted_speedup is not None


@pytest.mark.parametrize(
    "choice",
    [
        "kernel = relu if x.untyped_storage().device.type == 'cpu' else relu_of_many",
        pytest.param("assert n < 10**6; kernel = relu", marks=pytest.mark.exhaustive),
    ],
)
def test_host_code_that_cannot_be_rehearsed_is_predicted_on_the_grid_that_ran(
    choice: str, judge_text: Callable[..., Evaluation]
) -> None:
    plain, _ = _judged(judge_text, "kernel = relu")
    evaluation, rules = _judged(judge_text, choice)
    assert "not_rehearsed" in rules
    assert evaluation.verdict is Verdict.CORRECT
    assert evaluation.predicted_speedup is not None and plain.predicted_speedup is not None
    assert evaluation.predicted_speedup < 0.6 * plain.predicted_speedup  # 16 programs


@pytest.mark.parametrize(
    "choice",
    [
        "kernel = relu if float(x[0, 0]) < 1000 else relu_of_many",
        pytest.param(
            "kernel = relu_of_many if torch.isnan(x).any().item() else relu", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_host_code_that_reads_a_number_is_rehearsed(
    choice: str, judge_text: Callable[..., Evaluation]
) -> None:
    _, rules = _judged(judge_text, choice)
    assert not rules & {"not_rehearsed", "other_kernels_at_own_sizes"}


def test_one_program_is_one_whatever_host_code_reads(judge_text: Callable[..., Evaluation]) -> None:
    text = """
@triton.jit
def relu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(0, n, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + index, mask=index < n, other=0.0)
        tl.store(out_ptr + index, tl.maximum(x, 0.0), mask=index < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        assert x[0, 0].item() != 12345.0
        relu[(1,)](x, out, x.numel(), BLOCK=256)
        return out
"""
    evaluation = judge_text(_PROBLEM, text, N=64)
    assert evaluation.predicted_speedup is not None and evaluation.predicted_speedup < 0.2


def test_nobody_knows_of_more_programs_than_ran() -> None:
    works = [_kernel(operations={"float": 10**10}), Work("aten::sum", False, 8, 8)]
    assert [work.programs for work in works_at_own_sizes(works, _EAGER, None, "H200", [("k", 2)])] == [2, 0]
    assert [work.programs for work in works_at_own_sizes(works, _EAGER, None, "H200")] == [0, 0]


def test_who_falls_back_on_the_library_at_own_sizes_is_refused(
    judge_text: Callable[..., Evaluation],
) -> None:
    evaluation, rules = _judged(judge_text, "kernel = relu\n        if n > 10**6: return torch.relu(x)")
    assert evaluation.verdict is Verdict.HACKED
    assert "no_own_kernel" in rules


def test_copies_beside_a_kernel_at_own_sizes_count(judge_text: Callable[..., Evaluation]) -> None:
    plain, _ = _judged(judge_text, "kernel = relu")
    beside, _ = _judged(judge_text, "kernel = relu\n        if n > 10**6: x = x.clone()")
    assert plain.predicted_speedup is not None and beside.predicted_speedup is not None
    assert beside.predicted_speedup < 0.6 * plain.predicted_speedup


@pytest.mark.parametrize(
    "at_run_sizes",
    ["", pytest.param("\n        else: torch.relu(x[:1])", marks=pytest.mark.exhaustive)],
)
def test_the_library_does_no_work_at_own_sizes_that_it_did_not_do_where_it_was_judged(
    at_run_sizes: str, judge_text: Callable[..., Evaluation]
) -> None:
    choice = f"kernel = relu\n        if n > 10**6: x = torch.relu(x){at_run_sizes}"
    evaluation, rules = _judged(judge_text, choice)
    assert evaluation.verdict is Verdict.HACKED
    assert "library_at_own_sizes" in rules


def _library(name: str, num_bytes: int) -> Work:
    return Work(name, False, num_bytes, num_bytes)


@pytest.mark.parametrize(
    ("works", "expected"),
    [
        ([_library("aten::sum", 1 << 20)], []),
        ([_library("aten::sum", 3 << 28)], ["aten::sum"]),
        ([_library("aten::clone", 1 << 30)], []),
        ([_library("aten::mul", 1 << 30)], []),
        ([_library("aten::mul", 1 << 34)], ["aten::mul"]),
    ],
)
def test_a_small_part_or_a_usual_one_may_be_the_librarys(works: list[Work], expected: list[str]) -> None:
    eager = EagerTraffic(
        (), bytes_ratio=10.0, operations_ratio=10.0, compulsory_bytes=1 << 30, at_own_sizes=True
    )
    rehearsal = Rehearsal((("k", 7),), tuple(works), (_library("aten::mul", 1 << 26),))
    assert taken_over(rehearsal, eager, "H200") == expected


@pytest.mark.parametrize(
    ("grid", "is_refused"),
    [
        ((2**31 - 1,), False),
        ((2**31,), True),
        ((1, 65535, 1), False),
        ((1, 65536), True),
        ((1, 1, 65536), True),
        ((65536, 65535), True),
        ((0, 70000), False),
        ((-1, -1), True),
    ],
)
def test_grids_that_no_gpu_takes_are_refused(grid: tuple[int, ...], is_refused: bool) -> None:
    assert (grid_fault(grid) is not None) == is_refused


_PRODUCT = """
K = OWN

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

def get_inputs():
    return [torch.randn(16, K), torch.randn(K, 64)]

def get_init_inputs():
    return []
"""
_PRODUCTS = """
@triton.jit
def in_one_block(a_ptr, b_ptr, c_ptr, K: tl.constexpr, N: tl.constexpr):
    rows, inner, columns = tl.arange(0, 16), tl.arange(0, K), tl.arange(0, N)
    a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], tl.dot(a, b))


@triton.jit
def in_steps(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.arange(0, N)
    c = tl.zeros((16, N), dtype=tl.float32)
    for start in range(0, K, 16):
        inner = start + tl.arange(0, 16)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :])
        c += tl.dot(a, b)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c)


class ModelNew(nn.Module):
    def forward(self, a, b):
        out = torch.empty(16, 64, device=a.device)
        kernel = CHOICE
        kernel[(1,)](a, b, out, a.shape[1], 64)
        return out
"""


@pytest.mark.parametrize(
    ("too_large_at", "own_size", "where"),
    [
        pytest.param("run", 2048, "did not compile: line 8: a program takes", marks=pytest.mark.exhaustive),
        ("own", 1024, "at the problem's own sizes: a program takes"),
    ],
)
def test_a_kernel_is_compiled_for_the_sizes_at_which_it_is_launched(
    judge_text: Callable[..., Evaluation], too_large_at: str, own_size: int, where: str
) -> None:
    """320 KB of shared memory are more than an H200 has for a program, whatever other kernel is launched at
    the other sizes."""
    sign = "<" if too_large_at == "run" else ">="
    text = _PRODUCTS.replace("CHOICE", f"in_one_block if a.shape[1] {sign} {own_size} else in_steps")
    evaluation = judge_text(_PRODUCT.replace("OWN", f"{own_size}"), text, K=own_size // 2)
    assert evaluation.verdict is Verdict.NOT_COMPILED, evaluation.feedback
    assert where in evaluation.feedback
