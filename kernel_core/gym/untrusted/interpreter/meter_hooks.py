"""Hooks in Triton's interpreter that tell a meter of launches, loads, stores, atomics, waits and loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

from kernel_core.gym.channel.launch_codec import options_in
from kernel_core.gym.untrusted.interpreter import op_counter, race_detector
from kernel_core.gym.untrusted.interpreter.memory_meter import Meter


def install(meter: Meter) -> None:
    """Make the interpreter of this process report to the meter, for good."""
    builder: Any = InterpreterBuilder
    _wrap_launches(meter)
    _wrap_memory(builder, meter)
    _wrap_waits(builder, meter)
    _wrap_spreading(builder)
    _wrap_loops(meter)
    if meter.counting:
        op_counter.install(meter.operations)
    place = builder.set_grid_idx

    def set_grid_idx(self: Any, *index: int) -> None:
        meter.next_program()
        place(self, *index)

    builder.set_grid_idx = set_grid_idx


def _wrap_launches(meter: Meter) -> None:
    kind: Any = GridExecutor
    execute = kind.__call__

    def call(self: Any, *args: Any, **named: Any) -> Any:
        options = options_in(named)
        meter.one_warp = options.get("num_warps") == 1 and options.get("num_ctas", 1) == 1
        return execute(self, *args, **named)

    kind.__call__ = call


def _wrap_memory(builder: Any, meter: Meter) -> None:
    load, store = builder.create_masked_load, builder.create_masked_store
    atomic, exchange = builder.create_atomic_rmw, builder.create_atomic_cas

    def masked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        size, lanes = _item_bytes(pointers), np.asarray(mask.data)  # Triton 3.6 returns views of some arrays
        parts = meter.access(pointers.data, lanes, size, store=False)
        of_first = False
        if meter.is_atomic:
            meter.exchanges(parts, size, ordering=True)
        else:
            of_first = meter.loads(parts, size, lanes)
        loaded = load(self, pointers, mask, *rest, **named)
        if of_first:
            loaded.data = loaded.data.view(race_detector.OfFirstLane)
        return loaded

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        size, lanes = _item_bytes(pointers), np.asarray(mask.data)
        parts = meter.access(pointers.data, lanes, size, store=True)
        if meter.is_atomic:
            meter.exchanges(parts, size, ordering=True)
            return store(self, pointers, value, mask, *rest, **named)
        _check_lanes(pointers.data, value.data, lanes)
        finish = meter.stores(parts, size, lanes)
        result = store(self, pointers, value, mask, *rest, **named)
        finish()
        return result

    def meter_atomic(pointers: Any, mask: npt.NDArray[np.bool_], sem: Any) -> None:
        size = _item_bytes(pointers)
        meter.access(pointers.data, mask, size, store=False)
        parts = meter.access(pointers.data, mask, size, store=True)
        meter.exchanges(parts, size, ordering=sem != ir.MEM_SEMANTIC.RELAXED)

    def atomic_rmw(self: Any, kind: Any, pointers: Any, value: Any, mask: Any, sem: Any, *rest: Any) -> Any:
        meter_atomic(pointers, mask.data, sem)
        return atomic(self, kind, pointers, value, mask, sem, *rest)

    def atomic_cas(self: Any, pointers: Any, compared: Any, value: Any, sem: Any, *rest: Any) -> Any:
        meter_atomic(pointers, np.ones_like(pointers.data, dtype=np.bool_), sem)
        return exchange(self, pointers, compared, value, sem, *rest)

    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas
    for name in ("create_atomic_load", "create_atomic_store", "create_atomic_poll"):
        if hasattr(builder, name):
            setattr(builder, name, _atomically(getattr(builder, name), meter))


def _wrap_waits(builder: Any, meter: Meter) -> None:
    """Lanes of a program cooperate on a GPU through shared memory with barriers around it."""
    place = builder.create_barrier

    def create_barrier(self: Any) -> Any:
        meter.barrier()
        return place(self)

    builder.create_barrier = create_barrier
    for kind, names in (
        (builder, ("create_barrier", "create_dot", "create_dot_scaled", "create_histogram", "create_gather")),
        (interpreter.ReduceOps, ("apply_impl",)),
        (interpreter.ScanOps, ("apply_impl",)),
    ):
        for name in filter(functools.partial(hasattr, kind), names):  # older versions have no scaled products
            setattr(kind, name, _waiting(getattr(kind, name), meter))


def _wrap_spreading(builder: Any) -> None:
    splat, broadcast = builder.create_splat, builder.create_broadcast

    def create_splat(self: Any, kind: Any, number: Any) -> Any:
        race_detector.spread(number.data)
        return splat(self, kind, number)

    def create_broadcast(self: Any, block: Any, *rest: Any) -> Any:
        race_detector.spread(block.data)
        return broadcast(self, block, *rest)

    builder.create_splat, builder.create_broadcast = create_splat, create_broadcast


def _wrap_loops(meter: Meter) -> None:
    plain = tl.range

    @functools.wraps(plain)  # a kernel may call functions of Triton's
    def with_stages(
        arg1: Any, arg2: Any = None, step: Any = None, num_stages: Any = None, *_: Any, **named: Any
    ) -> Any:
        stages = getattr(num_stages, "value", num_stages)
        return meter.steps(plain(arg1, arg2, step, **named), stages if isinstance(stages, int) else 0)

    tl.range = tl.core.range = with_stages


def _waiting(method: Callable[..., Any], meter: Meter) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **named: Any) -> Any:
        meter.wait()
        return method(self, *args, **named)

    return run


def _atomically(method: Callable[..., Any], meter: Meter) -> Callable[..., Any]:
    def run(self: Any, *args: Any) -> Any:
        meter.is_atomic = True
        try:
            return method(self, *args)
        finally:
            meter.is_atomic = False

    return run


def _check_lanes(
    addresses: npt.NDArray[np.uint64], values: npt.NDArray[Any], mask: npt.NDArray[np.bool_]
) -> None:
    addresses, values, mask = np.broadcast_arrays(addresses, values, mask)
    flat = addresses[mask]
    if flat.size > 1 and not (flat[1:] > flat[:-1]).all():
        race_detector.check_lanes(flat, values[mask])


def _item_bytes(pointers: Any) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)
