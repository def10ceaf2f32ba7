"""Nothing that gives an evaluation problem away: by task id, by hash, by the same computation rewritten.

Five rules, in order; the first that holds names the reason:

1. task id: the row says that it is a KernelBench task, and KernelBench is among the suites;
2. same reference: its normalised syntax tree, constants included;
3. same computation at other sizes: the tree without numbers;
4. rewritten: the same data flow, or the same multiset of operators and names-erased shingles at least
   `PARAPHRASE` alike. Without the operators a threshold low enough for a paraphrase would take every small
   module for every other;
5. nearby: an embedding at least `NEARBY` alike (`nearness`), asked of what the other rules let pass.

The generator's rows are held against its own splits by rule 2 alone. Those splits are disjoint by families
and by parameters by construction, and a validation problem is meant to be a sibling of training problems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel_core.config import ProblemsConfig
from kernel_core.corpus.generator_source import generator_revision
from kernel_core.corpus.normalise import Fingerprint, NotPython, fingerprint
from kernel_core.corpus.shingles import jaccard
from kernel_core.errors import ConfigError
from kernel_core.problems.load import load_dojo, load_folder, load_kernelbench, load_problems
from kernel_core.records import Exemplar, Problem
from kernel_core.store import digest_of

PARAPHRASE = 0.7
"""Jaccard similarity from which two references with the same operators are one written twice."""

_SUITES = ("dojo", "generated", "kernelbench")
_EVALUATION_SPLITS: tuple[Literal["validation", "held_out"], ...] = ("validation", "held_out")
_GENERATED_PROBLEMS = 512


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A problem that must not be given away."""

    problem_id: str
    suite: str
    fingerprint: Fingerprint


def evaluation_problems(suites: Sequence[str]) -> list[Problem]:
    """Return the problems that evaluation may draw from; of a generator, a large sample."""
    return [problem for suite in suites for problem in _suite_problems(suite)]


def suites_version(suites: Sequence[str]) -> list[str]:
    """Versions that change when `evaluation_problems` does; the generator's is that of its code."""
    return [
        f"{generator_revision()} {_GENERATED_PROBLEMS}"
        if suite == "generated"
        else digest_of([problem.sha256 for problem in _suite_problems(suite)])
        for suite in suites
    ]


def _suite_problems(suite: str) -> list[Problem]:
    if suite == "dojo":
        return load_dojo()
    if suite == "kernelbench":
        return load_kernelbench((1, 2, 3, 4))
    if suite == "generated":
        drawn = (
            ProblemsConfig(suite="generated", split=split, limit=_GENERATED_PROBLEMS)
            for split in _EVALUATION_SPLITS
        )
        return [problem for config in drawn for problem in load_problems(config)]
    if Path(suite).is_dir():
        return load_folder(suite)
    known = f"{', '.join(_SUITES)}, or a folder of problems"
    raise ConfigError(f"decontaminate_against has no suite {suite!r}; known: {known}")


class Decontaminator:
    """Says of an exemplar which evaluation problem it gives away, if any."""

    def __init__(self, problems: Iterable[Problem], suites: Sequence[str]) -> None:
        self._knows_kernelbench = "kernelbench" in suites
        self._by_reference: dict[str, Evaluated] = {}
        self._by_structure: dict[str, Evaluated] = {}
        self._by_dataflow: dict[str, list[Evaluated]] = defaultdict(list)
        self._by_operators: dict[tuple[str, ...], list[Evaluated]] = defaultdict(list)
        # The generator's last: where two problems share a tree, the other suite's rules are the stricter.
        for problem in sorted(problems, key=lambda problem: problem.suite == "generated"):
            try:
                identity = fingerprint(problem.source)
            except NotPython as error:
                raise ConfigError(f"evaluation problem {problem.id} is not Python: {error}") from error
            evaluated = Evaluated(problem.id, problem.suite, identity)
            self._by_reference.setdefault(identity.reference_hash, evaluated)
            self._by_structure.setdefault(identity.structure_hash, evaluated)
            self._by_dataflow[identity.dataflow].append(evaluated)
            self._by_operators[tuple(sorted(identity.operators))].append(evaluated)

    def leak(self, exemplar: Exemplar, identity: Fingerprint) -> tuple[str, str] | None:
        """The reason and the problem that the exemplar gives away, or None."""
        if self._knows_kernelbench and exemplar.task_level is not None and exemplar.task_id is not None:
            return "evaluation task by id", f"kernelbench/level{exemplar.task_level}/{exemplar.task_id}"
        if same := self._by_reference.get(identity.reference_hash):
            return "evaluation problem", same.problem_id
        own = exemplar.source == "generator"
        resized = self._by_structure.get(identity.structure_hash)
        if resized and not (own and resized.suite == "generated"):
            return "evaluation problem at other sizes", resized.problem_id
        for evaluated in self._by_dataflow.get(identity.dataflow, ()):
            if not (own and evaluated.suite == "generated"):
                return "evaluation problem rewritten", evaluated.problem_id
        for evaluated in self._by_operators.get(tuple(sorted(identity.operators)), ()):
            if own and evaluated.suite == "generated":
                continue
            if jaccard(identity.shingles, evaluated.fingerprint.shingles) >= PARAPHRASE:
                return "evaluation problem rewritten", evaluated.problem_id
        return None
