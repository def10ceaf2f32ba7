"""A safetensors file as a stream: one tensor at a time is on the CPU, however large the file is.

The format (https://github.com/huggingface/safetensors#format) begins with eight bytes, the header's length.
The header is JSON with type, shape and offsets of every tensor. The tensors' bytes follow without holes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import torch

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_ALIGNMENT = 8


def safetensors_parts(
    tensors: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the parts of a safetensors file, cast to `dtype` if one is given.

    The widest types come first, which keeps every tensor aligned.
    """
    dtypes = {name: dtype or tensor.dtype for name, tensor in tensors.items()}
    order = sorted(tensors, key=lambda name: (-dtypes[name].itemsize, name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        begin, end = end, end + tensors[name].numel() * dtypes[name].itemsize
        shape = list(tensors[name].shape)
        header[name] = {"dtype": _NAMES[dtypes[name]], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        tensor = tensors[name].detach().to("cpu", dtypes[name]).contiguous().reshape(-1)
        yield tensor.view(torch.uint8).numpy().data
