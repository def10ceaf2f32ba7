"""File format of `dojo judge --batch`: one JSON object per line, each with a problem and a kernel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_core.config import GymConfig
from kernel_core.errors import CallerError, ConfigError, DojoError, NotFound
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.interop.judged import JudgedRequest
from kernel_core.problems.load import load_file
from kernel_core.problems.source import at_precision, parse_problem, resize, with_members
from kernel_core.records import Candidate, Constant, Precision, Problem

if TYPE_CHECKING:
    import pandas as pd


class BatchRow(BaseModel):
    """One line. Files are relative to the batch file; text comes before a file where both are given."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    problem: str | None = None
    problem_source: str | None = None
    kernel: str | None = None
    kernel_source: str | None = None
    set: dict[str, Constant] = Field(default_factory=dict)
    seed: int | None = None
    precision: Precision = "own"
    id: Any = None


def read_batch(file: Path, device: str = "cpu") -> tuple[list[str], list[JudgeRequest | CallerError]]:
    """Read the id and the request of each line, in order, for judges on a kind of device.

    A line that cannot be judged has its error, which names the line; the others are judged. Raises
    `CallerError` for a file that cannot be read.
    """
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not lines:
        raise ConfigError(f"{file} has no rows; each line is an object with `problem` and `kernel`")
    ids: list[str] = []
    requests: list[JudgeRequest | CallerError] = []
    for number, line in lines:
        name, request = _read_line(line, file, number, device)
        ids.append(name)
        requests.append(request)
    return ids, requests


def _read_line(line: str, file: Path, number: int, device: str) -> tuple[str, JudgeRequest | CallerError]:
    name = str(number)
    try:
        row = _read_row(line, f"{file}, line {number}")
        name = name if row.id is None else str(row.id)
        return name, _request(row, file, number, device)
    except CallerError as error:
        return name, error


def _read_row(line: str, where: str) -> BatchRow:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{where} is not an object with `problem` and `kernel`")
    try:
        return BatchRow.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(BatchRow.model_fields)
        raise ConfigError(f"{where}: {key}: {first['msg'].lower()}; known keys: {known}") from error


def _request(row: BatchRow, file: Path, number: int, device: str) -> JudgeRequest:
    try:
        problem = at_precision(_problem(row, file, number), row.precision)
        return request_of(problem, _kernel(row, file), row.set, row.seed, device)
    except CallerError as error:
        raise type(error)(f"{file}, line {number}: {error}") from error


def _problem(row: BatchRow, file: Path, number: int) -> Problem:
    if row.problem_source is not None:
        return parse_problem(row.problem_source, id=f"batch/{number}", suite="batch")
    if row.problem is not None:
        return load_file(file.parent / row.problem)
    raise ConfigError("neither `problem` nor `problem_source` is given")


def _kernel(row: BatchRow, file: Path) -> str:
    if row.kernel_source is not None:
        return row.kernel_source
    if row.kernel is not None:
        return read_kernel(file.parent / row.kernel)
    raise ConfigError("neither `kernel` nor `kernel_source` is given")


def read_kernel(file: Path) -> str:
    """Read the text of a kernel file. One that is not text is a bad kernel, and the judge reports it."""
    try:
        return file.read_bytes().decode("utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotFound(f"cannot read the kernel {file}: {reason}") from error


def request_of(
    problem: Problem, kernel: str, sizes: dict[str, Constant], seed: int | None, device: str
) -> JudgeRequest:
    """Judge this kernel at these sizes, whatever is known of it already; where `sizes` names none, they are
    what the problem has on that kind of device. Where it names none for a CPU, the judge has a rule."""
    if not sizes.keys() <= problem.constants.keys():
        problem = with_members(problem)
    request = JudgeRequest(problem=problem, candidate=Candidate.from_source(kernel), seed=seed, rejudge=True)
    if not sizes:
        return request
    resize(problem, sizes)  # an unknown name is the caller's mistake, told before anything starts
    return request.model_copy(update={"sizes": {**request.run_sizes(device), **sizes}})


def batch_table(ids: Sequence[str], judged: Sequence[JudgedRequest], gym: GymConfig) -> pd.DataFrame:
    """Return one row per line of the batch, in order: its id, and the keys of its report or its `error`."""
    import pandas as pd

    rows = [
        {"id": name, "error": str(result.outcome)}
        if isinstance(result.outcome, DojoError)
        else {"id": name, "error": None, **result.report(gym)}
        for name, result in zip(ids, judged, strict=True)
    ]
    table = pd.DataFrame(rows)
    for column in {"sizes", "in_place_of", "kernelbench"} & set(
        table
    ):  # objects, some empty, each with keys of its own
        table[column] = table[column].map(json.dumps, na_action="ignore")
    return table
