"""`dojo judge`: one kernel, or a file of many. A verdict, whatever it is, is success."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from flows.terminal import say
from kernel_core.config import GymConfig
from kernel_core.errors import ConfigError, NotFound
from kernel_core.gym.protocol import JudgeRequest
from kernel_core.gym.report import judge_report
from kernel_core.records import Candidate, Constant, Evaluation, Problem


def judge_one(
    problem_file: Path,
    kernel_file: Path,
    gym: dict[str, str],
    sizes: Sequence[str],
    seed: int | None,
    as_json: bool,
) -> int:
    """Judge one kernel file for one problem file and print the result; `gym` are settings of `GymConfig`."""
    request = _request(_load_problem(problem_file), _read_kernel(kernel_file), read_sizes(sizes), seed)
    report = _report(_judge([request], gym)[0], gym)
    if as_json:
        say(json.dumps(report))
    else:
        _show(report, Console())
    return 0


def judge_batch(rows_file: Path, out: Path, gym: dict[str, str]) -> int:
    """Judge every row of a JSON-lines file and write a Parquet table, one row each, in order.

    A row has `problem` and `kernel` (files, relative to the JSON-lines file) or `problem_source` and
    `kernel_source` (text); and may have `set` (sizes), `seed`, and `id`, which is passed on.
    """
    import pandas as pd

    rows = _read_rows(rows_file)
    requests = [_row_request(row, rows_file, number) for number, row in enumerate(rows, start=1)]
    evaluations = _judge(requests, gym)
    table = pd.DataFrame(
        [
            {"id": str(row.get("id", number)), **_report(evaluation, gym)}
            for number, (row, evaluation) in enumerate(zip(rows, evaluations, strict=True), start=1)
        ]
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


def _request(problem: Problem, kernel: str, sizes: dict[str, Constant], seed: int | None) -> JudgeRequest:
    from kernel_core.problems.load import resize

    if sizes:
        resize(problem, sizes)  # an unknown name is the caller's mistake, told before anything starts
    overrides = {**problem.cpu_constants, **sizes} if sizes else None
    return JudgeRequest(
        problem=problem, candidate=Candidate.from_source(kernel), sizes=overrides, seed=seed, rejudge=True
    )


def _load_problem(file: Path) -> Problem:
    from kernel_core.problems.load import load_file

    return load_file(file)


def _read_kernel(file: Path) -> str:
    """The text of a kernel file. One that is not text is a bad kernel, and the judge says so."""
    try:
        return file.read_bytes().decode("utf-8", errors="replace")
    except OSError as error:
        raise NotFound(f"cannot read the kernel {file}: {error.strerror}") from error


def read_sizes(assignments: Sequence[str]) -> dict[str, Constant]:
    """Values of size constants from `NAME=VALUE` words."""
    sizes: dict[str, Constant] = {}
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        value = yaml.safe_load(text) if separator else None
        if not name or not isinstance(value, int | float | bool | str):
            raise ConfigError(f"--set {assignment!r} is not of the form NAME=VALUE with a number or a word")
        sizes[name] = value
    return sizes


def _read_rows(file: Path) -> list[dict[str, Any]]:
    try:
        lines = [line for line in file.read_text().splitlines() if line.strip()]
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}") from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigError(f"{file}, line {number} is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConfigError(f"{file}, line {number} is not an object with `problem` and `kernel`")
        rows.append(row)
    if not rows:
        raise ConfigError(f"{file} has no rows; each line is an object with `problem` and `kernel`")
    return rows


def _row_request(row: dict[str, Any], file: Path, number: int) -> JudgeRequest:
    from kernel_core.problems.load import parse_problem

    known = {"problem", "kernel", "problem_source", "kernel_source", "set", "seed", "id"}
    if unknown := row.keys() - known:
        raise ConfigError(
            f"{file}, line {number}: unknown key {min(unknown)}; known: {', '.join(sorted(known))}"
        )
    if "problem_source" in row:
        problem = parse_problem(row["problem_source"], id=f"batch/{number}", suite="batch")
    elif "problem" in row:
        problem = _load_problem(file.parent / row["problem"])
    else:
        raise ConfigError(f"{file}, line {number} has neither `problem` nor `problem_source`")
    if "kernel_source" in row:
        kernel = row["kernel_source"]
    elif "kernel" in row:
        kernel = _read_kernel(file.parent / row["kernel"])
    else:
        raise ConfigError(f"{file}, line {number} has neither `kernel` nor `kernel_source`")
    return _request(problem, kernel, row.get("set") or {}, row.get("seed"))


def _show(report: dict[str, Any], console: Console) -> None:
    table = Table(show_header=False, box=None)
    for name, value in report.items():
        if value is not None and value != []:
            table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    console.print(table)
