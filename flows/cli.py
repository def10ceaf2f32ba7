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
from pathlib import Path
from types import FrameType

from flows.arguments import Parser, number, port
from flows.commands.serve import add_serve_arguments, serve_judge

STAGES = {
    "pipeline": "all stages in order: corpora in, a trained policy, scorecards and winners out",
    "ingest": "corpus sources into one clean snapshot; `ingest verify` judges a run's snapshot",
    "index": "a snapshot into embeddings and a nearest-neighbour index",
    "cold-start": "supervised training before RL",
    "train": "RL on verified rewards",
    "evaluate": "a policy on held-out problems",
    "best-of-n": "the best kernel a policy can write for each problem, verified",
    "nightly": "newest checkpoints of named runs, beside the night before",
}

ROOT = os.environ.get("DOJO_ROOT", "runs")


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
        return _tell("stopped; everything finished is kept, and the same command goes on from there", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _tell(_fault(error, is_stage=arguments.command is _stage), 3)


def build_parser() -> argparse.ArgumentParser:
    """Every command and its arguments."""
    parser = Parser(prog="dojo", description="Train policies to write fast Triton kernels.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for stage, purpose in STAGES.items():
        names = ["best-of"] if stage == "best-of-n" else []
        command = commands.add_parser(stage, help=purpose, description=purpose, aliases=names)
        command.add_argument(
            "words", nargs="*", metavar="PRESET | key.sub=value", help="settings; see docs/cli.md"
        )
        command.add_argument("--config", type=Path, metavar="FILE.yaml", help="settings from a file")
        command.set_defaults(command=_stage, stage=stage)
    _add_judge(commands.add_parser("judge", help="is this kernel honest, correct and fast?"))
    audit = commands.add_parser("audit", help="would these problems accept answers that do no work?")
    audit.add_argument(
        "suite", nargs="?", default="dojo", help="dojo, generated, kernelbench, a folder or a file"
    )
    audit.add_argument("--limit", type=number(int, 1), default=None, help="at most so many problems")
    audit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a size constant")
    audit.add_argument("--out", type=Path, metavar="FILE.parquet", help="where the whole table goes")
    audit.add_argument(
        "--write", type=Path, metavar="FILE.txt", help="where the ids go that problems.exclude should name"
    )
    audit.set_defaults(command=_audit)
    harvest = commands.add_parser("harvest", help="problems from the modules of installed packages")
    harvest.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    harvest.add_argument("--packages", metavar="A,B", help="import names; see docs/problems.md")
    harvest.add_argument(
        "--compositions", type=number(int, 0), default=60, metavar="N", help="chains a package, at most"
    )
    harvest.set_defaults(command=_harvest)
    search = commands.add_parser("search", help="the corpus kernels nearest to words or a problem")
    search.add_argument("query", help="words, or the file of a problem")
    search.add_argument("--run", required=True, help="the run that has the index")
    search.add_argument("--root", default=ROOT, help="where runs are (DOJO_ROOT, or runs)")
    search.add_argument("-k", type=number(int, 1), default=5, help="how many")
    search.add_argument("--mode", choices=("dense", "hybrid"), default="dense", help="hybrid: BM25 as well")
    search.add_argument("--language", action="append", default=[], help="only this one; may be repeated")
    search.add_argument("--exclude", type=Path, action="append", default=[], metavar="P.py", help="a problem")
    search.add_argument(
        "--code", type=number(int, 0), default=1, metavar="N", help="print the code of the first N"
    )
    search.set_defaults(command=_search)
    serve = commands.add_parser("serve", help="the judge as a service for other trainers")
    add_serve_arguments(serve)
    serve.set_defaults(command=serve_judge)
    _add_runs(commands.add_parser("runs", help="what was run, and what is running"))
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


def _add_judge(judge: argparse.ArgumentParser) -> None:
    judge.add_argument("--problem", type=Path, metavar="P.py", help="in KernelBench's format")
    judge.add_argument("--kernel", type=Path, metavar="K.py", help="a file that defines ModelNew")
    judge.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    judge.add_argument(
        "--rules", choices=("dojo", "kernelbench"), default="dojo", help="KernelBench's are for comparison"
    )
    judge.add_argument(
        "--cluster",
        nargs="?",
        const="auto",
        metavar="ADDRESS",
        help="on the nodes of a Ray cluster, by default that of RAY_ADDRESS or of this host",
    )
    judge.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a size constant")
    judge.add_argument(
        "--precision",
        choices=("own", "float16", "bfloat16"),
        help="what inputs and weights are cast to; own, by default, leaves them",
    )
    judge.add_argument("--seed", type=int, default=None, help="of the input draws; a fresh one by default")
    judge.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    judge.add_argument("--batch", type=Path, metavar="FILE.jsonl", help="rows with problem, kernel and sizes")
    judge.add_argument("--out", type=Path, metavar="FILE.parquet", help="where a batch's results go")
    judge.set_defaults(command=_judge)


def _add_runs(runs: argparse.ArgumentParser) -> None:
    actions = runs.add_subparsers(metavar="ACTION", required=True)
    for action, purpose in {
        "list": "every run and whether it is alive",
        "show": "one run: stages, figures, files",
        "watch": "its newest figures, every few seconds",
        "logs": "its log",
        "stop": "ask it to stop; it goes on later",
        "resume": "run its command again; it goes on from what is done",
        "compare": "two runs side by side",
        "tensorboard": "curves of one run, or of every run",
    }.items():
        command = actions.add_parser(action, help=purpose, description=purpose)
        if action == "compare":
            command.add_argument("names", nargs=2, metavar="NAME")
        elif action == "tensorboard":
            command.add_argument("name", metavar="NAME", nargs="?", default=None)
            command.add_argument("--port", type=port, default=6006)
        elif action != "list":
            command.add_argument("name", metavar="NAME")
        if action == "logs":
            command.add_argument("-n", type=number(int, 1), default=50, help="lines")
            command.add_argument("-f", "--follow", action="store_true")
        if action == "watch":
            command.add_argument("--every", type=number(float, 0.1, 86400), default=5.0, metavar="SECONDS")
        command.add_argument("--root", default=ROOT, help="where runs are (DOJO_ROOT, or runs)")
        command.set_defaults(command=_runs, action=action)


def _stage(arguments: argparse.Namespace) -> int:
    from flows.commands.stages import run_stage

    assignments = [word for word in arguments.words if "=" in word]
    names = [word for word in arguments.words if "=" not in word]
    if len(names) > 1:
        from kernel_core.errors import ConfigError

        raise ConfigError(
            f"one preset was wanted, but {len(names)} came: {' '.join(names)}; settings are key=value"
        )
    stage = arguments.stage
    if stage == "ingest" and names == ["verify"]:  # a stage of its own, which reads what ingest made
        stage, names = "verify", []
    return run_stage(stage, names[0] if names else None, arguments.config, assignments)


def _judge(arguments: argparse.Namespace) -> int:
    from flows.commands.batch import read_kernel, request_of
    from flows.commands.judge import judge_batch, judge_one, read_sizes
    from kernel_core.errors import ConfigError
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
    request = request_of(problem, read_kernel(arguments.kernel), sizes, arguments.seed, arguments.device)
    return judge_one(request, gym, arguments.json)


def _refuse_beside_batch(arguments: argparse.Namespace) -> None:
    from kernel_core.errors import ConfigError

    options = ("problem", "kernel", "set", "seed", "precision")
    given = [f"--{name}" for name in options if getattr(arguments, name) not in (None, [])]
    if given:
        raise ConfigError(f"--batch takes no {', '.join(given)}: each of its rows has a key for that")


def _audit(arguments: argparse.Namespace) -> int:
    from flows.commands.audit import audit

    return audit(arguments.suite, arguments.limit, arguments.set, arguments.out, arguments.write)


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
