"""Make the pictures of README.md from real output: `just pictures`.

judge_watch.svg  `dojo judge --watch` in a terminal, while a missing mask is put back
practice.svg     practice_steps.csv: correct answers by step of RL, expert iteration and shuffled rewards

Screenshots of the Prefect UI: `screenshots.py` beside this file makes those of a server that has runs.
`DOJO_SCREENSHOTS=docs/pictures pytest -m slow tests/flows/test_ui.py` makes those of a form and its run.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

import matplotlib
import pandas as pd
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
PROBLEM = REPOSITORY / "data" / "problems" / "quick_gelu_residual.py"
KERNEL = REPOSITORY / "data" / "kernels" / "quick_gelu_residual.py"
COLUMNS = 86
PATIENCE_S = 900.0
SHOWN = ("kernel.py", "verdict", "trials_passed", "predicted_speedup", "feedback")
"""Lines of a verdict in the picture: its divider, and rows by their keys."""
METHODS = {
    "rl": ("RL", "C0"),
    "expert_iteration": ("expert iteration", "C2"),
    "rl_shuffled": ("RL, shuffled rewards", "C7"),
}
SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: arial; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g></svg>
"""
"""Rich's own format without the fonts that it loads from elsewhere."""


def main() -> None:
    """Write both pictures beside this file."""
    matplotlib.use("svg")
    draw_practice(HERE / "practice.svg")
    draw_terminal(HERE / "judge_watch.svg")


def draw_terminal(out: Path) -> None:
    """Watch a kernel without its mask, put the mask back, and draw both verdicts."""
    honest = KERNEL.read_text()
    broken = honest.replace(", mask=mask)", ")")
    assert broken != honest, f"{KERNEL} has no mask to take away"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "gelu.py").write_text(PROBLEM.read_text())
        (Path(folder) / "kernel.py").write_text(broken)
        command = ["judge", "--problem", "gelu.py", "--kernel", "kernel.py", "--watch"]
        told = watched(command, Path(folder), lambda: (Path(folder) / "kernel.py").write_text(honest))
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text("$ dojo " + " ".join(command), style="bold"))
    is_shown = False
    for line in told.splitlines():
        words = Text.from_ansi(line.rstrip())
        key = re.match(r" ?(\S+) ", words.plain)
        is_shown = key[1] in SHOWN if key else is_shown and bool(words.plain)
        if is_shown:
            words.highlight_regex(r"\bcorrect\b", "bold green")
            words.highlight_regex(r"\b(crashed|wrong)\b", "bold red")
            console.print(words)
    console.save_svg(str(out), title="dojo judge --watch", code_format=SVG, unique_id="judge")


def watched(command: list[str], folder: Path, mend: object) -> str:
    """The standard output of `dojo judge --watch` on a terminal, up to its second verdict."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"COLUMNS": str(COLUMNS - 2), "PYTHONPATH": str(REPOSITORY), "TERM": "xterm"}
    watching = subprocess.Popen(
        [sys.executable, "-m", "flows.cli", *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    text, verdicts, begun = "", 0, time.monotonic()
    try:
        while time.monotonic() - begun < PATIENCE_S and verdicts < 2:
            if select.select([ours], [], [], 1.0)[0]:
                text += os.read(ours, 65536).decode(errors="replace")
            elif text.count(" feedback ") > verdicts:  # silent for a second: the table is whole
                verdicts += 1
                if verdicts == 1:
                    mend()
    finally:
        watching.send_signal(signal.SIGINT)
        watching.wait(60)
        os.close(ours)
    assert verdicts == 2, f"two verdicts were wanted within {PATIENCE_S:.0f} s, {verdicts} came:\n{text}"
    return text.replace("\r", "")


def draw_practice(out: Path) -> None:
    """Mean over seeds and a running mean of three steps, with the range of the seeds as a band."""
    from matplotlib import pyplot as plt

    rows = pd.read_csv(HERE / "practice_steps.csv")
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for method, (label, colour) in METHODS.items():
        seeds = rows[rows.method == method].pivot_table(index="step", columns="seed", values="correct")
        smooth = seeds.rolling(3, min_periods=1, center=True).mean()
        axes.fill_between(
            smooth.index, smooth.min(axis=1), smooth.max(axis=1), color=colour, alpha=0.18, lw=0
        )
        axes.plot(
            smooth.index, smooth.mean(axis=1), color=colour, lw=2, label=f"{label} ({seeds.shape[1]} seeds)"
        )
    axes.set(xlabel="step of 256 answers", ylabel="correct", ylim=(0, 1), xlim=(1, rows.step.max()))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")
    plt.rcParams["svg.hashsalt"] = "dojo"
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
