"""Run folders: what was asked, which process works on it, which stages are done and with what.

A run is `{root}/{name}/`. Beside the stages' own files it holds

    config.json         the command that made it: flow and parameters
    state.json          the owner: status, process and host
    stages/NAME.json    each stage's settings, inputs and code; see `stage_record`
    logs.log            what was logged (a local root only)

A process that died can never look alive: its identity is the boot, the process id and its start time.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from kernel_core.errors import (
    CallerError,
    ConfigError,
    Corrupt,
    NotFound,
    StoreFault,
    interrupts_stay_interrupts,
)
from kernel_core.records import Record
from kernel_core.store import Store

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
HEARTBEAT_S = 15.0
LOST_AFTER_S = 90.0

log = logging.getLogger(__name__)

Condition = Literal["running", "finished", "failed", "stopped", "dead"]


class RunState(Record):
    """State of a run, written by its owner."""

    run: str
    flow: str
    status: Literal["running", "finished", "failed", "stopped"]
    pid: int
    process: str
    """Boot, process id and start time: the same string only while that very process lives."""
    host: str
    started_at: str
    seen_at: str
    """Refreshed by the owner every few seconds: how other hosts tell that it lives."""
    message: str = ""
    flow_run: str | None = None
    """Id of the flow run, to mark it as crashed when its process is dead."""

    @property
    def condition(self) -> Condition:
        """Return the status, except that `running` without its process is `dead`."""
        if self.status != "running":
            return self.status
        if self.host == socket.gethostname():
            return "running" if process_identity(self.pid) == self.process else "dead"
        silent_s = _now().timestamp() - datetime.datetime.fromisoformat(self.seen_at).timestamp()
        return "running" if silent_s < LOST_AFTER_S else "dead"


class StageRecord(Record):
    """Inputs and status of a stage's output."""

    stage: str
    status: Literal["begun", "done"]
    config: dict[str, Any]
    inputs: dict[str, str]
    """Digest of each thing read: data files, snapshot, index, checkpoint."""
    code: str
    begun_at: str
    seconds: float | None = None
    output: str = ""
    """Digest of what it made, for the stages that read it."""


class Run:
    """One run's folder."""

    def __init__(self, root: str, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"run name {name!r}: letters, digits, `.`, `_` and `-`, not starting with a sign"
            )
        self.root = root.removeprefix("file://").rstrip("/")
        self.name = name
        self.store = Store(f"{self.root}/{name}")

    def state(self) -> RunState | None:
        """Return the state that its owner wrote last; None before the first.

        Raises `Corrupt` where that is not a state.
        """
        if not self.store.exists("state.json"):
            return None
        try:
            return RunState.model_validate(self.store.read_json("state.json"))
        except ValidationError as error:
            raise Corrupt(
                f"{self.store.path('state.json')} is not the state of a run; remove it and run again"
            ) from error

    def command(self) -> dict[str, Any]:
        """Return the flow and parameters that made it: `{"flow": …, "parameters": …}`."""
        if not self.store.exists("config.json"):
            raise NotFound(f"no run {self.name!r} under {self.root}; `dojo runs list` shows what is there")
        command: dict[str, Any] = self.store.read_json("config.json")
        return command

    def stages(self) -> list[StageRecord]:
        """Records of the stages begun so far, oldest first."""
        names = [name for name in self.store.names("stages") if name.endswith(".json")]
        records = (StageRecord.model_validate(self.store.read_json(f"stages/{name}")) for name in names)
        return sorted(records, key=lambda record: record.begun_at)

    def stage_at_work(self) -> str:
        """Name of the stage that was begun last and is not done; empty if there is none."""
        begun = [record.stage for record in self.stages() if record.status == "begun"]
        return begun[-1] if begun else ""

    def stage(self, name: str) -> StageRecord | None:
        """Return the record of one stage; None if it was never begun."""
        if not self.store.exists(f"stages/{name}.json"):
            return None
        return StageRecord.model_validate(self.store.read_json(f"stages/{name}.json"))

    def record(self, record: StageRecord) -> None:
        """Write a stage's record."""
        self.store.write_json(f"stages/{record.stage}.json", record.model_dump())

    @contextlib.contextmanager
    def owned(
        self, flow: str, parameters: Mapping[str, Any], flow_run: str | None = None, *, adds: bool = False
    ) -> Iterator[None]:
        """Work on this run as its only owner; the state file says so from beginning to end.

        A flow that only `adds` to a run of another flow leaves that one the run's command. A command that is
        refused as the caller's mistake leaves the run as it was before. Raises
        `ConfigError` while another live process owns it.
        """
        before = self.state()
        if before is not None and before.condition == "running" and before.pid != os.getpid():
            raise ConfigError(
                f"run {self.name!r} is being worked on by process {before.pid} on {before.host}; "
                f"wait, stop it with `dojo runs stop {self.name}`, or choose another name with run=NAME"
            )
        command_before = self.command() if before is not None else None
        if not (adds and command_before is not None and command_before["flow"] != flow):
            self.store.write_json("config.json", {"flow": flow, "parameters": dict(parameters)})
        owner = Owner(self, flow, flow_run)
        try:
            with owner.beating():
                yield
        except CallerError:
            if before is not None:
                self.store.write_json("config.json", command_before)
                self.store.write_json("state.json", before.model_dump())
            raise


class Owner:
    """Keeps `state.json` true while a run is worked on."""

    def __init__(self, run: Run, flow: str, flow_run: str | None = None) -> None:
        self._run = run
        self._lock = threading.Lock()
        pid = os.getpid()
        self._state = RunState(
            run=run.name,
            flow=flow,
            status="running",
            pid=pid,
            process=process_identity(pid) or "",
            host=socket.gethostname(),
            started_at=stamp(),
            seen_at=stamp(),
            flow_run=flow_run,
        )

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Write `running` now and every few seconds, and how it ended at the end."""
        self._write()
        finished = threading.Event()

        def beat() -> None:
            while not finished.wait(HEARTBEAT_S):
                try:
                    self._write()
                except StoreFault as fault:  # the work itself will meet it, if it lasts
                    log.warning("heartbeat missed: %s", fault)

        thread = threading.Thread(target=beat, daemon=True, name="run heartbeat")
        thread.start()
        try:
            with interrupts_stay_interrupts():
                yield
        except Exception as error:
            ending = {"status": "failed", "message": (str(error) or repr(error)).splitlines()[0]}
            raise
        except BaseException:
            ending = {"status": "stopped", "message": "stopped; the same command goes on"}
            raise
        else:
            ending = {"status": "finished"}
        finally:
            finished.set()
            thread.join()
            self._write(**ending)

    def _write(self, **changes: str) -> None:
        with self._lock:
            self._state = self._state.model_copy(update={**changes, "seen_at": stamp()})
            self._run.store.write_json("state.json", self._state.model_dump())


def list_runs(root: str) -> list[Run]:
    """List every run under a root, the most recently active first, and those of unreadable state last."""
    store = Store(root)
    names = filter(NAME.fullmatch, store.names())
    runs = [Run(root, name) for name in names if store.exists(f"{name}/state.json")]

    def last_seen(run: Run) -> str:
        try:
            state = run.state()
        except Corrupt:
            return ""
        return state.seen_at if state is not None else ""

    return sorted(runs, key=last_seen, reverse=True)


def find_run(root: str, name: str) -> Run:
    """Return the run of that name; raise `NotFound` naming the nearest one."""
    run = Run(root, name)
    if run.store.exists("config.json"):
        return run
    names = [known.name for known in list_runs(root)]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "`dojo runs list` shows what is there"
    raise NotFound(f"no run {name!r} under {root}; {hint}")


def state_of(run: Run) -> RunState:
    """Return the last state that a run's owner wrote. Raises `NotFound` before any did."""
    state = run.state()
    if state is None:
        raise NotFound(f"run {run.name!r} has no state.json; its command never began")
    return state


def process_identity(pid: int) -> str | None:
    """Boot, process id and start time of a live process; None if there is none (or only a zombie)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    status, start_ticks = fields[0], fields[19]
    return None if status in "ZX" else f"{boot}:{pid}:{start_ticks}"


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def stamp() -> str:
    """Return the time now in the form of records: ISO 8601, UTC, milliseconds."""
    return _now().isoformat(timespec="milliseconds")
