"""Claim: whatever dies, nothing is lost, a person is told, and the work goes on, or does when started again.

Each fault hits a run that a parent flow on one worker and its child on another are at: `nightly`, deployed,
of one watched run. Afterwards its scorecard is compared with that of an undisturbed night.

    python benchmarks/faults.py --database sqlite --write
    python benchmarks/faults.py --database postgres --only server,postgres

The disk is one of its own, which only root can mount; the clock is `shifted_clock.c`, for which there must be
a C compiler.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from machine import describe_machine

from tests.fixtures.stack import FINAL, REPOSITORY, Stack, descendants, free_port, stack
from tests.fixtures.watched_run import run_with_index

RESULTS = REPOSITORY / "docs" / "results"
SETTINGS = {
    "problems": {"split": "held_out", "limit": 12, "seed": 1000},
    "samples_per_problem": 2,
    "rollout": {"turns": 1},
    "gym": {"workers": 1, "compile_gate": False, "trials": 1},
}
PATIENCE_S = 600.0
CLOCKS = ("seconds",)
DISK_BYTES = 1 << 29


class Outcome(NamedTuple):
    """Result of one injected fault."""

    fault: str
    seen: str
    """State shown to the user in the UI."""
    went_on_s: float
    """From the fault until the work went on (or had ended, where that was asked for)."""
    how: str
    children: int
    lost: str


class Trial:
    """One night that a fault is to hit: its parent has started and its child is at work."""

    settings: ClassVar[dict[str, Any]] = SETTINGS

    def __init__(self, here: Stack, root: Path, night: str):
        self.here, self.root, self.night = here, root, night
        self.parameters = {
            "config": self.settings, "watch": ["watched"], "run": f"night-{night[8:10]}", "root": str(root),
            "night": night, "mode": "deployed",
        }  # fmt: skip
        self.folder = root / f"night-{night[8:10]}"
        self.parent = self.start()

    def start(self) -> str:
        """Start the parent, again or for the first time."""
        return self.here.start("nightly/every-night", self.parameters)

    def children(self) -> list[dict[str, Any]]:
        """Every child that any parent of this night has started."""
        runs = self.here.ask("POST", "/flow_runs/filter", flows={"name": {"any_": ["evaluate"]}}, limit=200)
        mine = [run for run in runs if run["parameters"].get("run") == self.parameters["run"]]
        return sorted(mine, key=lambda run: run["created"])

    def until_child_works(self) -> dict[str, Any]:
        """Wait until the newest child has judged something; gives it."""
        return self.until(self._at_work, "a child at work")

    def until(self, look: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
        """Poll `look` until it returns a true value, and return that value."""
        deadline = time.monotonic() + patience_s
        while not (result := look()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"waited in vain for {what}: {self.here.flow_run(self.parent)['state']}")
            time.sleep(0.25)
        return result

    def _at_work(self) -> dict[str, Any] | None:
        children = self.children()
        if not children or children[-1]["state_type"] != "RUNNING" or not self.judges():
            return None
        return children[-1]

    def judges(self) -> list[int]:
        """Processes of judges and runners below the newest child."""
        children = self.children()
        pid = self.here.process_of(children[-1]["id"]) if children else None
        if pid is None:
            return []
        return [p for p in descendants(pid) if "kernel_core.gym" in _command(p)]

    def result(self) -> str:
        """The scorecard, without clocks."""
        (folder,) = self.folder.glob("watched--*")
        return json.dumps(without_clocks(json.loads((folder / "scorecard.json").read_text())), sort_keys=True)


def without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_clocks(v) for key, v in value.items() if key not in CLOCKS}
    return [without_clocks(v) for v in value] if isinstance(value, list) else value


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def state_of(run: dict[str, Any]) -> str:
    """State and message of a flow run, as the UI shows them."""
    message = re.sub(r"/\S*/runs/", "runs/", (run["state"] or {}).get("message") or "")
    first = re.split("[.;]", message.removeprefix("Flow run encountered an exception: "))[0]
    return f"{run['state_name']}" + (f": {first[:50]}" if first else "")


# Faults. Each hits the trial and gives what was seen, when the work went on, and how.

Fault = Callable[[Trial], tuple[str, float, str]]


def child_process(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the child's flow process (on the cuda pool: the GPU child)"""
    child = trial.until_child_works()
    at = time.monotonic()
    os.kill(trial.here.process_of(child["id"]), signal.SIGKILL)
    trial.until(lambda: len(trial.children()) > 1 and trial._at_work(), "another attempt")
    went_on = time.monotonic() - at
    return f"child {state_of(trial.here.flow_run(child['id']))}", went_on, "by itself: another attempt"


def parent_restarted(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the parent's flow process, started again at once"""
    trial.until_child_works()
    at, first = time.monotonic(), trial.parent
    os.kill(trial.here.process_of(first), signal.SIGKILL)
    trial.until(lambda: trial.here.flow_run(first)["state_type"] in FINAL, "the parent's end")
    seen = f"parent {state_of(trial.here.flow_run(first))}"
    trial.parent = trial.start()
    trial.until(lambda: trial.here.flow_run(trial.parent)["state_type"] == "RUNNING", "the parent")
    return seen, time.monotonic() - at, "started again: adopted the running child"


def parent_left(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the parent's flow process, not started again: until the child gives the GPU back"""
    child = trial.until_child_works()
    slow = trial.here.process_of(child["id"])
    for pid in (slow, *descendants(slow)):
        _keep_slow(pid)
    at = time.monotonic()
    os.kill(trial.here.process_of(trial.parent), signal.SIGKILL)
    trial.until(lambda: trial.here.process_of(child["id"]) is None, "the child's end")
    freed = time.monotonic() - at
    time.sleep(2)
    run = trial.here.flow_run(child["id"])
    was_done = run["state_type"] == "COMPLETED"
    trial.parent = trial.start()
    how = "child was done within its lease; then started again: took what it left"
    if not was_done:
        how = "child ended by its lease; then started again: another attempt"
    return f"child {state_of(run)}", freed, how


def _keep_slow(pid: int) -> None:
    """Lowest priority, so that the child is still at work when its lease ends."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, 19)


def worker(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the worker"""
    trial.until_child_works()
    at = time.monotonic()
    (pid,) = trial.here.processes("worker start", "--pool cpu")
    os.kill(pid, signal.SIGKILL)
    trial.until(
        lambda: [p for p in trial.here.processes("worker start", "--pool cpu") if p != pid], "a worker"
    )
    return "nothing: both flow runs went on", time.monotonic() - at, "its supervisor started it again"


def worker_and_child(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the worker and of the child's flow process together"""
    child = trial.until_child_works()
    at = time.monotonic()
    (pid,) = trial.here.processes("worker start", "--pool cpu")
    for victim in (pid, trial.here.process_of(child["id"])):
        os.kill(victim, signal.SIGKILL)
    trial.until(lambda: len(trial.children()) > 1 and trial._at_work(), "another attempt", 900)
    seen = f"child {state_of(trial.here.flow_run(child['id']))}"
    return seen, time.monotonic() - at, "automation `dojo-lost-runs`, then another attempt"


def judge(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of every judge and runner of the child"""
    child = trial.until_child_works()
    at, victims = time.monotonic(), trial.judges()
    for pid in victims:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    trial.until(lambda: set(trial.judges()) - set(victims), "another judge")
    return f"child {state_of(trial.here.flow_run(child['id']))}", time.monotonic() - at, "by itself"


def server(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the Prefect server"""
    trial.until_child_works()
    at = time.monotonic()
    (pid,) = trial.here.processes("prefect server start")
    os.kill(pid, signal.SIGKILL)
    time.sleep(2)
    trial.here.flow_run(trial.parent)
    return "UI away; stages went on", time.monotonic() - at, "its supervisor started it again"


def api_cut(trial: Trial) -> tuple[str, float, str]:
    """API silent for 60 s (SIGSTOP of the server: connections open, no answer)"""
    trial.until_child_works()
    at = time.monotonic()
    (pid,) = trial.here.processes("prefect server start")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(60)
    os.kill(pid, signal.SIGCONT)
    trial.here.flow_run(trial.parent)
    return "UI away; stages went on", time.monotonic() - at, "by itself"


def two_parents(trial: Trial) -> tuple[str, float, str]:
    """two parents with the same digest"""
    trial.until_child_works()
    at = time.monotonic()
    second = trial.start()
    run = trial.here.wait(second, PATIENCE_S)
    return f"second parent {state_of(run)}", time.monotonic() - at, "the first went on; one child for both"


def cancelled(trial: Trial) -> tuple[str, float, str]:
    """cancel of the parent, until no process of it is left; then started again"""
    return _cancel(trial, trial.until_child_works())


def worker_then_cancelled(trial: Trial) -> tuple[str, float, str]:
    """kill -9 of the worker, then cancel of the parent, until no process of it is left; then started again"""
    child = trial.until_child_works()
    pids = [trial.here.process_of(run) for run in (trial.parent, child["id"])]
    for pid in trial.here.processes("worker start", "--pool cpu"):
        os.kill(pid, signal.SIGKILL)
    return _cancel(trial, child, pids)


def _cancel(trial: Trial, child: dict[str, Any], pids: Sequence[int | None] = ()) -> tuple[str, float, str]:
    """Cancel the parent; `pids` are the processes of both runs where they are no longer below a worker."""
    pids = list(pids) or [trial.here.process_of(run) for run in (trial.parent, child["id"])]
    pids += [below for pid in pids for below in descendants(pid)]
    at, first = time.monotonic(), trial.parent
    trial.here.cancel(first)
    trial.until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of all processes")
    gone = time.monotonic() - at
    trial.until(lambda: trial.here.flow_run(child["id"])["state_type"] in FINAL, "the child's end")
    seen = _parent_and_child(trial, first, child)
    trial.parent = trial.start()
    return seen, gone, "all its processes gone; then started again: another attempt"


def _parent_and_child(trial: Trial, parent: str, child: dict[str, Any]) -> str:
    states = (state_of(trial.here.flow_run(run)) for run in (parent, child["id"]))
    return "parent {}; child {}".format(*states)


def full_disk(trial: Trial) -> tuple[str, float, str]:
    """the disk of the run store is full; then freed, and started again"""
    child = trial.until_child_works()
    at, first, ballast = time.monotonic(), trial.parent, trial.root / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(DISK_BYTES >> 16):
            file.write(bytes(1 << 16))
    if shutil.disk_usage(trial.root).free > 1 << 16:
        raise RuntimeError("the run store has no disk of its own (only root can mount one)")
    trial.until(lambda: trial.here.flow_run(first)["state_type"] in FINAL, "the parent's end")
    seen = _parent_and_child(trial, first, child)
    ballast.unlink()
    trial.parent = trial.start()
    trial.until(lambda: trial.here.flow_run(trial.parent)["state_type"] == "RUNNING", "the parent")
    return seen, time.monotonic() - at, "started again: another attempt"


FAULTS: dict[str, Fault] = {
    "child": child_process,
    "parent": parent_restarted,
    "orphan": parent_left,
    "worker": worker,
    "judge": judge,
    "server": server,
    "api": api_cut,
    "two": two_parents,
    "cancel": cancelled,
    "worker cancel": worker_then_cancelled,
    "disk": full_disk,
    "both": worker_and_child,
}


def main() -> int:
    """Every fault, and a table; the exit code says whether anything was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="", help="faults, with commas; all without")
    parser.add_argument("--keep", type=Path, default=None, help="keep everything in this folder")
    parser.add_argument(
        "--write", action="store_true", help="write the table (or these rows of it) to docs/results"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as held:
        folder = arguments.keep or Path(scratch)
        faults = dict(FAULTS)
        settings: dict[str, str] = {}
        if arguments.database == "postgres":
            database = held.enter_context(postgres(Path(tempfile.mkdtemp(prefix="dojo-pg-"))))
            settings["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = database.url
            faults["postgres"] = database.killed
        clock = Clock(folder / "clock")
        of_clocks = {"clock": clock.ahead, "clock back": clock.back}
        chosen = arguments.only.split(",") if arguments.only else [*faults, *of_clocks]
        hits = [faults[name] for name in chosen if name in faults]
        jumps = [of_clocks[name] for name in chosen if name in of_clocks]
        stacks = [("one", settings, hits), ("two", settings | clock.environment, jumps)]
        page = RESULTS / f"faults_{arguments.database}.md"
        rows = _rows_of(page.read_text()) if arguments.only and page.exists() else {}
        lost_something = False
        for name, environment, those in stacks:
            for outcome in endure(folder / name, environment, those) if those else ():
                print(_row(outcome), flush=True)
                lost_something |= outcome.lost != "nothing"
                rows[outcome.fault] = _row(outcome)
                if arguments.write:
                    page.write_text(_report(rows, arguments.database))
    return int(lost_something)


def endure(folder: Path, settings: dict[str, str], faults: list[Fault]) -> Iterator[Outcome]:
    """Inject the faults one after another into a fresh stack, and yield each outcome."""
    root = folder / "runs"
    with disk(root), stack(folder, **settings) as here:
        watched_run(root)
        here.ask("POST", f"/deployments/{here.deployment('nightly/every-night')['id']}/resume_deployment")
        schedule = here.deployment("nightly/every-night")
        for entry in schedule["schedules"]:
            here.ask("PATCH", f"/deployments/{schedule['id']}/schedules/{entry['id']}", active=False)
        here.ask("PATCH", f"/deployments/{schedule['id']}", concurrency_limit=None)
        calm = Trial(here, root, night(1))
        assert here.wait(calm.parent, PATIENCE_S)["state_type"] == "COMPLETED", here.flow_run(calm.parent)
        wanted = calm.result()
        for number, fault in enumerate(faults, start=2):
            yield suffer(fault, Trial(here, root, night(number)), wanted)


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """A small disk at a folder, where we may mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def suffer(fault: Fault, trial: Trial, wanted: str) -> Outcome:
    """Let a fault hit, wait for the end, and compare."""
    name = (fault.__doc__ or "").strip()
    try:
        seen, went_on_s, how = fault(trial)
        ended = trial.here.wait(trial.parent, PATIENCE_S)
        if ended["state_type"] == "COMPLETED":
            lost = "nothing" if trial.result() == wanted else "the scorecard differs"
        else:
            lost = f"the night: {state_of(ended)}"
    except (RuntimeError, OSError, TypeError, ValueError) as error:
        seen, went_on_s, how, lost = "", float("nan"), "", f"not measured: {error}"
    return Outcome(name, seen, went_on_s, how, len(trial.children()), lost)


def night(number: int) -> str:
    """When a trial's night was."""
    return datetime.datetime(2026, 1, number, 3, tzinfo=datetime.UTC).isoformat()


def watched_run(root: Path) -> None:
    """A run with one checkpoint, the shipped policy."""
    from kernel_core.policy import SHIPPED

    run = run_with_index(root, "watched")
    shutil.copytree(SHIPPED, run.store.path("checkpoints/step-000001"))
    run.store.append_line("checkpoints.jsonl", {"step": 1, "folder": "checkpoints/step-000001"})


class Clock:
    """The clock of every process of a stack, apart from the one that counts from their start."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "shift"
        self._file.write_bytes(struct.pack("<q", 0))
        self._library = folder / "shifted_clock.so"
        source = Path(__file__).with_name("shifted_clock.c")
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", self._library, source, "-ldl"]
        subprocess.run(command, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make a process read the shifted clock."""
        return {"LD_PRELOAD": str(self._library), "SHIFTED_CLOCK": str(self._file)}

    def ahead(self, trial: Trial) -> tuple[str, float, str]:
        """the clock jumps an hour ahead"""
        return self._jump(trial, 3600)

    def back(self, trial: Trial) -> tuple[str, float, str]:
        """the clock jumps an hour back"""
        return self._jump(trial, 0)

    def _jump(self, trial: Trial, seconds: int) -> tuple[str, float, str]:
        child, first = trial.until_child_works(), trial.parent
        at = time.monotonic()
        with self._file.open("r+b", buffering=0) as file:
            file.write(struct.pack("<q", seconds))
        trial.until(lambda: trial.here.flow_run(first)["state_type"] in FINAL, "the parent's end")
        seen = _parent_and_child(trial, first, child)
        if trial.here.flow_run(first)["state_type"] == "COMPLETED":
            return seen, time.monotonic() - at, "by itself"
        # An earlier start is refused: it names the process that works on the run, and says to wait.
        pids = [trial.here.process_of(first), trial.here.process_of(child["id"])]
        trial.until(lambda: not any(pid and Path(f"/proc/{pid}").exists() for pid in pids), "their end")
        trial.parent = trial.start()
        trial.until(lambda: trial.here.flow_run(trial.parent)["state_type"] == "RUNNING", "the parent")
        return seen, time.monotonic() - at, "started again when their processes had ended"


class Database:
    """A Postgres of our own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"postgresql+asyncpg://postgres@127.0.0.1:{self.port}/postgres"
        folder.chmod(0o755)
        shutil.chown(folder, "postgres")
        self._as_postgres("initdb", "-D", str(folder / "data"), "--auth=trust")
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it on its data, new or left by one that was killed."""
        command = ["postgres", "-D", str(self.folder / "data"), "-p", str(self.port), "-k", str(self.folder)]
        process = subprocess.Popen(
            command, user="postgres", cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while subprocess.run(
            ["pg_isready", "-h", "127.0.0.1", "-p", str(self.port)], capture_output=True
        ).returncode:
            time.sleep(0.2)
        return process

    def killed(self, trial: Trial) -> tuple[str, float, str]:
        """kill -9 of Postgres, started again after 10 s"""
        trial.until_child_works()
        at = time.monotonic()
        for pid in (self.process.pid, *descendants(self.process.pid)):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        time.sleep(10)
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
        self.process = self.start()
        trial.here.flow_run(trial.parent)
        return "UI without data; stages went on", time.monotonic() - at, "when Postgres was there again"

    def _as_postgres(self, *command: str) -> None:
        subprocess.run(command, user="postgres", cwd=self.folder, check=True, capture_output=True)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Database]:
    """A Postgres for as long as the block lasts."""
    database = Database(folder)
    try:
        yield database
    finally:
        database.process.send_signal(signal.SIGINT)
        database.process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def _row(outcome: Outcome) -> str:
    went_on = f"{outcome.went_on_s:.0f}"
    cells = (outcome.fault, outcome.seen, went_on, outcome.how, str(outcome.children), outcome.lost)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _rows_of(page: str) -> dict[str, str]:
    """The rows of an earlier page, by fault: those that are measured again take their place."""
    rows = page.partition("|---|")[2].splitlines()[1:]
    return {row.split(" | ")[0].removeprefix("| "): row for row in rows if row}


def _report(rows: dict[str, str], database: str) -> str:
    return "\n".join(
        [
            f"# Faults, on {database}",
            "",
            f"    python benchmarks/faults.py --database {database} --write",
            "",
            f"Machine: {describe_machine()}. One run of each; the machine did other work meanwhile.",
            "The work is a deployed `nightly`; its child evaluates 12 problems. Lost: its scorecard is",
            "compared with that of an undisturbed night.",
            "`--only parent,orphan,server` (or others of `FAULTS`) measures these again, keeps the rest.",
            "",
            "| killed | what the user saw | until it went on (s) | how | children | lost |",
            "|---|---|---|---|---|---|",
            *rows.values(),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
