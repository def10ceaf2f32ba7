"""One pass over a trace: what it may call an operator, and that no pass can tell that there was another."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.torch_ops import operator_by_name
from kernel_core.gym.untrusted.candidate.trace_recorder import Recorder
from kernel_core.gym.untrusted.replay.replay import _pointer
from kernel_core.gym.untrusted.replay.trace_player import TracePlayer, argument


class _Unmeasured:
    num_passes = 1

    def begin(self, operations: Any, *, measured: bool) -> None: ...

    @contextlib.contextmanager
    def operator(self, name: str) -> Iterator[None]:
        yield

    def finish(self) -> list[Any]:
        return []


def _player(operations: list[Any], outputs: list[Any], *inputs: torch.Tensor) -> TracePlayer:
    trace = {
        "inputs": list(range(len(inputs))),
        "constants": [],
        "operations": operations,
        "outputs": outputs,
    }
    return TracePlayer(trace, [], [], list(inputs), _Unmeasured(), Poison())  # type: ignore[arg-type]


def _played(player: TracePlayer) -> torch.Tensor:
    player.play(lambda operation: None)
    return player.outputs()[0].clone()


@pytest.mark.parametrize(
    ("name", "overload"),
    [
        ("aten::__dict__", "setdefault"),
        ("aten::__class__", ""),
        ("aten::softmax", "__dict__"),
        ("aten::softmax", "op"),
        ("aten::add", ""),
        ("aten::append", "t"),
        ("aten::manual_seed", ""),
        ("aten::from_file", ""),
        ("aten::empty", "memory_format"),
        ("aten::empty_permuted", ""),
        ("aten::resize_", ""),
        ("aten::set_", "source_Tensor_storage_offset"),
        ("prims::add", ""),
        ("aten::add.Tensor", ""),
        (["aten::add"], "Tensor"),
    ],
)
def test_only_torchs_own_operators_are_called(name: Any, overload: str) -> None:
    with pytest.raises(ValueError):
        operator_by_name(name, overload)


def test_an_operator_has_the_names_that_are_recorded() -> None:
    assert operator_by_name("aten::add", "Tensor") is torch.ops.aten.add.Tensor
    assert operator_by_name("aten::relu", "default") is torch.ops.aten.relu.default
    assert operator_by_name("aten::relu", "") is torch.ops.aten.relu.default
    assert operator_by_name("aten::__and__", "Tensor") is torch.ops.aten.__and__.Tensor


def test_random_numbers_are_the_same_in_each_pass() -> None:
    view = [0, "float32", 0, [8], [1]]
    draw = {"op": "aten::rand", "overload": "", "args": [{"l": [8]}], "kwargs": {}, "outputs": [view]}
    player = _player([draw], [{"t": view}])
    first = _played(player)
    assert torch.equal(first, _played(player.restart()))


def test_no_tensor_is_larger_than_its_memory() -> None:
    view = [0, "float32", 0, [5], [1]]
    player = _player([{"alloc": 0, "bytes": 16, "device": "cpu"}], [{"t": view}])
    with pytest.raises(ValueError, match="larger than its memory"):
        _played(player)


@pytest.mark.parametrize("value", [[1, 2], {"t": [0], "l": []}, {}, {"l": {}}, {"device": 1}])
def test_arguments_are_of_the_kinds_that_are_recorded(value: Any) -> None:
    operation = {"op": "aten::zeros", "overload": "", "args": [value], "kwargs": {}, "outputs": []}
    with pytest.raises((ValueError, KeyError, TypeError)):
        _played(_player([operation], []))


def test_what_an_operator_writes_without_saying_so_is_made_by_it() -> None:
    mean, var = torch.zeros(3), torch.ones(3)
    views = [
        [number, "float32", 0, list(one.shape), [1] * one.ndim] for number, one in enumerate((mean, var))
    ]
    x = torch.rand(4, 3)
    views.append([2, "float32", 0, [4, 3], [3, 1]])
    given = [{"t": view} for view in (views[2], views[0], views[1])]
    made = [[number, "float32", 0, [], []] for number in (3, 4, 5)]
    operation = {
        "op": "aten::native_batch_norm",
        "overload": "",
        "args": [given[0], None, None, given[1], given[2], True, 0.5, 1e-5],
        "kwargs": {},
        "outputs": made,
    }
    player = _player([operation], [], mean, var, x)
    seen: list[torch.Tensor] = []
    player.made.append(lambda tensor: seen.append(tensor.clone()))
    player.play(lambda operation: None)
    assert any(torch.allclose(one, x.mean(0) / 2) for one in seen)
    assert not any(torch.equal(one, x) for one in seen)


def test_memory_that_nobody_wrote_is_poisoned_and_recorded_as_an_allocation() -> None:
    recorder = Recorder(lambda launch: None)
    with recorder:
        made = [
            torch.empty_permuted((4, 4), (1, 0)),
            torch.empty(0).resize_(4, 4),
            torch.empty(1 << 20, out=torch.empty(0)),
            torch.ones(3).new_empty_strided((2, 2), (2, 1)),
        ]
        grown = torch.ones(4).resize_(8)
        read = torch.empty(0).set_(torch.ones(4).untyped_storage())
        torch.ones(2, 3).t_()
    assert all(bool((one.isnan() | (one.abs() >= 2)).all()) for one in made)
    assert torch.equal(grown[:4], torch.ones(4)) and not bool((grown[4:].abs() < 2).any())
    assert torch.equal(read, torch.ones(4))
    names = {operation.get("op") for operation in recorder.operations}
    assert names == {None, "aten::ones", "aten::copy_"}


def test_what_was_in_memory_that_grew_is_there_in_a_replay() -> None:
    x = torch.rand(4)
    recorder = Recorder(lambda launch: None)
    recorder.begin([x])
    with recorder:
        grown = (x * 2).resize_(8)
        out = grown[:4] + 1
    player = _player(recorder.operations, recorder.outputs([out]), x)
    assert torch.equal(_played(player), x * 2 + 1)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
def test_a_sparse_tensor_is_its_indices_and_values() -> None:
    x = torch.rand(3)
    recorder = Recorder(lambda launch: None)
    recorder.begin([x])
    with recorder:
        places = torch.stack([torch.arange(3) % 2, torch.arange(3)])
        sparse = torch.sparse_coo_tensor(places, x * 2, (2, 3), check_invariants=True)
        rows = torch.sparse_csr_tensor(torch.arange(3), torch.arange(2), x[:2], (2, 3), check_invariants=True)
        out = (
            (sparse.coalesce() * 2).to_dense()
            + torch.sparse.mm(sparse, torch.eye(3))
            + rows.clone().to_dense()
        )
    player = _player(recorder.operations, recorder.outputs([out]), torch.ones(3))
    assert torch.equal(_played(player), torch.tensor([[7.0, 0, 6], [0, 7, 0]]))
    assert not player._constants


def test_the_places_of_a_sparse_tensor_are_inside_it() -> None:
    places, values = [0, "int64", 0, [1, 2], [2, 1]], [1, "float32", 0, [2], [1]]
    sparse = {"sparse": [{"layout": "sparse_coo"}, {"t": places}, {"t": values}, {"tuple": [3]}]}
    operation = {"op": "aten::_to_dense", "overload": "", "args": [sparse], "kwargs": {}, "outputs": []}
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        _played(_player([operation], [], torch.tensor([[1, 3]]), torch.ones(2)))


def test_a_mute_pass_ends_where_an_operator_cannot_work_and_gives_places_that_there_are() -> None:
    table = torch.rand(8)
    alloc = {"alloc": 1, "bytes": 16, "device": "cpu"}
    places = [1, "int64", 0, [2], [1]]
    gather = {
        "op": "aten::index_select",
        "overload": "",
        "args": [{"t": [0, "float32", 0, [8], [1]]}, 0, {"t": places}],
        "kwargs": {},
        "outputs": [[2, "float32", 0, [2], [1]]],
    }
    reached = _player([alloc, gather], [{"t": [2, "float32", 0, [2], [1]]}], table)
    assert reached.play_mute(lambda operation: None)
    assert torch.equal(reached.outputs()[0], table[[0, 0]])
    too_large = {**gather, "args": [gather["args"][0], 5, gather["args"][2]]}
    assert not _player([alloc, too_large], [], table).play_mute(lambda operation: None)


def test_addresses_in_memory_are_those_of_each_pass() -> None:
    recorded, other = torch.arange(4.0), torch.arange(4.0)
    recorder = Recorder(lambda launch: None)
    recorder.begin([recorded])
    with recorder:
        moved = torch.tensor([recorded.data_ptr() + 4, 7]) + 0
    trace = {
        "inputs": recorder.inputs,
        "constants": [[number, raw.numel(), "cpu"] for number, raw in recorder.constants],
        "operations": recorder.operations,
        "outputs": recorder.outputs([moved]),
    }
    constants = [raw for _, raw in recorder.constants]
    assert [raw.view(torch.int64).tolist() for raw in constants] == [[0, 7]]
    player = TracePlayer(trace, constants, [], [other], _Unmeasured(), Poison())  # type: ignore[arg-type]
    assert _played(player).tolist() == [other.data_ptr() + 4, 7]


def test_a_launch_reaches_what_its_tables_point_to() -> None:
    x, out = torch.arange(4.0), torch.empty(4)
    recorder = Recorder(lambda launch: None)
    recorder.begin([x])
    with recorder:
        made = torch.exp(x)
        table = torch.tensor([made.data_ptr(), x.data_ptr()]).clone()
    memory = recorder._memory
    plain = {"launch": 0, "grid": [1], "args": {"x": {"t": memory.view(x)}}, "options": {}}
    assert memory.with_reach(plain) == plain
    reaching = memory.with_reach(plain | {"args": {"table": {"t": memory.view(table)}}})
    assert [one["t"][:2] for one in reaching["reaches"]] == [
        [memory.number(made.untyped_storage()), "float32"],
        [memory.number(x.untyped_storage()), "float32"],
    ]
    assert memory.address(made.data_ptr() + 8) == {
        "a": [{"t": [memory.number(made.untyped_storage()), "float32", 2, [2], [1]]}]
    }
    assert memory.address(12) is None and memory.address(out.data_ptr()) is None


def test_an_address_as_a_number_is_compiled_for_more_than_32_bits() -> None:
    address = argument({"a": [{"t": [0, "float32", 2, [8], [1]]}]}, [], _pointer)
    assert address >= 1 << 32 and address % 16 == 8
