"""Re-judging a snapshot: what our judge finds of each kernel, beside what its maker claims.

Judged in small portions, each kept in `verified.jsonl` as soon as it is there, so that a killed verification
goes on with the next one. At the end the snapshot is sealed again with its `verified_*` columns filled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from kernel_core.config import VerifyConfig
from kernel_core.corpus.snapshot import load_snapshot, seal_verified
from kernel_core.errors import CallerError, NotAProblem
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.load import parse_problem
from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Evaluation, Exemplar, NotJudged, Problem, Record, Verdict
from kernel_core.store import Store, digest_of

_LOG = "verified.jsonl"
_PORTION = 32
_NEEDS_GPU = ("inductor_triton", "cuda_cpp")
"""Compiler output allocates on a GPU, and CUDA runs on nothing else."""


class Verified(Record):
    """Result of a verification."""

    judged: int
    """Rows that were judged."""
    verdicts: dict[str, int]
    not_judged: dict[str, int]
    """Rows that were passed over, by the reason."""
    believed_and_wrong: int
    """Claimed to be correct, and found not to be."""


def verify_snapshot(
    config: VerifyConfig, snapshot: Store, work: Store, gym: Gym, progress: Progress = silent
) -> Verified:
    """Judge the rows of a sealed snapshot that can be judged, and seal it again with their verdicts.

    Raises `NotFound` without a snapshot, `CallerError` when none of its rows can be judged, and
    `GymUnavailable` as the gym does.
    """
    rows = load_snapshot(snapshot)
    passed_over: Counter[str] = Counter()
    due = list(_judgeable(rows, config, passed_over))
    if not due:
        raise CallerError(
            f"no row of {snapshot.root} can be judged on {config.gym.device}: "
            + ", ".join(f"{count} {reason}" for reason, count in passed_over.items())
        )
    passed_over["beyond the limit"] += len(due) - len(due[: config.limit])
    due = due[: config.limit]
    conditions = f"gym {gym.version}, {config.gym.device}, {config.gym.trials} trials"
    known = {line["key"]: line for line in work.lines(_LOG)}
    keys = [digest_of([conditions, row.reference_hash, row.kernel_hash, row.id]) for row, _ in due]
    missing = [at for at, key in enumerate(keys) if key not in known]
    progress("verify", len(due) - len(missing), len(due))
    for start in range(0, len(missing), _PORTION):
        portion = missing[start : start + _PORTION]
        requests = [_request(*due[at], seed=config.seed) for at in portion]
        for at, outcome in zip(portion, gym.judge(requests), strict=True):
            if isinstance(outcome, NotJudged):
                passed_over["the reference fails on this device"] += 1
                continue
            known[keys[at]] = _line(keys[at], due[at][0], outcome)
            work.append_line(_LOG, known[keys[at]])
        progress("verify", len(due) - len(missing) + start + len(portion), len(due))
    line_by_id = {row.id: known[key] for (row, _), key in zip(due, keys, strict=True) if key in known}
    judged = [_with_verdict(row, line_by_id.get(row.id), conditions) for row in rows]
    report = Verified(
        judged=len(line_by_id),
        verdicts=dict(Counter(str(line["verdict"]) for line in line_by_id.values())),
        not_judged={reason: count for reason, count in passed_over.items() if count},
        believed_and_wrong=sum(
            bool(row.claimed_correct) and row.verified not in (None, Verdict.CORRECT) for row in judged
        ),
    )
    seal_verified(snapshot, judged, {"conditions": conditions, **report.model_dump()})
    return report


def _judgeable(
    rows: Sequence[Exemplar], config: VerifyConfig, passed_over: Counter[str]
) -> Iterator[tuple[Exemplar, Problem]]:
    """Rows that the judge can run here, each with its problem; the others are counted by reason."""
    for row in rows:
        if config.sources and row.source not in config.sources:
            passed_over["from another source"] += 1
        elif "class ModelNew" not in row.kernel_code:
            passed_over["not in ModelNew form"] += 1
        elif row.language in _NEEDS_GPU and config.gym.device != "cuda":
            passed_over[f"{row.language} needs a GPU"] += 1
        else:
            sizes = f"# cpu: {row.cpu_sizes}\n" if row.cpu_sizes else ""
            name = f"{row.source}/{row.reference_hash[:12]}"
            try:
                problem = parse_problem(sizes + row.reference_code, id=name, suite=row.source)
            except NotAProblem:
                passed_over["the reference is not in KernelBench's form"] += 1
            else:
                yield row, problem


def _request(row: Exemplar, problem: Problem, seed: int) -> JudgeRequest:
    return JudgeRequest(problem=problem, candidate=Candidate.from_source(row.kernel_code), seed=seed)


def _line(key: str, row: Exemplar, evaluation: Evaluation) -> dict[str, Any]:
    return {
        "key": key,
        "exemplar": row.id,
        "verdict": evaluation.verdict.value,
        "speedup": evaluation.speedup,
        "predicted_speedup": evaluation.predicted_speedup,
    }


def _with_verdict(row: Exemplar, line: dict[str, Any] | None, conditions: str) -> Exemplar:
    if line is None:
        return row
    return row.model_copy(
        update={
            "verified": Verdict(line["verdict"]),
            "verified_speedup": line["speedup"],
            "predicted_speedup": line["predicted_speedup"],
            "verified_by": conditions,
        }
    )
