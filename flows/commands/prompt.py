"""`dojo prompt`: the messages that a policy would get for a problem, and the limits that apply to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows.arguments import Settings, Words
from flows.presets import build_parameters, preset_and_settings, settings_for
from flows.server import prepare_environment
from flows.terminal import say
from kernel_core.config import EvaluateConfig
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.policy.protocol import estimated_tokens
from kernel_core.problems.load import load_file, load_problems
from kernel_core.records import Exemplar, Problem
from kernel_core.runs.resolve import choose_weights, locate_index
from kernel_core.runs.run_folder import Run
from tasks.tools import suited_to


def prompt(*words: Words, config: Settings = None, problem: Path | None = None) -> int:
    """Print the first prompt of an evaluation with these settings; no policy is opened.

    Args:
        problem: a problem's file; the first of the suite by default
    """
    prepare_environment()
    preset, assignments = preset_and_settings(words)
    settings = settings_for("evaluate", preset, config, assignments, os.environ)
    return _show(build_parameters("evaluate", settings), problem)


def _show(parameters: dict[str, Any], problem_file: Path | None) -> int:
    config: EvaluateConfig = parameters["config"]
    run = Run(parameters.get("root", "runs"), parameters.get("run", "evaluate"))
    config = suited_to(config, choose_weights(run, config.policy, config.checkpoint))
    if problem_file is not None:
        problem = load_file(problem_file)
    else:
        problem = load_problems(config.problems.model_copy(update={"limit": 1}))[0]
    exemplars = _exemplars(run, config, problem)
    messages = build_prompt(problem, exemplars, (), config.rollout, estimated_tokens)
    for message in messages:
        say(f"--- {message['role']} ---\n{message['content']}\n")
    rollout = config.rollout
    num_tokens = sum(estimated_tokens(message["content"]) for message in messages)
    say(
        f"--- {problem.id}: template {rollout.template}, {len(exemplars)} exemplars, about {num_tokens} "
        f"tokens of rollout.prompt_budget={rollout.prompt_budget}; an answer may take "
        f"rollout.sampling.max_new_tokens={rollout.sampling.max_new_tokens} ---"
    )
    return 0


def _exemplars(run: Run, config: EvaluateConfig, problem: Problem) -> Sequence[Exemplar]:
    """The nearest kernels of the run's corpus, where it has an index."""
    index = locate_index(run, config.checkpoint)
    if index is None or not config.rollout.exemplars:
        return ()
    from kernel_core.retrieval.search import open_retriever

    retriever = open_retriever(index, config=config.rollout.retrieval)
    (found,) = retriever.search_many([problem], config.rollout.exemplars)
    return [one.exemplar for one in found]
