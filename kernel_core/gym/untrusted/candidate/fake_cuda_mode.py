"""Host code that asks for a GPU, where there is none.

Most kernels that are published assert `x.is_cuda`, allocate on `"cuda"` or ask how many multiprocessors there
are. On a CPU they are told what the GPU that times are predicted for would tell them, and what they put there
lies in this machine's memory. All of this happens in the candidate's own process and decides nothing: what is
recorded and replayed lies below, where each tensor is where it is. What they leave in the host's memory is
known by that (`host_tensors.py`): a tensor of theirs that no device was named for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from kernel_core.gym.channel.target_gpu import properties_of
from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.untrusted.candidate.fake_cuda_api import answer_for_cuda, take_operators_to
from kernel_core.gym.untrusted.candidate.host_tensors import HostMemory

_CUDA = re.compile(r"cuda(:\d+)?")
_ASKED = {"is_cuda": True, "is_cpu": False, "is_meta": False, "device": torch.device("cuda", 0)}
_TOLD = {getattr(torch.Tensor, name).__get__: answer for name, answer in _ASKED.items()}
_TOLD[torch.Tensor.get_device] = 0
_GIVE_THEMSELVES = {torch.Tensor.cuda, torch.Tensor.pin_memory}
_FOLLOW = {torch.Tensor.to, torch.Tensor.type_as}
"""Give their first tensor where another one is."""
_COUNT = {torch.histc, torch.Tensor.histc}
"""Take whole numbers on a GPU, and on a CPU no others than floats."""


class StandIn(TorchFunctionMode):
    """While active, tensors of the candidate's say that they are on a GPU, and lie on `device`."""

    def __init__(self, device: str, gpu: str, candidate: Path, num_processors: int | None = None) -> None:
        super().__init__()
        # With an index, to differ from the host's own device.
        self._device = torch.device(device, 0) if device == "cpu" else torch.device(device)
        self._file = str(candidate)
        self._host = HostMemory()
        answer_for_cuda(properties_of(gpu, num_processors))
        take_operators_to(device)
        _enter_devices_that_there_are(self._there)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_theirs = sys._getframe(1).f_code.co_filename == self._file
        if function is torch.device:
            return function(*args, **kwargs)  # a name; its use is checked later
        if function in _TOLD and is_theirs and not self._host.holds(args[0]):
            return _TOLD[function]
        if function in _GIVE_THEMSELVES:
            self._host.remove(args[:1])
            return args[0]
        if isinstance(kwargs.get("device"), int):
            kwargs = {**kwargs, "device": self._device}
        there = {key: self._there(value) for key, value in kwargs.items()}
        values = [self._there(value) for value in args]
        if function in _COUNT and values and not values[0].is_floating_point():
            result = function(values[0].double(), *values[1:], **there).to(values[0].dtype)
        else:
            result = function(*values, **there)
        if not there.get("pin_memory"):
            self._look_where(function, [*values, *there.values()], tensors_in(result), is_theirs)
        return result

    def moved(self, module: torch.nn.Module) -> None:
        """The module's weights were put on the GPU."""
        self._host.remove([*module.parameters(), *module.buffers()])

    def check_arguments(self, values: Iterable[Any]) -> None:
        """Raises where a kernel would be given host memory."""
        self._host.check(values)

    def _look_where(self, function: Any, given: list[Any], made: list[torch.Tensor], is_theirs: bool) -> None:
        """Note where new tensors lie. A result of tensors lies where they do, in doubt on the GPU. A tensor
        made of none lies on the named device, or on the default device of the calling code."""
        if not made:
            return
        tensors = tensors_in(given)
        devices = [value for value in given if isinstance(value, torch.device) or _is_host(value)]
        if not tensors and not devices and is_theirs:
            devices = [torch.get_default_device()]
        in_host = [self._host.holds(tensor) for tensor in tensors]
        if any(map(self._is_gpu, devices)) or (function in _FOLLOW and not all(in_host)):
            self._host.remove(made)
        elif all(in_host) if tensors else devices and is_theirs:
            self._host.add(made)

    def _is_gpu(self, device: Any) -> bool:
        return isinstance(device, torch.device) and (device == self._device or device.type == "meta")

    def _there(self, value: Any) -> Any:
        """An existing device in the place of the one GPU."""
        if isinstance(value, str) and _CUDA.fullmatch(value):
            value = torch.device(value)
        if not isinstance(value, torch.device) or value.type != "cuda":
            return value
        if value.index:
            raise RuntimeError(f"CUDA error: invalid device ordinal: {value}, and there is one GPU")
        return self._device


def _enter_devices_that_there_are(there: Any) -> None:
    """`with torch.device("cuda")` and `torch.set_default_device` work below every mode of a candidate's."""
    kind: Any = DeviceContext
    original = kind.__init__

    def enter(self: Any, device: Any) -> None:
        original(self, there(torch.device(device)))

    kind.__init__ = enter


def _is_host(value: Any) -> bool:
    """Return True if the value names the host. It is not compared if it is a tensor, because a tensor's
    comparisons may be patched."""
    return isinstance(value, str) and value == "cpu"
