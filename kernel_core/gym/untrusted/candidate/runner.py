"""The untrusted side: one process for one candidate.

It receives the candidate's text and the inputs, and writes outputs into memory that the judge owns. It holds
no reference, no seed, no expected value and no verdict. Every message it sends is a claim.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import linecache
import random
import socket
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE, line_in
from kernel_core.gym.channel.constant_perturbation import VariedConstants, copy_state
from kernel_core.gym.channel.cuda_arena import DeviceArena
from kernel_core.gym.channel.failures import NvccError, describe_error
from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.pytree import describe_leaf, flatten
from kernel_core.gym.channel.seeds import CONSTRUCTION_SEED
from kernel_core.gym.channel.shared_arena import Slot, arena_kind, lay_out
from kernel_core.gym.channel.target_gpu import answer_for
from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.untrusted.candidate import trace_recorder, triton_hooks
from kernel_core.gym.untrusted.candidate.call_timer import time_calls
from kernel_core.gym.untrusted.candidate.fake_cuda_mode import StandIn
from kernel_core.gym.untrusted.candidate.inline_cuda import BuiltLibrary, Extensions


def run(channel: socket.socket, cage: dict[str, Any], *, num_processors: int | None = None) -> None:
    """Load the candidate, then run every trial that comes; each answer is one message. Where there is no GPU,
    it is told of one with so many multiprocessors, or with as many as it has."""
    device = cage["device"]
    memory = arena_kind(device)
    load = framing.receive(channel, take_descriptors=True)
    path = Path.cwd() / CANDIDATE_FILE
    source = load.header["source"]
    path.write_text(source, encoding="utf-8")
    told: StandIn | None = None
    if device == "cpu":
        answer_for(cage["gpu"], num_processors)
        told = StandIn(device, cage["gpu"], path, num_processors)
    watched = _watch(may_compile=device == "cuda")
    launches: list[dict[str, Any]] = []
    gate = _Gate(channel) if device == "cuda" else None
    poison = Poison(random.Random(load.header["poison"]))
    recorder = (
        trace_recorder.Recorder(launches.append, gate.pass_through, gate.step_aside, poison)
        if gate is not None
        else trace_recorder.Recorder(launches.append, poison=poison)
    )
    triton_hooks.install(recorder, load.header["configuration"])
    if told is not None:
        recorder.watch_arguments(told.check_arguments)
    builds = None if gate is None else functools.partial(_build, channel, gate, source)
    extensions = Extensions(recorder, builds, source, watched)
    weights = memory.open(load.descriptors[0], load.header["arena_bytes"])
    values = unpack(load.header["arguments"], weights)
    state = {name: values.pop() for name in reversed(load.header["state"])}
    constants, varied = load.header["constants"], VariedConstants()
    stage = "import"
    try:
        with told or contextlib.nullcontext(), contextlib.nullcontext() if constants is None else varied:
            module = import_candidate(source, path)
            stage = "construct"
            if gate is not None:
                gate.pass_through()
            torch.manual_seed(CONSTRUCTION_SEED)
            with torch.device("cuda"):
                model = module.ModelNew(*values)
        if isinstance(model, torch.nn.Module):
            model = place(model, device, load.header["precision"])
            if told is not None:
                told.moved(model)
        unmatched = copy_state(model, state, constants or {}, varied)
    except BaseException as error:
        framing.send(channel, {"failed": stage, "features": cage["features"], **describe_error(error, path)})
        return
    if gate is not None:
        gate.close()
    framing.send(channel, {"loaded": True, "features": cage["features"], "unmatched": unmatched})
    del values, state
    arena: Any = None
    while True:
        request = framing.receive(channel, take_descriptors=True)
        launches.clear()
        if request.descriptors:
            recorder.begin([])
            if arena is not None and device == "cuda":
                # A GPU's memory is too scarce to stay mapped, and no address is used twice.
                arena.close(reuse_address=False)
            arena = memory.open(request.descriptors[0], request.header["arena_bytes"])
        if "bed" in request.header:
            if not request.descriptors:
                arena.move()
            gc.collect()  # now, because the judge times the calls
            framing.send(channel, {"mapped": True})
        elif "calls" in request.header:
            with recorder.paused(), extensions.unwatched():
                framing.send(channel, _time(model, request.header["calls"], arena, path))
        else:
            answer, blob, taken = _run_trial(
                model, request, recorder, launches, path, watched, arena, told or contextlib.nullcontext()
            )
            if gate is not None:
                gate.close()
            framing.send(channel, answer, blob, () if taken is None else (taken.descriptor,))
            if taken is not None:
                taken.close(reuse_address=False)  # the judge has it now


def run_on_one_processor(channel: socket.socket, cage: dict[str, Any]) -> None:
    """`run`, where a program for each multiprocessor is one."""
    run(channel, cage, num_processors=1)


def import_candidate(source: str, path: Path) -> Any:
    """The candidate's text, which lies at `path` too, as a module."""
    module = types.ModuleType("candidate")
    module.__file__ = str(path)
    sys.modules["candidate"] = module
    # Triton reads kernels from this file: the same text, whatever encoding it names.
    lines = io.StringIO(source, newline=None).readlines()
    linecache.cache[str(path)] = (len(source), None, lines, str(path))
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


def _build(channel: socket.socket, gate: _Gate, source: str, sources: dict[str, Any]) -> BuiltLibrary:
    """Ask for a build, while others use the device."""
    with gate.left_for_a_while():
        framing.send(channel, {"build": sources})
        answer = framing.receive(channel)
    told = answer.header
    if "failed" in told:
        texts = sources[told["part"]] if told["part"] else [""]
        raise NvccError(told["failed"], line_in(source, "\n".join(texts), told["line"]))
    return told["built"], bytes(answer.blob)


class _Gate:
    """Asks the judge before the first work of a pass on the device; compilation needs no leave."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._is_open = False

    def pass_through(self) -> None:
        """Wait until the device may be used."""
        if not self._is_open:
            framing.send(self._channel, {"ready": True})
            framing.receive(self._channel)
            self._is_open = True

    def step_aside(self) -> None:
        """Something is to be compiled in the middle of a pass: let others use the device meanwhile."""
        if self._is_open:
            self.close()
            framing.send(self._channel, {"aside": True})

    @contextlib.contextmanager
    def left_for_a_while(self) -> Iterator[None]:
        """Something else is waited for: let others use the device meanwhile."""
        was_open = self._is_open
        self.step_aside()
        yield
        if was_open:
            self.pass_through()

    def close(self) -> None:
        """The pass is over."""
        torch.cuda.synchronize()
        self._is_open = False


def _run_trial(
    model: Any,
    trial: framing.Message,
    recorder: trace_recorder.Recorder,
    launches: list[dict[str, Any]],
    path: Path,
    watched: list[str],
    arena: Any,
    told: contextlib.AbstractContextManager[Any],
) -> tuple[dict[str, Any], bytes, DeviceArena | None]:
    header = trial.header
    inputs = unpack(header["inputs"], arena)
    slots = [Slot.from_json(value) for value in header["outputs"]]
    recorder.begin(tensors_in(inputs))
    answer: dict[str, Any] = {"kernels": recorder.kernels.described, "launches": launches, "watched": watched}
    try:
        with torch.no_grad(), recorder, told:
            output = model(*inputs)
        nesting, leaves = flatten(output)
        _check_booleans(leaves)
        _write_outputs(leaves, slots, arena)
        given = {
            "nesting": nesting,
            "leaves": [describe_leaf(leaf) for leaf in leaves],
        }
        trace, blob, taken = _trace(recorder, leaves)
        return answer | given | {"trace": trace}, blob, taken
    except BaseException as error:
        return answer | {"failed": "forward", **describe_error(error, path)}, b"", None


def _time(model: Any, described: list[Any], arena: Any, path: Path) -> dict[str, Any]:
    """Call after call, each on contents of its own at addresses of its own; see `call_timer.py`."""
    calls = [
        (unpack(inputs, arena), [Slot.from_json(slot) for slot in outputs]) for inputs, outputs in described
    ]
    try:
        times = time_calls(model, calls, lambda leaves, slots: _write_outputs(leaves, slots, arena))
    except BaseException as error:
        return {"failed": "timing", **describe_error(error, path)}
    return {"times_ms": times}


def _check_booleans(leaves: list[Any]) -> None:
    """Fresh memory is poisoned with bytes that torch takes for true and copies as 1; no kernel stores
    them."""
    for leaf in leaves:
        is_boolean = isinstance(leaf, torch.Tensor) and leaf.dtype is torch.bool and leaf.numel()
        if is_boolean and int(leaf.detach().view(torch.uint8).max()) > 1:
            raise ValueError("an output of booleans holds bytes other than 0 and 1: not all of it is written")


def _write_outputs(leaves: list[Any], slots: list[Slot], arena: Any) -> None:
    for leaf, slot in zip(leaves, slots, strict=False):
        kind = describe_leaf(leaf)
        if kind == ["tensor", slot.dtype, list(slot.shape)]:
            arena.tensor(slot).copy_(leaf.detach())


def _trace(
    recorder: trace_recorder.Recorder, leaves: list[Any]
) -> tuple[dict[str, Any] | None, bytes, DeviceArena | None]:
    """The record of the pass, and what it takes from outside: host memory as bytes, a GPU's in an arena. None
    where the outputs are nothing that a record can hold: what is wrong with them is the judge's to say."""
    try:
        outputs = recorder.outputs(leaves)
    except Exception:
        return None, b"", None
    blob, constants, on_device = io.BytesIO(), [], []
    for number, raw in recorder.constants:
        constants.append([number, raw.numel(), raw.device.type])
        if raw.device.type == "cpu":
            blob.write(raw.numpy().tobytes())
        else:
            on_device.append(raw)
    taken: DeviceArena | None = None
    if on_device:
        slots, num_bytes = lay_out([((raw.numel(),), torch.uint8) for raw in on_device])
        taken = DeviceArena.create(num_bytes)
        for raw, slot in zip(on_device, slots, strict=True):
            taken.tensor(slot).copy_(raw)
        torch.cuda.synchronize()
    trace = {
        "inputs": recorder.inputs,
        "constants": constants,
        "operations": recorder.operations,
        "outputs": outputs,
        "reads_data": recorder.reads_data,
        "problem": recorder.problem,
    }
    return trace, blob.getvalue(), taken


def unpack(values: list[Any], arena: Any) -> list[Any]:
    """Arguments from a header: `{"slot": …}` lies in the arena, a list is a list, the rest is itself."""
    unpacked: list[Any] = []
    for value in values:
        if isinstance(value, dict) and "slot" in value:
            unpacked.append(arena.tensor(Slot.from_json(value["slot"])))
        elif isinstance(value, dict) and "float" in value:
            unpacked.append(float(value["float"]))
        elif isinstance(value, dict) and "tuple" in value:
            unpacked.append(tuple(unpack(value["tuple"], arena)))
        elif isinstance(value, dict) and "dtype" in value:
            unpacked.append(getattr(torch, value["dtype"]))
        elif isinstance(value, list):
            unpacked.append(unpack(value, arena))
        else:
            unpacked.append(value)
    return unpacked


def place(model: torch.nn.Module, device: str, precision: str) -> torch.nn.Module:
    """On the device and at the problem's precision, as KernelBench's evaluator does with both modules."""
    if device != "cpu":
        model = model.to(device)
    return model if precision == "own" else model.to(getattr(torch, precision))


_TELLING = {
    "gc.get_objects",
    "gc.get_referrers",
    "sys.settrace",
    "sys.setprofile",
    "ctypes.dlopen",
    "os.kill",
    "os.fork",
    "socket.connect",
}
_DENIED_TO_COMPILERS = ("os.system", "os.fork", "os.exec", "socket.connect", "pty.")
_DENIED = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pty.")


def _watch(may_compile: bool) -> list[str]:
    """Record notable audit events by name, and deny those that no kernel needs. Python code cannot remove the
    hook. On a GPU Triton itself starts an assembler and a C compiler here, so there only the sandbox limits
    programs."""
    seen: list[str] = []
    denied = _DENIED_TO_COMPILERS if may_compile else _DENIED

    def hook(event: str, _: Any) -> None:
        if event in _TELLING and event not in seen:
            seen.append(event)
        if event.startswith(denied):
            raise PermissionError(f"{event} is not allowed to a candidate")

    sys.addaudithook(hook)
    return seen
