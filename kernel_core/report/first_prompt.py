"""The first prompt of an evaluation as text, with the limits that apply to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_core.config import EvaluateConfig
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.policy.protocol import estimated_tokens
from kernel_core.problems.load import load_file, load_problems
from kernel_core.records import Exemplar, Problem
from kernel_core.runs.resolve import locate_index
from kernel_core.runs.run_folder import Run


def first_prompt(run: Run, config: EvaluateConfig, problem_file: Path | None) -> str:
    """Return the messages that a policy gets for a problem, the first of the suite without a file."""
    if problem_file is not None:
        problem = load_file(problem_file)
    else:
        problem = load_problems(config.problems.model_copy(update={"limit": 1}))[0]
    exemplars, rollout = _exemplars(run, config, problem), config.rollout
    messages = build_prompt(problem, exemplars, (), rollout, estimated_tokens)
    num_tokens = sum(estimated_tokens(message["content"]) for message in messages)
    limits = (
        f"--- {problem.id}: template {rollout.template}, {len(exemplars)} exemplars, about {num_tokens} "
        f"tokens of rollout.prompt_budget={rollout.prompt_budget}; an answer may take "
        f"rollout.sampling.max_new_tokens={rollout.sampling.max_new_tokens} ---"
    )
    return "\n".join(
        [*(f"--- {message['role']} ---\n{message['content']}\n" for message in messages), limits]
    )


def _exemplars(run: Run, config: EvaluateConfig, problem: Problem) -> Sequence[Exemplar]:
    """Return the nearest kernels of the run's corpus, where it has an index."""
    index = locate_index(run, config.checkpoint)
    if index is None or not config.rollout.exemplars:
        return ()
    from kernel_core.retrieval.search import open_retriever

    retriever = open_retriever(index, config=config.rollout.retrieval)
    (nearest,) = retriever.search_many([problem], config.rollout.exemplars)
    return [match.exemplar for match in nearest]
