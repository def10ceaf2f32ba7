"""Processes of training at places: asked over TCP by the process that started them, and replaced when lost.

All of them are asked the same, in the same order. When one is lost, all are ended and start again: those that
form a group cannot go on without it. A new start is brought to where the old one was, and asked once more.

    trainer ──command──▶ worker 0 … worker n−1 ──an answer each──▶ trainer
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Client, Connection, wait
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from kernel_core.errors import WorkersLost
from kernel_core.places.place import Places
from kernel_core.python_module import module_command

log = logging.getLogger(__name__)

TRIES = 3
"""Times that one command is given to new workers before the step is given up."""
START_S = 600.0
"""Longest wait for workers that start: they read the policy first."""
_LOOK_EVERY_S = 1.0
_HELLO_S = 10.0
_HELLO_BYTES = 256
_TRAINER, _KEY = "DOJO_TRAINER", "DOJO_TRAINER_KEY"
RANK, WORLD_SIZE, START = "RANK", "WORLD_SIZE", "DOJO_START"
"""Environment variables of a worker: its number, the number of workers, and the count of their starts."""


class WorkerGroup:
    """One process of `python -m MODULE ARGUMENTS` at each place."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        places: Places,
        log_file: Path | None,
        begin: Callable[[], None],
    ) -> None:
        """`begin` is called whenever new workers are there, and brings them to where the old ones were."""
        self._command = module_command(module, *arguments)
        self._places, self._log, self._begin = places, log_file, begin
        self._listening = socket.create_server((places.host, 0))
        self._listening.settimeout(_LOOK_EVERY_S)
        self._key, self._start, self._is_started = secrets.token_hex(16), 0, False
        self._turn = threading.RLock()
        self.connections: list[Connection] = []
        """By rank; empty while there are no workers."""
        self._started()

    def ask(self, *command: Any, then: Callable[[Any], None] | None = None, tries: int = TRIES) -> Any:
        """Return the first worker's answer to a command: a method's name and its arguments.

        `then` receives what follows the answer. Raises `WorkersLost`.
        """
        with self._turn:
            for _ in range(tries):
                try:
                    if not self.connections:
                        self._connect()
                        self._begin()
                    answer = self.ask_once(*command)
                    if then is not None:
                        then(answer)
                except (EOFError, OSError) as error:
                    log.warning("%s: lost during %s (%s); it is started again", self, command[0], error)
                    self.drop()
                else:
                    return answer
        raise WorkersLost(f"{self} was lost {tries} times during {command[0]}; {self._where_errors_are()}")

    def ask_once(self, name: str, *arguments: Any) -> Any:
        """`ask` of workers that are there, once. Raises `EOFError` or `OSError` as soon as one is lost."""
        message = ForkingPickler.dumps((name, arguments))
        for connection in self.connections:
            connection.send_bytes(message)
        waiting, answers = list(self.connections), {}
        while waiting:
            for ready in wait(waiting):
                assert isinstance(ready, Connection)
                answers[ready] = ready.recv()
                waiting.remove(ready)
        return answers[self.connections[0]]

    def drop(self) -> None:
        """Stop all workers; the next command starts others."""
        for connection in self.connections:
            connection.close()
        self.connections, self._is_started = [], False
        threads = [threading.Thread(target=place.end) for place in self._places.each]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Stop the workers, and release their places."""
        self.drop()
        self._listening.close()
        self._places.close()

    def __str__(self) -> str:
        return f"{self._command[2].rpartition('.')[2]} on {len(self._places.each)} places"

    def _started(self) -> None:
        """Start a process at each place, without waiting for them."""
        self._start += 1
        host, port = self._listening.getsockname()[:2]
        shared = {_TRAINER: f"{host}:{port}", _KEY: self._key, START: str(self._start)}
        shared[WORLD_SIZE] = str(len(self._places.each))
        for rank, place in enumerate(self._places.each):
            place.start(self._command, shared | {RANK: str(rank)}, self._log)
        self._is_started = True

    def _connect(self) -> None:
        """Wait until the workers of this start are there."""
        if not self._is_started:
            self._started()
        connections = dict[int, Connection]()
        for _ in range(int(START_S / _LOOK_EVERY_S)):
            try:
                connections |= self._accepted()
            except TimeoutError:
                if any(place.has_ended() for place in self._places.each):
                    raise EOFError(f"a process ended at its start: {self._where_errors_are()}") from None
            if len(connections) == len(self._places.each):
                self.connections = [connections[rank] for rank in range(len(connections))]
                return
        raise EOFError(f"not there after {START_S:.0f} s")

    def _accepted(self) -> dict[int, Connection]:
        """Accept the next worker that connects, by its rank; nothing where it is none of this start."""
        channel, _ = self._listening.accept()
        _notice_lost_hosts(channel)
        connection = Connection(channel.detach())
        try:
            hello = connection.recv_bytes(_HELLO_BYTES) if connection.poll(_HELLO_S) else b""
        except (EOFError, OSError):
            return {}
        secret, _, rank = hello.rpartition(b":")
        is_ours = hmac.compare_digest(secret, f"{self._key}:{self._start}".encode())
        return {int(rank): connection} if is_ours else {}

    def _where_errors_are(self) -> str:
        return f"errors are in {self._log}" if self._log is not None else "errors are above"


def follow(make: Callable[[Connection], Any]) -> None:
    """Run the trainer's commands in a worker until the trainer is gone.

    `make` returns the object with the methods. `make` gives the object with the methods.

    Each method sends its own answer. An error ends the process, and the trainer then starts all again.
    """
    host, _, port = os.environ[_TRAINER].rpartition(":")
    try:
        trainer = Client((host, int(port)))
        trainer.send_bytes(f"{os.environ[_KEY]}:{os.environ[START]}:{os.environ[RANK]}".encode())
    except OSError:
        return
    worker = make(trainer)
    while True:
        try:
            name, arguments = trainer.recv()
        except (EOFError, ConnectionError):
            return
        getattr(worker, name)(*arguments)


def _notice_lost_hosts(channel: socket.socket) -> None:
    """Enable TCP keep-alive: a host that loses its power sends nothing, so the kernel must probe and
    close."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, 30),
        (socket.TCP_KEEPINTVL, 10),
        (socket.TCP_KEEPCNT, 3),
        (socket.TCP_USER_TIMEOUT, 60_000),  # milliseconds, where something was sent and not yet acknowledged
    ):
        channel.setsockopt(socket.IPPROTO_TCP, option, value)
