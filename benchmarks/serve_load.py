"""Claim: a judge service under load loses no call, judges none twice, and keeps wrong keys out.

Starts `dojo serve` and gives it distinct candidates from many clients. Meanwhile a judge is killed again and
again, every seventh call is first sent by a connection that is cut, and one client never reads an answer.
Every verdict is compared with what its candidate must get, and the service's own count with the clients'.

    python benchmarks/serve_load.py --requests 1000 --clients 50 --write
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from machine import describe_machine
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fixtures"))

from http_server import is_healthy  # noqa: E402
from judge_load import Load, judged_by_service, judges_killed, put_load, silent_client  # noqa: E402

KEYS = {"ada": "key-of-ada-0123456789", "bea": "key-of-bea-0123456789", "quiet": "key-of-quiet-0123456789"}
_PRINT_EVERY_S = 30.0


def main() -> int:
    """Load, kill, count; the exit code is 1 if anything was lost, doubled or wrong."""
    arguments = _arguments()
    begun = time.monotonic()
    with _service(arguments) as (url, process):
        before_mb = _memory_mb(process)
        refused = httpx.post(f"{url}/v1/judge", json={}, headers={"Authorization": "Bearer wrong"})
        with (
            silent_client(url, KEYS["quiet"]) as sent,
            judges_killed(process, arguments.kill_every_s) as killed,
            _printing_progress(url),
        ):
            load = put_load(url, [KEYS["ada"], KEYS["bea"]], arguments.requests, arguments.clients)
            health = httpx.get(f"{url}/health").json()
            after_mb = _memory_mb(process)
        judged = judged_by_service(url, KEYS["ada"])
    seconds = time.monotonic() - begun
    faults = list(load.faults)
    if len(load.seconds) != arguments.requests:
        faults.append(f"{arguments.requests - len(load.seconds)} calls have no verdict")
    own = {verdict: count for verdict, count in judged.items() if verdict != "malformed"}
    if own != load.verdicts:
        faults.append(f"the service judged {own}, and the clients saw {dict(load.verdicts)}")
    if refused.status_code != 401:
        faults.append(f"a wrong key was answered with {refused.status_code}")
    rows = _rows(arguments, load, seconds) | {
        "judges killed": str(len(killed)),
        "judges in service afterwards": ", ".join(health["judges"]),
        "requests sent by the client that never reads": f"{len(sent):,}",
        "its calls that were judged": f"{judged['malformed']:,}",
        "a wrong key": f"refused with {refused.status_code}",
        "memory of the service's process, before and after": f"{before_mb:.0f}, {after_mb:.0f} MB",
        "load average of the machine, 15 minutes": f"{os.getloadavg()[2]:.0f}",
        "faults (lost, doubled, wrong)": str(len(faults)),
    }
    _report(rows, faults, arguments)
    return 1 if faults else 0


def _rows(arguments: argparse.Namespace, load: Load, seconds: float) -> dict[str, str]:
    return {
        "calls": f"{arguments.requests:,} of {arguments.clients} clients",
        "seconds": f"{seconds:.0f}",
        "verdicts": ", ".join(f"{number} {name}" for name, number in load.verdicts.most_common()),
        "seconds from the first attempt to the answer, p50": f"{load.percentile(0.5):.1f}",
        "the same, p99": f"{load.percentile(0.99):.1f}",
        "calls with a first connection that was cut": str(load.num_cut),
    }


@contextlib.contextmanager
def _service(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="dojo-serve-") as folder:
        keys = Path(folder) / "keys"
        keys.write_text("".join(f"{name} {key}\n" for name, key in KEYS.items()))
        settings = [f"gym.device={arguments.device}", f"gym.workers={arguments.judges}"]
        command = [sys.executable, "-m", "flows.cli", "serve", "--port", str(arguments.port)]
        command += ["--keys", str(keys), *settings, f"capacity={arguments.capacity}"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            while not is_healthy(url):
                time.sleep(0.2)
            yield url, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)


@contextlib.contextmanager
def _printing_progress(url: str) -> Iterator[None]:
    """Print the number of judged calls every `_PRINT_EVERY_S` seconds."""
    over = threading.Event()

    def print_progress() -> None:
        while not over.wait(_PRINT_EVERY_S):
            with contextlib.suppress(httpx.HTTPError):
                judged = judged_by_service(url, KEYS["ada"])
                print(f"{judged.total() - judged['malformed']} judged", flush=True)

    printer = threading.Thread(target=print_progress)
    printer.start()
    try:
        yield
    finally:
        over.set()
        printer.join()


def _memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [resident] = [line.split()[1] for line in lines if line.startswith("VmRSS")]
    return int(resident) / 1024


def _report(rows: dict[str, str], faults: list[str], arguments: argparse.Namespace) -> None:
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)
    for fault in faults:
        print(fault)
    if arguments.write:
        lines = [
            "# The judge service under load",
            "",
            "Distinct candidates from many clients, while judges die, connections are cut and one client",
            "never reads.",
            "",
            f"    python benchmarks/serve_load.py {' '.join(sys.argv[1:])}",
            "",
            f"Machine: {describe_machine()}. {arguments.judges} judges on {arguments.device},",
            f"one of them killed every {arguments.kill_every_s:g} s; room for {arguments.capacity} calls.",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
            *(["", *(f"- {fault}" for fault in faults)] if faults else []),
        ]
        (ROOT / "docs" / "results" / "serve.md").write_text("\n".join(lines) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--judges", type=int, default=2)
    parser.add_argument("--capacity", type=int, default=40, help="calls in work at once")
    parser.add_argument("--kill-every-s", type=float, default=20.0)
    parser.add_argument("--port", type=int, default=8941)
    parser.add_argument("--write", action="store_true", help="write docs/results/serve.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
