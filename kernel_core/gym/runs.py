"""One candidate's run as the judge sees it: a caged runner, asked trial by trial, answers checked."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from kernel_core.errors import NotAProblem
from kernel_core.gym import wire
from kernel_core.gym.arena import DTYPES, Arena, Slot, dtype_name, lay_out
from kernel_core.gym.claims import Claim
from kernel_core.gym.limits import Cage
from kernel_core.gym.reference import Reference, Trial
from kernel_core.gym.zygote import Caged, Ended

_MAX_ANSWER_BYTES = 16 << 20
_FIRST_USER_ID = 1_900_000_000
_USER_IDS = 50_000_000


@dataclass(frozen=True, slots=True)
class Died:
    """The process gave no answer: it is a failure of the candidate's, of this kind."""

    timed_out: bool
    reason: str


@contextlib.contextmanager
def cage_folder(base: str) -> Iterator[tuple[str, int]]:
    """A folder for one caged process, owned by a user that exists for it alone; removed after."""
    # A cleaner of temporary files may have taken the parent away.
    Path(base).mkdir(mode=0o711, parents=True, exist_ok=True)
    folder = tempfile.mkdtemp(dir=base)
    user_id = _FIRST_USER_ID + (os.getpid() * 97 + int(time.monotonic_ns())) % _USER_IDS
    if os.geteuid() == 0:
        os.chown(folder, user_id, user_id)
    try:
        yield folder, user_id
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Conversation:
    """A caged child that is asked and answers, under one deadline for its whole life."""

    def __init__(self, control: socket.socket, job: str, cage: Cage, deadline_s: float) -> None:
        self._caged = Caged(control, job, cage)
        self._deadline = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._ended: Ended | None = None

    def ask(
        self,
        header: dict[str, Any],
        claims: Sequence[type[Claim]],
        *,
        blob: bytes = b"",
        arena: Arena | None = None,
    ) -> tuple[Claim, bytearray] | Died:
        """Send a request (an arena's descriptor with it) and wait for an answer that is one of `claims`."""
        descriptors = (arena.descriptor,) if arena is not None else ()
        channel = self._caged.channel
        try:
            channel.settimeout(max(0.0, self._deadline - time.monotonic()) or 0.001)
            wire.send(channel, header, blob, descriptors)
            answer = wire.receive(channel, deadline=self._deadline, max_header=_MAX_ANSWER_BYTES)
            return _read_claim(answer.header, claims), answer.blob
        except wire.ChannelTimeout:
            return Died(timed_out=True, reason=f"no result within {self._deadline_s:g} s")
        except wire.ChannelGarbage:
            return Died(timed_out=False, reason="it wrote to a channel that is not its own")
        except wire.ChannelClosed:
            return self._post_mortem()

    def end(self) -> Ended:
        """Kill what still lives."""
        if self._ended is None:
            self._ended = self._caged.end()
        return self._ended

    def _post_mortem(self) -> Died:
        if time.monotonic() >= self._deadline:
            return Died(timed_out=True, reason=f"no result within {self._deadline_s:g} s")
        ended = self.end()
        if ended.signal_number is not None:
            return Died(timed_out=False, reason=f"the process was ended by signal {ended.signal_number}")
        return Died(timed_out=False, reason=f"the process left with exit code {ended.exit_code}")


def _read_claim(header: dict[str, Any], claims: Sequence[type[Claim]]) -> Claim:
    for kind in claims:
        with contextlib.suppress(ValidationError):
            return kind.model_validate(header)
    raise wire.ChannelGarbage("an answer of no known form")


@dataclass(frozen=True, slots=True)
class Delivery:
    """One trial as it is handed over: an arena with inputs and poisoned output slots."""

    arena: Arena
    header: dict[str, Any]
    input_slots: list[Slot]
    output_slots: list[Slot]
    mute_slots: list[Slot]


def deliver(trial: Trial, mute: bool = False) -> Delivery:
    """Lay a trial's inputs and poisoned outputs out in fresh shared memory."""
    tensors: list[torch.Tensor] = []
    described = pack(trial.inputs, tensors)
    outputs = [(one.shape, DTYPES[one.dtype]) for one in trial.expected]
    forms = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
    slots, num_bytes = lay_out([*forms, *outputs, *(outputs if mute else [])])
    arena = Arena.create(num_bytes)
    inputs, rest = slots[: len(forms)], slots[len(forms) :]
    for tensor, slot in zip(tensors, inputs, strict=True):
        arena.tensor(slot).copy_(tensor)
    arena.poison(rest)
    outs, mutes = rest[: len(outputs)], rest[len(outputs) :]
    header = {
        "arena_bytes": num_bytes,
        "inputs": fill(described, inputs),
        "outputs": [slot.to_json() for slot in outs],
    }
    return Delivery(arena, header, inputs, outs, mutes)


def input_was_changed(delivery: Delivery, trial: Trial) -> int | None:
    """The position among the tensors of the first input whose bytes are not what was delivered."""
    tensors: list[torch.Tensor] = []
    pack(trial.inputs, tensors)
    for index, (tensor, slot) in enumerate(zip(tensors, delivery.input_slots, strict=True)):
        if not torch.equal(_bits(delivery.arena.tensor(slot)), _bits(tensor)):
            return index
    return None


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def load_header(reference: Reference, source: str, copy_state: bool = True) -> tuple[dict[str, Any], Arena]:
    """What a runner is first told: the candidate's text, constructor arguments and weights."""
    tensors: list[torch.Tensor] = []
    names = sorted(reference.state) if copy_state else []
    described = pack([*reference.arguments, *(reference.state[name] for name in names)], tensors)
    slots, num_bytes = lay_out([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
    arena = Arena.create(num_bytes)
    for tensor, slot in zip(tensors, slots, strict=True):
        arena.tensor(slot).copy_(tensor)
    header = {"source": source, "arguments": fill(described, slots), "state": names, "arena_bytes": num_bytes}
    return header, arena


def pack(values: Sequence[Any], tensors: list[torch.Tensor]) -> list[Any]:
    """Arguments as JSON; tensors are moved to a list and stand as `{"tensor": position}`."""
    packed: list[Any] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            packed.append({"tensor": len(tensors)})
            tensors.append(value.detach())
        elif isinstance(value, tuple):
            packed.append({"tuple": pack(value, tensors)})
        elif isinstance(value, list):
            packed.append(pack(value, tensors))
        elif isinstance(value, torch.dtype):
            packed.append({"dtype": dtype_name(value)})
        elif isinstance(value, float):
            packed.append({"float": repr(value)})
        elif value is None or isinstance(value, bool | int | str):
            packed.append(value)
        else:
            raise NotAProblem(
                f"an argument of type {type(value).__name__} cannot be handed to a candidate; "
                "problems may use tensors, numbers, strings, dtypes, lists and tuples"
            )
    return packed


def fill(described: list[Any], slots: Sequence[Slot]) -> list[Any]:
    """`pack`'s JSON with each tensor's slot in its place."""
    filled: list[Any] = []
    for value in described:
        match value:
            case {"tensor": position}:
                filled.append({"slot": slots[position].to_json()})
            case {"tuple": inner}:
                filled.append({"tuple": fill(inner, slots)})
            case list():
                filled.append(fill(value, slots))
            case _:
                filled.append(value)
    return filled
