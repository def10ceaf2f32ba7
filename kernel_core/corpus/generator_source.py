"""The problem generators as corpus sources: each kernel of each training problem is an exemplar."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import kernel_core.problems
from kernel_core.corpus.normalise import kernel_hash, reference_hash
from kernel_core.corpus.registry import Source
from kernel_core.problems.generate import generate
from kernel_core.problems.graded import Generated
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.slips import draw_slip
from kernel_core.records import Exemplar


def generator_revision() -> str:
    """SHA-256 over the generator's code: other code may draw other problems from the same seed."""
    folder = Path(next(iter(kernel_core.problems.__path__)))
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def generated_exemplars(source: Source, num_problems: int, seed: int) -> Iterator[Exemplar]:
    """Exemplars of `num_problems` problems of the source's suite, all of the train split, a problem's kernels
    together.

    A grade is `naive`, `lazy`, `fused`, `tuned` or `mistake:FAULT`; mistakes are claimed incorrect.
    """
    draw = {"generated": generate, "modules": generate_modules}[source.suite]
    for made in draw("train", num_problems, seed) if num_problems else ():
        yield from exemplars_of(made, source)


def slips_of(exemplars: Iterable[Exemplar], rng: random.Random) -> Iterator[Exemplar]:
    """Each right kernel with a drawn slip, as context of second turns; the id begins with the right one's."""
    for one in exemplars:
        slip = draw_slip(one.kernel_code, rng) if one.claimed_correct else None
        if slip is None:
            continue
        name, text = slip
        yield one.model_copy(
            update={
                "id": f"{one.id}/{name}",
                "row_key": f"{one.row_key}/{name}",
                "grade": f"mistake:{name}",
                "kernel_code": text,
                "claimed_correct": False,
                "kernel_hash": kernel_hash(text, "triton"),
            }
        )


def exemplars_of(made: Generated, source: Source) -> Iterator[Exemplar]:
    """An exemplar for each kernel of a generated problem."""
    problem = made.problem
    reference = reference_hash(problem.source)
    for position, kernel in enumerate(made.kernels):
        is_mistake = kernel.grade == "mistake"
        row_key = f"{problem.name}/{position}-{kernel.grade}"
        yield Exemplar(
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
            reference_hash=reference,
            kernel_hash=kernel_hash(kernel.source, "triton"),
        )
