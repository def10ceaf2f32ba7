"""The precision of products, from kernels compiled for a GPU on this machine and from traces."""

from __future__ import annotations

import ast

import pytest
import torch

from kernel_core.gym.channel.compiled_products import kinds_of_ptx, kinds_of_triton, lowest
from kernel_core.gym.channel.operator_products import (
    flags_of,
    half_in_launches,
    kinds_of_operators,
    may_use_tf32,
)
from kernel_core.gym.channel.target_gpu import target_of
from kernel_core.gym.channel.tf32_flags import SHIPPED, tf32, tf32_flags
from kernel_core.gym.channel.work import Work
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.prediction.roofline import at_precision
from kernel_core.gym.untrusted.compile.compile_job import _compile
from kernel_core.gym.untrusted.compile.rebuild_kernels import build_kernels
from kernel_core.records import Candidate, Evaluation

from .planted_products import PLANTED, PRECISION, PROBLEM


def _kinds(source: str, *, whole: bool) -> set[str]:
    [line] = [
        node.lineno - 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "product"
    ]
    modules = {"tl": {"module": "triton.language"}, "triton": {"module": "triton"}}
    kernels = build_kernels(source, "candidate.py", [{"name": "product", "line": line, "globals": modules}])
    tensor = {"t": [0, "float32", 0]}
    args = {"a_ptr": tensor, "b_ptr": tensor, "out_ptr": tensor, "N": 64, "BM": 64, "BN": 64, "BK": 32}
    launch = {"launch": 0, "args": args, "options": {}}
    return _compile(kernels, launch, target_of("H200"), whole=whole)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_kernel_has_its_precision(name: str) -> None:
    assert lowest(_kinds(PLANTED[name], whole=False)) == PRECISION[name]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PLANTED)
def test_a_kernel_that_is_compiled_whole_has_the_same_precision(name: str) -> None:
    assert _kinds(PLANTED[name], whole=True) == _kinds(PLANTED[name], whole=False)


@pytest.mark.parametrize(
    ("ptx", "kinds"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}", {"tf32"}),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}", {"half"}),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16 {%f1}", {"half"}),
        ("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {%f1}", {"tf32"}),
        ("cvt.rn.f16.f32 %rs1, %f1;", {"half"}),
        ("fma.rn.f32 %f1, %f2, %f3, %f4;", set()),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1}", {"ieee"}),
    ],
)
def test_matrix_instructions_name_their_kind(ptx: str, kinds: set[str]) -> None:
    assert kinds_of_ptx(ptx) == kinds


def test_a_product_that_cannot_be_read_is_unknown_and_counts_as_the_lowest() -> None:
    kinds = kinds_of_triton(
        "%4 = tt.dot %x, %y, %c, inputPrecision = tf64x9 : tensor<4x4xf32> * tensor<4x4xf32>"
    )
    assert lowest(kinds | {"ieee"}) is None


def _operation(name: str, overload: str, dtype: str, flags: list[bool] | None = None) -> dict[str, object]:
    view = {"t": [0, dtype, 0, [4, 4], [4, 1]]}
    operation = {"op": name, "overload": overload, "args": [view, view], "kwargs": {}, "outputs": []}
    return operation if flags is None else operation | {"tf32": flags}


@pytest.mark.parametrize(
    ("operation", "kinds"),
    [
        (_operation("aten::mm", "", "float32", [False, True]), {"ieee"}),
        (_operation("aten::mm", "", "float32", [True, False]), {"tf32"}),
        (_operation("aten::convolution", "", "float32", [False, True]), {"tf32"}),
        (_operation("aten::convolution", "", "float32", [True, False]), {"ieee"}),
        (_operation("aten::convolution", "", "float32"), {"ieee"}),
        (_operation("aten::bmm", "", "bfloat16", [False, True]), {"half"}),
        (_operation("aten::relu", "", "float32"), set()),
    ],
)
def test_an_operator_computes_by_the_recorded_switches(operation: dict[str, object], kinds: set[str]) -> None:
    assert kinds_of_operators({"operations": [operation]}) == kinds


def test_a_launch_on_shortened_factors_is_half() -> None:
    view = {"t": [3, "bfloat16", 0, [4, 4], [4, 1]]}
    launch = {"launch": 0, "grid": [1], "args": {"x": view}, "options": {}}
    assert half_in_launches({"operations": [launch]}) == {"half"}
    assert half_in_launches({"operations": [{"alloc": 1, "bytes": 4, "device": "cpu"}]}) == set()


def test_switches_are_read_whichever_interface_set_them() -> None:
    assert tf32_flags() == SHIPPED
    with tf32((True, False)):
        assert tf32_flags() == (True, False)
        torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert tf32_flags() == (False, False)
    assert tf32_flags() == SHIPPED


def test_a_forged_record_of_switches_counts_as_off() -> None:
    assert flags_of({"tf32": ["yes", 1]}) == flags_of({}) == (False, False)
    assert may_use_tf32(torch.ops.aten.mm.default) and not may_use_tf32(torch.ops.aten.relu.default)


@pytest.mark.parametrize(
    ("precision", "kind"), [("ieee", "float32"), ("tf32x3", "float32"), ("tf32", "fp32"), (None, "fp32")]
)
def test_a_predicted_product_of_the_library_runs_at_the_candidates_precision(
    precision: str | None, kind: str
) -> None:
    work = Work("mm", own=False, bytes_accessed=8, bytes_distinct=8, operations={"float32": 4, "float": 1})
    [compared] = at_precision([work], precision)
    assert compared.operations == {kind: 4, "float": 1}


@pytest.mark.exhaustive
def test_a_switch_of_precision_alone_is_not_predicted_to_be_faster(gym: PooledGym) -> None:
    requests = [
        JudgeRequest(problem=PROBLEM, candidate=Candidate.from_source(PLANTED[name]), seed=1)
        for name in ("tf32", "ieee")
    ]
    tf32_products, exact = gym.judge(requests)
    assert isinstance(tf32_products, Evaluation) and isinstance(exact, Evaluation)
    assert tf32_products.predicted_speedup is not None and tf32_products.predicted_speedup < 1.5
    assert exact.predicted_speedup is not None and exact.predicted_speedup < 1.5
