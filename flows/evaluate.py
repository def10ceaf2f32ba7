"""A policy on held-out problems → a scorecard."""

from __future__ import annotations

from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import EvaluateConfig
from kernel_core.config.policy import ORIGIN
from kernel_core.runs.resolve import files_read, folders_read
from tasks.assets import making
from tasks.evaluate import score_policy
from tasks.report import report_scorecard


@stage_flow("evaluate", run_name="{run} {name}: {config.model_name}")
def evaluate(
    config: EvaluateConfig,
    run: str = "evaluate",
    root: str = "runs",
    name: str = "evaluate",
) -> None:
    """Hold conversations on every problem, judge each turn, and seal the scorecard in folder `name`.

    Each further group of problems has a scorecard of its own, in the folder NAME-GROUP.

    Args:
        config: Policy, problems and judge.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        name: Folder under the run for what this stage makes.
    """
    with running(run, root) as here:
        reads = folders_read(here, config.policy, config.checkpoint, config.answers)
        groups = config.by_folder(name)
        unsealed, scored = {folder for folder in groups if not here.store.child(folder).sealed()}, set[str]()
        for folder, asked in groups.items():
            left_out = {"checkpoint": True, "groups": True, "policy": ORIGIN, "placement": True}
            settings, files = asked.model_dump(exclude=left_out), files_read(config.answers)
            with making(here, folder, settings, reads, files, folder=folder) as work:
                if not work.done and folder not in scored:
                    scored = unsealed | {folder}  # with the first group, so that the policy is opened once
                    score_policy({name: groups[name] for name in groups if name in scored}, here)
            report_scorecard(here, folder)
