"""RL on verified rewards, through the stages format → compile → correct → speed."""

from __future__ import annotations

from flows.cold_start import cold_start
from flows.foundations import INDEX, INGEST, lay_corpus
from flows.route import Mode, route
from flows.running import running, started_by_another_flow
from flows.stage_flow import stage_flow
from kernel_core.config import PLACES, IndexConfig, IngestConfig, TrainConfig
from kernel_core.runs.naming import BEST_KERNELS
from kernel_core.runs.resolve import foundations, locate_checkpoint, needs_cold_start
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store
from tasks.assets import making
from tasks.evaluate import keep_best_kernels
from tasks.events import training_finished
from tasks.learn import train_policy
from tasks.report import report_training, report_winners

MAY_CHANGE = ("steps", "minutes", "candidates", "lr", "alarms_stop", "best_kernels", *PLACES)
"""Settings that may change when a run goes on: how far it goes, what a person does about an alarm, what is
kept of it, and where it works."""


@stage_flow("train", run_name="{run} train: {config.model_name}")
def train(
    config: TrainConfig,
    run: str = "train",
    root: str = "runs",
    ingest: IngestConfig = INGEST,
    index: IndexConfig = INDEX,
    mode: Mode = "inline",
) -> None:
    """Train to the last step, going on from the run's newest checkpoint.

    Alone it makes what the run lacks of snapshot, index and cold start; as a stage it takes them as they
    are.

    Args:
        config: Settings of the training.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        ingest: Settings of the corpus, if the run has none yet.
        index: Settings of its index.
        mode: Stages in this process, or each as a deployment on the pool it needs.
    """
    with running(run, root) as here:
        if not started_by_another_flow():
            lay_corpus(here, ingest, index, mode)
            if needs_cold_start(config):
                made = foundations(here, config)
                route(cold_start, mode, made, config=config, run=run, root=root)
        reads = foundations(here, config)
        settings = config.model_dump(exclude={"placement"})
        with making(here, "train", settings, reads, folder="", may_change=MAY_CHANGE) as work:
            if not work.done:
                work.output = train_policy(config, here)
                if not started_by_another_flow():
                    training_finished(here, config.policy.device)
            report_training(here, has_more=not work.done)
        if config.best_kernels:
            _keep_best_kernels(config, here)


def _keep_best_kernels(config: TrainConfig, here: Run) -> None:
    settings = config.model_dump(include={"problems", "rollout", "gym", "seed"}) | {"n": config.group_size}
    trained = {"weights": Store(locate_checkpoint(here.root, here.name))}
    with making(here, BEST_KERNELS, settings, trained, folder=BEST_KERNELS, follows_inputs=True) as work:
        if not work.done:
            keep_best_kernels(config, here, work.store)
    report_winners(here, BEST_KERNELS)
