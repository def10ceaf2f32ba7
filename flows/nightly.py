"""Every night: the newest checkpoint of each watched run on the same problems, beside the night before."""

from __future__ import annotations

import datetime

from prefect import flow

from flows.evaluate import evaluate
from flows.route import Mode, route
from flows.running import running
from kernel_core.config import EvaluateConfig
from kernel_core.run_policy import locate_checkpoint
from tasks.report import report_nights


@flow(name="nightly")
def nightly(
    config: EvaluateConfig,
    watch: tuple[str, ...] = ("quickstart",),
    run: str = "nightly",
    root: str = "runs",
    night: datetime.date | None = None,
    mode: Mode = "inline",
) -> None:
    """Evaluate the newest checkpoint of every watched run; a night that was done is not done again."""
    date = (night or datetime.datetime.now(datetime.UTC).date()).isoformat()
    parameters = {
        "config": config,
        "watch": list(watch),
        "run": run,
        "root": root,
        "night": date,
        "mode": mode,
    }
    with running("nightly", run, root, parameters) as here:
        for name in watch:
            checkpoint = locate_checkpoint(root, name)
            folder = f"{name}--{date}--{checkpoint.rsplit('/', 1)[-1]}"
            tonight = config.model_copy(update={"checkpoint": checkpoint})
            route(evaluate, mode, config=tonight, run=run, root=root, name=folder)
            report_nights(here, name)
