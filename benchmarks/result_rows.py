"""Print the figures of a file of judged answers, such as `docs/results/kernelbench.parquet`.

    python benchmarks/result_rows.py docs/results/practice.parquet --against frozen
    python benchmarks/result_rows.py docs/results/kernelbench.parquet --experiment "cold starts"

A row of the file is one answer: experiment, run, seed, problem, sample, verdict, speed-up. The first table
has a line a run and a group of problems; the answers of all seeds of a run count together. With
`--against RUN` a second table has the difference to that run over the problems that both have. An interval is
a bootstrap over problems without any correction: 10,000 draws, percentiles 2.5 and 97.5.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernel_core.evaluation.groups import group_of

NUM_DRAWS = 10_000
FIGURES = ("pass@1", "solved", "fast_1", "fast_1.2")
"""In per cent of the answers, and `solved` in per cent of the problems: at least one correct answer."""
Shares = dict[tuple[str, str, str], pd.DataFrame]


def main() -> None:
    """Print one table, or two with `--against`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--experiment", default="", help="print this experiment alone")
    parser.add_argument("--against", default="", metavar="RUN", help="print the differences to this run")
    parser.add_argument(
        "--own-share", type=float, default=0.0, help="count a correct answer from this share of own work on"
    )
    arguments = parser.parse_args()
    rows = pd.read_parquet(arguments.rows)
    if arguments.experiment:
        rows = rows[rows["experiment"] == arguments.experiment]
    runs = shares_by_run(rows, arguments.own_share)
    print(table(runs))
    if arguments.against:
        print(f"\n{table(differences(runs, arguments.against), signed=True)}")


def shares_by_run(rows: pd.DataFrame, least_own_share: float = 0.0) -> Shares:
    """Return a frame by experiment, group and run: a line a problem, a column a figure and the answers."""
    correct = rows["verdict"].eq("correct")
    if least_own_share:
        correct &= rows["own_share"].ge(least_own_share)
    judged = rows[["experiment", "run", "problem"]].assign(
        group=rows["problem"].map(group_of), answers=1, timed=rows["speedup"].notna()
    )
    judged["pass@1"] = judged["solved"] = correct
    judged["fast_1"] = correct & rows["speedup"].gt(1.0)
    judged["fast_1.2"] = correct & rows["speedup"].gt(1.2)
    how = dict.fromkeys(("pass@1", "fast_1", "fast_1.2"), "mean") | {"solved": "max", "answers": "sum"}
    keys = ["experiment", "group", "run"]
    shares = judged.groupby([*keys, "problem"], sort=False).agg(how | {"timed": "max"}).astype(float)
    found = {}
    for key, part in shares.groupby(level=keys, sort=False):
        frame = part.droplevel(keys)
        untimed = ["fast_1", "fast_1.2"] if not frame["timed"].any() else []
        found[key] = frame.drop(columns=["timed", *untimed])
    return found


def differences(runs: Shares, base: str) -> Shares:
    """Return the differences to the run `base` of the same experiment, over the problems that both have."""
    found = {}
    for (experiment, group, run), shares in runs.items():
        if run != base and (experiment, group, base) in runs:
            before, after = runs[experiment, group, base].align(shares, join="inner")
            found[experiment, group, f"{run} less {base}"] = (after - before).assign(answers=after["answers"])
    return found


def interval(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of the mean over problems."""
    draws = np.random.default_rng(0).integers(len(values), size=(NUM_DRAWS, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), (2.5, 97.5))
    return float(low), float(high)


def table(runs: Shares, *, signed: bool = False) -> str:
    """Return a line a run and group with each figure and its interval."""
    sign, lines = "+" if signed else "", []
    for (experiment, group, run), shares in sorted(runs.items(), key=lambda item: item[0][:2]):
        line = {"experiment": experiment, "group": group, "run": run}
        line |= {"problems": str(len(shares)), "answers": f"{shares['answers'].sum():.0f}"}
        for figure in FIGURES:
            line[figure] = ""
            if figure in shares:
                values = 100 * shares[figure].to_numpy()
                low, high = interval(values)
                line[figure] = f"{values.mean():{sign}.1f} ({low:{sign}.1f} to {high:{sign}.1f})"
        lines.append(line)
    return pd.DataFrame(lines).to_string(index=False)


if __name__ == "__main__":
    main()
