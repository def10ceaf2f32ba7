"""A process that runs a problem's own reference, eager or compiled, to be timed as a candidate is.

No candidate's text comes here. Launches are not recorded, so a compiler finds torch as it is.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.candidate_file import CANDIDATE_FILE
from kernel_core.gym.channel.constant_perturbation import VariedConstants, copy_state
from kernel_core.gym.channel.failures import describe_error
from kernel_core.gym.channel.gradients import differentiate
from kernel_core.gym.channel.seeds import CONSTRUCTION_SEED
from kernel_core.gym.channel.shared_arena import Slot, arena_kind
from kernel_core.gym.channel.tf32_flags import set_tf32
from kernel_core.gym.untrusted.candidate.call_timer import time_calls
from kernel_core.gym.untrusted.candidate.candidate_module import import_candidate, place, unpack
from kernel_core.gym.untrusted.candidate.device_gate import DeviceGate
from kernel_core.gym.untrusted.candidate.runner import write_outputs


def run(channel: socket.socket, cage: dict[str, Any]) -> None:
    """Load the reference, then prepare it in the ways that come and time its calls."""
    # A pool of compilers would outlive a turn, and this process may not talk to one.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    load = framing.receive(channel, take_descriptors=True)
    reference = _Reference(channel, cage, load.header)
    if reference.load(load):
        reference.serve()


class _Reference:
    """A reference in its process."""

    def __init__(self, channel: socket.socket, cage: dict[str, Any], header: dict[str, Any]) -> None:
        self._channel = channel
        self._features = cage["features"]
        self._device = cage["device"]
        self._memory = arena_kind(self._device)
        self._gate = DeviceGate(channel)
        self._path = Path.cwd() / CANDIDATE_FILE
        self._source = header["source"]
        self._path.write_text(self._source, encoding="utf-8")
        self._gradients = header["gradients"]
        self._weights: Any = None
        """The memory of the constructor's arguments, which a model may keep."""
        self._base: Any = None
        self._model: Any = None
        self._is_preparing = False

    def load(self, message: framing.Message) -> bool:
        """Import and construct the reference; return whether that came to an end."""
        header = message.header
        self._weights = self._memory.open(message.descriptors[0], header["arena_bytes"])
        values = unpack(header["arguments"], header["tensors"], self._weights)
        state = {name: values.pop() for name in reversed(header["state"])}
        constants, varied = header["constants"], VariedConstants()
        stage = "import"
        try:
            with contextlib.nullcontext() if constants is None else varied:
                module = import_candidate(self._source, self._path)
                stage = "construct"
                self._gate.pass_through()
                torch.manual_seed(CONSTRUCTION_SEED)
                with torch.device(self._device):
                    model = module.ModelNew(*values)
            self._base = place(model, self._device, header["precision"])
            unmatched = copy_state(self._base, state, constants or {}, varied)
            self._gate.close()
        except BaseException as error:
            failure = {"failed": stage, "features": self._features, **describe_error(error, self._path)}
            framing.send(self._channel, failure)
            return False
        framing.send(self._channel, {"loaded": True, "features": self._features, "unmatched": unmatched})
        return True

    def serve(self) -> None:
        """Do what comes: prepare a way to run the reference, map memory, time calls."""
        arena: Any = None
        while True:
            request = framing.receive(self._channel, take_descriptors=True)
            if request.descriptors:
                if arena is not None and self._device == "cuda":
                    arena.close(reuse_address=False)
                arena = self._memory.open(request.descriptors[0], request.header["arena_bytes"])
            if "baseline" in request.header:
                framing.send(self._channel, self._prepare(request.header, arena))
            elif "bed" in request.header:
                if not request.descriptors:
                    arena.move()
                gc.collect()
                framing.send(self._channel, {"mapped": True})
            else:
                framing.send(self._channel, self._time(request.header["calls"], arena))

    def _prepare(self, header: dict[str, Any], arena: Any) -> dict[str, Any]:
        """Make the way to run it and call it once, so that everything is compiled. A compiler needs no turn
        on the device; one that tries kernels there (`max-autotune`) has it all the time."""
        how, allowed = header["baseline"], header["baseline"].endswith("_tf32")
        set_tf32(allowed, allowed)
        self._is_preparing = True
        try:
            inputs = unpack(header["inputs"], header["tensors"], arena)
            is_compiled = how.startswith("compile")
            if not is_compiled or header["mode"] != "default":
                self._gate.pass_through()
            model = self._compiled(header["mode"]) if is_compiled else self._base
            self._model = differentiate(model, self._gradients)
            with torch.no_grad():
                self._model(*inputs)
            self._gate.close()
        except BaseException as error:
            return {"failed": "baseline", **describe_error(error, self._path)}
        finally:
            self._is_preparing = False
        return {"prepared": True}

    def _compiled(self, mode: str) -> Any:
        import torch._dynamo

        torch._dynamo.reset()
        if mode != "default":
            return torch.compile(self._base, mode=mode)
        return torch.compile(self._base, backend=self._compile_aside)

    def _compile_aside(self, graph: Any, examples: Any) -> Callable[..., Any]:
        """Torch's default compiler for one graph. Others may use the device until the graph is called."""
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx

        config.compile_threads = 1
        if self._is_preparing:
            self._gate.step_aside()
        compiled: Any = compile_fx(graph, examples)

        def call(*arguments: Any) -> Any:
            if self._is_preparing:
                self._gate.pass_through()
            return compiled(*arguments)

        return call

    def _time(self, described: list[Any], arena: Any) -> dict[str, Any]:
        """Time each call, on contents of its own at addresses of its own."""
        calls = [
            (unpack(inputs, tensors, arena), [Slot.from_json(slot) for slot in outputs])
            for inputs, tensors, outputs in described
        ]
        try:
            times = time_calls(self._model, calls, lambda leaves, slots: write_outputs(leaves, slots, arena))
        except BaseException as error:
            return {"failed": "timing", **describe_error(error, self._path)}
        return {"times_ms": times}
