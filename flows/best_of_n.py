"""The best kernel a policy can write for each problem, verified."""

from __future__ import annotations

from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import BestOfNConfig
from kernel_core.config.policy import ORIGIN
from kernel_core.runs.resolve import folders_read
from tasks.assets import making
from tasks.evaluate import select_winners
from tasks.report import report_winners


@stage_flow("best-of-n", run_name="{run} {name}: {config.model_name}")
def best_of_n(
    config: BestOfNConfig,
    run: str = "best-of-n",
    root: str = "runs",
    name: str = "best-of-n",
) -> None:
    """Try N times a problem, judge the best again on unseen draws, and seal the winners in folder `name`.

    Args:
        config: Policy, problems and judge.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        name: Folder under the run for what this stage makes.
    """
    with running(run, root) as here:
        reads = folders_read(here, config.policy, config.checkpoint)
        settings = config.model_dump(exclude={"checkpoint": True, "policy": ORIGIN, "placement": True})
        with making(here, name, settings, reads, folder=name) as work:
            if not work.done:
                select_winners(config, here, work.store)
        report_winners(here, name)
