"""Every night: the newest checkpoint of each watched run on the same problems, beside the night before."""

from __future__ import annotations

import datetime
import logging

from prefect import runtime

from flows.evaluate import evaluate
from flows.route import Mode, route
from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import EvaluateConfig
from kernel_core.errors import NotFound, Regressed
from kernel_core.evaluation.nightly import NIGHT, checkpoint_of, folder_of
from kernel_core.store import Store
from tasks.report import report_nights

log = logging.getLogger(__name__)


def _night() -> str:
    return f"night of {runtime.flow_run.scheduled_start_time:%Y-%m-%d %H:%M}"


@stage_flow("nightly", run_name=_night)
def nightly(
    config: EvaluateConfig,
    watch: tuple[str, ...] = ("quickstart",),
    run: str = "nightly",
    root: str = "runs",
    night: datetime.datetime | None = None,
    mode: Mode = "inline",
) -> None:
    """Evaluate the newest checkpoint of every watched run, and fail if one is clearly worse than last night.

    A watched run without a checkpoint fails the night too, after all others were evaluated.

    Args:
        config: Problems and judge; the same every night.
        watch: Runs; of each the newest checkpoint is evaluated.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        night: The time that names it; empty: when it was scheduled. One that is done is not done again.
        mode: Stages in this process, or each as a deployment on the pool it needs.
    """
    at = (night or runtime.flow_run.scheduled_start_time).astimezone(datetime.UTC)
    with running(run, root, watch=list(watch), night=at.isoformat()) as here:
        worse, missing = [], []
        for name in watch:
            try:
                checkpoint = checkpoint_of(here, name, at.strftime(NIGHT))
            except NotFound as error:  # the other runs have their night
                log.warning("%s is not evaluated tonight: %s", name, error)
                missing.append(f"{name}: {error}")
                continue
            tonight = config.model_copy(update={"checkpoint": checkpoint})
            folder = folder_of(name, at.strftime(NIGHT), checkpoint.rsplit("/", 1)[-1])
            route(
                evaluate,
                mode,
                {"weights": Store(checkpoint)},
                config=tonight,
                run=run,
                root=root,
                name=folder,
            )
            worse += [f"{name}: {figure}" for figure in report_nights(here, name)]
        left_out = f"; not evaluated: {'; '.join(missing)}" if missing else ""
        if worse:
            raise Regressed(f"regressed since the night before: {'; '.join(worse)}{left_out}")
        if missing:
            raise NotFound(
                f"{len(watch) - len(missing)} of {len(watch)} watched runs were evaluated{left_out}"
            )
