"""Filter of an index's rows for a query: the settings' filters, and never the problem itself."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from kernel_core.config import RetrievalConfig
from kernel_core.errors import CallerError
from kernel_core.records import Problem, Verdict
from kernel_core.retrieval.reasons import module_fingerprint
from kernel_core.retrieval.vectors import Mask


class Allowed:
    """Masks over the rows of one index, in the order of its vectors."""

    def __init__(self, exemplars: pa.Table, references: pa.Table, config: RetrievalConfig) -> None:
        """Raises `CallerError` when the filters leave nothing."""
        self._filtered = _filtered(exemplars, config)
        if not self._filtered.any():
            raise CallerError(
                f"no exemplar of the index passes the filters {config.model_dump(exclude_defaults=True)}; "
                "loosen rollout.retrieval, or ingest a source that has some"
            )
        self._by_reference = _rows_by(references["reference_hash"].to_pylist())
        self._by_structure = _rows_by(references["structure_hash"].to_pylist())
        tasks = zip(exemplars["task_level"].to_pylist(), exemplars["task_id"].to_pylist(), strict=True)
        self._by_task = _rows_by([None if None in task else task for task in tasks])

    def for_query(self, query: Problem | str, exclude: Sequence[Problem] = ()) -> Mask:
        """Return the mask of rows that this query may find.

        Never one of the query's own reference or KernelBench task; of an excluded problem, none at other
        sizes either.
        """
        mask = self._filtered.copy()
        own = module_fingerprint(query.source if isinstance(query, Problem) else query)
        if own is not None:
            mask[self._by_reference.get(own.reference_hash, [])] = False
        for problem in (query, *exclude):
            mask[self._by_task.get(_task_of(problem), [])] = False
        for problem in exclude:
            excluded = module_fingerprint(problem.source)
            if excluded is not None:
                mask[self._by_structure.get(excluded.structure_hash, [])] = False
        return mask


def _filtered(exemplars: pa.Table, config: RetrievalConfig) -> Mask:
    mask = np.ones(exemplars.num_rows, bool)
    for column, allowed in (
        ("language", config.languages),
        ("licence", config.licences),
        ("source", config.sources),
        ("verified", (Verdict.CORRECT.value,) if config.verified_only else ()),
    ):
        if allowed:
            mask &= np.isin(np.asarray(exemplars[column].to_pylist(), object), list(allowed))
    return mask


def _rows_by(keys: Sequence[object]) -> dict[object, list[int]]:
    rows: dict[object, list[int]] = {}
    for row, key in enumerate(keys):
        if key is not None:
            rows.setdefault(key, []).append(row)
    return rows


def _task_of(query: Problem | str) -> tuple[int, int] | None:
    """Level and number of a KernelBench problem, which a corpus row may name as its task."""
    if isinstance(query, str) or query.suite != "kernelbench" or query.level is None:
        return None
    number = re.match(r"\d+", query.name)
    return (query.level, int(number.group())) if number else None
