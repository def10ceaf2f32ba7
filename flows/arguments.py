"""The arguments of `dojo` commands: one line for a mistake, numbers within bounds, help."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

ROOT = os.environ.get("DOJO_ROOT", "runs")


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line, as every error of `dojo` is told."""

    more_help: Callable[[], str] | None = None
    """What `--help` says after the arguments; made only when it is asked for."""

    def format_help(self) -> str:
        """The arguments, and then what else there is to know."""
        return super().format_help() + (f"\n{self.more_help()}" if self.more_help is not None else "")

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        line = " ".join(message.split())
        self.exit(2, f"dojo: {line}; `{self.prog} --help` names every argument\n")


def number(
    kind: Callable[[str], Any], at_least: float, at_most: float = float("inf")
) -> Callable[[str], Any]:
    """An argument's type: an `int` or a `float` within bounds."""
    bounds = f"{at_least} or more" if at_most == float("inf") else f"{at_least} to {at_most}"

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not at_least <= value <= at_most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number within bounds: wanted {bounds}")
        return value

    return read


port = number(int, 1, 65535)
"""The type of an argument that is a port."""


def stage_help(stage: str) -> str:
    """The presets of a stage and its settings, as lines."""
    from flows.presets import PREFECT_YAML, config_class_of, entrypoint_of, load_yaml
    from kernel_core.config.reference import settings_of

    entries = load_yaml(PREFECT_YAML)["deployments"]
    presets = [entry for entry in entries if entry["entrypoint"] == entrypoint_of(stage)]
    lines = ["presets (the first is used without a name):"]
    lines += [f"  {entry['name']:<18} {entry['description']}" for entry in presets]
    lines.append("settings (key=value; all pages: docs/settings.md):")
    for one in settings_of(config_class_of(stage)):
        lines.append(f"  {one.key} = {one.default}   {one.meaning}")
    return "\n".join(lines) + "\n"


def add_judge(judge: argparse.ArgumentParser) -> None:
    """The arguments of `dojo judge`."""
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
    judge.add_argument("--watch", action="store_true", help="judge again whenever the kernel is saved")
    judge.add_argument("--json", action="store_true", help="the last line of stdout is one JSON object")
    judge.add_argument("--batch", type=Path, metavar="FILE.jsonl", help="rows with problem, kernel and sizes")
    judge.add_argument("--out", type=Path, metavar="FILE.parquet", help="where a batch's results go")


def add_runs(runs: argparse.ArgumentParser) -> None:
    """The actions of `dojo runs` and their arguments."""
    actions = runs.add_subparsers(metavar="ACTION", required=True)
    for action, purpose in {
        "list": "every run and whether it is alive",
        "show": "one run: stages, figures, files",
        "answers": "answers of its evaluations, with the judge's words",
        "watch": "its newest figures, every few seconds",
        "logs": "its log",
        "stop": "ask it to stop; it goes on later",
        "resume": "run its command again; it goes on from what is done",
        "compare": "two runs side by side",
        "export": "adapters that a Tinker server keeps, as a folder of PEFT's",
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
        if action == "export":
            command.add_argument("folder", metavar="FOLDER", help="where to write; not there yet")
        if action == "logs":
            command.add_argument("-n", type=number(int, 1), default=50, help="lines")
            command.add_argument("-f", "--follow", action="store_true")
        if action == "answers":
            command.add_argument("--verdict", help="only those with this verdict")
            command.add_argument("--problem", default="", metavar="WORD", help="only ids with this word")
            command.add_argument("-n", type=number(int, 1), default=5, help="at most so many")
        if action == "show":
            command.add_argument(
                "--html", action="store_true", help="write report.html in its folder instead"
            )
        if action == "watch":
            command.add_argument("--every", type=number(float, 0.1, 86400), default=5.0, metavar="SECONDS")
        command.add_argument("--root", default=ROOT, help="where runs are (DOJO_ROOT, or runs)")
        command.set_defaults(action=action)


def add_search(search: argparse.ArgumentParser) -> None:
    """The arguments of `dojo search`."""
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


def add_audit(audit: argparse.ArgumentParser) -> None:
    """The arguments of `dojo audit`."""
    audit.add_argument(
        "suite", nargs="?", default="dojo", help="dojo, generated, kernelbench, a folder or a file"
    )
    audit.add_argument("--limit", type=number(int, 1), default=None, help="at most so many problems")
    audit.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a size constant")
    audit.add_argument("--out", type=Path, metavar="FILE.parquet", help="where the whole table goes")
