"""`dojo judge`: one kernel, or a file of many. A verdict, whatever it is, is success."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from flows.commands.batch import read_batch
from flows.terminal import say
from kernel_core.config import GymConfig
from kernel_core.errors import ConfigError
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.report import judge_report
from kernel_core.records import Constant, Evaluation


def judge_one(request: JudgeRequest, gym: dict[str, str], as_json: bool) -> int:
    """Judge one kernel and print the result; `gym` are settings of `GymConfig`."""
    report = _report(_judge([request], gym)[0], gym)
    if as_json:
        say(json.dumps(report))
    else:
        _show(report, Console())
    return 0


def judge_batch(rows_file: Path, out: Path, gym: dict[str, str]) -> int:
    """Judge every row of a JSON-lines file and write a Parquet table, one row each, in order.

    See `batch.BatchRow` for what a row may hold.
    """
    import pandas as pd

    ids, requests = read_batch(rows_file)
    evaluations = _judge(requests, gym)
    table = pd.DataFrame(
        [{"id": name, **_report(one, gym)} for name, one in zip(ids, evaluations, strict=True)]
    )
    if "kernelbench" in table:
        table["kernelbench"] = table["kernelbench"].map(json.dumps)  # some of its objects are empty
    out.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(out, index=False)
    counts = table["verdict"].value_counts()
    say(f"{len(table)} judged: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items()) + f"; {out}")
    return 0


def _report(evaluation: Evaluation, gym: dict[str, str]) -> dict[str, Any]:
    """The report of a verdict; by KernelBench's rules also as its evaluator writes it."""
    from kernel_core.gym.kernelbench import result_of

    report = judge_report(evaluation)
    return report | ({"kernelbench": result_of(evaluation)} if gym["rules"] == "kernelbench" else {})


def _judge(requests: Sequence[JudgeRequest], gym: dict[str, str]) -> list[Evaluation]:
    from kernel_core.gym import open_gym

    config = GymConfig.model_validate(gym | {"workers": 1 if len(requests) == 1 else 2})
    with open_gym(config) as opened:
        return opened.judge(requests)


def read_sizes(assignments: Sequence[str]) -> dict[str, Constant]:
    """Values of size constants from `NAME=VALUE` words."""
    sizes: dict[str, Constant] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        try:
            value = yaml.safe_load(text) if separator else None
        except yaml.YAMLError:
            value = None
        if not name or not isinstance(value, int | float | bool | str):
            raise ConfigError(f"--set {assignment!r} is not of the form NAME=VALUE with a number or a word")
        sizes[name] = value
    return sizes


def _show(report: dict[str, Any], console: Console) -> None:
    table = Table(show_header=False, box=None)
    for name, value in report.items():
        if value is not None and value != []:
            table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    console.print(table)
