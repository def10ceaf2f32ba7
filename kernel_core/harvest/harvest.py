"""Harvest: packages in, a folder of problems, a manifest and a report out."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from kernel_core.corpus.normalise import NotPython, fingerprint
from kernel_core.corpus.shingles import Shingles, erased_tokens, jaccard, shingles_of
from kernel_core.errors import NotAProblem
from kernel_core.harvest.cage import Trials, open_trials
from kernel_core.harvest.candidates import DroppedCandidate, HarvestCandidate, candidates_of, request_of
from kernel_core.harvest.compose import chains, has_configuration, parts_of
from kernel_core.harvest.extract import NEEDS
from kernel_core.harvest.packages import Library, Package, Packages
from kernel_core.harvest.written import Harvested, Traced, problems_of, split_of, traced
from kernel_core.progress import Progress, silent
from kernel_core.records import Problem, Record

DEFAULT_PACKAGES = ("timm", "torchvision", "transformers", "torch_geometric", "e3nn")
COMPOSITIONS = 60
"""Chains of a package's layers, at most."""

OTHER_LIBRARY = "needs another library than torch"
_BATCH = 64
_ALIKE = 0.9
"""Jaccard similarity of shingles from which two definitions must be in one split."""

Leak = Callable[[Problem], str | None]
"""Function that returns the reason why a problem leaks an evaluation problem; None where it does not."""


class HarvestManifest(Record):
    """Problems that a harvest kept, and counts of those left out."""

    problems: tuple[Harvested, ...]
    dropped: dict[str, dict[str, int]]
    """Counts by package and kind, then reason."""

    def kept(self) -> list[tuple[str, str, str, int, int, int]]:
        """Package, licence, kind, number of definitions, problems of training, problems held out."""
        groups: dict[tuple[str, str, str], list[Harvested]] = {}
        for row in self.problems:
            groups.setdefault((row.package, row.licence, row.kind), []).append(row)
        return [
            (
                *key,
                len({row.qualified_names for row in rows}),
                sum(row.split == "train" for row in rows),
                sum(row.split == "held_out" for row in rows),
            )
            for key, rows in sorted(groups.items())
        ]

    def left_out(self) -> list[tuple[str, str, int]]:
        """Package and form, reason, number of definitions. Libraries that are needed count as one reason."""
        rows: list[tuple[str, str, int]] = []
        for name, reasons in self.dropped.items():
            grouped: Counter[str] = Counter()
            for reason, count in reasons.items():
                grouped[OTHER_LIBRARY if reason.startswith(NEEDS) else reason] += count
            rows += [(name, reason, count) for reason, count in grouped.most_common()]
        return rows


@dataclass
class _Harvest:
    """State of one harvest."""

    trials: Trials
    leak: Leak
    write: Callable[[str, str], object]
    rows: list[Harvested] = field(default_factory=list)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    """Structures of definitions that were tried: the same computation renamed is no new problem."""

    texts: list[tuple[str, Shingles]] = field(default_factory=list)
    """Split and shingles of each definition that was kept."""

    def gives_away_held_out(self, candidate: HarvestCandidate) -> bool:
        """Return True if its text, names and numbers aside, nearly equals a definition of the other split."""
        own_split = split_of(candidate.qualified_name)
        own = shingles_of(erased_tokens(candidate.body.source, "triton"))
        for split, earlier in self.texts:
            fewer, more = sorted((len(own), len(earlier)))
            if split != own_split and fewer >= _ALIKE * more and jaccard(own, earlier) >= _ALIKE:
                return True
        self.texts.append((own_split, own))
        return False

    def drop(self, package: str, kind: str, reason: str) -> None:
        self.dropped.setdefault(f"{package} {kind}", Counter())[reason] += 1


def harvest(
    packages: Packages,
    write: Callable[[str, str], object],
    num_compositions: int,
    leak: Leak,
    progress: Progress = silent,
) -> HarvestManifest:
    """Harvest packages; `write` gets each file's name below the output folder, and its text."""
    with open_trials() as trials:
        state = _Harvest(trials, leak, write)
        for package in packages.readable:
            _harvest_package(package, state, num_compositions, progress)
    return HarvestManifest(
        problems=tuple(state.rows),
        dropped={name: {reason: 1} for name, reason in packages.refused.items()}
        | {name: dict(reasons.most_common()) for name, reasons in state.dropped.items()},
    )


def _harvest_package(package: Package, state: _Harvest, num_compositions: int, progress: Progress) -> None:
    harvested: list[tuple[HarvestCandidate, Traced]] = []
    done = 0
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        fresh = _distinct(package, state)
        while batch := list(itertools.islice(fresh, _BATCH)):
            requests = [request_of(candidate.body, candidate.qualified_name) for candidate in batch]
            for candidate, request, answer in zip(
                batch, requests, pool.map(state.trials.ask, requests), strict=True
            ):
                trace = _kept(candidate, request, answer, state)
                harvested += [(candidate, trace)] if trace else []
            done += len(batch)
            progress(f"harvest {package.name}", done, done)
        parts = parts_of([pair for pair in harvested if not has_configuration(pair[0])])
        composed = list(chains(parts, num_compositions, package.name))
        answers = pool.map(state.trials.ask, [chain.request for chain in composed])
        for chain, answer in zip(composed, answers, strict=True):
            if "reason" in answer:
                state.drop(package.name, "composition", answer["reason"])
                continue
            first = chain.parts[0].candidate
            names = [part.candidate.qualified_name for part in chain.parts]
            _keep(
                state, package, names, chain.body, traced(first, chain.request, answer), "composition", first
            )


def _distinct(package: Package, state: _Harvest) -> Iterator[HarvestCandidate]:
    """Candidates that compute something that no earlier one computes."""
    for candidate in candidates_of(Library(package)):
        if isinstance(candidate, DroppedCandidate):
            state.drop(candidate.package, candidate.kind, candidate.reason)
            continue
        kind = "function" if candidate.body.is_function else "class"
        try:
            structure = fingerprint(candidate.body.source).structure_hash
        except NotPython:
            state.drop(package.name, kind, "cannot be written out again")
            continue
        if structure in state.seen:
            state.drop(package.name, kind, "computes the same as another")
            continue
        state.seen.add(structure)
        yield candidate


def _kept(
    candidate: HarvestCandidate, request: dict[str, Any], answer: dict[str, Any], state: _Harvest
) -> Traced | None:
    form = "function" if candidate.body.is_function else "class"
    if "reason" in answer:
        state.drop(candidate.package.name, form, answer["reason"])
        return None
    trace = traced(candidate, request, answer)
    if state.gives_away_held_out(candidate):
        state.drop(candidate.package.name, form, "nearly the same as one of the other split")
        return None
    kept = _keep(state, candidate.package, [candidate.qualified_name], candidate.body, trace, form, candidate)
    return trace if kept else None


def _keep(
    state: _Harvest,
    package: Package,
    names: Sequence[str],
    body: Any,
    trace: Traced,
    form: Any,
    first: HarvestCandidate,
) -> bool:
    """Write a definition's problems that leak no evaluation problem, and note why others are dropped.

    Returns whether any was written.
    """
    before = len(state.rows)
    try:
        made = list(problems_of(package, names, body, trace, form, first.copyright))
    except NotAProblem:
        state.drop(package.name, form, "cannot be written out again")
        return False
    for row, problem, text in made:
        if reason := state.leak(problem):
            state.drop(package.name, form, reason)
        else:
            state.write(row.file, text)
            state.rows.append(row)
    return len(state.rows) > before
