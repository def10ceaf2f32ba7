"""Tables of figures: printed, and written to `docs/results` with the command and the machine."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from machine import describe_machine
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class Report:
    """What a benchmark found."""

    def __init__(self, name: str, arguments: str, purpose: str | None) -> None:
        claim = (purpose or "").partition("\n\n")[0].replace("\n", " ").removeprefix("Claim: ")
        self._name = name
        self._lines = [
            f"# {name.replace('_', ' ').capitalize()}",
            "",
            f"Claim: {claim}",
            "",
            f"    python benchmarks/{name}.py {arguments} --write",
            "",
            f"Machine: {describe_machine()}. {_today()}, one run.",
        ]
        self._console = Console(width=120)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table and keep it."""
        shown = Table(*columns, title=title)
        for row in rows:
            shown.add_row(*row)
        self._console.print(shown)
        self._lines += ["", f"## {title[:1].upper()}{title[1:]}", "", "| " + " | ".join(columns) + " |"]
        self._lines += ["|" + "---|" * len(columns), *("| " + " | ".join(row) + " |" for row in rows)]

    def note(self, text: str) -> None:
        """Print a paragraph and keep it."""
        self._console.print(text)
        self._lines += ["", text]

    def finish(self, write: bool, suffix: str = "") -> None:
        """Write `docs/results/NAME.md` where that was asked for."""
        if write:
            RESULTS.mkdir(parents=True, exist_ok=True)
            (RESULTS / f"{self._name}{suffix}.md").write_text("\n".join(self._lines) + "\n")
