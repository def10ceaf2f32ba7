"""Pictures of a scorecard and of a trend, drawn without a display."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kernel_core.evaluation.metrics import Scorecard, View, outcomes_in, share_above

_COLOURS: dict[View, str] = {"last": "#1f5fa8", "best": "#c2711b"}
_LABELS: dict[View, str] = {"last": "last turn", "best": "best turn (oracle)"}


def fast_p_png(card: Scorecard) -> bytes:
    """The fast_p curve with its 95 % band, and each family's correct rate and fast_1, as a PNG."""
    figure = Figure(figsize=(10, 0.6 + max(4.0, 0.32 * len(card.by_family))), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    curve, bars = figure.subplots(1, 2)
    _draw_curve(curve, card)
    _draw_families(bars, card)
    figure.suptitle(f"{card.last.num_problems} problems, {card.last.num_samples} samples")
    return _png(canvas)


def trend_png(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Correct rate and fast_1 night by night with their 95 % bands, regressions marked, as a PNG."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots()
    nights = np.arange(len(rows))
    kind = rows[-1]["speed_kind"]
    for name, low, high, colour, label in (
        ("correct_rate", "correct_low", "correct_high", _COLOURS["last"], "correct"),
        ("fast_1", "fast_1_low", "fast_1_high", _COLOURS["best"], f"fast_1 ({kind})"),
    ):
        values = np.asarray([row[name] for row in rows], dtype=float)
        axes.plot(nights, values, marker=".", color=colour, label=label)
        ends = np.asarray([[row[low], row[high]] for row in rows], dtype=float)
        axes.fill_between(nights, ends[:, 0], ends[:, 1], color=colour, alpha=0.15, linewidth=0)
    worse = [number for number, row in enumerate(rows) if row["regressed"]]
    axes.plot(worse, [rows[number]["correct_rate"] for number in worse], "rv", label="regressed")
    shown = nights[:: max(1, len(rows) // 12)]
    axes.set_xticks(shown, [rows[number]["night"] for number in shown], rotation=30, ha="right")
    axes.set(ylim=(0, 1), ylabel="share of samples, last turn")
    axes.legend(frameon=False)
    return _png(canvas)


def _png(canvas: FigureCanvasAgg) -> bytes:
    png = io.BytesIO()
    canvas.print_png(png)
    return png.getvalue()


def _draw_curve(axes: Any, card: Scorecard) -> None:
    thresholds = np.arange(0.0, max(3.0, *card.thresholds) + 0.01, 0.05)
    for view, colour in _COLOURS.items():
        samples = [outcomes_in(problem, view, card.headline) for problem in card.problems]
        shares = [share_above(samples, float(threshold), card.headline) for threshold in thresholds]
        axes.step(thresholds, [s.value for s in shares], where="post", color=colour, label=_LABELS[view])
        low, high = [s.low for s in shares], [s.high for s in shares]
        axes.fill_between(thresholds, low, high, step="post", color=colour, alpha=0.15, linewidth=0)
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    speed = (
        "measured speed-up" if card.headline == "measured" else f"predicted speed-up ({card.conditions.gpu})"
    )
    axes.set(xlabel=f"p: {speed}", ylabel="share of all samples", ylim=(0, 1), xlim=(0, thresholds[-1]))
    axes.set_title("fast_p: correct, and faster than p")
    axes.legend(frameon=False)


def _draw_families(axes: Any, card: Scorecard) -> None:
    scores = card.by_family.values()
    rows = np.arange(len(scores))
    correct = [score.correct_rate for score in scores]
    faster = [score.headline.fast_1 for score in scores]
    for offset, rates, colour, label in (
        (-0.2, correct, "#9dbde0", "correct"),
        (0.2, faster, _COLOURS["last"], f"fast_1 ({card.headline})"),
    ):
        values = [rate.value for rate in rates]
        whiskers = [[r.value - (r.low or 0.0) for r in rates], [(r.high or 0.0) - r.value for r in rates]]
        thin = {"elinewidth": 0.7, "ecolor": "#999999"}
        axes.barh(rows + offset, values, 0.4, color=colour, label=label, xerr=whiskers, error_kw=thin)
    axes.set_yticks(rows, [f"{family} ({score.num_problems})" for family, score in card.by_family.items()])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="share of samples, last turn, with 95 % intervals")
    axes.set_title("by family (problems)")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
