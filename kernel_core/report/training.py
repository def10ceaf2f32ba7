"""Report of a training: first and last figures, curves, and answers."""

from __future__ import annotations

import html
import io
from typing import Any

import numpy as np

from kernel_core.evaluation.metrics import is_of_speed
from kernel_core.parquet_rows import unpacked
from kernel_core.records import Verdict
from kernel_core.report.html_page import Rows, code_block
from kernel_core.store import Store

_PANELS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "validation problems",
        {
            "probe/format_rate": "well-formed",
            "probe/compile_rate": "compiles",
            "probe/correct_rate": "correct",
            "probe/fast_1": "faster than the reference",
        },
    ),
    ("reward", {"reward/mean": "worth of a kernel", "reward/paid_mean": "paid for a turn"}),
    (
        "correct, by turn",
        {f"multiturn/turn_{turn}/correct_rate": f"turn {turn + 1}" for turn in range(8)},
    ),
    (
        "speed-up (geometric mean of correct kernels)",
        {"kernel/speedup_geometric_mean": "geometric mean"},
    ),
    ("own-kernel share of correct kernels", {"kernel/own_share_mean": "share"}),
    (
        "what should stay low",
        {
            "kernel/hack_rate": "hacked",
            "kernel/junk_rate": "junk text",
            "kernel/truncated_rate": "cut off",
            "multiturn/repeat_rate": "repeated",
        },
    ),
    ("entropy (nats a token)", {"batch/entropy": "entropy"}),
    (
        "sampler against trainer",
        {"update/sampler_kl": "KL", "publish/gap": "gap after publishing", "publish/moved": "step"},
    ),
    ("agreement of a step's halves", {"update/agreement": "cosine of gradients"}),
    ("ratios and clipping", {"update/clip_share": "share clipped", "update/grad_norm": "gradient norm"}),
    ("groups", {"batch/num_constant_groups": "all alike", "batch/num_resampled_groups": "drawn again"}),
    ("advantage", {"advantage/std": "standard deviation", "advantage/max": "largest"}),
    (
        "seconds of a step",
        {
            f"seconds/{name}": name
            for name in (
                *("sample", "judge", "judging", "update"),
                *("publish", "probe", "checkpoint"),
            )
        },
    ),
    (
        "tokens a second",
        {"batch/sampled_tokens_per_s": "written", "update/tokens_per_s": "learned from"},
    ),
)
_COLOURS = ("#1f5fa8", "#c2711b", "#3f8f4f", "#9a4f96", "#7a7a7a", "#b03a3a", "#4fa3a5", "#8a7b2f")
_STAGE_SHADES = ("#eef3f9", "#fdf3e7")


def training_sections(store: Store) -> dict[str, list[str]]:
    """Return the training of the run in this folder: a headline, events, curves and answers."""
    rows = list(store.lines("metrics.jsonl")) if store.exists("metrics.jsonl") else []
    sections = {"training": [_headline(rows)]}
    if happened := _events(rows):
        sections["what happened"] = [happened]
    curves = [_curves(rows)] if rows else ["<p class=quiet>No step is done yet.</p>"]
    return sections | {"curves": curves, "what it writes": [_samples(store)]}


def _headline(rows: Rows) -> str:
    """First and last measurement of what matters."""
    cards = [("steps", f"{rows[-1]['step'] if rows else 0}", str(rows[-1].get("stage", "")) if rows else "")]
    for key, words in (("probe/correct_rate", "correct"), ("probe/fast_1", "faster than the reference")):
        values = [row[key] for row in rows if key in row]
        if values:
            where = f"validation problems{_kind(rows, key)}"
            cards.append((words, f"{100 * values[0]:.0f} → {100 * values[-1]:.0f} %", where))
    # Judging goes on beside the other phases.
    hours = sum(v for row in rows for k, v in row.items() if _is_phase(k)) / 3600
    cards.append(("hours", f"{hours:.2f}", "all phases"))
    shown = [
        f"<div class=card>{html.escape(name)}<b>{html.escape(value)}</b>"
        f"<span class=quiet>{html.escape(note)}</span></div>"
        for name, value, note in cards
    ]
    return f"<div class=cards>{''.join(shown)}</div>"


def _kind(rows: Rows, key: str) -> str:
    """Return `measured` or `predicted` as a suffix for a figure of speed; empty for others."""
    kinds = [row["speedups"] for row in rows if "speedups" in row]
    return f", {kinds[-1]}" if kinds and is_of_speed(key) else ""


def _is_phase(key: str) -> bool:
    return key.startswith("seconds/") and key != "seconds/judging"


def _events(rows: Rows) -> str:
    """Changes of stage and alarms, in order."""
    items = [
        f"<li class={kind}>step {row['step']}: {html.escape(str(row[kind]))}</li>"
        for row in rows
        for kind in ("event", "alarm")
        if row.get(kind)
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _curves(rows: Rows) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    svg = io.StringIO()
    FigureCanvasSVG(_figure(rows, len(_PANELS))).print_svg(svg)
    text = svg.getvalue()
    return text[text.index("<svg") :]


def curves_png(rows: Rows) -> bytes:
    """Draw the learning curves that matter most, in one row, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    png = io.BytesIO()
    FigureCanvasAgg(_figure(rows, 2)).print_png(png)
    return png.getvalue()


def _figure(rows: Rows, most_panels: int) -> Any:
    """Draw the first panels that have values, and the verdicts."""
    # Here and not above: the name of the page is wanted without matplotlib.
    from matplotlib.figure import Figure

    panels = [(title, keys) for title, keys in _PANELS if any(key in row for row in rows for key in keys)]
    panels = panels[:most_panels]
    lines = -(-(len(panels) + 1) // 3)
    figure = Figure(figsize=(11, 2.7 * lines), layout="constrained")
    grid = figure.subplots(lines, 3, squeeze=False).flatten()
    for axes, (title, keys) in zip(grid, panels, strict=False):
        _shade(axes, rows)
        drawn = [key for key in keys if any(key in row for row in rows)]
        for colour, key in zip(_COLOURS, drawn, strict=False):
            points = [(row["step"], row[key]) for row in rows if key in row]
            axes.plot(
                *zip(*points, strict=True),
                color=colour,
                label=f"{keys[key]}{_kind(rows, key)}",
                linewidth=1.6,
                marker="o" if len(points) == 1 else "",
            )
        axes.set_title(title, fontsize=10)
        if len(drawn) > 1 or any(map(is_of_speed, drawn)):
            axes.legend(frameon=False, fontsize=7)
    _verdicts(grid[len(panels)], rows)
    for axes in grid[len(panels) + 1 :]:
        axes.set_visible(False)
    for axes in grid:
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _shade(axes: Any, rows: Rows) -> None:
    """Stages as bands, alarms as lines."""
    begins = [i for i, row in enumerate(rows) if i == 0 or row.get("stage") != rows[i - 1].get("stage")]
    for number, begin in enumerate(begins):
        end = begins[number + 1] if number + 1 < len(begins) else len(rows) - 1
        axes.axvspan(rows[begin]["step"], rows[end]["step"], color=_STAGE_SHADES[number % 2], linewidth=0)
    for row in rows:
        if row.get("alarm"):
            axes.axvline(row["step"], color="#b03a3a", linewidth=0.8, linestyle=":")


def _verdicts(axes: Any, rows: Rows) -> None:
    """Draw the mix of verdicts as a stack."""
    steps = [row for row in rows if "verdict/correct" in row]
    if not steps:
        axes.set_visible(False)
        return
    shares = np.array([[row[f"verdict/{verdict}"] for row in steps] for verdict in Verdict])
    axes.stackplot([row["step"] for row in steps], shares, labels=list(Verdict), colors=_COLOURS)
    axes.set_title("verdicts", fontsize=10)
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, fontsize=6, ncols=2)


def _samples(store: Store) -> str:
    """Return the best, a middling and the worst answer of the newest step."""
    names = store.names("turns") if store.exists("turns") else []
    if not names:
        return "<p class=quiet>Nothing yet.</p>"
    ranked = sorted(unpacked(store.read(f"turns/{names[-1]}")), key=lambda row: float(row["worth"]))
    shown = {"best": ranked[-1], "in the middle": ranked[len(ranked) // 2], "worst": ranked[0]}
    return "\n".join(
        f"<h3>{words}: {html.escape(row['verdict'])}, worth {row['worth']:.2f}, "
        f"{html.escape(row['problem_id'])}, turn {row['turn'] + 1}, step {row['step']}</h3>"
        f"{code_block(row['completion'])}"
        for words, row in shown.items()
    )
