"""Safetensors as a stream: what the library reads is what was written."""

import safetensors.torch
import torch

from kernel_core.policy.tensor_stream import safetensors_parts


def test_the_library_reads_every_type_and_shape_back():
    tensors = {
        "a.scalar": torch.tensor(3.0),
        "b.flags": torch.tensor([True, False, True]),
        "c.bytes": torch.arange(5, dtype=torch.uint8),
        "d.low": torch.randn(3, 5).bfloat16(),
        "e.strided": torch.randn(4, 6).T,
        "f.empty": torch.zeros(0, 3),
        "g.wide": torch.arange(7),
        "h.trained": torch.randn(2, 2, requires_grad=True),
    }
    read = safetensors.torch.load(b"".join(safetensors_parts(tensors)))
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor)


def test_tensors_are_cast_on_the_way():
    tensors = {"a": torch.randn(3, 4), "b": torch.randn(2)}
    read = safetensors.torch.load(b"".join(safetensors_parts(tensors, torch.bfloat16)))
    assert all(torch.equal(read[name], tensor.bfloat16()) for name, tensor in tensors.items())
