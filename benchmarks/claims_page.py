"""What the runs of `claims.py` found out, as pages: a table for each claim and the curves of its arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from arms import Claim

from kernel_core.evaluation.scorecard import load_scorecard
from kernel_core.store import Store

LAZY = 0.5
"""A lazy kernel has less of the device's time in its own launches than this."""
MACHINES = "machines.jsonl"
"""Log of a run: the machines that worked at it."""
_T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Student's t for a 95 % interval of a mean of 2, 3, … values."""
_CURVES = {
    "correct": "kernel/correct_rate",
    "speed-up of correct kernels": "kernel/speedup_geometric_mean",
    "own-kernel share": "kernel/own_share_mean",
    "entropy": "update/entropy",
}


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs under one folder, by arm and seed."""

    work: str
    seeds: Sequence[int]

    def store(self, arm: str, seed: int) -> Store:
        """The folder of one run."""
        return Store(f"{self.work}/{arm}-{seed}")

    def is_finished(self, arm: str, seed: int) -> bool:
        """Whether it was trained and evaluated."""
        return self.store(arm, seed).child("evaluate").sealed()

    def before(self) -> str:
        """Figures of what all began with."""
        return ", ".join(f"{name} {value:.3f}" for name, value in _held_out(Store(self.work)).items())

    def machines(self, arms: Sequence[str]) -> str:
        """Where they were made, each once."""
        stores = [self.store(arm, seed) for arm in arms for seed in self.seeds]
        return "; ".join(dict.fromkeys(row["machine"] for store in stores for row in store.lines(MACHINES)))

    def table(self, claim: Claim) -> str:
        """Paired differences of a claim's two arms, over the seeds that both have finished."""
        arms = claim.with_it, claim.without
        seeds = [seed for seed in self.seeds if all(self.is_finished(arm, seed) for arm in arms)]
        if not seeds:
            return "Not run."
        figures = {arm: [_figures(self.store(arm, seed)) for seed in seeds] for arm in arms}
        first, second = (f"`{arm}`" for arm in arms)
        lines = [
            f"| {len(seeds)} seeds | {first} | {second} | difference | 95 % interval |",
            "|---|---|---|---|---|",
        ]
        for name in figures[claim.without][0]:
            ours, other = (np.array([one[name] for one in figures[arm]]) for arm in arms)
            lines.append(
                f"| {name} | {ours.mean():.3f} | {other.mean():.3f} | {(ours - other).mean():+.3f} "
                f"| {_interval(ours - other)} |"
            )
        return "\n".join(lines)

    def plot(self, arms: Sequence[str], path: Path) -> None:
        """Each arm's curves, mean over seeds with the range of them as a band."""
        import matplotlib

        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        figure, axes = plt.subplots(1, len(_CURVES), figsize=(16, 3.8))
        for axis, (title, key) in zip(axes, _CURVES.items(), strict=True):
            for arm in arms:
                stores = [self.store(arm, seed) for seed in self.seeds if self.is_finished(arm, seed)]
                if not stores:
                    continue
                values = _curve(stores, key)
                steps = np.arange(1, values.shape[1] + 1)
                (line,) = axis.plot(steps, np.nanmean(values, axis=0), label=arm)
                low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
                axis.fill_between(steps, low, high, color=line.get_color(), alpha=0.1, linewidth=0)
            axis.set(title=title, xlabel="step")
            axis.grid(alpha=0.3)
        axes[0].legend(fontsize=7)
        figure.tight_layout()
        figure.savefig(path, dpi=110)


def _held_out(store: Store) -> dict[str, float]:
    """Figures on held-out problems."""
    card, found = load_scorecard(store.child("evaluate")), {}
    for turn, score in (("first turn", card.by_turn[0]), ("last turn", card.last)):
        fast = {point.threshold: point.share.value for point in score.headline.fast_p}
        found[f"correct, {turn}"] = score.correct_rate.value
        found[f"fast_1.2, {turn}"] = fast[1.2]
    judged = pd.read_parquet(store.child("evaluate").path("evaluations.parquet"))
    shares = judged[(judged.turn == 0) & (judged.verdict == "correct")].own_kernel_share
    found["lazy among correct first answers"] = float((shares < LAZY).mean())
    return found


def _figures(store: Store) -> dict[str, float]:
    """Figures of one finished run: held-out figures, and how steady training was."""
    rows = [row for row in store.lines("metrics.jsonl") if row["step"] > 0]
    shares = [row["kernel/own_share_mean"] for row in rows if "kernel/own_share_mean" in row]
    # 0 where the step learned nothing, as rows of earlier versions say it.
    norms = [row.get("update/grad_norm", 0.0) for row in rows]
    return {
        **_held_out(store),
        "correct in training": float(np.mean([row["kernel/correct_rate"] for row in rows])),
        "own-kernel share in training": float(np.mean(shares)) if shares else float("nan"),
        "answers left out of the loss": float(sum(row["update/num_rejected_rows"] for row in rows)),
        "of them for a mismatch": float(sum(row["update/num_mismatched_rows"] for row in rows)),
        "largest gradient norm": max(norms),
        "mean gradient norm": float(np.mean(norms)),
        "alarms": float(sum("alarm" in row for row in rows)),
    }


def _interval(differences: np.ndarray) -> str:
    """Interval of their mean; one value has none."""
    count = len(differences)
    if count < 2:
        return "–"
    half = _T_95[count - 2] * float(differences.std(ddof=1)) / count**0.5
    return f"{differences.mean() - half:+.3f} … {differences.mean() + half:+.3f}"


def _curve(stores: Sequence[Store], key: str) -> Any:
    rows = [{row["step"]: row.get(key) for row in store.lines("metrics.jsonl")} for store in stores]
    steps = range(1, max(max(one) for one in rows) + 1)
    return np.array(
        [[np.nan if one.get(step) is None else one[step] for step in steps] for one in rows], float
    )
