"""The untrusted side: one process for one candidate.

It receives the candidate's text and the inputs, and writes outputs into memory that the judge owns. It holds
no reference, no seed, no expected value and no verdict. Every message it sends is a claim.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import random
import socket
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE
from kernel_core.gym.channel.constant_perturbation import VariedConstants, copy_state
from kernel_core.gym.channel.cuda_arena import DeviceArena
from kernel_core.gym.channel.failures import describe_error
from kernel_core.gym.channel.gradients import differentiate
from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.pytree import describe_leaf, flatten
from kernel_core.gym.channel.seeds import CONSTRUCTION_SEED
from kernel_core.gym.channel.shared_arena import Slot, arena_kind, lay_out
from kernel_core.gym.channel.target_gpu import answer_for
from kernel_core.gym.channel.torch_ops import tensors_in
from kernel_core.gym.untrusted.candidate import trace_recorder, triton_hooks
from kernel_core.gym.untrusted.candidate.audit_events import watch
from kernel_core.gym.untrusted.candidate.call_timer import time_calls
from kernel_core.gym.untrusted.candidate.candidate_module import import_candidate, place, unpack
from kernel_core.gym.untrusted.candidate.device_gate import DeviceGate
from kernel_core.gym.untrusted.candidate.fake_cuda_mode import StandIn
from kernel_core.gym.untrusted.candidate.inline_cuda import Extensions
from kernel_core.gym.untrusted.interpreter.loop_turns import TURNS


def run(channel: socket.socket, cage: dict[str, Any], *, num_processors: int | None = None) -> None:
    """Load the candidate, then run every trial that comes; each answer is one message. Where there is no GPU,
    it is told of one with so many multiprocessors, or with as many as it has."""
    load = framing.receive(channel, take_descriptors=True)
    candidate = _Candidate(channel, cage, load.header, num_processors)
    if candidate.load(load):
        candidate.serve()


class _Candidate:
    """One candidate in its process, and all that watches it."""

    def __init__(
        self, channel: socket.socket, cage: dict[str, Any], header: dict[str, Any], num_processors: int | None
    ) -> None:
        self._channel = channel
        self._features = cage["features"]
        self._device = device = cage["device"]
        self._memory = arena_kind(device)
        self._path = path = Path.cwd() / CANDIDATE_FILE
        self._source = source = header["source"]
        path.write_text(source, encoding="utf-8")
        stand_in: StandIn | None = None
        if device == "cpu":
            answer_for(cage["gpu"], num_processors)
            stand_in = StandIn(device, cage["gpu"], path, num_processors)
        self._stand_in = stand_in
        self._watched = watch(may_compile=device == "cuda")
        self._launches: list[dict[str, Any]] = []
        self._gate = gate = DeviceGate(channel) if device == "cuda" else None
        poison = Poison(random.Random(header["poison"]))
        self._recorder = (
            trace_recorder.Recorder(self._launches.append, gate.pass_through, gate.step_aside, poison)
            if gate is not None
            else trace_recorder.Recorder(self._launches.append, poison=poison)
        )
        triton_hooks.install(self._recorder, header["configuration"])
        if stand_in is not None:
            self._recorder.watch_arguments(stand_in.check_arguments)
        builds = None if gate is None else functools.partial(gate.build, source)
        self._extensions = Extensions(self._recorder, builds, source, self._watched)
        self._weights: Any = None
        """The memory of the constructor's arguments, which a model may keep."""
        self._model: Any = None

    @property
    def _as_told(self) -> contextlib.AbstractContextManager[Any]:
        return self._stand_in or contextlib.nullcontext()

    def load(self, message: framing.Message) -> bool:
        """Import and construct the candidate; whether that came to an end."""
        header = message.header
        self._weights = self._memory.open(message.descriptors[0], header["arena_bytes"])
        values = unpack(header["arguments"], header["tensors"], self._weights)
        state = {name: values.pop() for name in reversed(header["state"])}
        constants, varied = header["constants"], VariedConstants()
        stage = "import"
        try:
            with self._as_told, contextlib.nullcontext() if constants is None else varied:
                module = import_candidate(self._source, self._path)
                stage = "construct"
                if self._gate is not None:
                    self._gate.pass_through()
                torch.manual_seed(CONSTRUCTION_SEED)
                with torch.device("cuda"):
                    model = module.ModelNew(*values)
            if isinstance(model, torch.nn.Module):
                model = place(model, self._device, header["precision"])
                if self._stand_in is not None:
                    self._stand_in.moved(model)
            unmatched = copy_state(model, state, constants or {}, varied)
            model = differentiate(model, header["gradients"])
            if header["returns_nothing"]:
                model = functools.partial(_leave_inputs, model)
            self._close_gate()
        except BaseException as error:
            failure = {"failed": stage, "features": self._features, **describe_error(error, self._path)}
            framing.send(self._channel, failure)
            return False
        framing.send(self._channel, {"loaded": True, "features": self._features, "unmatched": unmatched})
        self._model = model
        return True

    def serve(self) -> None:
        """Run what comes: trials, and on a GPU timed calls."""
        arena: Any = None
        while True:
            request = framing.receive(self._channel, take_descriptors=True)
            self._launches.clear()
            if request.descriptors:
                self._recorder.begin([])
                if arena is not None and self._device == "cuda":
                    # A GPU's memory is too scarce to stay mapped, and no address is used twice.
                    arena.close(reuse_address=False)
                arena = self._memory.open(request.descriptors[0], request.header["arena_bytes"])
            if "bed" in request.header:
                if not request.descriptors:
                    arena.move()
                gc.collect()  # now, because the judge times the calls
                framing.send(self._channel, {"mapped": True})
            elif "calls" in request.header:
                with self._recorder.paused(), self._extensions.unwatched():
                    times = _time(self._model, request.header["calls"], arena, self._path)
                    framing.send(self._channel, times)
            else:
                self._answer(request, arena)

    def _answer(self, request: framing.Message, arena: Any) -> None:
        """One trial."""
        answer, blob, taken = _run_trial(
            self._model,
            request,
            self._recorder,
            self._launches,
            self._path,
            self._watched,
            arena,
            self._as_told,
        )
        try:
            self._close_gate()
        except Exception as error:  # a GPU tells of a bad address when the host waits for it
            known = {name: answer[name] for name in ("kernels", "launches", "watched", "turns")}
            late = known | {"failed": "forward", **describe_error(error, self._path)}
            answer, blob, taken = (answer if "failed" in answer else late), b"", None
        framing.send(self._channel, answer, blob, () if taken is None else (taken.descriptor,))
        if taken is not None:
            taken.close(reuse_address=False)  # the judge has it now

    def _close_gate(self) -> None:
        if self._gate is not None:
            self._gate.close()


def _leave_inputs(model: Any, *inputs: Any) -> list[torch.Tensor]:
    """Return the tensors among the inputs as a pass leaves them, where the reference returns nothing."""
    model(*inputs)
    return tensors_in(list(inputs))


def run_on_one_processor(channel: socket.socket, cage: dict[str, Any]) -> None:
    """`run`, where a program for each multiprocessor is one."""
    run(channel, cage, num_processors=1)


def _run_trial(
    model: Any,
    trial: framing.Message,
    recorder: trace_recorder.Recorder,
    launches: list[dict[str, Any]],
    path: Path,
    watched: list[str],
    arena: Any,
    stand_in: contextlib.AbstractContextManager[Any],
) -> tuple[dict[str, Any], bytes, DeviceArena | None]:
    header = trial.header
    inputs = unpack(header["inputs"], header["tensors"], arena)
    slots = [Slot.from_json(value) for value in header["outputs"]]
    recorder.begin(tensors_in(inputs))
    answer: dict[str, Any] = {"kernels": recorder.kernels.described, "launches": launches, "watched": watched}
    try:
        with torch.no_grad(), recorder, stand_in:
            output = model(*inputs)
        nesting, leaves = flatten(output)
        _check_booleans(leaves)
        write_outputs(leaves, slots, arena)
        given = {"nesting": nesting, "leaves": [describe_leaf(leaf) for leaf in leaves]}
        trace, blob, taken = _trace(recorder, leaves)
        return answer | given | {"trace": trace, "turns": TURNS.pairs()}, blob, taken
    except BaseException as error:
        failure = {"failed": "forward", "turns": TURNS.pairs(), **describe_error(error, path)}
        return answer | failure, b"", None


def _time(model: Any, described: list[Any], arena: Any, path: Path) -> dict[str, Any]:
    """Call after call, each on contents of its own at addresses of its own; see `call_timer.py`."""
    calls = [
        (unpack(inputs, tensors, arena), [Slot.from_json(slot) for slot in outputs])
        for inputs, tensors, outputs in described
    ]
    try:
        times = time_calls(model, calls, lambda leaves, slots: write_outputs(leaves, slots, arena))
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


def write_outputs(leaves: list[Any], slots: list[Slot], arena: Any) -> None:
    """Copy the outputs that have the form of their slots."""
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
    }
    return trace, blob.getvalue(), taken
