"""Gives torch's convolutions tensors with channels last in memory, where the kernels behind can read these.

cuDNN computes a convolution with channels last. With other tensors it converts both its input and its
result, or takes a slower kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.generator.ir import Value, is_channels_last, make, memory_format, readers_of, rebuilt, walk

_RANKS = {"conv2d": 4, "conv_transpose2d": 4, "conv3d": 5, "conv_transpose3d": 5}
"""Convolutions by torch's names, with the rank of a batch."""


def with_channels_last(outputs: Sequence[Value], for_speed: bool) -> list[Value]:
    """The outputs with convolutions of torch's on tensors that have channels last, where this is faster.

    What a kernel computes anyway is stored so. Other tensors are copied by torch, or `for_speed` by a kernel,
    which takes half the time.
    """
    values = walk(tuple(outputs))
    readers = readers_of(values)
    returned = {id(output) for output in outputs}
    chosen = {
        id(value)
        for value in values
        if _is_convolution(value) and id(value) not in returned and _is_read_by_channel(value, readers)
    }
    copies: dict[int, Value] = {}

    def change(value: Value, new: Value, _made: dict[int, Value]) -> Value:
        if id(value) not in chosen:
            return new
        x, *rest = new.inputs
        attributes = {**new.attributes, "channels_last": True}
        if is_channels_last(x):
            pass
        elif for_speed or x.op in ("point", "cast"):
            origin = (new.origin[0], "channels_last")
            x = copies.setdefault(
                id(x), make("copy", (x,), x.shape, x.dtype, channels_last=True, origin=origin)
            )
        else:
            attributes["text"] = new.text.replace("{0}", f"{{0}}.contiguous({memory_format(x.rank)})")
        return Value("call", (x, *rest), new.shape, new.dtype, attributes)

    return rebuilt(outputs, change)


def _is_convolution(value: Value) -> bool:
    """True for a convolution of a batch by torch, of one group."""
    return value.op == "call" and value.rank == _RANKS.get(value.base) and _num_groups(value) == 1


def _num_groups(call: Value) -> int:
    if "groups" in call.attributes:
        return int(call.groups)
    x, weight = call.inputs[:2]
    channels = call.shape[1] if "transpose" in call.base else x.shape[1]
    return int(channels) // int(weight.shape[1])


def _is_read_by_channel(call: Value, readers: dict[int, list[Value]]) -> bool:
    """True if kernels read a result elementwise, in windows, or along the channels of a place.

    Along the places of a channel the elements lie far apart.
    """
    waiting = [call]
    while waiting:
        value = waiting.pop()
        for reader in readers[id(value)]:
            if reader.op in ("point", "cast") and [*map(int, reader.shape)] == [*map(int, call.shape)]:
                waiting.append(reader)
                continue
            is_window = reader.op == "window" and len(reader.kernel) == call.rank - 2
            is_over_channels = reader.op == "reduce" and reader.dims == (1,)
            is_called = reader.op == "call" and (value is not call or _is_convolution(reader))
            if not (is_window or is_over_channels or is_called):
                return False
    return True
