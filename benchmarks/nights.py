"""Claim: every night is done once and none twice; a planted regression is caught, and no other is claimed.

Runs `nightly` on a cron of a few minutes, on a server with workers. Between two nights the watched run gets a
new checkpoint: the shipped policy with a little noise on its weights, as training leaves it, and before one
night a badly damaged one. The alert goes to a web server of this script.

    python benchmarks/nights.py --nights 24 --planted 16 --write
"""

from __future__ import annotations

import argparse
import datetime
import http.server
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from machine import describe_machine

from kernel_core.evaluation.nightly import NIGHT
from tests.fixtures.stack import FINAL, REPOSITORY, Stack, stack
from tests.fixtures.watched_run import LITTLE, MUCH, PROBLEMS, SETTINGS, WATCHED, publish

RESULTS = REPOSITORY / "docs" / "results" / "nights.md"


def main() -> int:
    """Short nights; the exit code says whether the claim held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nights", type=int, default=24)
    parser.add_argument("--minutes", type=int, default=1, help="from one to the next")
    parser.add_argument("--planted", type=int, default=16, help="the night that is given a damaged policy")
    parser.add_argument("--keep", type=Path, default=None, help="keep everything in this folder")
    parser.add_argument("--write", action="store_true", help="write the table to docs/results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, _listener() as (url, alerts):
        folder = arguments.keep or Path(scratch)
        with stack(folder) as here:
            _deploy_with_alert(here, url)
            root = folder / "runs"
            nights = _nights(here, root, arguments)
        report = _report(nights, root, alerts, arguments)
    print(report)
    if arguments.write:
        RESULTS.write_text(report)
    return 0 if "**held**" in report else 1


class _listener:
    """A web server that keeps what is posted to it."""

    def __enter__(self) -> tuple[str, list[str]]:
        alerts: list[str] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                alerts.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}/alert", alerts

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


def _deploy_with_alert(here: Stack, url: str) -> None:
    """Make the block that alerts go through, and deploy again so that the automation uses it."""
    api = f"http://127.0.0.1:{here.port}/api"
    environment = here.environment | {"PREFECT_API_URL": api, "DOJO_ALERT_BLOCK": "webhook/nights"}
    make = f"from prefect.blocks.webhook import Webhook; Webhook(url={url!r}).save('nights', overwrite=True)"
    subprocess.run([sys.executable, "-c", make], env=environment, check=True)
    command = [sys.executable, "-m", "flows.cli", "deploy"]
    subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, stdout=subprocess.DEVNULL)


def _nights(here: Stack, root: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Put `nightly` on a short cron and publish checkpoints until so many nights ended."""
    publish(root, 1, LITTLE)
    deployment = here.deployment("nightly/every-night")
    parameters = {"config": SETTINGS, "watch": [WATCHED], "run": "nightly", "root": str(root)}
    here.ask("PATCH", f"/deployments/{deployment['id']}", parameters=parameters)
    schedule = deployment["schedules"][0]
    often = {"cron": f"*/{arguments.minutes} * * * *", "timezone": "UTC"}
    path = f"/deployments/{deployment['id']}/schedules/{schedule['id']}"
    here.ask("PATCH", path, schedule=often, active=True)
    here.ask("POST", f"/deployments/{deployment['id']}/resume_deployment")
    published = 1
    while True:
        runs = [run for run in nights_of(here, deployment["id"]) if run["state_type"] in FINAL]
        if len(runs) >= arguments.nights:
            here.ask("POST", f"/deployments/{deployment['id']}/pause_deployment")
            return runs[: arguments.nights]
        if len(runs) == published:
            published += 1
            publish(root, published, MUCH if published == arguments.planted else LITTLE)
            last = runs[-1]
            print(
                published - 1,
                last["expected_start_time"],
                last["state_name"],
                last["total_run_time"],
                flush=True,
            )
        time.sleep(1)


def nights_of(here: Stack, deployment_id: str) -> list[dict[str, Any]]:
    """Flow runs of the deployment, in the order of their schedule."""
    runs = here.ask("POST", "/flow_runs/filter", deployments={"id": {"any_": [deployment_id]}}, limit=200)
    return sorted(runs, key=lambda run: run["expected_start_time"])


def _report(
    nights: list[dict[str, Any]], root: Path, alerts: list[str], arguments: argparse.Namespace
) -> str:
    scheduled = [datetime.datetime.fromisoformat(run["expected_start_time"]) for run in nights]
    trend = pq.read_table(root / "nightly" / "trends" / f"{WATCHED}.parquet").to_pylist()
    by_night = {row["night"]: row for row in trend}
    lines, worse = [], []
    for number, (run, at) in enumerate(zip(nights, scheduled, strict=True), start=1):
        row = by_night.get(at.astimezone(datetime.UTC).strftime(NIGHT))
        shown = ["", "", ""]
        if row is not None:
            interval = (
                "" if row["change_low"] is None else f"{row['change_low']:+.2f} … {row['change_high']:+.2f}"
            )
            shown = [row["checkpoint"], f"{row['correct_rate']:.2f}", interval]
            worse += [number] * bool(row["regressed"])
        late = (
            (datetime.datetime.fromisoformat(run["start_time"]) - at).total_seconds()
            if run["start_time"]
            else 0
        )
        state = run["state_name"]
        lines.append(
            f"| {number} | {at:%H:%M} | {late:.0f} | {run['total_run_time']:.0f} | {state} | "
            + " | ".join(shown)
            + " |"
        )
    minutes = [at.strftime(NIGHT) for at in scheduled]
    gaps = {round((b - a).total_seconds()) for a, b in itertools.pairwise(scheduled)}
    once = (
        sorted(by_night) == sorted(minutes)
        and len(set(minutes)) == len(minutes)
        and gaps == {60 * arguments.minutes}
    )
    failed = [number for number, run in enumerate(nights, start=1) if run["state_type"] == "FAILED"]
    caught = worse == [arguments.planted] == failed
    told = len(alerts) == 1
    verdict = "**held**" if once and caught and told else "**did not hold**"
    command = f"python benchmarks/nights.py --nights {len(nights)} --minutes {arguments.minutes}"
    command += f" --planted {arguments.planted}"
    return "\n".join(
        [
            "# Nights",
            "",
            f"    {command} --write",
            "",
            f"Machine: {describe_machine()}. sqlite, one worker a pool. One run.",
            "",
            f"{len(nights)} nights, each on the same {PROBLEMS} held-out problems. The claim {verdict}:",
            "",
            f"- every scheduled night once, none twice: {'yes' if once else 'no'}",
            f"- planted in night {arguments.planted}; called regressed: {worse}; flow runs failed: {failed}",
            f"- alerts received over HTTP: {len(alerts)}",
            "",
            "| night | scheduled | began after (s) | took (s) | flow run | checkpoint | correct | change |",
            "|---|---|---|---|---|---|---|---|",
            *lines,
            "",
            "The alert:",
            "",
            *(f"    {line}" for alert in alerts for line in alert.splitlines()),
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
