"""The `dojo` command: every stage, the judge, the corpus search, runs, and the Prefect side.

Exit codes: 0 done, 1 a night regressed, 2 the caller's mistake, 3 a fault of the system's, 130 stopped.
An error is one line on stderr. Everything heavy is imported by the command that needs it, so that
`dojo --help` is immediate.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from flows.arguments import Parser, add_audit, add_judge, add_runs, add_search, number, port, stage_help
from flows.commands.serve import add_serve_arguments, serve_judge

if TYPE_CHECKING:
    from kernel_core.gym.contract.requests import JudgeRequest

STAGES = {
    "pipeline": "all stages in order: corpora in, a trained policy, scorecards and winners out",
    "ingest": "corpus sources into one clean snapshot; `ingest verify` judges a run's snapshot",
    "index": "a snapshot into embeddings and a nearest-neighbour index",
    "cold-start": "supervised training before RL",
    "train": "RL on verified rewards",
    "evaluate": "a policy on held-out problems",
    "best-of-n": "the best kernel a policy can write for each problem, verified",
    "promote": "a checkpoint takes a name if it is clearly better than the one that has it",
    "nightly": "newest checkpoints of named runs, beside the night before",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and leave with its exit code."""
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run a command; gives the exit code, with errors told in one line."""
    arguments = build_parser().parse_args(argv)
    from kernel_core.errors import DojoError, interrupts_stay_interrupts

    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        with interrupts_stay_interrupts():
            return int(arguments.command(arguments) or 0)
    except DojoError as error:
        return _tell(str(error), error.exit_code)
    except KeyboardInterrupt:
        goes_on = "; everything finished is kept, and the same command goes on from there"
        return _tell(f"stopped{goes_on if _goes_on(arguments) else ''}", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _tell(_fault(error, is_stage=arguments.command is _stage), 3)


def build_parser() -> argparse.ArgumentParser:
    """Every command and its arguments."""
    parser = Parser(prog="dojo", description="Train policies to write fast Triton kernels.")
    parser.add_argument("--version", action="version", version=f"dojo {version('kernel-dojo')}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for stage, purpose in STAGES.items():
        names = ["best-of"] if stage == "best-of-n" else []
        command = commands.add_parser(stage, help=purpose, description=purpose, aliases=names)
        command.more_help = partial(stage_help, stage)
        command.add_argument(
            "words", nargs="*", metavar="PRESET | key.sub=value", help="settings; see docs/cli.md"
        )
        command.add_argument("--config", type=Path, metavar="FILE.yaml", help="settings from a file")
        command.add_argument(
            "--dry-run", action="store_true", help="check all settings, print them, run nothing"
        )
        command.set_defaults(command=_stage, stage=stage)
    prompt = commands.add_parser("prompt", help="what a policy would be sent for a problem")
    prompt.add_argument("words", nargs="*", metavar="PRESET | key.sub=value", help="as of `dojo evaluate`")
    prompt.add_argument("--config", type=Path, metavar="FILE.yaml", help="settings from a file")
    prompt.add_argument("--problem", type=Path, metavar="P.py", help="the first of the suite by default")
    prompt.set_defaults(command=_prompt)
    judge = commands.add_parser("judge", help="is this kernel honest, correct and fast?")
    add_judge(judge)
    judge.set_defaults(command=_judge)
    audit = commands.add_parser("audit", help="would these problems accept answers that do no work?")
    add_audit(audit)
    audit.set_defaults(command=_audit)
    harvest = commands.add_parser("harvest", help="problems from the modules of installed packages")
    harvest.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    harvest.add_argument("--packages", metavar="A,B", help="import names; see docs/problems.md")
    harvest.add_argument(
        "--compositions", type=number(int, 0), default=60, metavar="N", help="chains a package, at most"
    )
    harvest.set_defaults(command=_harvest)
    search = commands.add_parser("search", help="the corpus kernels nearest to words or a problem")
    add_search(search)
    search.set_defaults(command=_search)
    serve = commands.add_parser("serve", help="the judge as a service for other trainers")
    add_serve_arguments(serve)
    serve.set_defaults(command=serve_judge)
    runs = commands.add_parser("runs", help="what was run, and what is running")
    add_runs(runs)
    runs.set_defaults(command=_runs)
    deploy = commands.add_parser("deploy", help="check prefect.yaml, then create or update its deployments")
    deploy.add_argument("--dry-run", action="store_true", help="only check, and show what would change")
    deploy.add_argument("--local", action="store_true", help="start a server and a worker for each pool too")
    deploy.add_argument("--port", type=port, default=4200, help="of the server that --local starts")
    deploy.add_argument("--file", type=Path, default=None, help="another prefect.yaml")
    deploy.set_defaults(command=_deploy)
    ui = commands.add_parser("ui", help="start the Prefect server and say where to look")
    ui.add_argument("--port", type=port, default=4200)
    ui.set_defaults(command=_ui)
    return parser


def _presets_and_settings(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """At most one preset, and the assignments."""
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        from kernel_core.errors import ConfigError

        raise ConfigError(
            f"one preset was wanted, but {len(names)} came: {' '.join(names)}; settings are key=value"
        )
    return names, [word for word in words if "=" in word]


def _prompt(arguments: argparse.Namespace) -> int:
    from flows.server import prepare_environment

    prepare_environment()
    from flows.commands.prompt import show_prompt

    names, assignments = _presets_and_settings(arguments.words)
    return show_prompt(names[0] if names else None, arguments.config, assignments, arguments.problem)


def _stage(arguments: argparse.Namespace) -> int:
    from flows.commands.stages import run_stage

    names, assignments = _presets_and_settings(arguments.words)
    stage = arguments.stage
    if stage == "ingest" and names == ["verify"]:  # a stage of its own, which reads what ingest made
        stage, names = "verify", []
    preset = names[0] if names else None
    return run_stage(stage, preset, arguments.config, assignments, dry_run=arguments.dry_run)


def _judge(arguments: argparse.Namespace) -> int:
    from flows.commands.judge import judge_batch, judge_on_save, judge_one, read_sizes
    from kernel_core.errors import ConfigError
    from kernel_core.interop.batch import read_kernel, request_of
    from kernel_core.problems.load import load_file
    from kernel_core.problems.source import at_precision

    gym = {"device": arguments.device, "rules": arguments.rules, "cluster": "local"}
    if arguments.cluster is not None:
        gym |= {"cluster": "ray", "ray_address": arguments.cluster}
    if arguments.batch is not None:
        _refuse_beside_batch(arguments)
        if arguments.out is None:
            raise ConfigError("--batch FILE.jsonl needs --out FILE.parquet")
        return judge_batch(arguments.batch, arguments.out, gym, arguments.json)
    if arguments.out is not None:
        raise ConfigError("--out is where the table of --batch FILE.jsonl goes; --json prints one verdict")
    if arguments.problem is None or arguments.kernel is None:
        raise ConfigError(
            "give --problem P.py and --kernel K.py, or --batch FILE.jsonl and --out FILE.parquet"
        )
    problem = at_precision(load_file(arguments.problem), arguments.precision or "own")
    sizes = read_sizes(arguments.set)

    def request() -> JudgeRequest:
        return request_of(problem, read_kernel(arguments.kernel), sizes, arguments.seed, arguments.device)

    if arguments.watch:
        judge_on_save(request, arguments.kernel, gym, arguments.json)
    return judge_one(request(), gym, arguments.json)


def _refuse_beside_batch(arguments: argparse.Namespace) -> None:
    from kernel_core.errors import ConfigError

    options = ("problem", "kernel", "set", "seed", "precision", "watch")
    left_out = ("None", "[]", "False")  # a seed of 0 is given
    given = [f"--{name}" for name in options if str(getattr(arguments, name)) not in left_out]
    if given:
        raise ConfigError(f"--batch takes no {', '.join(given)}: each of its rows has a key for that")


def _audit(arguments: argparse.Namespace) -> int:
    from flows.commands.audit import audit

    return audit(arguments.suite, arguments.limit, arguments.set, arguments.out)


def _harvest(arguments: argparse.Namespace) -> int:
    from flows.commands.harvest import harvest_packages
    from kernel_core.harvest.harvest import DEFAULT_PACKAGES

    names = arguments.packages.split(",") if arguments.packages else DEFAULT_PACKAGES
    return harvest_packages(arguments.out, names, arguments.compositions)


def _search(arguments: argparse.Namespace) -> int:
    from flows.commands.search import search
    from kernel_core.config import RetrievalConfig
    from kernel_core.runs.configure import build
    from kernel_core.runs.run_folder import find_run

    config = build(RetrievalConfig, {"mode": arguments.mode, "languages": arguments.language})
    run = find_run(arguments.root, arguments.run)
    return search(run, arguments.query, arguments.k, config, arguments.exclude, arguments.code)


def _runs(arguments: argparse.Namespace) -> int:
    from flows.commands import runs

    return runs.ACTIONS[arguments.action](arguments)


def _deploy(arguments: argparse.Namespace) -> int:
    if arguments.local and not arguments.dry_run:
        from flows.commands.local import serve_local

        return serve_local(arguments.port, arguments.file)
    from flows.commands.deploy import deploy

    return deploy(arguments.file, dry_run=arguments.dry_run)


def _ui(arguments: argparse.Namespace) -> int:
    from flows.commands.ui import serve_ui

    return serve_ui(arguments.port)


def _goes_on(arguments: argparse.Namespace) -> bool:
    """Whether the command goes on from what it had finished: stages do, alone or resumed."""
    return arguments.command is _stage or getattr(arguments, "action", "") == "resume"


def _fault(error: OSError, *, is_stage: bool) -> str:
    """What the system said, of which file, and what a stage's files are good for where only room or leave to
    write was missing."""
    words = error.strerror or str(error) or type(error).__name__
    where = f": {error.filename}" if error.filename else ""
    passes = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
    return f"{words}{where}{'; what was finished is kept, run it again' if is_stage and passes else ''}"


def _tell(message: str, exit_code: int) -> int:
    print(f"dojo: {' '.join(message.split())}", file=sys.stderr)
    return exit_code


def _as_interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
