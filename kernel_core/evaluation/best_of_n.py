"""The best-of-N stage: the best kernels a policy can write, verified, with their evidence."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from kernel_core.batches import Batch, EachBatch, Work, in_order
from kernel_core.config import BestOfNConfig
from kernel_core.dialogue import resumable
from kernel_core.dialogue.answers import PIECES
from kernel_core.errors import Corrupt
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.evaluation.winners import Rejudged, Selected, select, speedup_of
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.judge.audited_problems import load_audited
from kernel_core.parquet_rows import packed, schema_of
from kernel_core.policy.protocol import Policy
from kernel_core.progress import Progress, silent
from kernel_core.records import Record
from kernel_core.retrieval.protocol import Retriever
from kernel_core.store import Store

RecordT = TypeVar("RecordT", bound=Record)
log = logging.getLogger(__name__)

KIND = "winners"

WINNER_SCHEMA = schema_of(
    (pa.string(), "problem_id family"),
    (pa.int64(), "level"),
    (pa.string(), "candidate_sha256"),
    (pa.int64(), "sample turn rank"),
    (pa.string(), "speed_kind"),
    (pa.float64(), "speedup first_speedup"),
    (pa.int64(), "trials_passed candidates correct"),
    (pa.string(), "kernel"),
)


class Selection(Record):
    """The winners of all problems, and the problems that have none."""

    policy_version: str
    gym_version: str
    device: str
    mode: str
    n: int
    speed_kind: SpeedKind
    problems: tuple[Selected, ...]

    @property
    def winners(self) -> tuple[Selected, ...]:
        """Problems that have a winner."""
        return tuple(selected for selected in self.problems if selected.winner is not None)

    def rows(self) -> list[dict[str, Any]]:
        """One row a problem, for a table."""
        return [
            {
                "problem": selected.problem_id,
                "winner": selected.winner.ranked.candidate.sha256[:12] if selected.winner else None,
                f"{self.speed_kind} speed-up": selected.winner.speedup if selected.winner else None,
                "candidates": selected.num_candidates,
                "distinct correct": selected.num_distinct_correct,
                "rejected on fresh draws": len(selected.rejected),
                "why none": selected.why_none,
            }
            for selected in self.problems
        ]


def best_of_n(
    config: BestOfNConfig,
    policy: Policy,
    gym: Gym,
    retriever: Retriever | None,
    store: Store,
    progress: Progress = silent,
    memory: Store | None = None,
    each: EachBatch = in_order,
) -> Selection:
    """Sample `n` conversations a problem (or one of `n` turns), rank, judge again, and write the winners.

    A folder with finished winners of the same settings is read, not made again; an unfinished one goes on
    from its last finished problem. Raises `ConfigError` when the folder holds winners of other settings.
    `memory` keeps which problems pay for nothing; `each` works on batches of problems, and on each winner.
    """
    problems = load_audited(config.problems, memory).problems
    digest = resumable.digest_of_stage(config, problems, policy.version, gym)
    if resumable.finished(store, KIND, digest):
        return load_selection(store)
    parallel = config.mode == "parallel"
    held = resumable.converse(
        policy,
        gym,
        problems,
        retriever,
        config.rollout if parallel else config.rollout.model_copy(update={"turns": config.n}),
        samples=config.n if parallel else 1,
        device=config.policy.device,
        seed=config.seed,
        digests=(resumable.digest_of_answers(config, problems, policy.version), digest),
        store=store,
        progress=progress,
        each=each,
    )
    kind: SpeedKind = "measured" if config.gym.device == "cuda" else "predicted"
    names = [f"selected/{digest[:12]}-{index:05d}.json" for index in range(len(problems))]

    def choose(batch: Batch) -> str:
        chosen = select(problems[batch.start], held.groups[batch.start], gym, kind, config.seed)
        store.write(names[batch.start], chosen.model_dump_json(indent=2).encode() + b"\n")
        progress("winners", done=sum(map(store.exists, names)), total=len(names))
        return chosen.in_words(kind)

    selected, files = _choose_missing(names, store, choose, each)
    selection = Selection(
        policy_version=policy.version,
        gym_version=gym.version,
        device=config.gym.device,
        mode=config.mode,
        n=config.n,
        speed_kind=kind,
        problems=selected,
    )
    seal_selection(selection, files | held.files | held.kept.seal(store), {"digest": digest}, store)
    store.remove(PIECES)
    return selection


def seal_selection(selection: Selection, files: dict[str, str], meta: dict[str, Any], store: Store) -> None:
    """Write the kernels, evidence and tables of a selection, and seal them with `files` of the folder."""
    meta = {**meta, "policy_version": selection.policy_version}
    store.seal(KIND, files | _write(selection, store), meta=meta)
    log.info("%d winners for %d problems in %s", len(selection.winners), len(selection.problems), store.root)


def _choose_missing(
    names: Sequence[str], store: Store, choose: Work, each: EachBatch
) -> tuple[tuple[Selected, ...], dict[str, str]]:
    """Choose for every problem that has no file yet, several at once; gives all choices and their files."""
    total = len(names)
    left = [
        Batch(label="winners", start=index, end=index + 1, total=total)
        for index, name in enumerate(names)
        if not store.exists(name)
    ]
    each(left, choose, at_once=True)
    files = {name: store.read(name) for name in names}
    selected = tuple(_parse(Selected, data, store.path(name)) for name, data in files.items())
    return selected, {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def load_selection(store: Store) -> Selection:
    """Finished winners; `NotFound` without any, `Corrupt` when the folder was damaged."""
    store.open_sealed(KIND)
    return _parse(Selection, store.read("winners/report.json"), store.path("winners/report.json"))


def _write(selection: Selection, store: Store) -> dict[str, str]:
    """`winners/`: each winner's kernel and evidence, the table, and the report with those that have none."""
    files: dict[str, str] = {}
    rows = []
    for selected in selection.winners:
        assert selected.winner is not None, "a winner without its evidence"
        folder = f"winners/{selected.problem_id}"
        kernel = selected.winner.ranked.candidate.source.encode("utf-8", "surrogatepass")
        evidence = selected.model_dump_json(indent=2).encode() + b"\n"
        files[f"{folder}/kernel.py"] = store.write(f"{folder}/kernel.py", kernel)
        files[f"{folder}/evidence.json"] = store.write(f"{folder}/evidence.json", evidence)
        rows.append(_winner_row(selected, selected.winner, selection.speed_kind, f"{folder}/kernel.py"))
    table, report = "winners/winners.parquet", "winners/report.json"
    files[table] = store.write(table, packed(rows, WINNER_SCHEMA))
    files[report] = store.write(report, selection.model_dump_json(indent=2).encode() + b"\n")
    return files


def _winner_row(selected: Selected, winner: Rejudged, kind: SpeedKind, kernel: str) -> dict[str, Any]:
    return {
        "problem_id": selected.problem_id,
        "family": selected.family,
        "level": selected.level,
        "candidate_sha256": winner.ranked.candidate.sha256,
        "sample": winner.ranked.sample,
        "turn": winner.ranked.turn,
        "rank": winner.rank,
        "speed_kind": kind,
        "speedup": winner.speedup,
        "first_speedup": speedup_of(winner.ranked.evaluation, kind),
        "trials_passed": sum(evaluation.trials_passed for evaluation in winner.again),
        "candidates": selected.num_candidates,
        "correct": selected.num_distinct_correct,
        "kernel": kernel,
    }


def _parse(kind: type[RecordT], data: bytes, path: str) -> RecordT:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise Corrupt(f"{path} does not hold what it should; remove it and run again") from error
