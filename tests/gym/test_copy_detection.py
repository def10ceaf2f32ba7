"""Which launches only move data: tried with launches that are plain functions of their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernel_core.gym.channel.shared_arena import dtype_name
from kernel_core.gym.untrusted.replay.copy_detection import Movers

Kernel = Callable[[list[torch.Tensor]], None]
_FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


class Memory:
    """The arguments of one launch, each with a storage of its own; the first is an input."""

    def __init__(self, tensors: list[torch.Tensor], kernel: Kernel) -> None:
        self.tensors = tensors
        self._kernel = kernel

    def launch(self, operation: dict[str, Any]) -> None:
        self._kernel(self.tensors)

    def memory_of(self, operation: dict[str, Any]) -> dict[int, torch.Tensor]:
        return {number: tensor.reshape(-1).view(torch.uint8) for number, tensor in enumerate(self.tensors)}

    def view_of(self, view: list[Any], memory: torch.Tensor) -> torch.Tensor:
        _, _, offset, shape, strides = view
        return memory.view(self.tensors[view[0]].dtype).as_strided(shape, strides, offset)


def _view(number: int, tensor: torch.Tensor) -> list[Any]:
    return [number, dtype_name(tensor.dtype), 0, list(tensor.shape), list(tensor.stride())]


def _moves(
    kernel: Kernel, *tensors: torch.Tensor, outputs: tuple[int, ...] = (), computed: tuple[int, ...] = (0,)
) -> bool:
    """Whether a launch only moves; before it, operators of torch's changed what is `computed`."""
    views = [_view(number, tensor) for number, tensor in enumerate(tensors)]
    operation = {"launch": 0, "args": {str(view[0]): {"t": view} for view in views}}
    before = [
        {"op": "aten::exp_", "args": [{"t": views[0]}], "kwargs": {}, "outputs": [views[index]]}
        for index in computed
    ]
    trace = {
        "inputs": [0],
        "operations": [*before, operation],
        "outputs": [{"t": views[index]} for index in outputs],
    }
    once = [tensor.clone() for tensor in tensors]
    kernel(once)
    movers = Movers(trace)
    movers.launch(Memory(list(tensors), kernel), operation)
    for tensor, wanted in zip(tensors, once, strict=True):
        assert torch.equal(tensor, wanted), "the memory is as one launch leaves it"
    return bool(movers.found)


def _transpose(tensors: list[torch.Tensor]) -> None:
    tensors[1].copy_(tensors[0].t())


def _pad(tensors: list[torch.Tensor]) -> None:
    tensors[1].zero_()
    tensors[1][1:-1, 1:-1].copy_(tensors[0])


def _cut(tensors: list[torch.Tensor]) -> None:
    tensors[1].copy_(tensors[0][: len(tensors[1])])


def _shift_in_place(tensors: list[torch.Tensor]) -> None:
    tensors[0].copy_(tensors[0].roll(1, 0))


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_copies_of_any_kind_and_type_move(dtype: torch.dtype) -> None:
    x = torch.randn(40, 30).to(dtype)
    assert _moves(_transpose, x, torch.full((30, 40), torch.nan, dtype=dtype))
    assert _moves(_pad, x, torch.full((42, 32), torch.nan, dtype=dtype))
    assert _moves(_cut, x, torch.full((7, 30), torch.nan, dtype=dtype))
    assert _moves(_shift_in_place, x)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5])
def test_a_copy_of_nothing_but_one_number_moves(value: float) -> None:
    assert _moves(_cut, torch.full((40, 30), value), torch.full((7, 30), 9.0))


def test_a_copy_of_one_element_moves() -> None:
    assert _moves(lambda tensors: tensors[1].copy_(tensors[0][3]), torch.rand(100), torch.zeros(()))


def test_to_move_what_no_operator_made_is_work() -> None:
    assert not _moves(_transpose, torch.rand(40, 30), torch.zeros(30, 40), computed=())


def test_a_launch_that_changes_nothing_is_idle_and_moves_nothing() -> None:
    """As the second of two that are alike; were it taken for a move, it alone would be launched."""
    tensors = [torch.rand(10), torch.zeros(10)]
    memory = Memory(tensors, lambda those: those[1].copy_(those[0] * 2))
    views = [_view(number, tensor) for number, tensor in enumerate(tensors)]
    launches = [
        {"launch": 0, "args": {str(view[0]): {"t": view} for view in views}, "number": number}
        for number in range(2)
    ]
    library = {"op": "aten::exp_", "args": [{"t": views[0]}], "kwargs": {}, "outputs": [views[0]]}
    movers = Movers({"inputs": [0], "operations": [library, *launches], "outputs": [{"t": views[1]}]})
    for launch in launches:
        movers.launch(memory, launch)
    assert not movers.found
    assert movers.idle == {id(launches[1])}


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_what_selects_by_value_does_not_move(dtype: torch.dtype) -> None:
    x = torch.randn(16, 64).to(dtype)
    out = torch.full((16, 32), torch.nan, dtype=dtype)

    def pool(tensors: list[torch.Tensor]) -> None:
        tensors[1].copy_(tensors[0].view(16, 32, 2).amax(2))

    def sort(tensors: list[torch.Tensor]) -> None:
        tensors[1].copy_(tensors[0].sort(1)[0][:, :32])

    assert not _moves(pool, x.clone(), out.clone())
    assert not _moves(sort, x.clone(), out.clone())


@pytest.mark.parametrize("number", range(5))
def test_the_larger_of_two_numbers_does_not_move(number: int) -> None:
    """One choice between two places is the same twice in a row every other time."""
    assert not _moves(lambda tensors: tensors[1].copy_(tensors[0].amax()), torch.rand(2), torch.zeros(()))


@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_relu_and_clamp_do_not_move_even_where_they_change_nothing(low: float) -> None:
    x = torch.rand(50, 50) * (1 - low) + low
    assert not _moves(lambda tensors: tensors[1].copy_(tensors[0].relu()), x, torch.full((50, 50), torch.nan))
    assert not _moves(
        lambda tensors: tensors[1].copy_(tensors[0].clamp(-1, 1)), x, torch.full((50, 50), torch.nan)
    )


@pytest.mark.parametrize("dtype", _FLOATS, ids=str)
def test_arithmetic_does_not_move(dtype: torch.dtype) -> None:
    x = torch.rand(40, 30).to(dtype)
    assert not _moves(lambda tensors: tensors[1].copy_(tensors[0] * 2), x, torch.zeros(40, 30, dtype=dtype))
    assert not _moves(lambda tensors: tensors[1].copy_(tensors[0].sum()), x, torch.zeros((), dtype=dtype))
    ones = torch.ones(40, 30, dtype=dtype)
    assert not _moves(lambda tensors: tensors[1].copy_(tensors[0] * tensors[0]), ones, torch.zeros_like(ones))


def test_constants_that_nobody_is_given_hide_no_copy() -> None:
    def copy_and_count(tensors: list[torch.Tensor]) -> None:
        tensors[1].copy_(tensors[0])
        tensors[2].copy_(torch.arange(900.0))

    assert _moves(copy_and_count, torch.rand(30), torch.zeros(30), torch.zeros(900), outputs=(1,))


def test_a_constant_that_is_given_is_work() -> None:
    x, out = torch.rand(20, 20), torch.full((20, 20), torch.nan)

    def mask(tensors: list[torch.Tensor]) -> None:
        tensors[1].copy_(tensors[0].tril())

    assert not _moves(mask, x, out.clone(), outputs=(1,))
    assert _moves(mask, x, out.clone())


def test_what_the_inputs_integers_choose_does_not_move_and_what_a_table_does_moves() -> None:
    rows, x = torch.randperm(20), torch.rand(20, 8)

    def gather_by_first(tensors: list[torch.Tensor]) -> None:
        tensors[2].copy_(tensors[1][tensors[0]])

    def gather_by_second(tensors: list[torch.Tensor]) -> None:
        tensors[2].copy_(tensors[0][tensors[1]])

    assert not _moves(gather_by_first, rows, x, torch.zeros(20, 8), computed=(1,))
    assert _moves(gather_by_second, x, rows, torch.zeros(20, 8))


def test_a_kernel_that_cannot_take_other_values_does_not_move() -> None:
    def picky(tensors: list[torch.Tensor]) -> None:
        if not torch.equal(tensors[0], torch.arange(9.0)):
            raise IndexError
        tensors[1].copy_(tensors[0])
        tensors[1][0] = 1.0

    assert not _moves(picky, torch.arange(9.0), torch.zeros(9))


def test_to_move_what_an_operator_is_given_later_is_no_work() -> None:
    x, out = torch.rand(40, 30), torch.zeros(30, 40)
    views = [_view(number, tensor) for number, tensor in enumerate((x, out))]
    launch = {"launch": 0, "args": {str(view[0]): {"t": view} for view in views}}

    def found_before(name: str, *args: Any) -> set[int]:
        after = {"op": name, "args": list(args), "kwargs": {}, "outputs": [[2, *views[1][1:]]]}
        movers = Movers({"inputs": [0], "operations": [launch, after], "outputs": []})
        movers.launch(Memory([x.clone(), out.clone()], _transpose), launch)
        return movers.found

    assert found_before("aten::exp", {"t": views[1]}) == {id(launch)}
    assert found_before("aten::zeros", {"l": [30, 40]}) == set()
