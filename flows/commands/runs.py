"""`dojo runs …`: what was run, what is running, and how to stop it and go on."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from flows.terminal import say
from kernel_core.errors import ConfigError, Corrupt, NotFound
from kernel_core.report.overview import coloured, newest_metrics, overview, state_of
from kernel_core.runs.run_folder import find_run, list_runs, process_identity

STOP_TIMEOUT_S = 60.0


def show_list(arguments: argparse.Namespace) -> int:
    """Every run of the root, newest first."""
    table = Table("run", "flow", "condition", "at", "step", "last seen", "message")
    for run in list_runs(arguments.root):
        try:
            state = state_of(run)
        except Corrupt as error:
            table.add_row(run.name, "", "[red]unreadable[/]", "", "", "", str(error)[:80])
            continue
        newest = newest_metrics(run)
        table.add_row(
            run.name,
            state.flow,
            coloured(state.condition),
            run.stage_at_work() if state.condition != "finished" else "",
            str(newest.get("step", "")),
            state.seen_at[:19].replace("T", " "),
            state.message[:80],
        )
    Console().print(table if table.row_count else f"no runs under {arguments.root}")
    return 0


def show(arguments: argparse.Namespace) -> int:
    """One run: state, stages, newest figures, scorecards, winners, files; with `--html` as a page."""
    run = find_run(arguments.root, arguments.name)
    if arguments.html:
        from kernel_core.report.run_page import write_report

        say(run.store.path(write_report(run.store)))
        return 0
    from kernel_core.report.terminal import made_by

    console = Console()
    console.print(overview(run))
    for part in made_by(run):
        console.print(part)
    console.print(f"files: {run.store.path()}/: {', '.join(run.store.names())}", soft_wrap=True)
    return 0


def answers(arguments: argparse.Namespace) -> int:
    """Answers as they were judged: verdict, feedback and code, of every evaluation of the run."""
    from kernel_core.evaluation.diagnosis import answer_rows

    run, left = find_run(arguments.root, arguments.name), arguments.n
    folders = [name for name in run.store.names() if run.store.exists(f"{name}/evaluations.parquet")]
    for folder in folders:
        for row in answer_rows(run.store.child(folder)):
            is_wanted = arguments.verdict in (None, row["verdict"]) and arguments.problem in row["problem_id"]
            if not is_wanted or left == 0:
                continue
            left -= 1
            cut = ", cut off by the token limit" if row["finish_reason"] == "length" else ""
            say(f"=== {folder}: {row['problem_id']}, sample {row['sample']}, turn {row['turn']} ===")
            say(f"{row['verdict']}, {row['num_tokens'] or 'unknown'} tokens{cut}\n{row['feedback']}\n")
            say(f"{row['code'] or row.get('answer') or '(no kernel could be read)'}\n")
    if left == arguments.n:
        raise NotFound(
            f"run {run.name!r} has no such answers; evaluations of it: {', '.join(folders) or 'none'}"
        )
    return 0


def watch(arguments: argparse.Namespace) -> int:
    """The overview of a run again and again, until it ends or Ctrl-C."""
    run = find_run(arguments.root, arguments.name)
    with Live(overview(run), console=Console(), auto_refresh=False) as live:
        while state_of(run).condition == "running":
            time.sleep(arguments.every)
            live.update(overview(run), refresh=True)
    return 0


def logs(arguments: argparse.Namespace) -> int:
    """The end of a run's log, and what is added to it with `--follow`."""
    run = find_run(arguments.root, arguments.name)
    if not run.store.is_local:
        raise ConfigError(f"{run.root} is not a local folder; the log of its runs is in the Prefect UI")
    file = Path(run.store.path("logs.log"))
    if not file.exists():
        raise NotFound(f"run {run.name!r} has no log yet ({file})")
    with file.open() as stream:
        say("".join(stream.readlines()[-arguments.n :]), end="")
        while arguments.follow and state_of(run).condition == "running":
            say(stream.read(), end="")
            time.sleep(0.5)
        say(stream.read(), end="")
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """Ask a run's process to stop, and wait until it has."""
    run = find_run(arguments.root, arguments.name)
    state = state_of(run)
    if state.condition != "running":
        raise ConfigError(f"run {run.name!r} is not running: it is {state.condition}")
    if state.host != socket.gethostname():
        raise ConfigError(
            f"run {run.name!r} runs on {state.host}; stop it there, or cancel it in the Prefect UI"
        )
    os.kill(state.pid, signal.SIGINT)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while process_identity(state.pid) == state.process:
        if time.monotonic() > deadline:
            raise ConfigError(
                f"process {state.pid} has not stopped after {STOP_TIMEOUT_S:.0f} s; "
                f"`kill -9 {state.pid}` is safe: the same command goes on from what is done"
            )
        time.sleep(0.2)
    say(f"run {run.name} is {state_of(run).condition}; `dojo runs resume {run.name}` goes on")
    return 0


def resume(arguments: argparse.Namespace) -> int:
    """Run the command of a run again."""
    run = find_run(arguments.root, arguments.name)
    command = run.command()
    from flows.commands.stages import resume as run_again

    return run_again(command["flow"], command["parameters"])


def export(arguments: argparse.Namespace) -> int:
    """Fetch the adapters of NAME or NAME@STEP from the server that trained them."""
    from kernel_core.config import PolicyConfig
    from kernel_core.policy.tinker_export import export_adapters
    from kernel_core.policy.tinker_policy import read_saved
    from kernel_core.runs.resolve import locate_checkpoint
    from kernel_core.store import Store

    run = find_run(arguments.root, arguments.name.partition("@")[0])
    config = PolicyConfig.model_validate(run.command()["parameters"]["config"]["policy"])
    version, saved = read_saved(Store(locate_checkpoint(arguments.root, arguments.name)), config)
    export_adapters(config, saved.sampler, arguments.folder)
    say(
        f"adapters of {version} for {config.model} are in {arguments.folder}; "
        f"policy.model={arguments.folder} opens them"
    )
    return 0


def tensorboard(arguments: argparse.Namespace) -> int:
    """TensorBoard on one run's curves, or on those of every run, until Ctrl-C."""
    if arguments.name is not None and not find_run(arguments.root, arguments.name).store.is_local:
        raise ConfigError(f"{arguments.root} is not a local folder; curves stay on the host that trains")
    folder = Path(arguments.root, arguments.name or "")
    say(f"curves of {folder}: http://127.0.0.1:{arguments.port}")
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)]
    return subprocess.call([*command, "--port", str(arguments.port)])


def compare(arguments: argparse.Namespace) -> int:
    """Two runs: where their settings differ, their newest figures, and their scorecards."""
    from kernel_core.report.terminal import comparison_of

    first, second = (find_run(arguments.root, name) for name in arguments.names)
    for part in comparison_of(first, second):
        Console().print(part)
    return 0


ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "list": show_list,
    "show": show,
    "answers": answers,
    "watch": watch,
    "logs": logs,
    "stop": stop,
    "resume": resume,
    "compare": compare,
    "export": export,
    "tensorboard": tensorboard,
}
