"""Run a candidate's trace again, elsewhere, on inputs the candidate never saw, and count its work.

This is the independent witness to a candidate's claims. Its host code does not run here: only its JIT
functions, rebuilt from its text, and torch's operators by name. If the trace gives the right outputs for
fresh inputs, these kernels and operators did the work. The counts taken here are the counts of that work.

Replayed a second time without the launches, the outputs must break. Where operators of torch's work too,
launches that only move data do not count as work (`copy_detection.py`). The outputs must need what the other
launches make of the inputs (`input_swap.py`). Counted and timed passes are checked as well: they run on
inputs of another family, and their outputs must be right too.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import gc
import random
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import triton
from triton.runtime.jit import MockTensor

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE
from kernel_core.gym.channel.compiled_products import UNKNOWN, kinds_of_triton
from kernel_core.gym.channel.cuda_driver import call_driver
from kernel_core.gym.channel.decoy_thresholds import ECHOES, library_works
from kernel_core.gym.channel.failures import describe_error
from kernel_core.gym.channel.launch_codec import STAND_IN_ADDRESS
from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.shared_arena import DTYPES, Slot, arena_kind, lay_out
from kernel_core.gym.channel.target_gpu import answer_for
from kernel_core.gym.untrusted.compile.launcher_stubs import make_launcher
from kernel_core.gym.untrusted.compile.rebuild_kernels import build_kernels
from kernel_core.gym.untrusted.replay.copy_detection import Movers
from kernel_core.gym.untrusted.replay.cost_probe import CostProbe, CountingProbe, TimingProbe
from kernel_core.gym.untrusted.replay.cubin_kernels import DeviceImage, ImageKernel
from kernel_core.gym.untrusted.replay.input_swap import outputs_need_kernels
from kernel_core.gym.untrusted.replay.trace_player import TracePlayer, argument


def replay(channel: socket.socket, cage: dict[str, Any]) -> None:
    """Traces, one after the other, each as in `_replay_one`. Between them nothing is kept but the context."""
    device = cage["device"]
    if device == "cpu":
        answer_for(cage["gpu"])
    counted = CountingProbe() if device == "cpu" else None
    while True:
        request = framing.receive(channel, take_descriptors=True)
        with contextlib.ExitStack() as arenas:
            if not _replay_one(channel, request, device, counted or TimingProbe(), arenas):
                return
            gc.collect()
        if device == "cuda":
            _wipe_memory()
        framing.send(channel, {"rested": True})


def _replay_one(
    channel: socket.socket,
    request: framing.Message,
    device: str,
    conduct: CostProbe,
    arenas: contextlib.ExitStack,
) -> bool:
    """All questions about one trace, by `_Replay`. False after a failure; True when the next trace is to
    come."""
    path = Path.cwd() / CANDIDATE_FILE
    try:
        replayed = _Replay(channel, request, device, conduct, arenas, path)
        moving, idle, first, right = replayed.play_and_mute()
        replayed.answer_swaps(first, right, moving)
        del first, right
        replayed.answer_measurements(moving | idle)
        return True
    except framing.ChannelClosed:
        raise
    except Exception as error:
        framing.send(channel, {"failed": "replay", **describe_error(error, path)})
        return False


class _Replay:
    """The trace, and on a GPU an arena with what it takes from outside. When all is compiled, an arena with
    inputs and output slots is asked for."""

    def __init__(
        self,
        channel: socket.socket,
        request: framing.Message,
        device: str,
        conduct: CostProbe,
        arenas: contextlib.ExitStack,
        path: Path,
    ) -> None:
        header = request.header
        memory = arena_kind(device)
        self._channel = channel
        self._conduct = conduct
        self._trace = header["trace"]
        self._kernels = _all_kernels(header, path)
        self._products: set[str] = set()
        if device == "cuda":
            triton.set_allocator(_allocate)
            self._products = compile_launches(self._trace, self._kernels)
        framing.send(channel, {"ready": True})
        work = framing.receive(channel, take_descriptors=True)
        self._arena = memory.open(work.descriptors[0], work.header["arena_bytes"])
        arenas.callback(self._arena.close)
        self._inputs = [self._arena.tensor(Slot.from_json(value)) for value in work.header["tensors"]]
        self._slots = [Slot.from_json(value) for value in work.header["outputs"]]
        self._constants = _constants(self._trace["constants"], request, memory, arenas)
        self._poison = Poison(random.Random(header["poison"]))

    def play_and_mute(self) -> tuple[set[int], set[int], list[torch.Tensor], list[torch.Tensor]]:
        """One answer, and then the same without the launches. Gives the ids of the launches that only move
        data and of those that change nothing. Where the library works too, the inputs and the right outputs
        are kept."""
        player = self._play_on(self._inputs)
        moving, idle = _play_and_look(player, self._trace)
        player.check_guards()
        player.write_outputs(self._slots, self._arena)
        is_kept = library_works(self._trace)
        right = [self._arena.tensor(slot).clone() for slot in self._slots] if is_kept else []
        framing.send(self._channel, {"played": True, "products": sorted(self._products)})
        _wait_for_turn(self._channel)
        first = [tensor.clone() for tensor in self._inputs] if is_kept else []
        player = player.restart()
        if _play_mute(player, moving):
            player.write_outputs(self._slots, self._arena)
        framing.send(self._channel, {"muted": True, "moving": len(moving)})
        return moving, idle, first, right

    def answer_swaps(self, first: list[torch.Tensor], right: list[torch.Tensor], moving: set[int]) -> None:
        """Tell, where the library works too, if its outputs need what the launches make of the first inputs,
        with others in their place."""
        for _ in range(ECHOES if library_works(self._trace) else 0):
            _wait_for_turn(self._channel)
            again = [tensor.clone() for tensor in first]  # a pass may write to them
            needed = outputs_need_kernels(self._play_on, again, self._inputs, right, moving)
            framing.send(self._channel, {"needed": needed})

    def answer_measurements(self, useless: set[int]) -> None:
        """The cost of the same work, as often as it is asked for."""
        while "measure" in (question := _wait_for_turn(self._channel)):
            player, works = _measure(self._play_on(self._inputs), self._conduct, once=question["once"])
            player.write_outputs(self._slots, self._arena)
            del player
            marked = _marked(works, self._trace, useless)
            framing.send(self._channel, {"works": [work.to_json() for work in marked]})

    def _play_on(self, tensors: list[torch.Tensor]) -> TracePlayer:
        return TracePlayer(self._trace, self._constants, self._kernels, tensors, self._conduct, self._poison)


def _wipe_memory() -> None:
    """Overwrite one trace's data in the GPU's memory before the next trace."""
    torch.cuda.synchronize()
    for segment in torch.cuda.memory_snapshot():
        address, size = ctypes.c_uint64(segment["address"]), ctypes.c_size_t(segment["total_size"])
        call_driver("cuMemsetD8_v2", address, ctypes.c_ubyte(0), size)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def _all_kernels(header: dict[str, Any], path: Path) -> list[Any]:
    """JIT functions rebuilt from the candidate's text, and kernels of CUDA C++ from their device code."""
    described = header["kernels"]
    built = build_kernels(header["source"], str(path), described)
    images = {name: DeviceImage(base64.b64decode(image)) for name, image in header["images"].items()}
    return [
        images[kernel_text["extension"]].kernel(kernel_text["symbol"], kernel_text["name"])
        if kernel_text["extension"]
        else kernel
        for kernel_text, kernel in zip(described, built, strict=True)
    ]


def _wait_for_turn(channel: socket.socket) -> dict[str, Any]:
    """Before each question after the first, which is returned; what it is about (the same inputs once more,
    or others, and poisoned outputs) is laid out after this process says that it is ready."""
    question = framing.receive(channel).header
    framing.send(channel, {"ready": True})
    framing.receive(channel)
    return question


def _play_and_look(player: TracePlayer, trace: dict[str, Any]) -> tuple[set[int], set[int]]:
    """The first pass; gives the ids of the launches that only move data, and of those that change nothing,
    which are of no account where there is nothing but launches."""
    if not library_works(trace):
        player.play(player.launch)
        return set(), set()
    movers = Movers(trace)
    player.play(lambda operation: movers.launch(player, operation))
    return movers.found, movers.idle


def _play_mute(player: TracePlayer, moving: set[int]) -> bool:
    """A pass without the launches but for those that only move data; whether it came to its end."""
    return player.play_mute(lambda operation: player.launch(operation) if id(operation) in moving else None)


def _measure(player: TracePlayer, conduct: CostProbe, *, once: bool) -> tuple[TracePlayer, list[Any]]:
    """The last pass and the works of all; only `once` where a pass leaves other inputs to the next."""
    passes = [player.play(player.launch, measured=True)]
    for _ in range(0 if once else conduct.num_passes - 1):
        player = player.restart()
        passes.append(player.play(player.launch, measured=True))
    return player, conduct.summary(passes)


def _marked(works: list[Any], trace: dict[str, Any], useless: set[int]) -> list[Any]:
    """The works, with those marked that are none of its own: what only moved data or changed nothing."""
    launches = iter([id(operation) in useless for operation in trace["operations"] if "launch" in operation])
    return [replace(work, copies_only=next(launches)) if work.own else work for work in works]


def _allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that kernels with tensor descriptors ask Triton for."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def compile_launches(trace: dict[str, Any], kernels: list[Any]) -> set[str]:
    """Have every launch of a trace compiled, which needs no GPU, before the GPU is asked for. Return the
    kinds of their products (`compiled_products.py`)."""
    products: set[str] = set()
    for operation in trace["operations"]:
        if "launch" in operation and not isinstance(kernels[operation["launch"]], ImageKernel):
            values = {name: argument(value, kernels, _pointer) for name, value in operation["args"].items()}
            kernel = kernels[operation["launch"]]
            compiled = kernel.run(
                grid=tuple(operation["grid"]), warmup=True, **{**operation["options"], **values}
            )
            make_launcher(compiled)
            products |= _products_of(compiled)
    return products


def _products_of(compiled: Any) -> set[str]:
    """Return the kinds of the products of a compiled kernel; one without its first language is not known."""
    try:
        return kinds_of_triton(str(compiled.asm["ttir"]))
    except (AttributeError, KeyError, TypeError):
        return {UNKNOWN}


class _Pointer(MockTensor):
    """The properties of a tensor that the compiler reads: its type, and the alignment of its address."""

    def __init__(self, view: list[Any]) -> None:
        super().__init__(DTYPES[view[1]], view[3])
        self._offset = view[2] * DTYPES[view[1]].itemsize

    def data_ptr(self) -> int:
        """An address of the same alignment."""
        return STAND_IN_ADDRESS + self._offset


def _pointer(view: list[Any]) -> Any:
    return _Pointer(view)


def _constants(
    described: list[Any], request: framing.Message, memory: Any, arenas: contextlib.ExitStack
) -> list[torch.Tensor]:
    """The bytes of each storage that the pass took from outside: host memory's from the blob, a GPU's from
    the second arena."""
    sizes = [((size,), torch.uint8) for _, size, device in described if device == "cuda"]
    slots, num_bytes = lay_out(sizes)
    on_device = memory.open(request.descriptors[0], num_bytes) if request.descriptors else None
    if on_device is not None:
        arenas.callback(on_device.close)
    waiting, start, constants = iter(slots), 0, []
    for _, size, device in described:
        if device == "cuda":
            if on_device is None:
                raise ValueError("the trace takes memory of the GPU that was not handed over")
            constants.append(on_device.tensor(next(waiting)))
            continue
        raw = torch.empty(size, dtype=torch.uint8)
        if size:
            raw.copy_(torch.frombuffer(request.blob, dtype=torch.uint8, count=size, offset=start))
        start += size
        constants.append(raw)
    return constants
