"""Sandboxed children from their judge's side: requests under a deadline, checked answers."""

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
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.messages import BuildRequest, Claim, Failure, Rested, Sources
from kernel_core.gym.sandbox.fork_server import Caged, Ended, ForkServer
from kernel_core.gym.sandbox.limits import FILE_BYTES, MOST_FORGIVEN, Cage

if TYPE_CHECKING:
    from kernel_core.gym.workers.payload import TrialPayload

NO_ANSWER = "its process gave no answer that can be understood"
"""The reason for the death of a child that sends an unrequested message."""
_log = logging.getLogger(__name__)
_MAX_ANSWER_BYTES = 16 << 20
_READING_S = 5.0
"""An answer that comes in time may take so long to read, however late its judge is."""
_FIRST_USER_ID = 1_900_000_000
_USER_IDS = 50_000_000


AnswerBuild = Callable[[Sources], tuple[dict[str, Any], bytes]]
"""The answer to a child's build request, and the library."""


@dataclass(frozen=True, slots=True)
class Died:
    """The process gave no answer: it is a failure of the candidate's, of this kind."""

    timed_out: bool
    reason: str


@contextlib.contextmanager
def cage_folder(base: str) -> Iterator[tuple[str, int]]:
    """A folder for one sandboxed process, owned by a user that exists for it alone; removed after."""
    # A cleaner of temporary files may have removed the parent.
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
class Answer:
    """A claim, its bytes, and its descriptors, which the caller closes."""

    claim: Claim
    blob: bytearray
    descriptors: tuple[int, ...] = ()


def describe(outcome: Answer | Died | Failure | str) -> str:
    """The failure, in a few words."""
    match outcome:
        case Died():
            return outcome.reason
        case Answer(claim=Failure() as failure) | (Failure() as failure):
            return f"{failure.error}: {failure.message}"
        case Answer():
            return "it asked for nothing"
    return outcome


class ChildSession:
    """A sandboxed child that answers requests under one deadline for its whole life.

    Its time runs from each request to the answer. Waits for the judge or for other candidates do not count.
    Time without a processor does not count, as far as the kernel measures it, nor does time in which it steps
    aside to compile: both together up to `MOST_FORGIVEN` times the deadline.
    """

    def __init__(self, caged: Caged, deadline_s: float, *, is_fresh: bool = True) -> None:
        self._caged = caged
        self._deadline_s = deadline_s
        self._since = time.monotonic()
        """When its time stopped running."""
        self._deadline = self._since + deadline_s
        self._waited_before_s = caged.waited_s()
        self._aside_s = 0.0
        """The time that it was aside, to compile."""
        self._aside_since: float | None = None
        self._forgiven_s = 0.0
        self._ended: Ended | None = None
        self._builder: AnswerBuild | None = None
        self.is_fresh = is_fresh
        """The child has done no job before."""
        self.is_as_new = False
        """The child did its job and forgot it: another candidate may use it."""

    def build_with(self, builder: AnswerBuild) -> None:
        """Allow the child to request builds, which take none of its time."""
        self._builder = builder

    def ask(
        self,
        header: dict[str, Any],
        claims: Sequence[type[Claim]],
        *,
        blob: bytes = b"",
        descriptors: tuple[int, ...] = (),
        turn: Callable[[], contextlib.AbstractContextManager[TrialPayload | None]] | None = None,
        take_descriptors: bool = False,
    ) -> Answer | Died:
        """Send a request and wait for an answer that is one of `claims`.

        With a `turn`, the child may say that it is ready to use the device: a turn is then entered, and left
        with the answer, or when the child says that it steps aside for a while, to compile; its time does not
        run while it waits for its turn. A turn may bring what the child is to work on.
        """
        with contextlib.ExitStack() as stack, self._its_time():
            try:
                self._send(header, blob, descriptors)
                has_turn = False
                while True:
                    answer = self._receive(take_descriptors)
                    wants_build = self._builder is not None and "build" in answer.header
                    wanted = {"aside": True} if has_turn else {"ready": True}
                    if not wants_build and (turn is None or answer.header != wanted):
                        return _read_answer(answer, claims)
                    framing.close_all(answer.descriptors)  # only a claim may have descriptors
                    if wants_build:
                        self._answer_build(answer.header)
                    elif has_turn:
                        stack.close()
                        has_turn = False
                        self._aside_since = time.monotonic()
                    elif turn is not None:
                        self._come_back()
                        with self._excused():
                            brought = stack.enter_context(turn())
                        go = {"go": True} | (brought.header if brought else {})
                        self._send(go, descriptors=(brought.arena.descriptor,) if brought else ())
                        has_turn = True
            except framing.ChannelTimeout:
                return Died(timed_out=True, reason=f"no result within {self._deadline_s:g} s")
            except framing.ChannelGarbage:
                return Died(timed_out=False, reason=NO_ANSWER)
            except framing.ChannelClosed:
                return self._post_mortem()
            finally:
                self._come_back()

    def tell(self, header: dict[str, Any]) -> None:
        """Send what needs no answer; a dead child is found out at the next question."""
        with contextlib.suppress(framing.ChannelClosed), self._its_time():
            self._send(header)

    def rest(self, turn: Callable[[], contextlib.AbstractContextManager[None]]) -> None:
        """Have a child that is done forget what it did, so that it can be used again."""
        answer = self.ask({"rest": True}, (Rested,), turn=turn)
        self.is_as_new = isinstance(answer, Answer)

    def allow(self, seconds: float) -> None:
        """More time than the deadline, or less."""
        self._deadline += seconds

    def end(self) -> Ended:
        """Kill the child if it still lives."""
        if self._ended is None:
            self._ended = self._caged.end()
        return self._ended

    @contextlib.contextmanager
    def _its_time(self) -> Iterator[None]:
        """Here its time runs."""
        self._deadline += time.monotonic() - self._since
        try:
            yield
        finally:
            self._since = time.monotonic()

    @contextlib.contextmanager
    def _excused(self) -> Iterator[None]:
        """The deadline stands still in this context."""
        started = time.monotonic()
        try:
            yield
        finally:
            self._deadline += time.monotonic() - started

    def _answer_build(self, header: dict[str, Any]) -> None:
        claim = _read_claim(header, (BuildRequest,))
        assert isinstance(claim, BuildRequest) and self._builder is not None
        with self._excused():
            reply, library = self._builder(claim.build)
        self._send(reply, library)

    def _send(self, header: dict[str, Any], blob: bytes = b"", descriptors: tuple[int, ...] = ()) -> None:
        channel = self._caged.channel
        channel.settimeout(max(0.0, self._deadline - time.monotonic()) or 0.001)
        framing.send(channel, header, blob, descriptors)

    def _receive(self, take_descriptors: bool) -> framing.Message:
        while not framing.comes(self._caged.channel, self._deadline):
            if not self._forgive():
                raise framing.ChannelTimeout("no answer before the deadline")
        return framing.receive(
            self._caged.channel,
            deadline=max(self._deadline, time.monotonic() + _READING_S),
            max_header=_MAX_ANSWER_BYTES,
            take_descriptors=take_descriptors,
        )

    def _come_back(self) -> None:
        """It is no longer aside."""
        if self._aside_since is not None:
            self._aside_s += time.monotonic() - self._aside_since
            self._aside_since = None

    def _forgive(self) -> bool:
        """Move the deadline by the time that it waited for a processor or was aside since the last move;
        whether that helps."""
        waited_s = self._caged.waited_s() - self._waited_before_s + self._aside_s
        if self._aside_since is not None:
            waited_s += time.monotonic() - self._aside_since
        more_s = min(waited_s, MOST_FORGIVEN * self._deadline_s) - self._forgiven_s
        self._forgiven_s += more_s
        self._deadline += more_s
        return self._deadline > time.monotonic()

    def _post_mortem(self) -> Died:
        if time.monotonic() >= self._deadline:
            return Died(timed_out=True, reason=f"no result within {self._deadline_s:g} s")
        ended = self.end()
        if ended.signal_number is not None:
            return Died(timed_out=False, reason=f"the process was ended by signal {ended.signal_number}")
        return Died(timed_out=False, reason=f"the process left with exit code {ended.exit_code}")


@contextlib.contextmanager
def open_caged_child(
    fork_server: ForkServer,
    job: str,
    base: str,
    deadline_s: float,
    *,
    memory_bytes: int,
    cpu_seconds: int,
    max_processes: int,
    file_bytes: int = FILE_BYTES,
    gpu: str = "",
) -> Iterator[ChildSession]:
    """Fork a sandboxed child with a folder of its own; kill it on exit. Each request has `deadline_s`."""
    with cage_folder(base) as (folder, user_id):
        cage = Cage(folder, user_id, memory_bytes, cpu_seconds, max_processes, file_bytes, gpu=gpu)
        talk = ChildSession(fork_server.spawn(job, cage), deadline_s)
        try:
            yield talk
        finally:
            talk.end()


def _read_answer(message: framing.Message, claims: Sequence[type[Claim]]) -> Answer:
    try:
        return Answer(_read_claim(message.header, claims), message.blob, message.descriptors)
    except framing.ChannelGarbage:
        framing.close_all(message.descriptors)
        raise


def _read_claim(header: dict[str, Any], claims: Sequence[type[Claim]]) -> Claim:
    for kind in claims:
        with contextlib.suppress(ValidationError):
            return kind.model_validate(header)
    _log.warning("an answer of no known form: %s", str(header)[:500])
    raise framing.ChannelGarbage("an answer of no known form")
