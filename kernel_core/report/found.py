"""Exemplars that a search found, as a table and as code on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Column, Table

from kernel_core.records import Exemplar
from kernel_core.retrieval.protocol import Neighbour


def found_parts(found: Sequence[Neighbour], num_printed: int) -> Iterator[RenderableType]:
    """The exemplars with score and reason, then the code of the first `num_printed`."""
    table = Table("score", Column("exemplar", no_wrap=True), "grade", "licence", Column("why", max_width=60))
    for one in found:
        exemplar = one.exemplar
        table.add_row(f"{one.score:.3f}", exemplar.id, exemplar.grade, exemplar.licence, one.why)
    yield table
    for one in found[:num_printed]:
        yield from _code(one.exemplar)


def _code(exemplar: Exemplar) -> Iterator[RenderableType]:
    yield Rule(f"{exemplar.id} ({exemplar.licence}; {exemplar.attribution})")
    kernel = "cpp" if exemplar.language == "cuda_cpp" else "python"
    for text, lexer in ((exemplar.reference_code, "python"), (exemplar.kernel_code, kernel)):
        yield Syntax(text.strip(), lexer, background_color="default", word_wrap=True)
        yield ""
