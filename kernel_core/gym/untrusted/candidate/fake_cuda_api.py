"""Stand-ins for `torch.cuda`, `torch.library` and `triton.testing` without a GPU, for host code that expects
one.

All of it happens in the candidate's own process and decides nothing (`fake_cuda_mode.py`).
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

import torch
import triton.testing

from kernel_core.gym.channel.host_for_gpu import take_gpu_for_host
from kernel_core.gym.channel.target_gpu import Properties

_FREE_OF_CHARGE = (
    *("init", "synchronize", "set_device", "empty_cache", "set_stream", "ipc_collect"),
    *("reset_peak_memory_stats", "reset_max_memory_allocated"),
)
"""Functions of `torch.cuda` that are done at once."""
_UNUSED_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_MARKS = ("mark", "range_push", "range_pop", "range_start", "range_end")
_TRIED_MS = 1.0
"""The time of every timed call here."""


class _Event(contextlib.nullcontext[None]):
    """An event of a GPU that does everything in order, at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def record(self, *_: Any) -> None:
        """Do nothing: no work is pending."""

    wait = synchronize = record

    def query(self) -> bool:
        """Return True if it is done."""
        return True

    def elapsed_time(self, _: Any) -> float:
        """Milliseconds: nothing is timed here."""
        return 0.0


class _Stream(_Event):
    """A stream: there is only one order of work."""

    cuda_stream = 0
    wait_stream = wait_event = _Event.record

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event or _Event()


def answer_for_cuda(known: Properties) -> None:
    """Have `torch.cuda` say that this GPU is there, in this process, for good; what is timed is done once."""
    answers = {
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": known.name,
        "get_device_capability": (known.major, known.minor),
        "get_device_properties": known,
        "get_arch_list": [f"sm_{known.major}{known.minor}"],
        "mem_get_info": (known.total_memory, known.total_memory),
        "is_current_stream_capturing": False,
        "current_blas_handle": 0,
        **dict.fromkeys(_UNUSED_MEMORY, 0),
        **dict.fromkeys(_FREE_OF_CHARGE),
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, _always(answer))
    stands_for = dict.fromkeys(("Event",), _Event) | dict.fromkeys(
        ("Stream", "stream", "current_stream", "default_stream", "device", "device_of", "_DeviceGuard"),
        _Stream,
    )
    for name, kind in stands_for.items():
        setattr(torch.cuda, name, kind)
    module_of, known_to_torch = torch.get_device_module, cast(Any, torch)
    known_to_torch.get_device_module = lambda device=None: module_of("cuda" if device is None else device)
    for name in _MARKS:
        setattr(torch.cuda.nvtx, name, _always(None))
    take_gpu_for_host()
    torch.Tensor.record_stream = _always(None)  # type: ignore[method-assign]
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, _do_once)


def _do_once(
    function: Any, *_: Any, quantiles: Any = None, return_mode: str = "mean", **__: Any
) -> float | list[float]:
    """Stands for `triton.testing.do_bench`: same calls, same results."""
    function()
    if quantiles is not None and len(quantiles) > 1:
        return [_TRIED_MS] * len(quantiles)
    return [_TRIED_MS] if return_mode == "all" and quantiles is None else _TRIED_MS


def take_operators_to(device: str) -> None:
    """Registrations of operators for a GPU go to `device`. Registrations for a host and for meta tensors are
    ignored."""
    kind: Any = torch.library.Library
    original, there = kind.impl, {"cpu": "CPU", "meta": "Meta"}[device]

    def impl(self: Any, name: Any, function: Any, dispatch_key: str = "", **options: Any) -> None:
        key = dispatch_key or self.dispatch_key
        if key not in ("CPU", "Meta"):
            original(self, name, function, there if key == "CUDA" else dispatch_key, **options)

    kind.impl = impl
    kind._register_fake = _always(None)


def _always(answer: Any) -> Any:
    return lambda *_, **__: answer
