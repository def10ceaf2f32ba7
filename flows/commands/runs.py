"""`dojo runs …`: what was run, what is running, and how to stop it and go on."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.live import Live

from flows.arguments import Count, Port, Root
from flows.terminal import say
from kernel_core.errors import ConfigError, NotFound
from kernel_core.python_module import module_command
from kernel_core.report.overview import overview, rows_table, runs_table
from kernel_core.runs.run_folder import find_run, list_runs, state_of

WIDTH = 200
"""Columns of a table of figures with intervals, also where a terminal is narrower."""

runs = App(name="runs")
Seconds = Annotated[float, Parameter(validator=Number(gte=0.1, lte=86400))]


@runs.command(name="list")
def show_list(*, root: Root = "runs") -> int:
    """Every run of the root, newest first."""
    table = runs_table(list_runs(root))
    Console().print(table if table.row_count else f"no runs under {root}")
    return 0


@runs.command
def show(name: str, /, *, html: bool = False, root: Root = "runs") -> int:
    """One run: state, stages, newest figures, scorecards, winners, files; with `--html` as a page.

    Args:
        html: write report.html in its folder instead
    """
    run = find_run(root, name)
    if html:
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


@runs.command
def answers(
    name: str,
    /,
    *,
    verdict: str | None = None,
    problem: str = "",
    folder: str = "",
    n: Annotated[Count, Parameter(name="-n")] = 5,
    out: Path | None = None,
    root: Root = "runs",
) -> int:
    """Answers of a run with verdict, feedback and code; with `--out` as a table.

    Args:
        verdict: only those with this verdict
        problem: only ids with this word
        folder: only of this folder of the run
        n: print at most so many
        out: write all of them to this Parquet file, with prompts, texts and evaluations
    """
    from kernel_core.evaluation.diagnosis import answers_of

    say(answers_of(find_run(root, name).store, folder, verdict, problem, n, out))
    return 0


@runs.command
def figures(file: str, /, *, against: str = "", own_share: float = 0.0) -> int:
    """Figures of a Parquet file of judged answers, by group of problems and arm, with paired differences.

    Args:
        file: such as answers.parquet of `dojo compare`, or a file of docs/results
        against: the arm that others are compared with; by default the first
        own_share: count a correct answer from this share of own work on
    """
    from kernel_core.evaluation.judged_rows import figure_tables, read_rows

    for title, rows in figure_tables(read_rows(file), against, own_share).items():
        Console(width=max(WIDTH, Console().width)).print(rows_table(title, rows))
    return 0


@runs.command
def taught(*names: str, root: Root = "runs") -> int:
    """Policies that runs taught by imitation: updates, held-back loss, sampled entropy and pass@k.

    Args:
        names: runs with a cold start or rounds of expert iteration, and evaluations of them
    """
    from kernel_core.report.taught import taught_rows

    if not names:
        raise ConfigError("give the name of at least one run; `dojo runs list` has them")
    rows = taught_rows([find_run(root, name) for name in names])
    if not rows:
        raise NotFound(f"no policy was taught in {', '.join(names)}; `dojo cold-start run=NAME` teaches one")
    Console(width=max(WIDTH, Console().width)).print(rows_table("", rows))
    return 0


@runs.command
def judge(name: str, /, *settings: str, folder: str = "", root: Root = "runs") -> int:
    """Judge the kept answers of a run again, by today's judge; the first scorecard stays.

    Args:
        settings: such as gym.device=cuda, or rollout.turns=1 for first turns alone
        folder: with the answers, where the run has several
    """
    from flows.commands.stages import judge_again

    return judge_again(find_run(root, name), folder, settings)


@runs.command
def watch(name: str, /, *, every: Seconds = 5.0, root: Root = "runs") -> int:
    """The overview of a run again and again, until it ends or Ctrl-C.

    Args:
        every: seconds between two looks
    """
    run = find_run(root, name)
    with Live(overview(run), console=Console(), auto_refresh=False) as live:
        while state_of(run).condition == "running":
            time.sleep(every)
            live.update(overview(run), refresh=True)
    return 0


@runs.command
def logs(
    name: str,
    /,
    *,
    n: Annotated[Count, Parameter(name="-n")] = 50,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
    root: Root = "runs",
) -> int:
    """The end of a run's log, and what is added to it with `--follow`.

    Args:
        n: lines
    """
    run = find_run(root, name)
    if not run.store.is_local:
        raise ConfigError(f"{run.root} is not a local folder; the log of its runs is in the Prefect UI")
    file = Path(run.store.path("logs.log"))
    if not file.exists():
        raise NotFound(f"run {run.name!r} has no log yet ({file})")
    with file.open() as stream:
        say("".join(stream.readlines()[-n:]), end="")
        while follow and state_of(run).condition == "running":
            say(stream.read(), end="")
            time.sleep(0.5)
        say(stream.read(), end="")
    return 0


@runs.command
def stop(name: str, /, *, root: Root = "runs") -> int:
    """Ask a run's process to stop, and wait until it has."""
    from kernel_core.runs.stopping import stop as stop_run

    run = find_run(root, name)
    stop_run(run)
    say(f"run {run.name} is {state_of(run).condition}; `dojo runs resume {run.name}` goes on")
    return 0


@runs.command
def resume(name: str, /, *, root: Root = "runs") -> int:
    """Run the command of a run again."""
    command = find_run(root, name).command()
    from flows.commands.stages import resume as run_again

    return run_again(command["flow"], command["parameters"])


@runs.command
def export(name: str, folder: Path, /, *, root: Root = "runs") -> int:
    """Fetch the adapters of NAME or NAME@STEP from the server that trained them.

    Args:
        folder: where to write; not there yet
    """
    from kernel_core.policy.tinker_export import export_adapters_of

    say(export_adapters_of(find_run(root, name.partition("@")[0]), name, folder))
    return 0


@runs.command
def tensorboard(name: str | None = None, /, *, port: Port = 6006, root: Root = "runs") -> int:
    """TensorBoard on one run's curves, or on those of every run, until Ctrl-C."""
    if name is not None and not find_run(root, name).store.is_local:
        raise ConfigError(f"{root} is not a local folder; curves stay on the host that trains")
    folder = Path(root, name or "")
    say(f"curves of {folder}: http://127.0.0.1:{port}")
    command = module_command("tensorboard.main", "--logdir", str(folder))
    return subprocess.call([*command, "--port", str(port)])


@runs.command
def compare(first: str, second: str, /, *, root: Root = "runs") -> int:
    """Two runs: where their settings differ, their newest figures, and their scorecards."""
    from kernel_core.report.terminal import comparison_of

    for part in comparison_of(find_run(root, first), find_run(root, second)):
        Console().print(part)
    return 0
