"""Exemplars that a search found, as a table and as code on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Column, Table

from kernel_core.records import Exemplar
from kernel_core.retrieval.protocol import Neighbour


def neighbour_parts(neighbours: Sequence[Neighbour], num_printed: int) -> Iterator[RenderableType]:
    """Yield a table of the exemplars with score and reason, then the code of the first `num_printed`."""
    table = Table("score", Column("exemplar", no_wrap=True), "grade", "licence", Column("why", max_width=60))
    for neighbour in neighbours:
        exemplar = neighbour.exemplar
        table.add_row(f"{neighbour.score:.3f}", exemplar.id, exemplar.grade, exemplar.licence, neighbour.why)
    yield table
    for neighbour in neighbours[:num_printed]:
        yield from _code(neighbour.exemplar)


def _code(exemplar: Exemplar) -> Iterator[RenderableType]:
    yield Rule(f"{exemplar.id} ({exemplar.licence}; {exemplar.attribution})")
    kernel = "cpp" if exemplar.language == "cuda_cpp" else "python"
    for text, lexer in ((exemplar.reference_code, "python"), (exemplar.kernel_code, kernel)):
        yield Syntax(text.strip(), lexer, background_color="default", word_wrap=True)
        yield ""
