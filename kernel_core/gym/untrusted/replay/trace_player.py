"""One pass over a trace: its operators, and its launches by kernels rebuilt from the candidate's text."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

from kernel_core.gym.channel.cuda_params import put_addresses
from kernel_core.gym.channel.launch_codec import decode_argument
from kernel_core.gym.channel.operator_products import flags_of, may_use_tf32
from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.pytree import fingerprint, is_same
from kernel_core.gym.channel.shared_arena import DTYPES, Slot
from kernel_core.gym.channel.tf32_flags import tf32
from kernel_core.gym.channel.torch_ops import operator_by_name, tensors_in
from kernel_core.gym.channel.trace_codec import Decode, bytes_of, decode, views_in, views_of_launch
from kernel_core.gym.channel.work import written_by
from kernel_core.gym.untrusted.replay.cost_probe import CostProbe
from kernel_core.gym.untrusted.replay.cubin_kernels import ImageKernel
from kernel_core.gym.untrusted.replay.input_swap import DoLaunch
from kernel_core.gym.untrusted.replay.kernel_resources import resources_of

_MAX_ALLOCATION_BYTES = 32 << 30
_GUARD_BYTES, _GUARD = 4096, 0xA5
_INTEGERS = ("int16", "int32", "int64")
_SEED = 0
"""The seed of torch's generators at the beginning of each pass, so that no pass can tell how many there were.
"""


def argument(value: Any, kernels: list[Any], tensor: Decode) -> Any:
    """A launch argument from a trace."""
    return decode_argument(value, kernels, lambda other: decode(other, tensor))


class TracePlayer:
    """One pass over a trace. It has memory of its own but for the inputs: a candidate that writes to those
    was refused. Passes of one `poison` differ in the contents of fresh memory."""

    def __init__(
        self,
        trace: dict[str, Any],
        constants: list[torch.Tensor],
        kernels: list[Any],
        inputs: list[torch.Tensor],
        conduct: CostProbe,
        poison: Poison,
    ) -> None:
        self._trace = trace
        self._poison = poison
        self._constants = constants
        self._kernels = kernels
        self._inputs = inputs
        self._conduct = conduct
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._shifts: dict[int, int] = {}
        self.made: list[Callable[[torch.Tensor], None]] = []
        """Called with each tensor that an operator of torch's made or wrote."""
        self._zeroed: set[int] = set()
        for number, tensor in zip(trace["inputs"], inputs, strict=True):
            self._storages[number] = tensor.untyped_storage()
        for (number, _, _), raw in zip(trace["constants"], constants, strict=True):
            self._storages[number] = raw.clone().untyped_storage()

    def restart(self) -> TracePlayer:
        """A player for another pass, from the beginning."""
        self._storages.clear()
        return TracePlayer(
            self._trace, self._constants, self._kernels, self._inputs, self._conduct, self._poison
        )

    def play(self, launch: DoLaunch, *, measured: bool = False, as_before: bool = False) -> list[Any]:
        """Do every operation in order, launches by `launch`; gives the work of each where it is measured.
        `as_before`, fresh memory holds what it held in the pass before."""
        torch.manual_seed(_SEED)
        self._poison.begin(as_before=as_before)
        self._conduct.begin(self._trace["operations"], measured=measured)
        for operation in self._trace["operations"]:
            if "alloc" in operation:
                self._allocate(operation)
            elif "launch" in operation:
                launch(operation)
            elif "point" in operation:
                self._point(operation)
            else:
                self._operate(operation)
        return self._conduct.finish()

    def play_mute(self, launch: DoLaunch) -> bool:
        """A pass in which launches may be left out; whether it came to its end. Unwritten integers would make
        operators look out of bounds, and on a GPU end all further work. So operators are given zeros for
        them."""
        self._zeroed = _integers_of_operators(self._trace)
        try:
            self.play(launch)
        except Exception:
            return False  # an operator that cannot work on unwritten memory needs the missing launch
        return True

    def _allocate(self, operation: dict[str, Any]) -> None:
        """Poisoned memory; on a GPU between guards, because there no bounds are checked."""
        size = min(int(operation["bytes"]), _MAX_ALLOCATION_BYTES)
        guard = _GUARD_BYTES if operation["device"] == "cuda" else 0
        raw = torch.empty(size + 2 * guard, dtype=torch.uint8, device=operation["device"])
        self._poison.fill(raw)
        if operation["alloc"] in self._zeroed:
            raw.zero_()
        if guard:
            self._shifts[operation["alloc"]] = guard
            raw[:guard] = raw[guard + size :] = _GUARD
        self._storages[operation["alloc"]] = raw.untyped_storage()

    def _point(self, operation: dict[str, Any]) -> None:
        """Put this pass's addresses where the recorded pass had its own."""
        raw = bytes_of(self._storages[operation["point"]])
        for place, value in operation["to"]:
            raw[place : place + 8].view(torch.int64).fill_(self._tensor(value["t"]).data_ptr())

    def check_guards(self) -> None:
        """Raises when something was written beside an allocation."""
        for number, guard in self._shifts.items():
            raw = bytes_of(self._storages[number])
            if not bool((raw[:guard] == _GUARD).all() & (raw[-guard:] == _GUARD).all()):
                raise MemoryError("out-of-bounds store: memory beside a tensor was written")

    def write_outputs(self, slots: list[Slot], arena: Any) -> None:
        """Copy the outputs that have the shape and type of their slots."""
        for tensor, slot in zip(self.outputs(), slots, strict=False):
            if tuple(tensor.shape) == slot.shape and tensor.dtype == DTYPES[slot.dtype]:
                arena.tensor(slot).copy_(tensor)

    def outputs(self) -> list[torch.Tensor]:
        """The outputs of the pass; an empty tensor stands for each output that is no tensor."""
        nothing = torch.empty(0)
        return [
            self._tensor(value["t"]) if isinstance(value, dict) and "t" in value else nothing
            for value in self._trace["outputs"]
        ]

    def memory_of(self, operation: dict[str, Any]) -> dict[int, torch.Tensor]:
        """The bytes of each storage among a launch's arguments, by its number."""
        storages = {view[0]: self._storages[view[0]] for view in views_of_launch(operation)}
        return {number: bytes_of(storage) for number, storage in storages.items()}

    def view_of(self, view: list[Any], memory: torch.Tensor) -> torch.Tensor:
        """A view of a storage, as its argument, in other bytes of that storage."""
        return self._view(view, memory.untyped_storage())

    def _tensor(self, view: list[Any]) -> torch.Tensor:
        return self._view(view, self._storages[view[0]])

    def _view(self, view: list[Any], storage: torch.UntypedStorage) -> torch.Tensor:
        number, dtype, offset, shape, strides = view
        end = 1 + offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        room = storage.nbytes() - 2 * self._shifts.get(number, 0)
        if 0 not in shape and end * DTYPES[dtype].itemsize > room:
            # Torch would enlarge the storage with memory that an earlier pass may have written to.
            raise ValueError("a tensor of the trace is larger than its memory")
        offset += self._shifts.get(number, 0) // DTYPES[dtype].itemsize
        return torch.empty(0, dtype=DTYPES[dtype], device=storage.device).set_(
            storage, offset, shape, strides
        )

    def _operate(self, operation: dict[str, Any]) -> None:
        function = operator_by_name(operation["op"], operation["overload"])
        args = [decode(value, self._tensor) for value in operation["args"]]
        kwargs = {key: decode(value, self._tensor) for key, value in operation["kwargs"].items()}
        given = tensors_in([*args, *kwargs.values()]) if self.made else []
        before = [fingerprint(bytes_of(tensor.untyped_storage())) for tensor in given]
        switches = tf32(flags_of(operation)) if may_use_tf32(function) else contextlib.nullcontext()
        with torch.no_grad(), switches, self._conduct.operator(operation["op"]):
            result = function(*args, **kwargs)
        tensors = tensors_in(result)
        for tensor, view in zip(tensors, operation["outputs"], strict=True):
            self._storages.setdefault(view[0], tensor.untyped_storage())
        if not self.made:
            return
        # Some operators do not declare in their schema what they write to.
        changed = [
            tensor
            for tensor, was in zip(given, before, strict=True)
            if not is_same(fingerprint(bytes_of(tensor.untyped_storage())), was)
        ]
        for tensor in (*tensors, *written_by(function._schema, args, kwargs), *changed):
            for look in self.made:
                look(tensor)

    def launch(self, operation: dict[str, Any]) -> None:
        """Launch a rebuilt kernel."""
        kernel = self._kernels[operation["launch"]]
        if isinstance(kernel, ImageKernel):
            self._launch_image(kernel, operation)
            return
        values = {
            name: argument(value, self._kernels, self._tensor) for name, value in operation["args"].items()
        }
        with self._conduct.launch(kernel.fn.__name__, list(self._storages.values())):
            compiled = kernel[tuple(operation["grid"])](**{**operation["options"], **values})
        self._conduct.launched(functools.partial(resources_of, compiled))

    def _launch_image(self, kernel: ImageKernel, operation: dict[str, Any]) -> None:
        """Launch a kernel of CUDA C++ with this pass's addresses in the place of those that were recorded."""
        arguments = operation["args"]
        memory = {
            int(place): self._tensor(value["t"])
            for place, value in arguments.items()
            if isinstance(value, dict)
        }
        parameters = put_addresses(
            bytes.fromhex(arguments["parameters"]),
            {place: tensor.data_ptr() for place, tensor in memory.items()},
        )
        with self._conduct.launch(kernel.name, list(self._storages.values())):
            kernel.launch(operation["grid"], operation["options"], parameters)
        self._conduct.launched(functools.partial(kernel.resources, operation["options"]))


def _integers_of_operators(trace: dict[str, Any]) -> set[int]:
    """The storages that operators of torch's are given as integers."""
    operators = [operation for operation in trace["operations"] if "op" in operation]
    views = views_in([[operation["args"], operation["kwargs"]] for operation in operators])
    return {number for number, dtype, *_ in views if dtype in _INTEGERS}
