"""Nights of one watched run: which are done, the trend, and whether the last one is clearly worse.

A night's scorecard lies in `{watched}--{night}--{checkpoint}/` of the nightly run, where `night` is the time
that it was scheduled for. Two nights are compared problem by problem, on the same problems and seeds.
"""

from __future__ import annotations

import datetime
import itertools
import re
import statistics
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from kernel_core.errors import ConfigError
from kernel_core.evaluation.comparison import Change, Comparison, compare
from kernel_core.evaluation.metrics import Scorecard
from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.parquet_rows import packed, schema_of
from kernel_core.records import Record
from kernel_core.runs.resolve import locate_checkpoint
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

NIGHT = "%Y-%m-%dT%H%M"
"""Format of a night's name: its scheduled time in UTC, to the minute."""

MOST_NIGHTS = 90
"""In a trend."""

TREND_SCHEMA = schema_of(
    (pa.string(), "night checkpoint"),
    (pa.int64(), "missed_before"),
    (pa.float64(), "correct_rate correct_low correct_high"),
    (pa.string(), "speed_kind"),
    (pa.float64(), "fast_1 fast_1_low fast_1_high change_in_correct_rate change_low change_high"),
    (pa.list_(pa.string()), "regressed"),
)


class Night(Record):
    """One finished night."""

    name: str
    checkpoint: str
    folder: str
    card: Scorecard

    @property
    def at(self) -> datetime.datetime:
        """Scheduled time, from `name`, without a time zone: UTC."""
        return datetime.datetime.strptime(self.name, NIGHT)


def folder_of(watched: str, night: str, checkpoint: str) -> str:
    """Folder of a night's scorecard; `checkpoint` is the name of the checkpoint's folder."""
    return f"{watched}--{night}--{checkpoint}"


def checkpoint_of(nightly: Run, watched: str, night: str) -> str:
    """The folder of the checkpoint that a night asks: the one that it was begun with, while it is there, or
    the newest one of the watched run. Raises `NotFound` for a run without any."""
    begun = [name for name in nightly.store.names() if name.startswith(f"{watched}--{night}--")]
    if begun:
        folder = Run(nightly.root, watched).store.path(f"checkpoints/{begun[0].rsplit('--', 1)[-1]}")
        if Store(folder).exists():
            return folder
    return locate_checkpoint(nightly.root, watched)


def finished_nights(nightly: Run, watched: str) -> list[Night]:
    """The newest finished nights of a watched run, at most `MOST_NIGHTS`, oldest first."""
    pattern = re.compile(rf"{re.escape(watched)}--(\d{{4}}-\d\d-\d\dT\d{{4}})--(.+)")
    named = [match for name in nightly.store.names() if (match := pattern.fullmatch(name))]
    nights = []
    for match in named[-MOST_NIGHTS:]:  # names sort as times do
        folder = nightly.store.child(match[0])
        if folder.sealed():
            card = load_scorecard(folder)
            nights.append(Night(name=match[1], checkpoint=match[2], folder=match[0], card=card))
    return nights


def regressions(change: Comparison) -> tuple[str, ...]:
    """Return the figures of last turns that are clearly worse, each in words.

    Two figures are tested: the share that is correct and the share that is also faster. Each counts if it
    fell and its two-sided p-value is below 5 %. By chance alone one of them counts in at most one night of
    twenty.
    """
    return tuple(
        figure.in_a_sentence()
        for figure in watched_figures(change)
        if figure.change is not None and figure.clear and figure.change.value < 0
    )


def watched_figures(change: Comparison) -> list[Change]:
    """Figures that nights and the gate compare: shares of last turns that are correct, and also faster."""
    watched = ("correct_rate", f"fast_1 ({change.headline})")
    return [figure for figure in change.changes if figure.view == "last" and figure.metric in watched]


def last_change(nights: Sequence[Night]) -> Comparison | None:
    """The last night beside the one before; None for a first night, or one on other problems."""
    if len(nights) < 2:
        return None
    try:
        return compare(nights[-2].card, nights[-1].card)
    except ConfigError:
        return None


def trend_rows(nights: Sequence[Night]) -> list[dict[str, Any]]:
    """One row a night, oldest first, each beside the one before."""
    missed = missed_before(nights)
    rows = []
    for position, night in enumerate(nights):
        change = last_change(nights[: position + 1])
        figures = change.changes if change is not None else ()
        correct = next((figure.change for figure in figures if figure.metric == "correct_rate"), None)
        last = night.card.last
        rows.append(
            {
                "night": night.name,
                "checkpoint": night.checkpoint,
                "missed_before": missed[position],
                "correct_rate": last.correct_rate.value,
                "correct_low": last.correct_rate.low,
                "correct_high": last.correct_rate.high,
                "speed_kind": night.card.headline,
                "fast_1": last.headline.fast_1.value,
                "fast_1_low": last.headline.fast_1.low,
                "fast_1_high": last.headline.fast_1.high,
                "change_in_correct_rate": correct and correct.value,
                "change_low": correct and correct.low,
                "change_high": correct and correct.high,
                "regressed": list(regressions(change)) if change else [],
            }
        )
    return rows


def trend_file(watched: str, kind: str) -> str:
    """Return the path of a watched run's trend in the nightly run; `kind` is `parquet` or `png`."""
    return f"trends/{watched}.{kind}"


def write_trend(nightly: Run, watched: str) -> tuple[str, ...]:
    """Store the table and the plot of a watched run's nights; return what regressed in the last, in words."""
    from kernel_core.evaluation.plots import trend_png

    rows = trend_rows(finished_nights(nightly, watched))
    nightly.store.write(trend_file(watched, "parquet"), packed(rows, TREND_SCHEMA))
    nightly.store.write(trend_file(watched, "png"), trend_png(rows))
    return tuple(rows[-1]["regressed"])


def missed_before(nights: Sequence[Night]) -> list[int]:
    """Number of nights missing before each, estimated from the usual interval."""
    gaps_s = [(b.at - a.at).total_seconds() for a, b in itertools.pairwise(nights)]
    usual_s = statistics.median_low(gaps_s) if gaps_s else 0.0
    return [0, *(max(0, round(gap / usual_s) - 1) if usual_s > 0 else 0 for gap in gaps_s)][: len(nights)]
