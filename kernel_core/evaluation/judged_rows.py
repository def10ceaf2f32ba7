"""Files of judged answers, one row an answer, and the tables of their figures.

A row has `problem`, `sample` and `verdict`, and may have `speedup`, `own_share`, `run` and `seed` (the arm of
a comparison), `experiment`, and `evaluation`: the judge's whole evaluation as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kernel_core.config import Arm
from kernel_core.errors import ConfigError, NotFound
from kernel_core.evaluation.groups import JudgedAnswer, difference_rows, figure_rows, pairs_of, read_answers
from kernel_core.evaluation.kinds import baseline_rows, kind_rows, without_empty_columns
from kernel_core.evaluation.metrics import ProblemOutcomes, Scorecard, outcome_of, outcomes_in
from kernel_core.parquet_rows import packed, schema_of, unpacked
from kernel_core.records import Evaluation
from kernel_core.store import Store

Row = dict[str, Any]

SCHEMA = schema_of(
    (pa.string(), "run"),
    (pa.int64(), "seed"),
    (pa.string(), "problem"),
    (pa.int64(), "sample"),
    (pa.string(), "verdict"),
    (pa.float64(), "speedup own_share"),
)
"""Columns of the file that a comparison writes."""
KIND = "comparison"
ANSWERS = "answers.parquet"
FIGURES, DIFFERENCES = "by group of problems", "differences over the same problems"
_NEEDED = ("problem", "sample", "verdict")


def read_rows(path: str) -> list[Row]:
    """Return the rows of a Parquet file. Raises `ConfigError` for a file of something else."""
    folder, _, name = path.rpartition("/")
    try:
        rows = unpacked(Store(folder or ".").read(name))
    except pa.ArrowException as error:
        raise ConfigError(f"{path} is no Parquet file of judged answers: {error}") from error
    if missing := [column for column in _NEEDED if rows and column not in rows[0]]:
        raise ConfigError(f"{path} has no column {missing[0]}; wanted: {', '.join(_NEEDED)}")
    if not rows:
        raise NotFound(f"{path} has no rows")
    return rows


def figure_tables(
    rows: Sequence[Mapping[str, Any]], against: str = "", own_share: float = 0.0
) -> dict[str, list[Row]]:
    """Return tables by title: figures of each arm, paired differences, and KernelBench by kind.

    `against` is the arm that others are compared with, the first one by default. A correct answer counts
    from a share of `own_share` of own work on. Raises `NotFound` where `against` is no arm.
    """
    tables: dict[str, list[Row]] = {}
    names = dict.fromkeys(row.get("experiment") or "" for row in rows)
    for name in names:
        part = [row for row in rows if (row.get("experiment") or "") == name]
        arms = arms_of(part, own_share)
        pairs = pairs_of(arms, against)
        if against and not pairs:
            continue
        title = f"{name}: " if name else ""
        tables[f"{title}{FIGURES}"] = figure_rows(arms)
        tables[f"{title}{DIFFERENCES}"] = difference_rows(arms, pairs)
        outcomes = _outcomes(part)
        tables[f"{title}KernelBench by kind"] = kind_rows(outcomes)
        tables[f"{title}KernelBench by baseline"] = baseline_rows(outcomes)
    if not tables:
        runs = sorted({str(row.get("run") or "answers") for row in rows})
        raise NotFound(f"no run {against!r} here; runs: {', '.join(runs)}")
    return {title: without_empty_columns(lines) for title, lines in tables.items() if lines}


def arms_of(rows: Sequence[Mapping[str, Any]], own_share: float = 0.0) -> dict[str, list[JudgedAnswer]]:
    """Return the answers of each arm, `RUN` or `RUN-SEED` where a run has several seeds."""
    seeds: dict[str, set[Any]] = {}
    for row in rows:
        seeds.setdefault(row.get("run") or "answers", set()).add(row.get("seed"))
    by_arm: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        run = row.get("run") or "answers"
        arm = f"{run}-{row['seed']}" if len(seeds[run]) > 1 else run
        by_arm.setdefault(arm, []).append(row)
    return {arm: read_answers(part, own_share) for arm, part in by_arm.items()}


def rows_of(run: str, seed: int, cards: Iterable[Scorecard]) -> Iterator[Row]:
    """Yield a row for the last turn of each conversation of an arm's scorecards."""
    for card in cards:
        for problem in card.problems:
            for sample, outcome in enumerate(outcomes_in(problem, "last", card.headline)):
                row = {"run": run, "seed": seed, "problem": problem.problem_id, "sample": sample}
                row |= {"verdict": outcome.verdict.value, "speedup": outcome.speedup(card.headline)}
                yield row | {"own_share": outcome.own_share}


def write_comparison(cards: Mapping[Arm, Sequence[Scorecard]], store: Store) -> None:
    """Write a row for each answer of each arm, the figures and the differences, and seal the folder.

    Other arms are compared with the first method, seed by seed.
    """
    rows = [row for arm, its in cards.items() for row in rows_of(arm.method, arm.seed, its)]
    tables = figure_tables(rows, next(iter(cards)).method)
    files = {ANSWERS: store.write(ANSWERS, packed(rows, SCHEMA))}
    for name, title in (("figures.parquet", FIGURES), ("differences.parquet", DIFFERENCES)):
        if lines := tables.get(title):
            schema = pa.Table.from_pylist(lines).schema
            files[name] = store.write(name, packed(lines, schema))
    store.seal(KIND, files, meta={"arms": [arm.name for arm in cards]})


def _outcomes(rows: Sequence[Mapping[str, Any]]) -> list[ProblemOutcomes]:
    """Return the outcomes of rows with whole evaluations."""
    by_problem: dict[str, list[Evaluation]] = {}
    for row in rows:
        if row.get("evaluation"):
            evaluation = Evaluation.model_validate_json(row["evaluation"])
            by_problem.setdefault(row["problem"], []).append(evaluation)
    return [
        ProblemOutcomes(
            problem_id=problem,
            sha256="",
            family="",
            level=None,
            samples=tuple((outcome_of(evaluation, 0),) for evaluation in evaluations),
        )
        for problem, evaluations in by_problem.items()
    ]
