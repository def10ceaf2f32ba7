"""A dry run of a candidate's host code: the kernels it launches, their grids and arguments, without any
computation.

Runs in a sandboxed process of its own, on the meta device. Its record is a claim: unlike in a replay, the
candidate's host code runs here (docs/decisions/0014).
"""

from __future__ import annotations

import contextlib
import inspect
import json
import math
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE
from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.failures import describe_error
from kernel_core.gym.channel.gradients import differentiate
from kernel_core.gym.channel.kernel_description import LaunchedKernels
from kernel_core.gym.channel.launch_codec import STAND_IN_ADDRESS, encode_argument, options_in, sizes_of
from kernel_core.gym.channel.shared_arena import DTYPES, Slot, dtype_name
from kernel_core.gym.channel.target_gpu import answer_for
from kernel_core.gym.channel.torch_ops import do_inside, is_torchs_own
from kernel_core.gym.channel.trace_codec import encode
from kernel_core.gym.channel.work import CHANNELS_LAST, OperatorCounter
from kernel_core.gym.untrusted.candidate.candidate_module import import_candidate, place, unpack
from kernel_core.gym.untrusted.candidate.fake_cuda_mode import StandIn
from kernel_core.gym.untrusted.candidate.trace_recorder import MAX_OPERATIONS
from kernel_core.gym.untrusted.candidate.triton_hooks import WarmedUp, begin_with, leave_as_written
from kernel_core.gym.untrusted.interpreter.loop_turns import TURNS, forget_memory, probe

_DEVICE = "meta"
_READ = 0.5
"""The number that host code reads where there is none. Its further steps are compared with those at the run
sizes."""

_MOST_PROBED = 4
"""Launches of a kernel whose loops are probed."""


class _Enough(BaseException):
    """There are more launches than the record holds."""


def rehearse(channel: socket.socket, cage: dict[str, Any]) -> None:
    """One request has the text, arguments and inputs of several sizes. One answer has a pass or a failure
    for each size. It is the second pass: work that a first pass prepares, such as packed weights, is not the
    work of a pass."""
    answer_for(cage["gpu"])
    header = framing.receive(channel).header
    path = Path.cwd() / CANDIDATE_FILE
    launches = _Launches()
    _write_launches_down(launches)
    begin_with(header["configuration"])
    leave_as_written()
    forget_memory()
    _give_addresses()
    stand_in = StandIn(_DEVICE, cage["gpu"], path)
    passes: list[dict[str, Any]] = []
    source, module = None, None
    for size in header["sizes"]:
        try:
            if size["source"] != source:
                source = size["source"]
                path.write_text(source)
                with stand_in:
                    module = import_candidate(source, path)
        except BaseException as error:
            framing.send(channel, _failure(error, path))
            return
        try:
            passes.append(_rehearse_size(module, size, header, launches, stand_in))
        except BaseException as error:
            passes.append(_failure(error, path))
    framing.send(channel, {"kernels": launches.kernels.described, "passes": passes})


def _rehearse_size(
    module: Any, size: dict[str, Any], header: dict[str, Any], launches: _Launches, stand_in: StandIn
) -> dict[str, Any]:
    parts = (size["arguments"], size["inputs"])
    arguments, inputs = (unpack(values, slots, _Nothing()) for values, slots in parts)
    with torch.device(_DEVICE), torch.no_grad(), stand_in:
        launches.begin(is_probing=False)
        model = module.ModelNew(*arguments)
        if isinstance(model, torch.nn.Module):
            model = place(model, _DEVICE, header["precision"])
        model = differentiate(model, header["gradients"])
        _pass(model, inputs, launches)
        launches.begin(is_probing=True)
        return _pass(model, inputs, launches)


def _failure(error: BaseException, path: Path) -> dict[str, Any]:
    return {"failed": "rehearsal", **describe_error(error, path)}


def _give_addresses() -> None:
    """Tensors without contents have an address, too: torch says that theirs is 0."""
    plain = torch.Tensor.data_ptr

    def address(self: Any) -> int:
        return STAND_IN_ADDRESS if self.is_meta else plain(self)

    torch.Tensor.data_ptr = address  # type: ignore[method-assign]


def _pass(model: Any, inputs: list[Any], launches: _Launches) -> dict[str, Any]:
    with OperatorCounter() as counter, _Numbers(), contextlib.suppress(_Enough):
        model(*inputs)
    works = [work.to_json() for work in counter.works[:MAX_OPERATIONS]]
    return {"distinct": launches.distinct, "launches": launches.order, "works": works, "turns": TURNS.pairs()}


class _Numbers(LightDispatchMode):
    """While active, host code that asks for a number gets one, and an operator of the candidate's own making
    is what it does."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name
        if name in ("aten::is_nonzero", "aten::equal"):
            return True
        if name == "aten::_local_scalar_dense" and args[0].is_meta:
            dtype = args[0].dtype
            # Most boolean reads ask for a fault: a NaN, an index out of range.
            return False if dtype == torch.bool else _READ if dtype.is_floating_point else 1
        if not is_torchs_own(function):
            with self:
                return do_inside(function, args, kwargs or {})
        result = function(*args, **(kwargs or {}))
        return _in_order_of_cudnn(result, args[:2]) if name == "aten::convolution" else result


def _in_order_of_cudnn(result: torch.Tensor, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    """A convolution's result with channels last in memory if an operand has them last.

    cuDNN and the CPU do so; on the meta device torch's results are contiguous.
    """
    order = CHANNELS_LAST.get(result.dim())
    if order is None or not any(
        operand.is_contiguous(memory_format=order) and not operand.is_contiguous() for operand in operands
    ):
        return result
    return torch.empty_like(result, memory_format=order)


class _Launches:
    """The launches of a pass; those that are the same in all are kept once."""

    def __init__(self) -> None:
        self.kernels = LaunchedKernels()
        self.begin(is_probing=False)

    def begin(self, *, is_probing: bool) -> None:
        """A pass begins, in which loops are probed or not."""
        self._is_probing = is_probing
        self.distinct: list[dict[str, Any]] = []
        self.order: list[int] = []
        self._places: dict[str, int] = {}
        self._probed: Counter[int] = Counter()
        TURNS.most.clear()

    def append(
        self, function: InterpretedFunction, bound: dict[str, Any], grid: tuple[int, ...], options: Any
    ) -> None:
        """Record one more launch, and probe its loops."""
        if len(self.order) >= MAX_OPERATIONS:
            raise _Enough
        kernel = self.kernels.number(function)
        launch = {
            "launch": kernel,
            "grid": list(grid),
            "args": {name: self._argument(value) for name, value in bound.items()},
            "options": options_in(options),
        }
        place = self._places.setdefault(json.dumps(launch, sort_keys=True), len(self.distinct))
        if place == len(self.distinct):
            self.distinct.append(launch)
            self._probed[kernel] += 1
            if self._is_probing and self._probed[kernel] <= _MOST_PROBED:
                probe(function, bound, grid)
        self.order.append(place)

    def _argument(self, value: Any) -> Any:
        return encode_argument(value, self.kernels.number, lambda other: encode(other, _without_contents))


def _without_contents(tensor: torch.Tensor) -> list[Any]:
    return [0, dtype_name(tensor.dtype), tensor.storage_offset(), [], []]


class _Nothing:
    """A stand-in for an arena: tensors without contents."""

    def tensor(self, slot: Slot) -> torch.Tensor:
        """The tensor of a slot, without contents."""
        return slot.view_of(torch.empty(math.prod(slot.shape), dtype=DTYPES[slot.dtype], device=_DEVICE))


def _write_launches_down(launches: _Launches) -> None:
    """Instead of doing them."""

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> WarmedUp | None:
        if warmup:
            return WarmedUp(self, kwargs)
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        bound = _bound(self, args, kwargs)
        given = {name: bound[name] for name in self.arg_names if name in bound}
        launches.append(self, given, sizes_of(grid, bound), kwargs)
        return None

    function: Any = InterpretedFunction
    function.run = run


def _bound(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The values from which a grid may be computed: constants by their values."""
    bound = {
        parameter.name: parameter.default
        for parameter in inspect.signature(function.fn).parameters.values()
        if parameter.default is not parameter.empty
    }
    bound |= dict(zip(function.arg_names, args, strict=False)) | kwargs
    return {name: value.value if isinstance(value, tl.constexpr) else value for name, value in bound.items()}
