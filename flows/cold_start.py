"""A snapshot → a policy that answers in the right form: supervised training before RL."""

from __future__ import annotations

from flows.foundations import INDEX, INGEST, lay_corpus
from flows.route import Mode
from flows.running import running, started_by_another_flow
from flows.stage_flow import stage_flow
from kernel_core.config import IndexConfig, IngestConfig, TrainConfig
from kernel_core.learn.cold_start.chat_files import transcripts_digest
from kernel_core.runs.resolve import COLD_START
from tasks.assets import making
from tasks.learn import teach


@stage_flow("cold-start", run_name="{run} cold-start: {config.model_name}")
def cold_start(
    config: TrainConfig,
    run: str = "train",
    root: str = "runs",
    ingest: IngestConfig = INGEST,
    index: IndexConfig = INDEX,
    mode: Mode = "inline",
    name: str = COLD_START,
) -> None:
    """Judge conversations made from the run's snapshot and index, train on them, and seal folder `name`.

    Alone it makes the snapshot and the index that the run lacks; as a stage it takes them as they are.

    Args:
        config: Settings of the training that this begins.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        ingest: Settings of the corpus, if the run has none yet.
        index: Settings of its index.
        mode: Stages in this process, or each as a deployment on the pool it needs.
        name: Folder under the run for the policy that is taught.
    """
    with running(run, root) as here:
        if not started_by_another_flow():
            lay_corpus(here, ingest, index, mode)
        reads = {name: here.store.child(name) for name in ("snapshot", "index")}
        given = config.cold_start.data
        inputs = {"data": transcripts_digest(given)} if given else {}
        settings = config.as_taught.model_dump(include={"policy", "cold_start", "rollout", "gym"})
        with making(here, name.replace("_", "-"), settings, reads, inputs, folder=name) as work:
            if not work.done:
                teach(config, here, work.store)
