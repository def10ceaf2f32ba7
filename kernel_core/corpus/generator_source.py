"""The problem generators as corpus sources: each kernel of each training problem is an exemplar."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import kernel_core.problems
from kernel_core.config import IngestConfig
from kernel_core.corpus.normalise import kernel_hash, reference_hash
from kernel_core.corpus.registry import Source
from kernel_core.errors import ConfigError
from kernel_core.problems.generate import generate
from kernel_core.problems.generators import ENDLESS_SUITES, draw_graphs, generator_of
from kernel_core.problems.graded import Generated, GradedKernel
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.modules.groups import GROUPS
from kernel_core.records import Exemplar, Problem


def generator_revision() -> str:
    """SHA-256 over the generators' code: other code may draw other problems from the same seed."""
    problems = Path(next(iter(kernel_core.problems.__path__)))
    digest = hashlib.sha256()
    for folder in (problems, problems.with_name("generator")):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def draw_settings(source: Source, config: IngestConfig) -> dict[str, object]:
    """Return the settings that decide what a generator contributes."""
    return config.model_dump(include={*_SETTINGS[source.suite], "left_out", "grades", "seed"})


_SETTINGS = {
    "generated": ("generator_rows",),
    "modules": ("modules_rows", "modules_more"),
    "graphs": ("graphs_rows", "graphs_levels"),
}


def check_left_out(config: IngestConfig) -> None:
    """Raise `ConfigError` for a family to leave out that no generator has."""
    if not config.left_out:
        return  # the families of `graphs` need torch, which takes seconds to import
    known = sorted({name for suite in ENDLESS_SUITES for name in generator_of(suite).families})
    for name in config.left_out:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"left_out names no family {name!r}; {hint}", "left_out")


def generated_exemplars(source: Source, config: IngestConfig) -> Iterator[Exemplar]:
    """Yield exemplars of problems of the source's suite, of the train split, a problem's kernels together.

    A grade is `naive`, `lazy`, `fused`, `tuned` or `mistake:FAULT`; mistakes are claimed incorrect. With
    `grades = fastest` the fused and tuned kernels come alone, all as `tuned`. Kernels of problems of
    `modules` are the generator's.
    """
    check_left_out(config)
    draw = {"generated": _chains, "modules": _modules, "graphs": _graphs}[source.suite]
    for made in draw(config):
        exemplars = exemplars_of(made, source)
        yield from exemplars if config.grades == "all" else _fastest(exemplars)


def _chains(config: IngestConfig) -> Iterator[Generated]:
    if config.generator_rows:
        families = _kept(generator_of("generated").trained, config)
        yield from generate("train", config.generator_rows, config.seed, families)


def _modules(config: IngestConfig) -> Iterator[Generated]:
    """Yield an even draw of all families, then more of some groups, each from a seed of its own."""
    from kernel_core.generator.graded import answered_problems  # the table of operators needs torch

    yield from answered_problems(_drawn_modules(config))


def _drawn_modules(config: IngestConfig) -> Iterator[Problem]:
    families = _kept(generator_of("modules").trained, config)
    if config.modules_rows:
        yield from generate_modules("train", config.modules_rows, config.seed, families)
    for number, (name, group) in enumerate(GROUPS.items(), start=1):
        kept = _kept(group, config)
        count = int(config.modules_rows * config.modules_more.get(name, 0.0)) * len(kept) // len(group)
        if count:
            yield from generate_modules("train", count, config.seed + number, kept)


def _graphs(config: IngestConfig) -> Iterator[Generated]:
    """Yield graphs as they are drawn: each has an author's names already."""
    families = _kept(generator_of("graphs").trained, config) if config.left_out else ()
    levels: dict[str, float] = {str(level): share for level, share in config.graphs_levels.items()}
    if config.graphs_rows:
        yield from draw_graphs(config.graphs_rows, config.seed, families, levels)


def _kept(families: Iterable[str], config: IngestConfig) -> list[str]:
    return [name for name in families if name not in config.left_out]


def _fastest(exemplars: Iterable[Exemplar]) -> Iterator[Exemplar]:
    """Yield the fused and tuned kernels, all alike: a pretrained model is taught no slower grade."""
    for exemplar in exemplars:
        if exemplar.grade in ("fused", "tuned"):
            yield exemplar.model_copy(update={"grade": "tuned"})


def exemplars_of(made: Generated, source: Source) -> Iterator[Exemplar]:
    """An exemplar for each kernel of a generated problem."""
    for position, kernel in enumerate(made.kernels):
        yield exemplar_of(made.problem, kernel, source, f"{made.problem.name}/{position}-{kernel.grade}")


def exemplar_of(problem: Problem, kernel: GradedKernel, source: Source, row_key: str) -> Exemplar:
    """Return a kernel for a problem as a row of its source."""
    is_mistake = kernel.grade == "mistake"
    return Exemplar(
        id=f"{source.name}/{row_key}",
        source=source.name,
        source_revision=source.revision,
        row_key=row_key,
        licence=source.licence,
        attribution=source.attribution,
        language="triton",
        family=problem.family,
        grade=f"mistake:{kernel.fault}" if is_mistake else kernel.grade,
        cpu_sizes=", ".join(f"{name}={value!r}" for name, value in problem.cpu_constants.items()),
        reference_code=problem.source,
        kernel_code=kernel.source,
        thinking=kernel.thinking,
        claimed_correct=not is_mistake,
        reference_hash=reference_hash(problem.source),
        kernel_hash=kernel_hash(kernel.source, "triton"),
    )
