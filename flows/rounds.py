"""Rounds of expert iteration: ask, judge, keep what is correct, teach it, measure."""

from __future__ import annotations

from flows.cold_start import cold_start
from flows.evaluate import evaluate
from flows.route import Mode, route
from kernel_core.config import PipelineConfig, asked
from kernel_core.learn.cold_start.verified_chats import CHATS
from kernel_core.runs.naming import AFTER, round_folder
from kernel_core.runs.resolve import choose_weights, folders_read
from kernel_core.runs.run_folder import Run
from tasks.assets import making
from tasks.rounds import keep_winners


def expert_rounds(here: Run, config: PipelineConfig, mode: Mode) -> str | None:
    """Hold the rounds that the settings ask for; return the folder of the last one's policy, None for none.

    Round N makes the folders `round-N-answers`, `round-N-winners`, `round-N` (the policy) and
    `round-N-evaluate`. Without RL the last evaluation is the pipeline's own.
    """
    policy, where = config.train.policy, {"run": here.name, "root": here.root}
    start = choose_weights(here, policy, None) or policy.model
    taught: str | None = None
    for number in range(1, config.rounds.number + 1):
        reads = folders_read(here, policy, taught)
        asking = config.round_asked(number, taught)
        route(evaluate, mode, reads, config=asking, name=round_folder(number, "answers"), **where)

        chats = _kept(here, config, number)
        began = start if config.rounds.restart else taught or start
        training = config.round_taught(began, chats)
        made_of = {"winners": here.store.child(round_folder(number, "winners"))}
        route(cold_start, mode, made_of, config=training, name=round_folder(number), **where)

        taught = here.store.path(round_folder(number))
        is_last = number == config.rounds.number and not config.has_rl
        name = AFTER if is_last else round_folder(number, "evaluate")
        measured = asked(config.evaluate, policy, taught)
        route(evaluate, mode, folders_read(here, policy, taught), config=measured, name=name, **where)
    return taught


def _kept(here: Run, config: PipelineConfig, number: int) -> str:
    """Choose the winners of all rounds so far; return the file of their chats."""
    folder = round_folder(number, "winners")
    names = [round_folder(earlier, "answers") for earlier in range(1, number + 1)]
    answered = {name: here.store.child(name) for name in names}
    with making(here, folder, {"keep": config.rounds.keep}, answered, folder=folder) as work:
        if not work.done:
            keep_winners(list(answered.values()), config.rounds.keep, work.store)
    return work.store.path(CHATS)
