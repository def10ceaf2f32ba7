"""`dojo judge`: one kernel, or a file of many. A verdict, whatever it is, is success."""

from __future__ import annotations

import ast
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml
from rich.console import Console
from rich.table import Table

from flows.commands.batch import read_batch
from flows.commands.memory import require_memory
from flows.commands.outputs import require_writable
from flows.terminal import say
from kernel_core.config import GymConfig
from kernel_core.errors import CallerError, ConfigError, DojoError
from kernel_core.gym.contract.requests import JudgeRequest, TakenOut
from kernel_core.gym.judge.json_report import judge_report
from kernel_core.gym.verdict.case import Case
from kernel_core.problems.gradients import forward_alone, wanted_gradients
from kernel_core.records import Constant, Evaluation, NoCandidate, Verdict
from kernel_core.runs.configure import build

_TIMES = ("runtime_ms", "reference_ms", "predicted_runtime_ms", "predicted_reference_ms")
LOOK_EVERY_S = 0.3
_MAX_GPUS = 64
"""More than any node has."""


def judge_one(request: JudgeRequest, gym: dict[str, str], as_json: bool) -> int:
    """Judge one kernel and print the result; `gym` are settings of `GymConfig`."""
    if not_python(request, gym["device"]) is None:
        require_memory(request, gym["device"])
    asked = [request, *_forward_alone([request])]
    (outcome, *forward), _ = _judge(asked, gym)
    _tell(outcome, forward, request, gym, as_json)
    return 0


def judge_on_save(
    make_request: Callable[[], JudgeRequest], kernel: Path, gym: dict[str, str], as_json: bool
) -> NoReturn:
    """Judge a kernel now and whenever its file changes, until interrupted, with one judge that stays open."""
    from kernel_core.gym.pool.open_gym import open_gym

    require_memory(make_request(), gym["device"])
    with open_gym(build(GymConfig, gym | {"workers": 1})) as opened:
        judged = b""
        while True:
            if (text := kernel.read_bytes() if kernel.exists() else b"") and text != judged:
                judged, request = text, make_request()
                known = not_python(request, gym["device"])
                outcome, *forward = (
                    [known] if known else opened.judge_each([request, *_forward_alone([request])])
                )
                _tell(outcome, forward, request, gym, as_json)
            time.sleep(LOOK_EVERY_S)


def _tell(
    outcome: Evaluation | DojoError,
    forward: Sequence[Evaluation | DojoError],
    request: JudgeRequest,
    gym: dict[str, str],
    as_json: bool,
) -> None:
    """Print a verdict; raise what kept it from being reached."""
    if not isinstance(outcome, Evaluation):
        raise outcome
    report = _report(outcome, request, gym) | _times_forward(forward[0] if forward else None)
    if as_json:
        say(json.dumps(report))
    else:
        _show(report, Console())


def judge_batch(rows_file: Path, out: Path, gym: dict[str, str], as_json: bool) -> int:
    """Judge every row of a JSON-lines file and write a Parquet table, one row each, in order.

    See `batch.BatchRow` for what a row may hold. A row that cannot be judged has an `error` and no verdict.
    With `as_json` the last line printed is a summary.
    """
    import pandas as pd

    ids, requests = read_batch(rows_file, gym["device"])
    require_writable("--out", out, rows_file)
    forward_requests = _forward_alone(requests)
    outcomes, taken_out = _judge([*requests, *forward_requests], gym)
    judged_forward = iter(outcomes[len(requests) :])
    outcomes = outcomes[: len(requests)]
    forward = [next(judged_forward) if _forward_alone([one]) else None for one in requests]
    failed = [(name, one) for name, one in zip(ids, outcomes, strict=True) if isinstance(one, DojoError)]
    if len(failed) == len(ids):
        raise failed[0][1]
    table = pd.DataFrame(
        [
            {"id": name}
            | (
                {"error": str(one)}
                if isinstance(one, DojoError) or isinstance(request, CallerError)
                else {"error": None, **_report(one, request, gym), **_times_forward(alone)}
            )
            for name, request, one, alone in zip(ids, requests, outcomes, forward, strict=True)
        ]
    )
    for column in {"sizes", "kernelbench"} & set(table):  # objects, some empty, each with keys of its own
        table[column] = table[column].map(json.dumps, na_action="ignore")
    table.to_parquet(out, index=False)
    counts = table["verdict"].value_counts()
    judged = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    say(f"{counts.sum()} judged: {judged}; {out}")
    for name, error in failed:
        say(f"not judged: {name}: {error}")
    for one in taken_out:
        say(f"taken out: {one.place}: {one.reason}")
    if as_json:
        summary = {
            "judged": int(counts.sum()),
            "verdicts": {str(verdict): int(n) for verdict, n in counts.items()},
            "not_judged": [{"id": name, "error": str(error)} for name, error in failed],
            "out": str(out),
        }
        say(json.dumps(summary))
    return max((error.exit_code for _, error in failed), default=0)


def _forward_alone(requests: Sequence[JudgeRequest | CallerError]) -> list[JudgeRequest]:
    """For each problem with gradients the same request without them, which tells the time of the forward
    pass. Without gradients the same kernel is another candidate of another problem."""
    return [
        one.model_copy(update={"problem": forward_alone(one.problem)})
        for one in requests
        if isinstance(one, JudgeRequest) and wanted_gradients(one.problem.source)
    ]


def _times_forward(forward: Evaluation | DojoError | None) -> dict[str, Any]:
    """Times of the forward pass, for the report of forward and backward."""
    if not isinstance(forward, Evaluation):
        return {}
    report = judge_report(forward)
    return {f"forward_{name}": report[name] for name in _TIMES}


def _report(evaluation: Evaluation, request: JudgeRequest, gym: dict[str, str]) -> dict[str, Any]:
    """The report of a verdict and the sizes in force; by KernelBench's rules also as its evaluator writes
    it."""
    report = judge_report(evaluation)
    report["sizes"] = {**request.problem.constants, **request.run_sizes(gym["device"])}
    if gym["rules"] == "kernelbench":
        from kernel_core.gym.judge.kernelbench_rules import result_of  # with torch, which takes seconds

        report["kernelbench"] = result_of(evaluation)
    return report


def _judge(
    requests: Sequence[JudgeRequest | CallerError], gym: dict[str, str]
) -> tuple[list[Evaluation | DojoError], tuple[TakenOut, ...]]:
    """Outcomes in order. What is known without a judge starts none: an error, or text that is not Python."""
    outcomes: list[Evaluation | DojoError | None] = [
        one if isinstance(one, CallerError) else not_python(one, gym["device"]) for one in requests
    ]
    asked = [
        one
        for one, known in zip(requests, outcomes, strict=True)
        if isinstance(one, JudgeRequest) and not known
    ]
    config = build(GymConfig, gym | {"workers": _num_workers(len(asked), gym)}) if asked else None
    taken_out: tuple[TakenOut, ...] = ()
    if config is not None:
        from kernel_core.gym.pool.open_gym import open_gym

        with open_gym(config) as opened:
            judged = iter(opened.judge_each(asked))
            outcomes = [known or next(judged) for known in outcomes]
            taken_out = opened.taken_out
    return [one for one in outcomes if one is not None], taken_out


def not_python(request: JudgeRequest, device: str) -> Evaluation | None:
    """The verdict on text that Python cannot parse, as the judge gives it; None for any other."""
    if isinstance(request.candidate, NoCandidate):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(request.candidate.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        case = Case(request, seed=0)
        case.fail(Verdict.MALFORMED, str(getattr(error, "msg", error)), getattr(error, "lineno", 0) or 0)
        return case.evaluation(device, None, 0.0)
    return None


def _num_workers(num_requests: int, gym: dict[str, str]) -> int:
    """One for one kernel; for many, two, or all GPUs of this host or of each node."""
    if num_requests == 1 or gym["device"] == "cpu":
        return min(2, num_requests)
    if gym["cluster"] == "ray":
        return _MAX_GPUS
    import torch

    return max(1, torch.cuda.device_count())


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
