"""The evaluate stage: a policy on held-out problems, scored, with every figure traceable to its turns."""

from __future__ import annotations

import importlib.metadata
import logging
import platform
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from kernel_core.batches import EachBatch, in_order
from kernel_core.config import EvaluateConfig
from kernel_core.dialogue import resumable
from kernel_core.dialogue.answers import PIECES, KeptAnswers, stored_answers
from kernel_core.dialogue.resumable import JudgedConversations
from kernel_core.dialogue.rollout import Draw, roll_out_together, write_first_turns
from kernel_core.dialogue.turns import TrajectoryGroup
from kernel_core.errors import ConfigError, Corrupt
from kernel_core.evaluation import tables
from kernel_core.evaluation.comparison import Comparison, compare
from kernel_core.evaluation.metrics import Conditions, Scorecard, make_scorecard, outcomes_of
from kernel_core.evaluation.tables import headline_rows
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.gym.judge.audited_problems import load_audited
from kernel_core.parquet_rows import packed
from kernel_core.policy.protocol import Policy
from kernel_core.progress import Progress, silent
from kernel_core.records import NotJudged, Problem
from kernel_core.retrieval.protocol import Retriever
from kernel_core.store import Store

__all__ = [
    "KIND",
    "Comparison",
    "Scorecard",
    "answer_groups",
    "compare",
    "evaluate",
    "evaluate_answers",
    "headline_rows",
    "load_scorecard",
    "write_first_answers",
]

log = logging.getLogger(__name__)

KIND = "scorecard"
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0)
"""The p of fast_p."""
_VERSIONED = ("torch", "triton", "transformers", "numpy")


def evaluate(
    config: EvaluateConfig,
    policy: Policy,
    gym: Gym,
    retriever: Retriever | None,
    store: Store,
    progress: Progress = silent,
    memory: Store | None = None,
    each: EachBatch = in_order,
) -> Scorecard:
    """Hold `samples_per_problem` conversations a problem, judge every turn, and write the scorecard.

    A folder with a finished scorecard of the same settings is read, not made again; an unfinished one goes
    on from its last whole part. Raises `ConfigError` when the folder holds a scorecard of other settings.
    `memory` keeps which problems pay for nothing; `each` works on batches of problems.
    """
    problems, left_out = load_audited(config.problems, memory)
    digest = resumable.digest_of_stage(config, problems, policy.version, gym)
    if resumable.finished(store, KIND, digest):
        return load_scorecard(store)
    held = resumable.converse(
        policy,
        gym,
        problems,
        retriever,
        config.rollout,
        samples=config.samples_per_problem,
        device=config.policy.device,
        seed=config.seed,
        digests=(resumable.digest_of_answers(config, problems, policy.version), digest),
        store=store,
        progress=progress,
        each=each,
    )
    conditions = _conditions(config, policy.version, gym, left_out)
    return _sealed(config, conditions, problems, held, digest, store)


def answer_groups(
    asked: Sequence[tuple[EvaluateConfig, Store]],
    policy: Policy,
    gym: Gym,
    retriever: Retriever | None,
    progress: Progress = silent,
    memory: Store | None = None,
) -> None:
    """Write and judge the answers of several groups of problems in common batches.

    `evaluate` finds them in each group's store, and their verdicts in the gym's memory. A small group alone
    waits for the longest of its few answers, and for the slowest of its verdicts.
    """
    draws = _draws(asked, policy, memory)
    roll_out_together(policy, gym, draws, retriever, leave_out_faults=True, progress=progress)


def write_first_answers(
    asked: Sequence[tuple[EvaluateConfig, Store]],
    policy: Policy,
    retriever: Retriever | None,
    progress: Progress = silent,
    memory: Store | None = None,
) -> Iterator[list[JudgeRequest]]:
    """Write the first answers of several groups of problems, and yield what is to be judged, batch by batch.

    `evaluate` and `answer_groups` find the answers in each group's store.
    """
    draws = _draws(asked, policy, memory)
    total, written = sum(len(draw.problems) * draw.group_size for draw in draws), 0
    for requests in write_first_turns(policy, draws, retriever):
        written += len(requests)
        progress("sample", written, total)
        yield requests


def _draws(asked: Sequence[tuple[EvaluateConfig, Store]], policy: Policy, memory: Store | None) -> list[Draw]:
    draws = []
    for config, store in asked:
        problems, _ = load_audited(config.problems, memory)
        kept = KeptAnswers(store, resumable.digest_of_answers(config, problems, policy.version))
        samples, seed = config.samples_per_problem, config.seed
        draws.append(Draw(problems, config.rollout, samples, seed, judge_seed=seed, kept=kept))
    return draws


def evaluate_answers(
    config: EvaluateConfig,
    gym: Gym,
    store: Store,
    progress: Progress = silent,
    memory: Store | None = None,
    each: EachBatch = in_order,
) -> Scorecard:
    """Judge the answers in the folder or file `config.answers`, and write a scorecard of its own.

    Only problems with the asked number of samples are judged, and only so many of each; the others are named
    on the card. Raises `NotFound` where no answers are, `ConfigError` where they are to other problems.
    """
    problems, left_out = load_audited(config.problems, memory)
    stored = stored_answers(str(config.answers))
    stored.in_order()  # raises where there are none
    kept = stored.first(config.samples_per_problem)
    answered = [problem for problem in problems if problem.id in kept.problem_ids]
    if not answered:
        raise ConfigError(
            f"{config.answers} has {config.samples_per_problem} answers to none of {len(problems)} problems; "
            "name the problems that were asked, or lower samples_per_problem"
        )
    digest = resumable.digest_of_stage(config, answered, f"{kept.policies} {kept.digest}", gym)
    if resumable.finished(store, KIND, digest):
        return load_scorecard(store)
    held = resumable.judge_again(
        gym,
        answered,
        kept,
        turns=config.rollout.turns,
        seed=config.seed,
        digest=digest,
        store=store,
        progress=progress,
        each=each,
    )
    conditions = _conditions(config, kept.policies, gym, left_out)
    unanswered = tuple(problem.id for problem in problems if problem not in answered)
    conditions = conditions.model_copy(update={"answers": str(config.answers), "unanswered": unanswered})
    return _sealed(config, conditions, answered, held, digest, store)


def _conditions(
    config: EvaluateConfig, policy_version: str, gym: Gym, left_out: tuple[str, ...]
) -> Conditions:
    installed = {name: importlib.metadata.version(name) for name in _VERSIONED}
    return Conditions(
        policy_version=policy_version,
        gym_version=gym.version,
        device=config.gym.device,
        gpu=config.gym.predict_gpu,
        baseline=config.gym.baseline,
        tolerance=config.gym.tolerance,
        versions={"python": platform.python_version(), **installed},
        taken_out=tuple(f"{entry.place}: {entry.reason}" for entry in gym.taken_out),
        left_out=left_out,
    )


def _sealed(
    config: EvaluateConfig,
    conditions: Conditions,
    problems: Sequence[Problem],
    held: JudgedConversations,
    digest: str,
    store: Store,
) -> Scorecard:
    """Make the scorecard, write every file of it, and seal the folder."""
    both = list(zip(problems, held.groups, strict=True))
    judged = [(problem, group) for problem, group in both if not group.not_judged]
    not_judged = tuple(
        NotJudged(problem_id=group.problem_id, reason=group.not_judged)
        for group in held.groups
        if group.not_judged
    )
    outcomes = [outcomes_of(problem, group) for problem, group in judged]
    card = make_scorecard(outcomes, config.k, THRESHOLDS, conditions, not_judged)
    files = held.files | held.kept.seal(store)
    files |= _write(card, [problem for problem, _ in judged], [group for _, group in judged], store)
    store.seal(KIND, files, meta={"digest": digest, "policy_version": conditions.policy_version})
    store.remove(PIECES)
    log.info("scorecard of %d samples in %s", card.last.num_samples, store.root)
    return card


def load_scorecard(store: Store) -> Scorecard:
    """The scorecard of a finished evaluation; `NotFound` without one, `Corrupt` when it was damaged."""
    manifest = store.open_sealed(KIND)
    try:
        data = store.read("scorecard.json", sha256=manifest.files["scorecard.json"])
        return Scorecard.model_validate_json(data)
    except (KeyError, ValidationError) as error:
        raise Corrupt(f"{store.path('scorecard.json')} is not a scorecard; remove {store.root}") from error


def _write(
    card: Scorecard, problems: Sequence[Problem], groups: Sequence[TrajectoryGroup], store: Store
) -> dict[str, str]:
    """Every file of the scorecard but its manifest; gives their SHA-256."""
    # Only writing a scorecard draws plots; reading one does not import matplotlib.
    from kernel_core.evaluation.plots import fast_p_png

    files = {
        "evaluations.parquet": packed(tables.turn_rows(problems, groups, card.headline), tables.TURN_SCHEMA),
        "problems.parquet": packed(tables.problem_rows(card), tables.PROBLEM_SCHEMA),
        "families.parquet": packed(tables.family_rows(card), tables.FAMILY_SCHEMA),
        "fast_p.png": fast_p_png(card),
        "scorecard.json": card.model_dump_json(indent=2).encode() + b"\n",
    }
    results = store.write_json("eval_results.json", tables.kernelbench_results(problems, groups))
    return {name: store.write(name, data) for name, data in files.items()} | {"eval_results.json": results}
