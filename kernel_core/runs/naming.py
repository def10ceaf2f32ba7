"""Names of runs: one base, and a number from the second run on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernel_core.runs.run_folder import Run

BEFORE, AFTER, WINNERS = "evaluate-before", "evaluate-after", "best-of-n"
"""Folders that a pipeline makes in its run: scorecards before and after RL, and winners."""
ARM_CARD, COMPARISON = "evaluate", "comparison"
"""Folders of a comparison: the scorecard in the run of each arm, and the tables of all arms."""


def round_folder(number: int, part: str = "") -> str:
    """Return the folder of a round of expert iteration: its policy's, or with `part` another of the round."""
    return f"round-{number}{part and f'-{part}'}"


BEST_KERNELS = "best-kernels"
"""Folder of the winners among the kernels of a training."""
UNTAUGHT_CARD = "evaluate-untaught"
"""Scorecard of a pretrained model before its cold start."""


def names_after(base: str) -> Iterator[str]:
    """`learn`, `learn-0002`, `learn-0003`, …"""
    yield base
    yield from (f"{base}-{number:04}" for number in itertools.count(2))


def own_or_free(root: str, base: str, is_own: Callable[[Mapping[str, Any]], bool]) -> str:
    """Return the first name after `base` that is free, or has a run made by the calling command."""
    for name in names_after(base):
        run = Run(root, name)
        if not run.store.exists("config.json") or is_own(run.command()):
            return name
    raise AssertionError("names do not end")
