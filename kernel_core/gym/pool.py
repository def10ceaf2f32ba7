"""N judges behind one call: requests spread over them, each distinct one judged once, results in order."""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kernel_core import errors
from kernel_core.config import GymConfig
from kernel_core.errors import DojoError, GymUnavailable
from kernel_core.gym import wire
from kernel_core.gym.cache import Cache, request_key
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.version import GYM_VERSION
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation
from kernel_core.store import Store

_ATTEMPTS = 3
_START_TIMEOUT_S = 180.0
_PATIENCE_S = 300.0
"""Beyond a candidate's own deadlines, how long a judge may take before it counts as hung."""


def open_gym(config: GymConfig, cache: Store | None = None) -> PooledGym:
    """Start the judges. With a `cache`, evaluations are kept under `evaluations/` and found again.

    Raises `GymUnavailable` when they cannot be started.
    """
    if config.device == "cuda":
        _find_gpus(config.workers)
    return PooledGym(config, Cache(cache))


def _find_gpus(wanted: int) -> None:
    """Refuse early, without bringing CUDA up in this process."""
    import torch

    visible = torch.cuda.device_count()
    if visible < wanted:
        raise GymUnavailable(
            f"gym.device=cuda with gym.workers={wanted}, but {visible} GPUs are visible; set gym.workers to "
            "the number of GPUs, or gym.device=cpu"
        )


class PooledGym:
    """A `Gym` of judge processes on this machine."""

    def __init__(self, config: GymConfig, cache: Cache) -> None:
        self._config = config
        self._cache = cache
        self._base = tempfile.mkdtemp(prefix="dojo-gym-")
        Path(self._base).chmod(0o711)
        self._nursery: _Nursery | None = None
        self._idle: queue.SimpleQueue[_Seat] = queue.SimpleQueue()
        by_gpu = config.in_flight if config.device == "cuda" else 1
        self._seats = [_Seat(self, gpu) for _ in range(by_gpu) for gpu in range(config.workers)]
        for seat in self._seats:
            self._idle.put(seat)
        self._lock = threading.Lock()
        self._closed = False
        try:
            self.nursery()
        except GymUnavailable:
            self.close()
            raise

    @property
    def version(self) -> str:
        """`GYM_VERSION` of the judges."""
        return GYM_VERSION

    @property
    def config(self) -> GymConfig:
        """What the judges were told."""
        return self._config

    def hello(self) -> dict[str, Any]:
        """What each new judge is told first."""
        return {
            "config": self._config.model_dump(mode="json"),
            "base": self._base,
            "store": self._cache.root,
        }

    @property
    def base(self) -> str:
        """The folder under which judges keep their temporary files."""
        return self._base

    def __enter__(self) -> PooledGym:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def judge(self, requests: Sequence[JudgeRequest], progress: Progress = silent) -> list[Evaluation]:
        """One evaluation a request, in order; see `protocol.Gym`."""
        if self._closed:
            raise GymUnavailable("this gym was closed; open another")
        keys = [request_key(request, self._config) for request in requests]
        distinct = dict(zip(keys, requests, strict=True))
        known: dict[str, Evaluation] = {}
        for key, request in distinct.items():
            found = None if request.rejudge else self._cache.get(key)
            if found is not None:
                known[key] = found
        todo = [(key, request) for key, request in distinct.items() if key not in known]
        counts = {key: keys.count(key) for key in distinct} if len(distinct) < len(keys) else {}
        done = sum(counts.get(key, 1) for key in known)
        progress("judge", done, len(requests))
        for key, evaluation in self._judge_distinct(todo):
            known[key] = evaluation
            done += counts.get(key, 1)
            progress("judge", done, len(requests))
        return [
            known[key].model_copy(update={"problem_id": request.problem.id})
            for key, request in zip(keys, requests, strict=True)
        ]

    def close(self) -> None:
        """End every process and remove every temporary file."""
        self._closed = True
        for seat in self._seats:
            seat.leave()
        if self._nursery is not None:
            self._nursery.close()
        shutil.rmtree(self._base, ignore_errors=True)

    def nursery(self) -> _Nursery:
        """The live nursery; a dead one is replaced."""
        if self._nursery is None or not self._nursery.alive:
            self._nursery = _Nursery(self._base, self._config.device)
        return self._nursery

    def new_judge(self, gpu: int) -> socket.socket:
        """A socket to a fresh judge, or to a GPU's one judge. Raises `GymUnavailable`."""
        with self._lock:
            if self._closed:
                raise GymUnavailable("this gym was closed; open another")
            return self.nursery().new_judge(gpu)

    def _judge_distinct(self, todo: list[tuple[str, JudgeRequest]]) -> Any:
        """Evaluations as they come, from as many threads as there are judges."""
        waiting: queue.SimpleQueue[tuple[str, JudgeRequest]] = queue.SimpleQueue()
        results: queue.SimpleQueue[tuple[str, Evaluation | BaseException]] = queue.SimpleQueue()
        for item in todo:
            waiting.put(item)
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._work, args=(waiting, results, stop), daemon=True)
            for _ in range(min(len(todo), len(self._seats)))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in todo:
                key, outcome = results.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                self._cache.put(key, outcome)
                yield key, outcome
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    def _work(self, waiting: Any, results: Any, stop: threading.Event) -> None:
        seat = self._idle.get()
        try:
            while not stop.is_set():
                try:
                    key, request = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    results.put((key, seat.judge(request)))
                except BaseException as error:
                    results.put((key, error))
                    return
        finally:
            self._idle.put(seat)


class _Seat:
    """A place for one judge at a time; whoever holds it may ask."""

    def __init__(self, gym: PooledGym, gpu: int) -> None:
        self._gym = gym
        self._gpu = gpu
        self._channel: socket.socket | None = None

    def judge(self, request: JudgeRequest) -> Evaluation:
        """Ask the judge; a judge that dies is replaced and asked again."""
        seed = request.seed if request.seed is not None else secrets.randbits(62)
        header = {"request": request.model_dump(mode="json"), "seed": seed}
        reason = ""
        for _ in range(_ATTEMPTS):
            try:
                if self._channel is None:
                    self._channel = self._gym.new_judge(self._gpu)
                    wire.send(self._channel, self._gym.hello())
                wire.send(self._channel, header)
                patience = time.monotonic() + _PATIENCE_S + 4 * self._gym.config.deadline_s
                return _read_answer(wire.receive(self._channel, deadline=patience).header)
            except (wire.ChannelClosed, wire.ChannelTimeout, wire.ChannelGarbage) as error:
                reason = str(error)
                self.leave()
        raise GymUnavailable(
            f"{_ATTEMPTS} judges in a row died on {request.problem.id} ({reason}); "
            "look for memory pressure, then run the same command again"
        )

    def leave(self) -> None:
        """Let the judge go; it ends when its channel closes."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _read_answer(header: dict[str, Any]) -> Evaluation:
    if "error" in header:
        kind = getattr(errors, str(header["error"]), GymUnavailable)
        raise (kind if issubclass(kind, DojoError) else GymUnavailable)(header["message"])
    return Evaluation.model_validate(header["evaluation"])


class _Nursery:
    """The process that forks judges, as its master sees it."""

    def __init__(self, base: str, device: str) -> None:
        self._channel, theirs = socket.socketpair()
        self._log = Path(base) / "nursery.log"
        root = str(Path(__file__).parents[2])
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if device == "cpu":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        command = [sys.executable, "-m", "kernel_core.gym.nursery", str(theirs.fileno()), base, device]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        theirs.close()
        try:
            wire.receive(self._channel, deadline=time.monotonic() + _START_TIMEOUT_S)
        except (wire.ChannelClosed, wire.ChannelTimeout) as error:
            reason = self._last_words() or error
            self.close()
            raise GymUnavailable(f"the judges did not start: {reason}") from error

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def new_judge(self, gpu: int) -> socket.socket:
        """Have a judge take a seat; gives the socket to it."""
        ours, theirs = socket.socketpair()
        try:
            wire.send(self._channel, {"do": "judge", "gpu": gpu}, descriptors=(theirs.fileno(),))
            wire.receive(self._channel, deadline=time.monotonic() + _START_TIMEOUT_S)
        except (wire.ChannelClosed, wire.ChannelTimeout) as error:
            ours.close()
            raise GymUnavailable(f"no judge could be started: {self._last_words() or error}") from error
        finally:
            theirs.close()
        return ours

    def close(self) -> None:
        """Close its channel, upon which it ends all it started, and wait until it has."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=30)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")
