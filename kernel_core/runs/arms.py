"""Runs of the arms of a comparison."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernel_core.config import Arm
from kernel_core.runs.run_folder import Run


@contextlib.contextmanager
def arm_runs(
    here: Run, arms: Sequence[Arm], parameters: Mapping[str, Any], flow_run: str | None
) -> Iterator[dict[Arm, Run]]:
    """Own a run for each arm, `RUN-METHOD-SEED`, as long as the block lasts; each has a copy of the index.

    `parameters` are those of the comparison: `dojo runs resume` of an arm goes on with all of it.
    """
    runs = {arm: Run(here.root, f"{here.name}-{arm.name}") for arm in arms}
    with contextlib.ExitStack() as owned:
        for run in runs.values():
            owned.enter_context(run.owned("compare", parameters, flow_run))
            index = run.store.child("index")
            if here.store.child("index").sealed() and not index.sealed():
                here.store.child("index").copy_sealed(index)
        yield runs
