"""RL on verified rewards, through the stages format → compile → correct → speed."""

from __future__ import annotations

from prefect import flow

from flows.foundations import foundations, lay_foundations
from flows.route import Mode
from flows.running import running, started_by_another_flow
from kernel_core.config import IndexConfig, IngestConfig, TrainConfig
from kernel_core.stage_work import working_on
from tasks.learn import train_policy
from tasks.report import report_training

INGEST, INDEX = IngestConfig(), IndexConfig()
"""A run that has no corpus yet gets one made with the default settings."""


@flow(name="train")
def train(
    config: TrainConfig,
    run: str = "train",
    root: str = "runs",
    ingest: IngestConfig = INGEST,
    index: IndexConfig = INDEX,
    mode: Mode = "inline",
) -> None:
    """Make what the run still lacks of snapshot, index and cold start; then train to the last step.

    As a stage of a pipeline it takes them as they are: the pipeline made them.
    """
    parameters = {"config": config, "run": run, "root": root, "ingest": ingest, "index": index, "mode": mode}
    with running("train", run, root, parameters) as here:
        if not started_by_another_flow():
            lay_foundations(here, config, ingest, index, mode)
        reads = foundations(here, config)
        how_far = ("steps", "minutes")
        with working_on(here, "train", config.model_dump(), reads, folder="", may_change=how_far) as work:
            if not work.done:
                work.output = train_policy(config, here)
            report_training(here)
