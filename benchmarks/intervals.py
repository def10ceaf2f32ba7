"""Claim: from 24 problems on, 95 % intervals over problems hold the truth in about 95 of 100 evaluations.

    python benchmarks/intervals.py --repetitions 1000 --write

Simulates evaluations with a known truth, 1,000 of each kind: problems have a drawn difficulty, samples of a
problem are correct with that chance. A change gains a share of what was missing (`dense`), or turns one
problem in ten around (`rare`). With several seeds, each shifts all its problems (`seeds`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from machine import describe_machine

from kernel_core.evaluation.statistics import (
    Estimate,
    geometric_mean_ratio,
    mean_difference,
    mean_difference_of_seeds,
    share,
)

Floats = npt.NDArray[np.float64]
SIZES = (6, 24, 100)
PERCENTILES = (0.025, 0.975)
PAGE = Path(__file__).parents[1] / "docs" / "results" / "intervals.md"


def main() -> None:
    """Print the tables, and write the page with `--write`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    number = arguments.repetitions
    figures = ("held", "mean width")
    by_size = ("problems", "samples", "truth")
    tables = (
        ("Shares", by_size, figures, ("problems",), _shares(number)),
        (
            "Paired differences",
            by_size,
            (*figures, "p below 5 %", "percentile bootstrap held"),
            ("problems", "truth"),
            _differences(number),
        ),
        (
            "Paired differences over seeds",
            ("seeds", "problems", "spread of seeds"),
            (*figures, "p below 5 %", "over problems alone held"),
            ("seeds", "spread of seeds"),
            _seeds(number),
        ),
        (
            "Ratios of geometric means",
            by_size,
            (*figures, "p below 5 %"),
            ("problems", "truth"),
            _ratios(number),
        ),
    )
    lines = [
        "# Intervals",
        "",
        __doc__.partition("\n")[0],
        "",
        f"    python benchmarks/intervals.py --repetitions {number} --write",
        "",
        f"Machine: {describe_machine()}. One run, {number:,} repetitions of each kind.",
        "",
        "`held` is the share of intervals with the truth in them. Where nothing differs there is no "
        "interval, and the estimate alone counts. Widths are in points of a share, for ratios a factor.",
    ]
    for name, kinds, values, shown, rows in tables:
        table = pd.DataFrame(rows, columns=[*kinds, *values])
        hidden = ", ".join(
            f"{kind} {' and '.join(table[kind].unique())}" for kind in kinds if kind not in shown
        )
        lines += ["", f"## {name}", "", f"Least and most over {hidden}:", ""]
        lines += [f"| {' | '.join((*shown, *values))} |", "|" + "---|" * (len(shown) + len(values))]
        for key, group in table.groupby(list(shown), sort=False):
            lines.append(f"| {' | '.join((*key, *(_range(group[value]) for value in values)))} |")
    page = "\n".join(lines) + "\n"
    print(page)
    if arguments.write:
        PAGE.write_text(page)


def _range(values: pd.Series[str]) -> str:
    """The least and the most of some printed figures, or the figure that all have."""
    ordered = sorted(set(values), key=lambda value: float(value.rstrip("%")))
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def _shares(repetitions: int) -> Iterable[list[str]]:
    for problems in SIZES:
        for samples in (1, 4):
            for truth in (0.02, 0.1, 0.33, 0.9):
                rng = np.random.default_rng(problems)
                estimates = [
                    share((rng.binomial(samples, _difficulty(rng, truth, problems)) / samples).tolist())
                    for _ in range(repetitions)
                ]
                yield [str(problems), str(samples), f"{truth:.0%}", *_held(estimates, truth)]


def _differences(repetitions: int) -> Iterable[list[str]]:
    for problems in SIZES:
        for samples in (1, 4):
            for kind in ("none", "dense", "rare"):
                rng = np.random.default_rng(problems)
                estimates, plain = [], []
                for _ in range(repetitions):
                    before = _difficulty(rng, 0.33, problems)
                    after = _changed(rng, before, kind)
                    old, new = (rng.binomial(samples, difficulty) / samples for difficulty in (before, after))
                    estimates.append(mean_difference(old.tolist(), new.tolist()))
                    plain.append(_percentile(rng, new - old))
                truth = {"none": 0.0, "dense": 0.2 * 0.67, "rare": 0.1 * 0.34}[kind]
                clear = np.mean([estimate.clear for estimate in estimates])
                yield [
                    *(str(problems), str(samples), f"{kind}, {100 * truth:+.1f}", *_held(estimates, truth)),
                    *(f"{clear:.1%}", f"{_share_held(plain, truth):.1%}"),
                ]


def _changed(rng: np.random.Generator, before: Floats, kind: str) -> Floats:
    if kind == "dense":
        return before + 0.2 * (1 - before)
    return np.where(rng.random(before.size) < 0.1, 1 - before, before) if kind == "rare" else before


def _seeds(repetitions: int) -> Iterable[list[str]]:
    """The truth is no change on average; each seed shifts the chances of its problems together."""
    for seeds in (2, 3, 5):
        for problems in (24, 100):
            for spread in (0.0, 0.03, 0.1):
                rng = np.random.default_rng(seeds)
                estimates, naive = [], []
                for _ in range(repetitions):
                    base = 0.2 + 0.6 * _difficulty(rng, 0.5, problems)
                    own = base + 0.05 * rng.standard_normal(problems)  # what a problem gains in every seed
                    chances = np.clip(own + spread * rng.standard_normal((seeds, 1)), 0, 1)
                    old = rng.binomial(4, np.broadcast_to(base, chances.shape)) / 4
                    new = rng.binomial(4, chances) / 4
                    estimates.append(mean_difference_of_seeds(old, new))
                    naive.append(mean_difference(old.mean(axis=0), new.mean(axis=0)))
                yield [
                    *(str(seeds), str(problems), f"{100 * spread:.0f} points", *_held(estimates, 0.0)),
                    f"{np.mean([estimate.clear for estimate in estimates]):.1%}",
                    f"{_share_held(naive, 0.0):.1%}",
                ]


def _ratios(repetitions: int) -> Iterable[list[str]]:
    """Each problem has up to four speed-ups around its own; a change multiplies them."""
    for problems in SIZES:
        for truth in (1.0, 1.2):
            rng = np.random.default_rng(problems)
            estimates = []
            for _ in range(repetitions):
                own = rng.normal(0.0, 0.5, problems)
                change = rng.normal(np.log(truth), 0.2, problems)
                sides = [_speedups(rng, own), _speedups(rng, own + change)]
                estimate = geometric_mean_ratio(*sides)
                estimates += [estimate] if estimate is not None else []
            clear = np.mean([estimate.clear for estimate in estimates])
            yield [str(problems), "0 to 4", f"×{truth:g}", *_held(estimates, truth, 1.0), f"{clear:.1%}"]


def _speedups(rng: np.random.Generator, logs: Floats) -> list[list[float]]:
    counts = rng.binomial(4, 0.6, logs.size)
    return [np.exp(rng.normal(log, 0.1, count)).tolist() for log, count in zip(logs, counts, strict=True)]


def _difficulty(rng: np.random.Generator, mean: float, problems: int) -> Floats:
    return rng.beta(mean, 1 - mean, problems)


def _percentile(rng: np.random.Generator, differences: Floats) -> Estimate:
    """The percentiles of a plain bootstrap, for comparison."""
    drawn = differences[rng.integers(0, differences.size, (500, differences.size))].mean(axis=1)
    low, high = np.quantile(drawn, PERCENTILES)
    return Estimate(value=float(differences.mean()), low=float(low), high=float(high))


def _ends(estimate: Estimate) -> tuple[float, float]:
    if estimate.low is None or estimate.high is None:
        return estimate.value, estimate.value
    return estimate.low, estimate.high


def _share_held(estimates: list[Estimate], truth: float) -> float:
    slack = 1e-12
    return float(np.mean([low - slack <= truth <= high + slack for low, high in map(_ends, estimates)]))


def _held(estimates: list[Estimate], truth: float, points: float = 100.0) -> list[str]:
    width = points * float(np.mean([high - low for low, high in map(_ends, estimates)]))
    return [f"{_share_held(estimates, truth):.1%}", f"{width:.1f}" if points > 1 else f"{width:.2f}"]


if __name__ == "__main__":
    main()
