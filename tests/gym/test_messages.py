"""What a caged process says of its failure."""

from __future__ import annotations

import pytest

from kernel_core.gym.channel.messages import Failure


@pytest.mark.parametrize(
    ("error", "message", "is_memory"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", True),
        # Torch asks NVML who fills the GPU before it says that it is full, and no cage lets it.
        (
            "RuntimeError",
            "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT FAILED at "
            '"/pytorch/c10/cuda/CUDACachingAllocator.cpp":1135, please report a bug to PyTorch. ',
            True,
        ),
        ("AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'", True),
        ("RuntimeError", "Triton Error [CUDA]: out of memory", True),
        ("RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("RuntimeError", "CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_full_gpu_is_known_by_its_words(error: str, message: str, is_memory: bool) -> None:
    failure = Failure(failed="run", error=error, message=message, line=0, by_compiler=False)
    assert failure.ran_out_of_memory is is_memory
    assert failure.told.startswith("OutOfMemoryError: " if is_memory else "RuntimeError: CUDA error")
    assert "NVML" not in failure.told
