"""Methods × seeds of training → one table of figures with paired differences."""

from __future__ import annotations

from prefect import runtime

from flows.cold_start import cold_start
from flows.evaluate import evaluate
from flows.foundations import INDEX, INGEST, lay_corpus
from flows.route import Mode, Stage, route, route_all
from flows.run_names import as_json
from flows.running import running
from flows.stage_flow import stage_flow
from flows.train import train
from kernel_core.config import CompareConfig, EvaluateConfig, IndexConfig, IngestConfig, TrainConfig
from kernel_core.runs.arms import arm_runs
from kernel_core.runs.naming import ARM_CARD, COMPARISON
from kernel_core.runs.resolve import COLD_START, folders_read, foundations, needs_cold_start
from kernel_core.runs.run_folder import Run
from tasks.assets import making
from tasks.report import compare_arms, report_comparison


@stage_flow("compare", run_name="{run} compare: {config.train.model_name}")
def compare(
    config: CompareConfig,
    run: str = "compare",
    root: str = "runs",
    ingest: IngestConfig = INGEST,
    index: IndexConfig = INDEX,
    mode: Mode = "inline",
) -> None:
    """Train each method with each seed from the same policy, evaluate all of them, and seal `comparison/`.

    An arm is a run of its own, `RUN-METHOD-SEED`. Corpus and cold start are made once, where they are needed.
    The method `frozen` is evaluated only.

    Args:
        config: Methods, seeds, training and evaluation.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder or any fsspec URI, the same for every stage and worker.
        ingest: Settings of the corpus, if prompts or a cold start need one.
        index: Settings of its index.
        mode: Arms in this process, one after another, or all of them as deployments on the pool they need.
    """
    command = {"config": config, "run": run, "root": root, "ingest": ingest, "index": index, "mode": mode}
    with running(run, root) as here:
        weights, is_untaught = None, needs_cold_start(config.train)
        if is_untaught or config.train.rollout.exemplars:
            lay_corpus(here, ingest, index, mode)
        if is_untaught:
            made_of = foundations(here, config.train)
            route(cold_start, mode, made_of, config=config.train, run=run, root=root)
            weights = here.store.path(COLD_START)
        with arm_runs(here, config.arms, as_json(command), str(runtime.flow_run.id)) as runs:
            trained = {arm: config.training(arm, weights) for arm in runs}
            route_all(mode, [_training(runs[arm], trained[arm]) for arm in runs if arm.learns])
            asked = {arm: config.evaluation(arm, trained[arm], its.name) for arm, its in runs.items()}
            route_all(mode, [_evaluation(its, asked[arm]) for arm, its in runs.items()])

            folders = tuple(config.evaluate.by_folder(ARM_CARD))
            cards = {f"{arm.name}-{name}": runs[arm].store.child(name) for arm in runs for name in folders}
            settings = {"methods": config.methods, "seeds": config.seeds, "folders": folders}
            with making(here, COMPARISON, settings, cards, folder=COMPARISON) as work:
                if not work.done:
                    compare_arms(runs, folders, work.store)
        report_comparison(here, config)


def _training(run: Run, config: TrainConfig) -> Stage:
    return Stage(train, foundations(run, config), {"config": config, "run": run.name, "root": run.root})


def _evaluation(run: Run, config: EvaluateConfig) -> Stage:
    reads = folders_read(run, config.policy, config.checkpoint)
    return Stage(evaluate, reads, {"config": config, "run": run.name, "root": run.root, "name": ARM_CARD})
