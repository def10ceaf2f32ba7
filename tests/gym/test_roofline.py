"""Predicted times follow from bytes, operations and launches, at the problem's own sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernel_core.gym.channel.gpu_specs import GPUS
from kernel_core.gym.channel.work import OperatorCounter, Work
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.prediction.roofline import count_eager, launch_time_ms, own_work_share, predict, scaled
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem

H200 = GPUS["H200"]


def _problem(forward: str, inputs: str = "[torch.rand(N, N)]") -> Problem:
    source = (
        "import torch\nimport torch.nn as nn\nN = 1024\n\n"
        f"class Model(nn.Module):\n    def forward(self, *args):\n        {forward}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    return parse_problem(source, id="test/traffic", suite="test")


def _work(**counts: Any) -> Work:
    fields: dict[str, Any] = {"bytes_accessed": 0, "bytes_distinct": 0} | counts
    return Work(name="kernel", own=True, **fields)


def test_a_memory_bound_launch_takes_its_bytes_over_the_bandwidth() -> None:
    time_ms = launch_time_ms(_work(bytes_accessed=4_300_000_000, bytes_distinct=4_300_000_000), H200)
    assert time_ms == pytest.approx(1.0 + H200.launch_ms)


def test_bytes_read_again_cost_the_cache_not_the_memory() -> None:
    once = launch_time_ms(_work(bytes_accessed=10**9, bytes_distinct=10**9), H200)
    twice = launch_time_ms(_work(bytes_accessed=2 * 10**9, bytes_distinct=10**9), H200)
    tenfold = launch_time_ms(_work(bytes_accessed=10**10, bytes_distinct=10**9), H200)
    assert once == twice < tenfold


def test_an_arithmetic_bound_launch_takes_its_operations_over_the_peak() -> None:
    time_ms = launch_time_ms(
        _work(operations={"float": 50_000_000_000}, bytes_accessed=8, bytes_distinct=8), H200
    )
    assert time_ms == pytest.approx(1.0 + H200.launch_ms)


def test_eager_counts_each_operator_and_no_view() -> None:
    reference = Reference(_problem("return torch.relu(args[0].t().reshape(-1) * 2)"), {"N": 16})
    eager = count_eager(reference)
    assert [work.name for work in eager.works] == ["aten::clone", "aten::mul", "aten::relu"]
    assert [work.bytes_distinct for work in eager.works] == [2 * 4 * 1024**2] * 3
    assert eager.bytes_ratio == 64**2
    assert eager.compulsory_bytes == 2 * 4 * 1024**2


def test_eager_products_grow_faster_than_their_bytes() -> None:
    eager = count_eager(Reference(_problem("return args[0] @ args[0]"), {"N": 16}))
    assert eager.works[0].operations == {"float32": 2 * 1024**3}
    assert eager.operations_ratio == 64**3
    [large] = scaled([_work(bytes_accessed=6, bytes_distinct=4, operations={"integer": 2})], eager)
    assert (large.bytes_accessed, large.bytes_distinct) == (6 * 64**2, 4 * 64**2)
    assert large.operations == {"integer": 2 * 64**3}


def test_eager_normalises_a_layer_row_by_row() -> None:
    reference = Reference(
        _problem("return torch.nn.functional.layer_norm(args[0], args[0].shape[1:])"), {"N": 16}
    )
    [work] = count_eager(reference).works
    assert work.programs == 1024
    assert work.bytes_accessed - work.bytes_distinct == 4 * 1024**2


def test_inputs_that_do_not_matter_are_not_compulsory() -> None:
    problem = _problem("return args[0] + 0 * args[1]", "[torch.rand(N), torch.rand(N)]")
    assert count_eager(Reference(problem, {"N": 16})).compulsory_bytes == 2 * 4 * 1024


def test_no_count_goes_below_what_must_move() -> None:
    honest, raised = predict([_work(bytes_accessed=10**9, bytes_distinct=10**9)], "H200", 10**9)
    assert not raised
    forged, raised = predict([_work(bytes_accessed=8, bytes_distinct=8)], "H200", 10**9)
    assert raised
    assert forged.predicted_ms == pytest.approx(honest.predicted_ms)


def test_padding_excuses_only_operations_beyond_the_references_own() -> None:
    eager = count_eager(Reference(_problem("return args[0] @ args[0]"), {"N": 16}))
    needed = 2 * 16**3
    assert eager.run_operations == needed
    tile = {"operations": {"fp32": needed}, "padded": {"fp32": 8 * needed}}
    [padded] = scaled([_work(**tile)], eager)
    [hidden] = scaled([_work(**tile | {"operations": {"fp32": 1}})], eager)
    [clever] = scaled([_work(operations={"fp32": 1}, padded={"fp32": needed // 4})], eager)
    assert padded.operations == hidden.operations == {"fp32": 2 * 1024**3}
    assert clever.operations["fp32"] == padded.operations["fp32"] / 4


def test_what_masks_excused_is_given_back_to_the_slowest_kind_first() -> None:
    eager = count_eager(Reference(_problem("return args[0] @ args[0]"), {"N": 16}))
    needed = eager.run_operations
    [hidden] = scaled(
        [_work(operations={"float": 0, "fp16": 0}, padded={"fp16": 9 * needed, "float": needed})], eager
    )
    [shared] = scaled(
        [_work(operations={"float": 0, "fp16": 0}, padded={"fp16": needed, "float": needed // 2})], eager
    )
    assert hidden.operations == {"float": 2 * 1024**3, "fp16": 0}
    assert shared.operations == {"float": 1024**3, "fp16": 1024**3}


def test_what_nobody_knows_the_work_of_may_be_all_that_the_reference_does() -> None:
    eager = count_eager(Reference(_problem("return torch.relu(args[0] @ args[0])"), {"N": 16}))
    unknown = Work("aten::addbmm", False, 4, 4, {"float": 7}, is_unknown=True)
    [large] = scaled([unknown], eager)
    assert large.operations == {"float32": 2 * 1024**3, "float": 1024**2}


def test_own_work_is_what_takes_longer_than_a_launch() -> None:
    library = Work(name="aten::mm", own=False, bytes_accessed=10**8, bytes_distinct=10**8)
    assert own_work_share([_work(bytes_accessed=4, bytes_distinct=4), library], "H200") < 1e-6
    assert own_work_share([_work(bytes_accessed=10**8, bytes_distinct=10**8), library], "H200") == 0.5


def test_own_share_is_of_time_not_of_launches() -> None:
    library = Work(name="aten::mm", own=False, bytes_accessed=10**10, bytes_distinct=10**10)
    traffic, _ = predict([_work(bytes_accessed=10**9, bytes_distinct=10**9), library], "H200")
    assert traffic.own_share == pytest.approx(0.1, abs=0.01)
    assert traffic.num_launches == 2


@pytest.mark.parametrize(
    ("channels", "groups", "order", "num_conversions"),
    [
        (4, 1, torch.contiguous_format, 2),
        (4, 1, torch.channels_last, 0),
        (4, 4, torch.contiguous_format, 0),
        (1, 1, torch.contiguous_format, 0),
    ],
)
def test_cudnn_converts_images_with_channels_first(
    channels: int, groups: int, order: torch.memory_format, num_conversions: int
) -> None:
    images = torch.randn(2, channels, 8, 8).contiguous(memory_format=order)
    weight = torch.randn(4, channels // groups, 3, 3)
    with OperatorCounter() as counter:
        result = torch.conv2d(images, weight, groups=groups)
    conversions = [work for work in counter.works if work.name == "cudnn::convert"]
    assert len(conversions) == num_conversions
    if conversions:
        assert [work.bytes_distinct for work in conversions] == [2 * images.nbytes, 2 * result.nbytes]
