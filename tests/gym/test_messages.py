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


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("MemoryError", ""),
        ("_ArrayMemoryError", "Unable to allocate 1.00 GiB for an array with shape (268435456,)"),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_a_candidate_beyond_its_memory_is_told_to_look_at_its_shapes(error: str, message: str) -> None:
    failure = Failure(failed="run", error=error, message=message, line=0, by_compiler=False)
    assert failure.told.startswith("MemoryError: it asked for more memory than a candidate may have")
    assert not failure.ran_out_of_memory
