"""Conversations held or judged again part by part, so that a killed evaluation goes on from the last part.

A part is about one sampling batch. Answers are kept as soon as they are written (`answers.py`), and the
evaluations of a whole part in a file of its own. A conversation is made of both. Each file's name has the
digest of everything that decided it; a run with other settings never reads it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_core.batches import Batch, EachBatch, in_order
from kernel_core.config import BestOfNConfig, EvaluateConfig, RolloutConfig
from kernel_core.dialogue.answers import KeptAnswer, KeptAnswers
from kernel_core.dialogue.episode import next_turn
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.rollout import roll_out, seed_of
from kernel_core.dialogue.turns import Completion, Trajectory, TrajectoryGroup, Turn
from kernel_core.errors import ConfigError, Corrupt
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.policy.protocol import Policy
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation, NotJudged, Problem, Record
from kernel_core.retrieval.protocol import Retriever
from kernel_core.store import Store, digest_of

_PARTS = "judged"
CPU_CONVERSATIONS = 16
"""Conversations of a part on a CPU, where a part is minutes and larger batches sample little faster."""


class JudgedProblem(Record):
    """Evaluations of a problem's conversations."""

    problem_id: str
    conversations: tuple[tuple[Evaluation, ...], ...] = ()
    """Samples, and the turns of each."""
    not_judged: str = ""
    """Reason why the problem is none on the judge's device; then there are no conversations."""


@dataclass(frozen=True, slots=True)
class JudgedConversations:
    """Groups of all problems, in order, and the files that hold them."""

    groups: list[TrajectoryGroup]
    files: dict[str, str]
    """Name and SHA-256 of the answers and of each part's evaluations."""
    kept: KeptAnswers


def digest_of_stage(
    config: EvaluateConfig | BestOfNConfig, problems: Sequence[Problem], policy_version: str, gym: Gym
) -> str:
    """Digest of all that decides a stage's result: not the policy's origin, nor the number of judges."""
    settings = config.model_dump(
        mode="json",
        exclude={"policy": True, "checkpoint": True, "gym": {"workers", "cluster", "ray_address"}},
    )
    contents = [[problem.id, problem.sha256, problem.cpu_constants] for problem in problems]
    return digest_of([settings, contents, policy_version, gym.version])


def finished(store: Store, kind: str, digest: str) -> bool:
    """Return True if the folder holds this stage's result; that of other settings is a `ConfigError`."""
    if not store.sealed():
        return False
    if store.open_sealed(kind).meta.get("digest") != digest:
        raise ConfigError(
            f"{store.root} holds {kind} of other settings, problems or another policy; "
            "choose another run name, or remove the folder to make it again"
        )
    return True


def digest_of_answers(
    config: EvaluateConfig | BestOfNConfig, problems: Sequence[Problem], policy_version: str
) -> str:
    """Return the digest of all that decides the answers of first turns: the judge is no part of it."""
    settings = config.model_dump(
        mode="json", exclude={"policy", "checkpoint", "gym", "placement", "k", "answers"}
    )
    return digest_of([settings, [[problem.id, problem.sha256] for problem in problems], policy_version])


def converse(
    policy: Policy,
    gym: Gym,
    problems: Sequence[Problem],
    retriever: Retriever | None,
    config: RolloutConfig,
    *,
    samples: int,
    device: str,
    seed: int,
    digests: tuple[str, str],
    store: Store,
    progress: Progress = silent,
    each: EachBatch = in_order,
) -> JudgedConversations:
    """Hold `samples` conversations a problem; parts that the store already has are read, not held again.

    `digests` are those of the answers and of the stage. `each` works on the parts that are left. They go one
    after another: all of them need the policy.
    """
    kept = KeptAnswers(store, digests[0])

    def hold(asked: Sequence[Problem]) -> list[JudgedProblem]:
        held = roll_out(
            policy,
            gym,
            asked,
            retriever,
            config,
            group_size=samples,
            seed=seed,
            kept=kept,
            progress=progress,
        )
        return [_judged(group) for group in held.groups]

    conversations = config.sampling.batch_size
    if device == "cpu":
        conversations = min(conversations, CPU_CONVERSATIONS)
    size = max(1, conversations // samples)
    return _in_parts(problems, size, hold, kept, digests[1], store, progress, each)


def judge_again(
    gym: Gym,
    problems: Sequence[Problem],
    kept: KeptAnswers,
    *,
    turns: int,
    seed: int,
    digest: str,
    store: Store,
    progress: Progress = silent,
    each: EachBatch = in_order,
) -> JudgedConversations:
    """Judge the kept answers to `problems`, the first `turns` of each sample, as they were written.

    No policy is asked. Inputs are those of the first judging, which `seed` fixes. Every problem needs an
    answer. Raises `ConfigError` where a problem is not the one that was answered.
    """
    by_problem = {
        problem_id: [sample[:turns] for sample in samples]
        for problem_id, samples in _samples_of(kept, problems).items()
    }

    def judge(asked: Sequence[Problem]) -> list[JudgedProblem]:
        answers = [[answer for sample in by_problem[problem.id] for answer in sample] for problem in asked]
        requests = [
            JudgeRequest(
                problem=problem,
                candidate=parse_completion(answer.text, answer.finish_reason),
                seed=seed_of(seed, problem.id),
            )
            for problem, written in zip(asked, answers, strict=True)
            for answer in written
        ]
        outcomes = iter(gym.judge(requests, progress))
        judged = []
        for problem in asked:
            by_sample = [[next(outcomes) for _ in sample] for sample in by_problem[problem.id]]
            reasons = [
                outcome.reason for sample in by_sample for outcome in sample if isinstance(outcome, NotJudged)
            ]
            evaluations = [
                [outcome for outcome in sample if isinstance(outcome, Evaluation)] for sample in by_sample
            ]
            judged.append(
                JudgedProblem(problem_id=problem.id, not_judged=reasons[0])
                if reasons
                else JudgedProblem(problem_id=problem.id, conversations=tuple(map(tuple, evaluations)))
            )
        return judged

    most = max(len(samples) for samples in by_problem.values())
    size = max(1, CPU_CONVERSATIONS // max(1, most))
    return _in_parts(problems, size, judge, kept, digest, store, progress, each)


def _in_parts(
    problems: Sequence[Problem],
    size: int,
    judge: Callable[[Sequence[Problem]], list[JudgedProblem]],
    kept: KeptAnswers,
    digest: str,
    store: Store,
    progress: Progress,
    each: EachBatch,
) -> JudgedConversations:
    """Call `judge` for each part without a file, write the file, and read all of them."""
    total = len(problems)
    parts = {
        f"{_PARTS}/{digest[:12]}-{start:05d}.json": Batch(
            label="problems", start=start, end=min(start + size, total), total=total
        )
        for start in range(0, total, size)
    }
    names = {part.start: name for name, part in parts.items()}

    def hold(part: Batch) -> str:
        progress("problems", done=part.start, total=total)
        judged = judge(problems[part.start : part.end])
        store.write(names[part.start], _encode(judged))
        return _in_words(judged)

    each([part for name, part in parts.items() if not store.exists(name)], hold, at_once=False)
    samples = _samples_of(kept, problems)
    groups: list[TrajectoryGroup] = []
    files: dict[str, str] = {}
    for name, part in parts.items():
        data, asked = store.read(name), problems[part.start : part.end]
        judged = _decode(data, store.path(name), [problem.id for problem in asked])
        for problem, result in zip(asked, judged, strict=True):
            groups.append(_group(problem, result, samples[problem.id]))
        files[name] = hashlib.sha256(data).hexdigest()
    progress("problems", done=total, total=total)
    return JudgedConversations(groups=groups, files=files, kept=kept)


def _samples_of(kept: KeptAnswers, problems: Sequence[Problem]) -> dict[str, list[list[KeptAnswer]]]:
    """Return the answers to each problem: samples, and the turns of each."""
    by_problem: dict[str, dict[int, list[KeptAnswer]]] = {problem.id: {} for problem in problems}
    sources = {problem.id: problem.sha256 for problem in problems}
    for answer in kept.in_order():
        if answer.problem_id not in by_problem:
            continue
        if answer.problem_sha256 not in ("", sources[answer.problem_id]):
            raise ConfigError(
                f"problem {answer.problem_id} is another one now than when it was answered; "
                "judge with the problems of that time, or leave it out"
            )
        by_problem[answer.problem_id].setdefault(answer.sample, []).append(answer)
    return {problem_id: list(samples.values()) for problem_id, samples in by_problem.items()}


def _judged(group: TrajectoryGroup) -> JudgedProblem:
    conversations = tuple(
        tuple(turn.evaluation for turn in trajectory.turns) for trajectory in group.trajectories
    )
    return JudgedProblem(
        problem_id=group.problem_id, conversations=conversations, not_judged=group.not_judged
    )


def _group(
    problem: Problem, judged: JudgedProblem, samples: Sequence[Sequence[KeptAnswer]]
) -> TrajectoryGroup:
    """Build the conversations of a problem from its answers and their evaluations.

    Answers without an evaluation are left out: turns after the end of a conversation judged otherwise.
    """
    trajectories = []
    for answers, evaluations in zip(samples, judged.conversations, strict=not judged.not_judged):
        turns: list[Turn] = []
        for answer, evaluation in zip(answers, evaluations, strict=False):
            completion = Completion(
                text=answer.text,
                num_tokens=answer.num_tokens,
                finish_reason=answer.finish_reason,
                policy_version=answer.policy_version,
            )
            candidate = parse_completion(answer.text, answer.finish_reason)
            turn = next_turn(
                problem,
                turns,
                answer.messages,
                completion,
                candidate,
                evaluation,
                trajectory=answer.sample,
                exemplar_ids=answer.exemplar_ids,
            )
            turns.append(turn)
        trajectories.append(Trajectory(problem_id=problem.id, turns=tuple(turns)))
    return TrajectoryGroup(
        problem_id=problem.id, trajectories=tuple(trajectories), not_judged=judged.not_judged
    )


def _in_words(judged: Sequence[JudgedProblem]) -> str:
    """Return the number of problems with a correct answer, and the ids of those without."""
    unsolved = [
        result.problem_id
        for result in judged
        if not any(evaluation.correct for turns in result.conversations for evaluation in turns)
    ]
    left = f"; not: {', '.join(unsolved)}" if unsolved else ""
    return f"{len(judged) - len(unsolved)} of {len(judged)} problems solved{left}."


def _encode(judged: Sequence[JudgedProblem]) -> bytes:
    return b"[" + b",\n".join(result.model_dump_json().encode() for result in judged) + b"]\n"


def _decode(data: bytes, path: str, problem_ids: list[str]) -> list[JudgedProblem]:
    try:
        judged = [JudgedProblem.model_validate(record) for record in json.loads(data)]
    except ValueError as error:
        raise Corrupt(f"{path} does not hold evaluations; remove it and run again") from error
    if [result.problem_id for result in judged] != problem_ids:
        raise Corrupt(f"{path} holds other problems than expected; remove it and run again")
    return judged
