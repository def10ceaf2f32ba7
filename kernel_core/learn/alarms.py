"""Early warnings: what goes wrong in RL shows in its numbers long before the reward falls.

| alarm    | rings when, over the last `WINDOW` steps                                          |
|----------|-----------------------------------------------------------------------------------|
| collapse | the entropy is below 0.01 nats a token or a quarter of what it was at first, or   |
|          | well-formed answers are below half of their best                                  |
| junk     | more than a fifth of the answers are junk text, or half are cut off               |
| hacks    | more than a tenth of the turns are hacked, and twice as many as before            |
| drift    | KL(sampler ‖ trainer) is above 0.02 nats a token, or most turns are rejected for  |
|          | their mismatch                                                                    |
| idle     | no optimiser step is taken, or most turns are left out of the loss for what their |
|          | kernel did                                                                        |

An alarm is a pure function of the metrics so far, so a resumed run has the same ones. It rings once, in the
step in which its condition begins to hold, and `alarms_stop` names those that end the run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from kernel_core.records import Record

AlarmKind = Literal["collapse", "junk", "hacks", "drift", "idle"]
Rows = Sequence[Mapping[str, Any]]

WINDOW = 3
"""Steps that are averaged: one bad step is noise."""
LEAST_ENTROPY, ENTROPY_LEFT, FORMAT_LEFT = 0.01, 0.25, 0.5
"""The first in nats a token: an answer of 500 tokens then has 5 nats, and half of the groups were alike."""
JUNK_SHARE, TRUNCATED_SHARE = 0.2, 0.5
HACKED_SHARE, HACKED_GROWTH = 0.1, 2.0
DRIFT_NATS, REJECTED_SHARE = 0.02, 0.5

_STEPS_TAKEN = "update/num_optimiser_steps"

JUNK_CHARS = 300
"""Shorter texts compress too little either way to tell."""
JUNK_COMPRESSION = 0.08
"""Honest kernels shrink to a quarter; a text that repeats itself shrinks to a few hundredths."""
JUNK_FOREIGN = 0.3
"""Share of characters that no program needs."""


class Alarm(Record):
    """Something that a person should look at."""

    step: int
    kind: AlarmKind
    detail: str
    advice: str


def alarms_after(rows: Rows) -> list[Alarm]:
    """Return the alarms that begin with the last of these rows of metrics (one per step, in order)."""
    steps = [row for row in rows if row["step"] > 0]
    if not steps:
        return []
    return [
        Alarm(step=steps[-1]["step"], kind=kind, detail=detail, advice=advice)
        for kind, (rule, advice) in _RULES.items()
        if (detail := rule(steps)) is not None and rule(steps[:-1]) is None
    ]


def is_junk(text: str) -> bool:
    """Return True if a text repeats itself endlessly, or consists of characters that no program needs."""
    if not text:
        return False
    foreign = sum(ord(character) > 0x2FFF or not character.isprintable() for character in text)
    foreign -= text.count("\n") + text.count("\t")
    if foreign > JUNK_FOREIGN * len(text):
        return True
    data = text.encode("utf-8", "surrogatepass")
    return len(data) >= JUNK_CHARS and len(zlib.compress(data)) < JUNK_COMPRESSION * len(data)


def _collapse(steps: Rows) -> str | None:
    entropies = _windows(steps, "batch/entropy")
    if entropies and entropies[-1] < max(LEAST_ENTROPY, ENTROPY_LEFT * entropies[0]):
        return f"entropy {entropies[-1]:.3f} nats a token, {entropies[0]:.3f} at first"
    formatted = _windows(steps, "kernel/format_rate")
    if formatted and formatted[-1] < FORMAT_LEFT * max(formatted):
        return f"{_percent(formatted[-1])} of the answers are well-formed, {_percent(max(formatted))} before"
    return None


def _junk(steps: Rows) -> str | None:
    for key, limit, words in (
        ("kernel/junk_rate", JUNK_SHARE, "are junk text"),
        ("kernel/truncated_rate", TRUNCATED_SHARE, "are cut off at max_new_tokens"),
    ):
        windows = _windows(steps, key)
        if windows and windows[-1] > limit:
            return f"{_percent(windows[-1])} of the answers {words}"
    return None


def _hacks(steps: Rows) -> str | None:
    windows = _windows(steps, "kernel/hack_rate")
    if windows and windows[-1] > HACKED_SHARE and windows[-1] > HACKED_GROWTH * min(windows):
        return f"{_percent(windows[-1])} of the turns are hacked, {_percent(min(windows))} before"
    return None


def _drift(steps: Rows) -> str | None:
    windows = _windows(steps, "update/sampler_kl")
    if windows and windows[-1] > DRIFT_NATS:
        return f"sampler and trainer are {windows[-1]:.3f} nats a token apart"
    rejected = _rejected_share(steps, lambda row: row["update/num_mismatched_rows"])
    if rejected > REJECTED_SHARE:
        return f"{_percent(rejected)} of the turns are rejected because sampler and trainer differ"
    return None


def _idle(steps: Rows) -> str | None:
    taken = [row[_STEPS_TAKEN] for row in steps[-WINDOW:] if _STEPS_TAKEN in row]
    if len(taken) == WINDOW and not any(taken):
        return f"no optimiser step in {WINDOW} steps"
    # Rows rejected for mismatch belong to the alarm `drift`.
    rejected = _rejected_share(
        steps, lambda row: row["update/num_rejected_rows"] - row["update/num_mismatched_rows"]
    )
    if rejected > REJECTED_SHARE:
        return f"{_percent(rejected)} of the turns are left out of the loss for their kernel or as truncated"
    return None


def _rejected_share(steps: Rows, rejected: Callable[[Mapping[str, Any]], float]) -> float:
    """Return the rejected share of all turns of the last `WINDOW` steps; 0 before there are as many."""
    rows = [row for row in steps[-WINDOW:] if row.get("update/num_rows")]
    if len(rows) < WINDOW:
        return 0.0
    return sum(map(rejected, rows)) / sum(row["update/num_rows"] for row in rows)


_RULES: dict[AlarmKind, tuple[Callable[[Rows], str | None], str]] = {
    "collapse": (
        _collapse,
        "lower lr, set kl_coefficient or go back to a checkpoint before it; from the first steps on, teach "
        "with cold_start.loss_floor or fewer cold_start.steps",
    ),
    "junk": (_junk, "read the newest turns/ table; raise rollout.sampling.max_new_tokens if they are honest"),
    "hacks": (_hacks, "read them in the turns/ table; lower hack_penalty below 0"),
    "drift": (_drift, "set mismatch.importance_cap, widen mismatch.band, or sampler.kind=inline"),
    "idle": (
        _idle,
        "raise group_size or resample_rounds; set profile_rejection=corrected if it is published",
    ),
}


def _windows(steps: Rows, key: str) -> list[float]:
    """Means of the metric over every `WINDOW` steps in a row."""
    values = [row[key] for row in steps if key in row]
    return [float(np.mean(values[i : i + WINDOW])) for i in range(len(values) - WINDOW + 1)]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
