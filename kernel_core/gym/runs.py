"""One candidate's run as the judge sees it: a caged runner, asked trial by trial, answers checked."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from kernel_core.errors import NotAProblem
from kernel_core.gym import wire
from kernel_core.gym.arena import DTYPES, Slot, arena_kind, dtype_name, lay_out
from kernel_core.gym.claims import BuildRequest, Claim, Failure, Rested, Sources
from kernel_core.gym.limits import FILE_BYTES, Cage
from kernel_core.gym.problem_module import own_seeds
from kernel_core.gym.reference import Reference, Trial
from kernel_core.gym.structure import fingerprint
from kernel_core.gym.zygote import Caged, Ended, Zygote

_log = logging.getLogger(__name__)
_MAX_ANSWER_BYTES = 16 << 20
_FIRST_USER_ID = 1_900_000_000
_USER_IDS = 50_000_000


Builder = Callable[[Sources], tuple[dict[str, Any], bytes]]
"""What a child that asked for a build is told, and the library."""


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


@dataclass(frozen=True, slots=True)
class Delivery:
    """One trial as it is handed over: an arena with inputs and poisoned output slots."""

    arena: Any
    header: dict[str, Any]
    input_slots: list[Slot]
    output_slots: list[Slot]
    fingerprints: list[tuple[torch.Tensor, ...]]
    """Of the inputs, as they were laid out."""
    is_lent: bool
    """The arena is somebody else's, who will use it again."""

    def close(self) -> None:
        """Give the arena back."""
        if not self.is_lent:
            self.arena.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """A claim, the bytes that came with it, and descriptors, which whoever takes them closes."""

    claim: Claim
    blob: bytearray
    descriptors: tuple[int, ...] = ()


def describe(outcome: Answer | Died | Failure | str) -> str:
    """What went wrong, in a few words."""
    match outcome:
        case Died():
            return outcome.reason
        case Answer(claim=Failure() as failure) | (Failure() as failure):
            return f"{failure.error}: {failure.message}"
        case Answer():
            return "it asked for nothing"
    return outcome


class Conversation:
    """A caged child that is asked and answers, under one deadline for its whole life."""

    def __init__(self, caged: Caged, deadline_s: float, *, is_fresh: bool = True) -> None:
        self._caged = caged
        self._deadline = time.monotonic() + deadline_s
        self._deadline_s = deadline_s
        self._ended: Ended | None = None
        self._builder: Builder | None = None
        self.is_fresh = is_fresh
        """Nobody had this child before."""
        self.is_as_new = False
        """It did what it was asked, and forgot it: somebody else may have it."""

    def build_with(self, builder: Builder) -> None:
        """From now on the child may ask for builds, at whose time its deadline does not run."""
        self._builder = builder

    def ask(
        self,
        header: dict[str, Any],
        claims: Sequence[type[Claim]],
        *,
        blob: bytes = b"",
        descriptors: tuple[int, ...] = (),
        turn: Callable[[], contextlib.AbstractContextManager[Delivery | None]] | None = None,
        take_descriptors: bool = False,
    ) -> Answer | Died:
        """Send a request and wait for an answer that is one of `claims`.

        With a `turn`, the child may say that it is ready to use the device: a turn is then entered, and left
        with the answer, or when the child says that it steps aside for a while, to compile; its deadline does
        not run while it waits for its turn. A turn may bring what the child is to work on.
        """
        with contextlib.ExitStack() as stack:
            try:
                self._send(header, blob, descriptors)
                answer, has_turn = self._receive(take_descriptors), False
                while True:
                    if self._builder is not None and "build" in answer.header:
                        self._answer_build(self._builder, answer.header)
                    elif turn is None or answer.header != ({"aside": True} if has_turn else {"ready": True}):
                        break
                    elif has_turn:
                        stack.close()
                        has_turn = False
                    else:
                        with self.excused():
                            brought = stack.enter_context(turn())
                        go = {"go": True} | (brought.header if brought else {})
                        self._send(go, descriptors=(brought.arena.descriptor,) if brought else ())
                        has_turn = True
                    answer = self._receive(take_descriptors)
                claim = _read_claim(answer.header, claims)
                return Answer(claim, answer.blob, answer.descriptors)
            except wire.ChannelTimeout:
                return Died(timed_out=True, reason=f"no result within {self._deadline_s:g} s")
            except wire.ChannelGarbage:
                return Died(timed_out=False, reason="it wrote to a channel that is not its own")
            except wire.ChannelClosed:
                return self._post_mortem()

    def tell(self, header: dict[str, Any]) -> None:
        """Send what needs no answer; a dead child is found out at the next question."""
        with contextlib.suppress(wire.ChannelClosed):
            self._send(header)

    def rest(self, turn: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """Have a child that is done forget what it did, so that it can be used again."""
        answer = self.ask({"rest": True}, (Rested,), turn=turn)
        self.is_as_new = isinstance(answer, Answer)

    def pause(self, seconds: float) -> None:
        """Time that the child is not to be blamed for."""
        self._deadline += seconds

    @contextlib.contextmanager
    def excused(self) -> Iterator[None]:
        """What happens here takes none of the child's time."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.pause(time.monotonic() - started)

    def end(self) -> Ended:
        """Kill what still lives."""
        if self._ended is None:
            self._ended = self._caged.end()
        return self._ended

    def _answer_build(self, builder: Builder, header: dict[str, Any]) -> None:
        claim = _read_claim(header, (BuildRequest,))
        assert isinstance(claim, BuildRequest)
        with self.excused():
            reply, library = builder(claim.build)
        self._send(reply, library)

    def _send(self, header: dict[str, Any], blob: bytes = b"", descriptors: tuple[int, ...] = ()) -> None:
        channel = self._caged.channel
        channel.settimeout(max(0.0, self._deadline - time.monotonic()) or 0.001)
        wire.send(channel, header, blob, descriptors)

    def _receive(self, take_descriptors: bool) -> wire.Message:
        return wire.receive(
            self._caged.channel,
            deadline=self._deadline,
            max_header=_MAX_ANSWER_BYTES,
            take_descriptors=take_descriptors,
        )

    def _post_mortem(self) -> Died:
        if time.monotonic() >= self._deadline:
            return Died(timed_out=True, reason=f"no result within {self._deadline_s:g} s")
        ended = self.end()
        if ended.signal_number is not None:
            return Died(timed_out=False, reason=f"the process was ended by signal {ended.signal_number}")
        return Died(timed_out=False, reason=f"the process left with exit code {ended.exit_code}")


@contextlib.contextmanager
def converse_caged(
    zygote: Zygote,
    job: str,
    base: str,
    deadline_s: float,
    *,
    memory_bytes: int,
    cpu_seconds: int,
    max_processes: int,
    file_bytes: int = FILE_BYTES,
) -> Iterator[Conversation]:
    """A fresh child in a cage and a folder of its own; it has ended when the context has."""
    with cage_folder(base) as (folder, user_id):
        cage = Cage(folder, user_id, memory_bytes, cpu_seconds, max_processes, file_bytes)
        talk = Conversation(zygote.spawn(job, cage), deadline_s)
        try:
            yield talk
        finally:
            talk.end()


def _read_claim(header: dict[str, Any], claims: Sequence[type[Claim]]) -> Claim:
    for kind in claims:
        with contextlib.suppress(ValidationError):
            return kind.model_validate(header)
    _log.warning("an answer of no known form: %s", str(header)[:500])
    raise wire.ChannelGarbage("an answer of no known form")


def deliver(reference: Reference, trial: Trial, arena: Any = None) -> Delivery:
    """Lay a trial's inputs and poisoned outputs out in memory that will be shared: an arena that is large
    enough, or else a new one."""
    is_lent = arena is not None
    tensors: list[torch.Tensor] = []
    with own_seeds(reference.device):  # for the copy too, so that no two large draws are there at once
        described = pack(reference.inputs_of(trial), tensors)
        outputs = [(one.shape, DTYPES[one.dtype]) for one in trial.expected]
        forms = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        slots, num_bytes = lay_out([*forms, *outputs])
        if arena is None:
            arena = arena_kind(reference.device).create(num_bytes)
        inputs, outs = slots[: len(forms)], slots[len(forms) :]
        for tensor, slot in zip(tensors, inputs, strict=True):
            arena.tensor(slot).copy_(tensor)
        tensors.clear()
        arena.poison(outs)
        fingerprints = [fingerprint(arena.tensor(slot)) for slot in inputs]
        settle_device(reference.device)
    header: dict[str, Any] = {
        "arena_bytes": arena.num_bytes,
        "inputs": fill(described, inputs),
        "tensors": [slot.to_json() for slot in inputs],
        "outputs": [slot.to_json() for slot in outs],
    }
    return Delivery(arena, header, inputs, outs, fingerprints, is_lent)


def refill(delivery: Delivery, draw: Callable[[], Sequence[Any]], device: str) -> None:
    """Lay other inputs of the same forms over those that were delivered."""
    tensors: list[torch.Tensor] = []
    with own_seeds(device):
        pack(draw(), tensors)
        for tensor, slot in zip(tensors, delivery.input_slots, strict=True):
            delivery.arena.tensor(slot).copy_(tensor)
        settle_device(device)


def input_was_changed(delivery: Delivery) -> int | None:
    """The position among the tensors of the first input whose bytes are not what was delivered."""
    for index, (before, slot) in enumerate(zip(delivery.fingerprints, delivery.input_slots, strict=True)):
        now = fingerprint(delivery.arena.tensor(slot))
        if not all(torch.equal(one, other) for one, other in zip(before, now, strict=True)):
            return index
    return None


def settle_device(device: str) -> None:
    """Wait until what was queued for a GPU is done, before another process looks at its memory."""
    if device == "cuda":
        torch.cuda.synchronize()


def load_header(reference: Reference, source: str, copy_state: bool = True) -> tuple[dict[str, Any], Any]:
    """What a runner is first told: the candidate's text, constructor arguments and weights."""
    tensors: list[torch.Tensor] = []
    names = sorted(reference.state) if copy_state else []
    described = pack([*reference.arguments, *(reference.state[name] for name in names)], tensors)
    slots, num_bytes = lay_out([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
    arena = arena_kind(reference.device).create(num_bytes)
    for tensor, slot in zip(tensors, slots, strict=True):
        arena.tensor(slot).copy_(tensor)
    settle_device(reference.device)
    header = {
        "source": source,
        "arguments": fill(described, slots),
        "state": names,
        "arena_bytes": num_bytes,
        "precision": reference.problem.precision,
    }
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
