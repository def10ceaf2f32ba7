"""The ingest: sources in, one sealed snapshot out (`exemplars.parquet`, `report.json`, manifest last).

Each source's rows are kept as a sealed part once they are all read, so a killed ingest reads no source
twice. The same config over the same revisions gives the same bytes, and a finished snapshot of the same
digest is returned at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_core.config import IngestConfig
from kernel_core.corpus import table
from kernel_core.corpus.answered_source import Answering
from kernel_core.corpus.decontaminate import Decontaminator, evaluation_problems, suites_version
from kernel_core.corpus.deduplicate import without_exact_duplicates, without_near_duplicates
from kernel_core.corpus.generator_source import generator_revision
from kernel_core.corpus.kernelbench_leaks import KernelBenchLeaks, known_kernelbench
from kernel_core.corpus.nearness import Nearness, nearness
from kernel_core.corpus.normalise import NORMALISER_VERSION, Fingerprint, fingerprint
from kernel_core.corpus.parts import INGEST_VERSION, SourceRows, read_part
from kernel_core.corpus.registry import (
    SOURCES_FILE,
    Registry,
    Source,
    find_source,
    is_moving,
    pinned,
    read_registry,
)
from kernel_core.corpus.report import DropCount, Dropped, Report, Survivor, top_reasons
from kernel_core.errors import CallerError
from kernel_core.progress import Progress, silent
from kernel_core.records import Exemplar, Problem
from kernel_core.store import MANIFEST, Manifest, Store, digest_of

_ROWS = "exemplars.parquet"
_VERIFIED = "verified.parquet"
_REPORT = "report.json"
_REVISIONS = "revisions.json"
_PROGRESS_EVERY = 256
_MAX_SURVIVORS = 50

logger = logging.getLogger(__name__)


def build_snapshot(
    config: IngestConfig,
    store: Store,
    progress: Progress = silent,
    sources_file: Path = SOURCES_FILE,
    answering: Answering | None = None,
) -> Manifest:
    """Ingest the config's sources into `store` and seal it; gives the manifest (kind `snapshot`).

    `answering` is for sources of problems without kernels, which the generator answers.

    Raises `SourceUnavailable` naming a source that cannot be reached. Raises `CallerError` for an unknown or
    unpinned source, for columns that are not the published ones and for a snapshot that would be empty.
    """
    registry = read_registry(sources_file)
    sources = _sources(config, store, registry)
    kernelbench = known_kernelbench()
    digest = _digest(config, sources, kernelbench)
    if store.sealed():
        manifest = store.open_sealed("snapshot")
        if manifest.meta["config_digest"] == digest:
            return manifest
        logger.info("%s holds a snapshot of another config or of other sources: rebuilding", store.root)
        store.remove(MANIFEST)
    parts = [read_part(source, config, store, registry, progress, answering) for source in sources]
    problems = evaluation_problems(config.decontaminate_against)
    drops = DropCount()
    exemplars, survivors = _cleaned(
        [exemplar for part in parts for exemplar in part.exemplars],
        problems,
        kernelbench,
        config,
        drops,
        progress,
    )
    every_drop = (*(entry for part in parts for entry in part.dropped), *drops.dropped())
    if not exemplars:
        raise CallerError(
            f"the snapshot of {', '.join(config.sources)} would be empty: {top_reasons(every_drop)}; "
            "add a source, or let the generator write some (generator_rows)"
        )
    report = _report(exemplars, parts, every_drop, len(problems), survivors)
    files = {
        _ROWS: store.write(_ROWS, table.to_parquet(exemplars)),
        _REPORT: store.write_json(_REPORT, report.model_dump()),
    }
    return store.seal("snapshot", files, _meta(digest, report))


def load_snapshot(store: Store) -> list[Exemplar]:
    """The exemplars of a sealed snapshot, verified.

    Raises `NotFound` without one and `Corrupt` when a checksum or the schema does not match.
    """
    name = _VERIFIED if _VERIFIED in store.open_sealed("snapshot").files else _ROWS
    where = store.path(name)
    return table.to_exemplars(table.read_table(store.read(name), where), where)


def seal_verified(store: Store, exemplars: Sequence[Exemplar], summary: dict[str, Any]) -> Manifest:
    """Seal a snapshot again with its rows as they were judged; `summary` goes into the manifest.

    The rows go into a file of their own first, so that the snapshot is whole at every moment.
    """
    manifest = store.open_sealed("snapshot")
    files = manifest.files | {_VERIFIED: store.write(_VERIFIED, table.to_parquet(exemplars))}
    return store.seal("snapshot", files, manifest.meta | {"verified": summary})


def load_report(store: Store) -> Report:
    """The report of a sealed snapshot."""
    store.open_sealed("snapshot")
    return Report.model_validate(store.read_json(_REPORT))


def _sources(config: IngestConfig, store: Store, registry: Registry) -> list[Source]:
    """Each source at a commit. What a branch meant is kept, so that a resumed ingest reads the same one."""
    if not config.sources:
        raise CallerError(f"no sources are named; known: {', '.join(registry.sources)}, or paths of files")
    resolved = store.read_json(_REVISIONS) if store.exists(_REVISIONS) else {}
    sources: list[Source] = []
    for spec in dict.fromkeys(config.sources):
        unpinned = find_source(spec, registry)
        source = pinned(unpinned, resolved)
        if is_moving(unpinned):
            resolved[f"{unpinned.repository}@{unpinned.revision}"] = source.revision
            store.write_json(_REVISIONS, resolved)
        if source.kind == "generator":
            source = source.model_copy(update={"revision": generator_revision()})
        if source.is_answered:
            source = source.model_copy(update={"revision": f"{source.revision} {generator_revision()}"})
        if any(source.name == other.name for other in sources):
            raise CallerError(f"two sources are called {source.name}; rename one of the files")
        sources.append(source)
    return sources


def _digest(config: IngestConfig, sources: Sequence[Source], kernelbench: KernelBenchLeaks | None) -> str:
    return digest_of(
        {
            "ingest": INGEST_VERSION,
            "normaliser": NORMALISER_VERSION,
            "schema": table.SCHEMA_VERSION,
            # A file is what it holds, wherever it lies.
            "config": config.model_dump(exclude={"sources"}),
            "sources": [source.model_dump(exclude={"repository"}) for source in sources],
            "suites": suites_version(config.decontaminate_against),
            **({"kernelbench": kernelbench.version} if kernelbench else {}),
        }
    )


def _cleaned(
    exemplars: list[Exemplar],
    problems: Sequence[Problem],
    kernelbench: KernelBenchLeaks | None,
    config: IngestConfig,
    drops: DropCount,
    progress: Progress,
) -> tuple[list[Exemplar], tuple[Survivor, ...]]:
    """Without leaks, then without duplicates: a leaking row must not displace a clean one.

    Beside the rows comes what of them is nearest to the evaluation problems.
    """
    suites = Decontaminator(problems, config.decontaminate_against)
    fingerprints: dict[str, Fingerprint] = {}
    clean: list[Exemplar] = []
    for position, exemplar in enumerate(exemplars):
        identity = fingerprints.get(exemplar.reference_hash) or fingerprint(exemplar.reference_code)
        fingerprints[exemplar.reference_hash] = identity
        leak = suites.leak(exemplar, identity)
        if leak is None and kernelbench is not None:
            leak = kernelbench.leak_of_source(exemplar.reference_code)
        if leak is not None:
            reason, problem_id = leak
            drops.add(exemplar.source, "decontaminate", reason, f"{exemplar.row_key} = {problem_id}")
        else:
            clean.append(exemplar)
        if position % _PROGRESS_EVERY == 0:
            progress("decontaminate", position, len(exemplars))
    progress("decontaminate", len(exemplars), len(exemplars))
    near = nearness(clean, [problem for problem in problems if problem.suite != "generated"], progress)
    clean = _without_nearby(clean, near, drops)

    def drop(exemplar: Exemplar, reason: str, twin: str) -> None:
        drops.add(exemplar.source, "deduplicate", reason, f"{exemplar.row_key} = {twin}")

    distinct = without_exact_duplicates(clean, drop)
    kept = without_near_duplicates(distinct, fingerprints, config.near_duplicate_threshold, drop)
    progress("deduplicate", len(clean), len(clean))
    return kept, near.survivors(kept, _MAX_SURVIVORS) if near else ()


def _without_nearby(exemplars: list[Exemplar], near: Nearness | None, drops: DropCount) -> list[Exemplar]:
    given_away = near.given_away() if near else {}
    clean: list[Exemplar] = []
    for exemplar in exemplars:
        if problem_id := given_away.get(exemplar.reference_hash):
            example = f"{exemplar.row_key} = {problem_id}"
            drops.add(exemplar.source, "decontaminate", "evaluation problem nearby", example)
        else:
            clean.append(exemplar)
    return clean


def _report(
    exemplars: Sequence[Exemplar],
    parts: Sequence[SourceRows],
    dropped: tuple[Dropped, ...],
    num_problems: int,
    survivors: tuple[Survivor, ...],
) -> Report:
    # A file's rows name the sources that they were made from, so each part counts its own rows.
    kept = {id(row) for row in exemplars}
    return Report(
        sources=tuple(
            part.report.model_copy(update={"rows_out": sum(id(row) in kept for row in part.exemplars)})
            for part in parts
        ),
        dropped=dropped,
        num_exemplars=len(exemplars),
        num_references=len({row.reference_hash for row in exemplars}),
        num_evaluation_problems=num_problems,
        nearest_survivors=survivors,
    )


def _meta(digest: str, report: Report) -> dict[str, Any]:
    return {
        "config_digest": digest,
        "schema_version": table.SCHEMA_VERSION,
        "normaliser_version": NORMALISER_VERSION,
        "sources": {
            entry.source: entry.model_dump(include={"revision", "licence", "attribution"})
            for entry in report.sources
        },
        "num_exemplars": report.num_exemplars,
        "num_references": report.num_references,
    }
