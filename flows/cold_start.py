"""A snapshot → a policy that answers in the right form: supervised training before RL."""

from __future__ import annotations

from prefect import flow

from flows.running import running
from kernel_core.config import TrainConfig
from kernel_core.stage_work import sealed_digest, working_on
from tasks.learn import teach


@flow(name="cold-start")
def cold_start(config: TrainConfig, run: str = "train", root: str = "runs") -> None:
    """Judge conversations made from the run's snapshot and index, train on them, and seal `cold_start/`."""
    with running("cold-start", run, root, {"config": config, "run": run, "root": root}) as here:
        reads = {}
        for name in ("snapshot", "index"):
            here.store.child(name).open_sealed(name)
            reads[name] = sealed_digest(here.store.child(name))
        settings = config.model_dump(include={"policy", "cold_start", "rollout", "gym"})
        with working_on(here, "cold-start", settings, reads, folder="cold_start") as work:
            if not work.done:
                teach(config, here, work.store)
