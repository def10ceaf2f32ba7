"""`dojo judge`: one kernel, or a file of many. A verdict, whatever it is, is success."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from cyclopts import Parameter
from rich.console import Console
from rich.progress import Progress

from flows.arguments import Sizes
from flows.commands.outputs import require_writable
from flows.terminal import say, working
from kernel_core.config import GymConfig
from kernel_core.errors import ConfigError, DojoError
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.judge.not_python import not_python
from kernel_core.gym.oracle.memory import require_memory
from kernel_core.interop.batch import batch_table, read_batch, read_kernel, request_of
from kernel_core.interop.judged import JudgedRequest, judge_all, judge_here
from kernel_core.problems.load import load_file
from kernel_core.problems.source import at_precision
from kernel_core.report.verdict import verdict_table
from kernel_core.runs.configure import build, sizes_of
from kernel_core.runs.host_gpus import require_gpu_here

LOOK_EVERY_S = 0.3
CONDITIONS = ("gym_version", "device", "platform", "sandbox", "problem_id", "candidate_sha", "sizes")
"""Keys that stay the same from one save to the next."""


def judge(
    *,
    problem: Path | None = None,
    kernel: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    rules: Literal["dojo", "kernelbench"] = "dojo",
    cluster: Annotated[list[str] | None, Parameter(consume_multiple=(0, 1))] = None,
    set_: Sizes = (),
    precision: Literal["own", "float16", "bfloat16"] | None = None,
    seed: int | None = None,
    watch: bool = False,
    json_: Annotated[bool, Parameter(name="--json")] = False,
    batch: Path | None = None,
    out: Path | None = None,
) -> int:
    """Judge a kernel, or a file of many.

    Args:
        problem: a file in KernelBench's format
        kernel: a file that defines ModelNew
        rules: KernelBench's are for comparison
        cluster: on the Ray cluster at this address, by default that of RAY_ADDRESS or of this host
        precision: what inputs and weights are cast to; own, by default, leaves them
        seed: of the input draws; a fresh one by default
        watch: judge again whenever the kernel is saved
        json_: the last line of stdout is one JSON object
        batch: a file of JSON lines with problem, kernel and sizes
        out: the Parquet file where a batch's results go
    """
    gym = {"device": device, "rules": rules, "cluster": "local"}
    if device == "cuda" and cluster is None:
        require_gpu_here("--device")
    if cluster is not None:
        gym |= {"cluster": "ray", "ray_address": next(iter(cluster), "auto")}
    if batch is not None:
        given = {"problem": problem, "kernel": kernel, "set": set_ or None, "seed": seed}
        _refuse_beside_batch(given | {"precision": precision, "watch": watch or None})
        if out is None:
            raise ConfigError("--batch FILE.jsonl needs --out FILE.parquet")
        return judge_batch(batch, out, gym, json_)
    if out is not None:
        raise ConfigError("--out is where the table of --batch FILE.jsonl goes; --json prints one verdict")
    if problem is None or kernel is None:
        raise ConfigError(
            "give --problem P.py and --kernel K.py, or --batch FILE.jsonl and --out FILE.parquet"
        )
    read = at_precision(load_file(problem), precision or "own")
    sizes = sizes_of(set_)

    def request() -> JudgeRequest:
        return request_of(read, read_kernel(kernel), sizes, seed, device)

    if watch:
        judge_on_save(request, kernel, gym, json_)
    return judge_one(request(), gym, json_)


def _refuse_beside_batch(options: dict[str, Any]) -> None:
    if given := [f"--{name}" for name, value in options.items() if value is not None]:
        raise ConfigError(f"--batch takes no {', '.join(given)}: each of its rows has a key for that")


def judge_one(request: JudgeRequest, gym: dict[str, str], as_json: bool) -> int:
    """Judge one kernel and print the result; `gym` are settings of `GymConfig`."""
    if not_python(request, gym["device"]) is None:
        _tell_memory(request, gym["device"])
    with working(f"judging a kernel for {request.problem.id} on {gym['device']}"):
        (judged,), _ = judge_here([request], gym)
    _tell(judged, gym, as_json)
    return 0


def judge_on_save(
    make_request: Callable[[], JudgeRequest], kernel: Path, gym: dict[str, str], as_json: bool
) -> NoReturn:
    """Judge a kernel now and whenever its file changes, until interrupted, with one judge that stays open."""
    from kernel_core.gym.pool.open_gym import open_gym

    _tell_memory(make_request(), gym["device"])
    with open_gym(build(GymConfig, gym | {"workers": 1})) as opened:
        seen = b""
        while True:
            with working(f"watching {kernel} for changes; Ctrl-C ends"):
                while (text := kernel.read_bytes() if kernel.exists() else b"") in (b"", seen):
                    time.sleep(LOOK_EVERY_S)
            is_first, seen = not seen, text
            with working(f"judging {kernel} on {gym['device']}"):
                (judged,) = judge_all([make_request()], gym["device"], opened.judge_each)
            if not as_json:
                Console().rule(f"{kernel.name} {time.strftime('%H:%M:%S')}", align="left")
            _tell(judged, gym, as_json, hidden=() if is_first else CONDITIONS)


def _tell_memory(request: JudgeRequest, device: str) -> None:
    if warning := require_memory(request, device):
        print(f"dojo: {warning}", file=sys.stderr)


def _tell(judged: JudgedRequest, gym: dict[str, str], as_json: bool, hidden: Sequence[str] = ()) -> None:
    """Print a verdict, for a person without the `hidden` keys; raise what kept it from being reached."""
    report = judged.report(build(GymConfig, gym))
    if as_json:
        say(json.dumps(report))
        return
    Console().print(verdict_table({name: value for name, value in report.items() if name not in hidden}))


def judge_batch(rows_file: Path, out: Path, gym: dict[str, str], as_json: bool) -> int:
    """Judge every row of a JSON-lines file and write a Parquet table, one row each, in order.

    See `batch.BatchRow` for what a row may hold. A row that cannot be judged has an `error` and no verdict.
    With `as_json` the last line printed is a summary.
    """
    ids, requests = read_batch(rows_file, gym["device"])
    require_writable("--out", out, rows_file)
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("judge", total=None)
        judged, taken_out = judge_here(requests, gym, lambda _, n, m: bars.update(bar, completed=n, total=m))
    outcomes = zip(ids, (row.outcome for row in judged), strict=True)
    failed = [(name, outcome) for name, outcome in outcomes if isinstance(outcome, DojoError)]
    if len(failed) == len(ids):
        raise failed[0][1]
    table = batch_table(ids, judged, build(GymConfig, gym))
    table.to_parquet(out, index=False)
    counts = {str(verdict): int(n) for verdict, n in table["verdict"].value_counts().items()}
    words = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
    say(f"{sum(counts.values())} judged: {words}; {out}")
    for name, error in failed:
        say(f"not judged: {name}: {error}")
    for worker in taken_out:
        say(f"taken out: {worker.place}: {worker.reason}")
    if as_json:
        not_judged = [{"id": name, "error": str(error)} for name, error in failed]
        summary = {"judged": sum(counts.values()), "verdicts": counts, "not_judged": not_judged}
        say(json.dumps(summary | {"out": str(out)}))
    return max((error.exit_code for _, error in failed), default=0)
