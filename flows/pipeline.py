"""All stages: ingest → index → (cold start) → evaluate → (rounds) → train → evaluate → best of N."""

from __future__ import annotations

from typing import Any

from flows.best_of_n import best_of_n
from flows.cold_start import cold_start
from flows.evaluate import evaluate
from flows.foundations import lay_corpus
from flows.rounds import expert_rounds
from flows.route import Mode, Stage, route_all
from flows.running import running
from flows.stage_flow import stage_flow
from flows.train import train
from kernel_core.config import PipelineConfig, asked
from kernel_core.config.model_kind import is_untaught
from kernel_core.runs.naming import AFTER, BEFORE, UNTAUGHT_CARD, WINNERS
from kernel_core.runs.resolve import UNTAUGHT, folders_read, foundations, needs_cold_start
from kernel_core.runs.run_folder import Run
from tasks.evaluate import begin_judging
from tasks.events import training_finished
from tasks.report import report_pipeline


@stage_flow("pipeline", run_name="{config.run}: {config.train.model_name}")
def pipeline(config: PipelineConfig, mode: Mode = "inline") -> None:
    """Corpora in; a trained policy, its scorecards before and after, and verified winners out.

    The policy that is evaluated and asked for winners is the one that is trained, whatever the
    settings of those stages say. A pretrained model is also evaluated before it is taught, with one sample
    a problem and the full prompt. Rounds of expert iteration come before RL; `train.method=frozen` leaves
    RL out.

    Args:
        config: Settings of every stage.
        mode: Stages in this process, or each as a deployment on the pool it needs.
    """

    def stage(*flow_and_reads: Any, **parameters: Any) -> Stage:
        return Stage(*flow_and_reads, {**parameters, "run": config.run, "root": config.root})

    policy = config.train.policy
    with running(config.run, config.root) as here:
        known = here.stages()
        lay_corpus(here, config.ingest, config.index, mode)
        if needs_cold_start(config.train):
            stages = [stage(cold_start, foundations(here, config.train), config=config.train)]
            if is_untaught(policy):
                untaught = asked(config.evaluate.of_untaught, policy, UNTAUGHT)
                made = {"index": here.store.child("index")}
                stages.insert(0, stage(evaluate, made, config=untaught, name=UNTAUGHT_CARD))
            _side_by_side(here, mode, stages)

        made, before = foundations(here, config.train), asked(config.evaluate, policy, None)
        stages = [stage(evaluate, made, config=before, name=BEFORE)]
        if config.rounds.number:
            route_all(mode, [stages.pop()])
        trained = expert_rounds(here, config, mode)
        if config.has_rl:
            training = config.train if trained is None else config.train_from(trained)
            stages.append(stage(train, foundations(here, training), config=training))
            trained, policy = config.run, training.policy
        _side_by_side(here, mode, stages)

        reads, after = folders_read(here, policy, trained), asked(config.evaluate, policy, trained)
        stages = [stage(best_of_n, reads, config=asked(config.best_of_n, policy, trained), name=WINNERS)]
        if config.has_rl or not config.rounds.number:
            stages.insert(0, stage(evaluate, reads, config=after, name=AFTER))
        _side_by_side(here, mode, stages)

        report_pipeline(here, config)
        if config.has_rl and here.stages() != known:
            training_finished(here, policy.device)


def _side_by_side(here: Run, mode: Mode, stages: list[Stage]) -> None:
    """Run stages that do not depend on each other to their ends; of two the first is an evaluation.

    Deployed, both begin at once, and the slots of the pool decide. In this process one runs after the other,
    but the evaluation's judges on CPUs work meanwhile: its policy writes first, its scorecard comes last.
    """
    if mode == "inline" and len(stages) == 2 and begin_judging(here, *(stage.parameters for stage in stages)):
        stages.reverse()
    route_all(mode, stages)
