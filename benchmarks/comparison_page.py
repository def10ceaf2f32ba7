"""Render a page that compares two evaluators on the same candidates: rates, fidelity and phases."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import pandas as pd
from kernelbench_pairs import Pair

_LONG_MS = 0.1
"""From here on both clocks should agree closely."""
_CLOSE = 0.03


@dataclass(frozen=True)
class Runs:
    """`all` and `small` are ours (`wall_s`, `machine`, `candidates` by name), over all problems and over
    those with small inputs; `theirs` is by name, as far as it got."""

    all: dict[str, Any]
    small: dict[str, Any]
    theirs: dict[str, dict[str, Any]]


def comparison_page(pairs: list[Pair], groups: list[Pair], runs: Runs, command: str) -> list[str]:
    """The lines of the page; `groups` are all that ours judged, `pairs` those that both may have."""
    both = [pair for pair in pairs if pair.name in runs.theirs]
    return [
        "# The judge beside KernelBench's evaluator, on one GPU",
        "",
        f"    {command}",
        "",
        f"Machine: {runs.all['machine']}.",
        "",
        *_rates(groups, both, runs),
        "",
        "## Fidelity",
        "",
        *_fidelity(groups, both, runs),
        "",
        "## Where ours spends its time",
        "",
        *_phases(runs.all["candidates"]),
    ]


def _rates(groups: list[Pair], both: list[Pair], runs: Runs) -> list[str]:
    lines = ["| problems | ours | KernelBench | ratio |", "|---|---|---|---|"]
    for name, ours in (("all", runs.all), ("small inputs only", runs.small)):
        candidates = ours["candidates"]
        shared = [runs.theirs[pair.name]["seconds"] for pair in both if pair.name in candidates]
        our_s = ours["wall_s"] / len(candidates)
        cells = [name, f"{len(candidates)} in {ours['wall_s']:.1f} s: {3600 / our_s:,.0f} an hour"]
        if shared:
            their_s = statistics.fmean(shared)
            cells += [
                f"{len(shared)} so far, {their_s:.1f} s each: {3600 / their_s:,.0f} an hour",
                f"**{their_s / our_s:.0f}**",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return [
        *lines,
        "",
        f"Ours judges {len({pair.key for pair in groups})} problems in groups, from nothing: inputs, "
        "expected outputs and baselines are included.",
    ]


def _fidelity(groups: list[Pair], both: list[Pair], runs: Runs) -> list[str]:
    candidates = runs.all["candidates"]
    wrong = [
        f"{pair.name} ({candidates[pair.name]['verdict']})"
        for pair in groups
        if (candidates[pair.name]["verdict"] == "correct") != (pair.kind == "honest")
    ]
    lines = [
        f"Ours accepts honest kernels and refuses wrong ones: {len(groups) - len(wrong)} of {len(groups)}"
        + (f"; not so: {', '.join(wrong)}." if wrong else "."),
    ]
    other = [
        f"{pair.name} (ours {candidates[pair.name]['verdict']})"
        for pair in both
        if (candidates[pair.name]["verdict"] == "correct") != bool(runs.theirs[pair.name].get("correct"))
    ]
    lines += ["", f"Verdicts that differ from KernelBench's: {', '.join(other) or 'none'}."]
    times = pd.DataFrame([_times(pair, runs) for pair in both]).dropna()
    if len(times) < 2:
        return lines
    return [*lines, "", agreement(times)]


def agreement(times: pd.DataFrame, what: str = "mean") -> str:
    """Describe how well two evaluators agree; `times` has one row a kernel.

    Compares medians (`ours` with `theirs`, in milliseconds) and the rank order of `our_speedup` and
    `their_speedup`.
    """
    long = times[times["theirs"] >= _LONG_MS]
    error = (long["ours"] / long["theirs"] - 1).abs()
    ranks = times[["our_speedup", "their_speedup"]].rank()
    return (
        f"Our median against KernelBench's {what}, {len(long)} kernels above {_LONG_MS} ms: within "
        f"{100 * _CLOSE:.0f} % for {int((error <= _CLOSE).sum())}, {100 * error.max():.1f} % at most. "
        f"Rank correlation of the {len(times)} speed-ups: "
        f"{ranks['our_speedup'].corr(ranks['their_speedup']):.3f}."
    )


def _times(pair: Pair, runs: Runs) -> dict[str, Any]:
    """Milliseconds and speed-ups by both; nothing where one of them has none."""
    mine, other = runs.all["candidates"][pair.name], runs.theirs.get(pair.name, {})
    if not other.get("correct") or mine["runtime_ms"] is None or not other["runtime_ms"] > 0:
        return {}
    return {
        "ours": mine["runtime_ms"],
        "theirs": other["runtime_ms"],
        "our_speedup": mine["speedup"],
        "their_speedup": other["reference_ms"] / other["runtime_ms"],
    }


def mean_phases(phases: list[dict[str, float]]) -> dict[str, float]:
    """Seconds a candidate, of the seconds by phase of each."""
    names = dict.fromkeys(name for times in phases for name in times)
    return {name: sum(times.get(name, 0.0) for times in phases) / len(phases) for name in names}


def _phases(candidates: dict[str, Any]) -> list[str]:
    means = mean_phases([candidate["phases_s"] for candidate in candidates.values()])
    lines = ["| phase | seconds a candidate, waiting included |", "|---|---|"]
    return lines + [f"| {name} | {seconds:.2f} |" for name, seconds in means.items()]
