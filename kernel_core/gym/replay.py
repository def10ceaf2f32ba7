"""Run a candidate's trace again, elsewhere, on inputs the candidate never saw; count what it does.

This is the independent witness to what a candidate says about itself. Its host code does not run here:
only its JIT functions, rebuilt from its text, and torch's operators by name. If the trace gives the right
outputs for fresh inputs, then these kernels and operators are what did the work, and the counts taken
here are the counts of that work. Replayed a second time without the launches, the outputs must break.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym import meter as metering
from kernel_core.gym import wire
from kernel_core.gym.arena import DTYPES, Arena, Slot
from kernel_core.gym.codec import decode
from kernel_core.gym.kernels import build_kernels
from kernel_core.gym.runner import CANDIDATE_FILE, describe_error
from kernel_core.gym.work import OperatorCounter, Work

_MAX_ALLOCATION_BYTES = 8 << 30


def replay(channel: socket.socket, cage: dict[str, Any]) -> None:
    """One request: the trace and an arena with inputs and two sets of output slots; one answer."""
    request = wire.receive(channel, take_descriptors=True)
    header = request.header
    arena = Arena(request.descriptors[0], header["arena_bytes"])
    path = Path.cwd() / CANDIDATE_FILE
    path.write_text(header["source"])
    meter = metering.Meter()
    metering.install(meter)
    try:
        kernels = build_kernels(header["source"], str(path), header["kernels"])
        inputs = [arena.tensor(Slot.from_json(value)) for value in header["inputs"]]
        player = _Player(header["trace"], request.blob, kernels, inputs, meter)
        works = player.play(launching=True)
        player.write_outputs([Slot.from_json(value) for value in header["outputs"]], arena)
        mute = _Player(header["trace"], request.blob, kernels, inputs, meter)
        mute.play(launching=False)
        mute.write_outputs([Slot.from_json(value) for value in header["mute_outputs"]], arena)
    except Exception as error:
        wire.send(channel, {"failed": "replay", **describe_error(error, path)})
        return
    wire.send(channel, {"works": [work.to_json() for work in works]})


class _Player:
    """One pass over a trace, with its own copies of all memory."""

    def __init__(
        self,
        trace: dict[str, Any],
        blob: bytearray,
        kernels: list[Any],
        inputs: list[torch.Tensor],
        meter: metering.Meter,
    ) -> None:
        self._trace = trace
        self._kernels = kernels
        self._meter = meter
        self._storages: dict[int, torch.UntypedStorage] = {}
        for number, tensor in zip(trace["inputs"], inputs, strict=True):
            self._storages[number] = tensor.clone().untyped_storage()
        start = 0
        for number, size in trace["constants"]:
            raw = torch.empty(size, dtype=torch.uint8)
            if size:
                raw.copy_(torch.frombuffer(blob, dtype=torch.uint8, count=size, offset=start))
            self._storages[number] = raw.untyped_storage()
            start += size

    def play(self, launching: bool) -> list[Work]:
        """Do every operation in order; gives the work of each."""
        works: list[Work] = []
        for operation in self._trace["operations"]:
            if "alloc" in operation:
                size = min(int(operation["bytes"]), _MAX_ALLOCATION_BYTES)
                poisoned = torch.full((size,), 0xFF, dtype=torch.uint8)
                self._storages[operation["alloc"]] = poisoned.untyped_storage()
            elif "launch" in operation:
                if launching:
                    works.append(self._launch(operation))
            else:
                works.extend(self._operate(operation))
        return works

    def write_outputs(self, slots: list[Slot], arena: Arena) -> None:
        """Copy the outputs that have the shape and type of their slots."""
        for value, slot in zip(self._trace["outputs"], slots, strict=False):
            if isinstance(value, dict) and "t" in value:
                tensor = self._tensor(value["t"])
                if tuple(tensor.shape) == slot.shape and tensor.dtype == DTYPES[slot.dtype]:
                    arena.tensor(slot).copy_(tensor)

    def _tensor(self, view: list[Any]) -> torch.Tensor:
        number, dtype, offset, shape, strides = view
        empty = torch.empty(0, dtype=DTYPES[dtype])
        return empty.set_(self._storages[number], offset, shape, strides)

    def _operate(self, operation: dict[str, Any]) -> list[Work]:
        namespace, _, name = operation["op"].partition("::")
        if namespace != "aten":
            raise ValueError(f"operator {operation['op']} cannot be replayed")
        packet = getattr(torch.ops.aten, name)
        function = getattr(packet, operation["overload"] or "default")
        args = [decode(value, self._tensor) for value in operation["args"]]
        kwargs = {key: decode(value, self._tensor) for key, value in operation["kwargs"].items()}
        with torch.no_grad(), OperatorCounter() as counter:
            result = function(*args, **kwargs)
        made = result if isinstance(result, list | tuple) else [result]
        tensors = [tensor for tensor in made if isinstance(tensor, torch.Tensor)]
        for tensor, view in zip(tensors, operation["outputs"], strict=True):
            self._storages.setdefault(view[0], tensor.untyped_storage())
        return counter.works

    def _launch(self, operation: dict[str, Any]) -> Work:
        kernel = self._kernels[operation["launch"]]
        values = {name: self._argument(value) for name, value in operation["args"].items()}
        tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
        before = [tensor.clone() for tensor in tensors]
        self._meter.begin(list(self._storages.values()))
        kernel[tuple(operation["grid"])](**values)
        return Work(
            name=kernel.fn.__name__,
            own=True,
            bytes_accessed=self._meter.bytes_accessed,
            bytes_distinct=self._meter.bytes_distinct,
            flops=self._meter.useful_flops,
            dot_flops=self._meter.useful_dot_flops,
            dot_dtype=self._meter.dot_dtype,
            copies_only=_copies_only(before, tensors),
        )

    def _argument(self, value: Any) -> Any:
        if isinstance(value, dict) and "jit" in value:
            return self._kernels[value["jit"]]
        if isinstance(value, dict) and "tl" in value:
            import triton.language as tl

            return getattr(tl, value["tl"])
        return decode(value, self._tensor)


def _copies_only(before: list[torch.Tensor], after: list[torch.Tensor]) -> bool:
    """Whether every tensor that changed now equals another argument as it was: the launch only copied."""
    changed = [
        (index, tensor)
        for index, tensor in enumerate(after)
        if not torch.equal(_bits(tensor), _bits(before[index]))
    ]
    return bool(changed) and all(
        any(
            other != index and before[other].numel() == tensor.numel() and _same(before[other], tensor)
            for other in range(len(before))
        )
        for index, tensor in changed
    )


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(_bits(left).reshape(-1), _bits(right).reshape(-1))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes, so that NaN equals NaN."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
