"""The untrusted side: one candidate, one life.

It is told the candidate's text and the inputs, and writes outputs into memory that the judge owns. It
holds no reference, no seed, no expected value and no verdict. Whatever it says is a claim.
"""

from __future__ import annotations

import io
import linecache
import socket
import sys
import traceback
import types
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym import capture, wire
from kernel_core.gym.arena import Arena, Slot
from kernel_core.gym.structure import describe_leaf, flatten

CANDIDATE_FILE = "candidate.py"
CONSTRUCTION_SEED = 42
"""Public, and KernelBench's: reference and candidate are constructed under it, so that weights agree by
construction too."""
_MAX_MESSAGE_CHARS = 2000


def run(channel: socket.socket, cage: dict[str, Any]) -> None:
    """Load the candidate, then run every trial that comes; each answer is one message."""
    load = wire.receive(channel, take_descriptors=True)
    path = Path.cwd() / CANDIDATE_FILE
    source = load.header["source"]
    path.write_text(source)
    watched = _watch()
    launches: list[dict[str, Any]] = []
    recorder = capture.Recorder(launches.append)
    capture.install(recorder)
    values = _unpack(load.header["arguments"], Arena(load.descriptors[0], load.header["arena_bytes"]))
    state = {name: values.pop() for name in reversed(load.header["state"])}
    stage = "import"
    try:
        module = types.ModuleType("candidate")
        module.__file__ = str(path)
        sys.modules["candidate"] = module
        linecache.lazycache(str(path), module.__dict__)
        exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        stage = "construct"
        torch.manual_seed(CONSTRUCTION_SEED)
        model = module.ModelNew(*values)
        unmatched = _copy_state(model, state)
    except BaseException as error:
        wire.send(channel, {"failed": stage, "features": cage["features"], **describe_error(error, path)})
        return
    wire.send(channel, {"loaded": True, "features": cage["features"], "unmatched": unmatched})
    while True:
        trial = wire.receive(channel, take_descriptors=True)
        launches.clear()
        wire.send(channel, *_run_trial(model, trial, recorder, launches, path, watched))


def _run_trial(
    model: Any,
    trial: wire.Message,
    recorder: capture.Recorder,
    launches: list[dict[str, Any]],
    path: Path,
    watched: list[str],
) -> tuple[dict[str, Any], bytes]:
    header = trial.header
    arena = Arena(trial.descriptors[0], header["arena_bytes"])
    inputs = _unpack(header["inputs"], arena)
    slots = [Slot.from_json(value) for value in header["outputs"]]
    recorder.begin([value for value in inputs if isinstance(value, torch.Tensor)])
    answer: dict[str, Any] = {"kernels": recorder.kernels, "launches": launches, "watched": watched}
    try:
        with torch.no_grad(), recorder:
            output = model(*inputs)
        nesting, leaves = flatten(output)
        _write_outputs(leaves, slots, arena)
        answer |= {"nesting": nesting, "leaves": [describe_leaf(leaf) for leaf in leaves]}
        if not header["trace"]:
            return answer, b""
        trace, blob = _trace(recorder, leaves)
        return answer | {"trace": trace}, blob
    except BaseException as error:
        return answer | {"failed": "forward", **describe_error(error, path)}, b""


def _write_outputs(leaves: list[Any], slots: list[Slot], arena: Arena) -> None:
    for leaf, slot in zip(leaves, slots, strict=False):
        kind = describe_leaf(leaf)
        if kind == ["tensor", slot.dtype, list(slot.shape)]:
            arena.tensor(slot).copy_(leaf.detach())


def _trace(recorder: capture.Recorder, leaves: list[Any]) -> tuple[dict[str, Any], bytes]:
    outputs = recorder.outputs(leaves)
    blob, constants = io.BytesIO(), []
    for number, raw in recorder.constants:
        data = raw.numpy().tobytes()
        constants.append([number, len(data)])
        blob.write(data)
    trace = {
        "inputs": recorder.inputs,
        "constants": constants,
        "operations": recorder.operations,
        "outputs": outputs,
        "reads_data": recorder.reads_data,
        "problem": recorder.problem,
    }
    return trace, blob.getvalue()


def _unpack(values: list[Any], arena: Arena) -> list[Any]:
    """Arguments from a header: `{"slot": …}` lies in the arena, a list is a list, the rest is itself."""
    unpacked: list[Any] = []
    for value in values:
        if isinstance(value, dict) and "slot" in value:
            unpacked.append(arena.tensor(Slot.from_json(value["slot"])))
        elif isinstance(value, dict) and "float" in value:
            unpacked.append(float(value["float"]))
        elif isinstance(value, dict) and "tuple" in value:
            unpacked.append(tuple(_unpack(value["tuple"], arena)))
        elif isinstance(value, dict) and "dtype" in value:
            unpacked.append(getattr(torch, value["dtype"]))
        elif isinstance(value, list):
            unpacked.append(_unpack(value, arena))
        else:
            unpacked.append(value)
    return unpacked


def _copy_state(model: Any, state: dict[str, torch.Tensor]) -> list[str]:
    """Give the candidate the reference's weights where name and shape match; name what did not."""
    if not isinstance(model, torch.nn.Module):
        return sorted(state)
    own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    unmatched = []
    with torch.no_grad():
        for name, value in state.items():
            if name in own and own[name].shape == value.shape:
                own[name].copy_(value)
            else:
                unmatched.append(name)
    return unmatched


def describe_error(error: BaseException, path: Path) -> dict[str, Any]:
    """The innermost cause: its type, its message, and the last line of the candidate that it passed."""
    line = 0
    cause: BaseException | None = error
    while cause is not None:
        for frame in traceback.extract_tb(cause.__traceback__):
            if frame.filename == str(path) and frame.lineno:
                line = frame.lineno
        if isinstance(cause, SyntaxError) and cause.filename == str(path):
            line = cause.lineno or line
        error, cause = cause, cause.__cause__
    try:
        message = str(error)
    except Exception:
        message = ""
    return {"error": type(error).__name__, "message": message[:_MAX_MESSAGE_CHARS], "line": line}


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
_DENIED = ("subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "pty.")


def _watch() -> list[str]:
    """Note telling events by name, and deny the ones no kernel needs. Removed by nothing in Python."""
    seen: list[str] = []

    def hook(event: str, _: Any) -> None:
        if event in _TELLING and event not in seen:
            seen.append(event)
        if event.startswith(_DENIED):
            raise PermissionError(f"{event} is not allowed to a candidate")

    sys.addaudithook(hook)
    return seen
