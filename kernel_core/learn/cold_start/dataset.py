"""Training conversations of the cold start: made from a snapshot, in exactly the form of a rollout.

A first turn asks for a kernel and answers with one of the corpus: good ones, but by `mistake_share`,
`naive_share` and `lazy_share` also faulty, slow and lazy ones, as a realistic corpus has them. A second turn
(`repair_share` of all) shows a faulty or slow kernel with the judge's real feedback. Its answer is a good
kernel, or by `mistake_share` a faulty one again. Only the last answer of a conversation is learned; the rest
is prompt.

Shares are exact, and every reference is used about equally often.
"""

from __future__ import annotations

import itertools
import logging
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from kernel_core.config import ColdStartConfig, RolloutConfig
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt, format_completion
from kernel_core.dialogue.rollout import seed_of
from kernel_core.dialogue.traces import keep_traces
from kernel_core.dialogue.turns import Completion, Turn
from kernel_core.errors import ConfigError
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.source import parse_problem
from kernel_core.progress import Progress, silent
from kernel_core.records import (
    Candidate,
    Evaluation,
    Exemplar,
    NoCandidate,
    Problem,
    Record,
    Verdict,
    sha256_text,
)
from kernel_core.retrieval.protocol import Retriever

log = logging.getLogger(__name__)

FASTER_SHARE = 1 / 3
"""Share of second turns that look back on a correct kernel with a launch an operator; others, on a fault.

Where the corpus has no such kernel, all look back on a fault.
"""
CHARS_PER_TOKEN = 2.7
"""Measured on kernels under a tokenizer made for them; sizes prompt budgets before there is a tokenizer."""

Kind = Literal["first", "repair", "faster", "given"]
Grades = Literal["mistakes", "naive", "lazy", "good"]
Item = TypeVar("Item")
Evaluations = Mapping[tuple[str, str], Evaluation]
"""By problem and exemplar."""


class Conversation(Record):
    """Prompt as chat messages, and the target answer."""

    problem_id: str
    kind: Kind
    grade: str
    """Grade of the kernel in the answer: `naive`, `fused`, `tuned` or `mistake:FAULT`; empty if unknown."""
    messages: tuple[dict[str, str], ...]
    answer: str


@dataclass(frozen=True, slots=True)
class _ReferenceExemplars:
    """Problem of the corpus with its kernels by grade."""

    problem: Problem
    kernels: Mapping[Grades, list[Exemplar]]


_Choice = tuple[_ReferenceExemplars, Exemplar | None]
"""Subject of a conversation, and the earlier kernel of a second turn."""


@dataclass(frozen=True, slots=True)
class _ConversationDraft:
    """Conversation without its prompt."""

    kind: Kind
    problem: Problem
    answer: Exemplar
    earlier: Exemplar | None = None


def build_conversations(
    exemplars: Sequence[Exemplar],
    gym: Gym,
    config: ColdStartConfig,
    rollout: RolloutConfig = RolloutConfig(),  # noqa: B008  (frozen)
    retriever: Retriever | None = None,
    progress: Progress = silent,
) -> list[Conversation]:
    """`config.conversations` conversations in a seeded order; the same arguments give the same ones.

    `rollout` and `retriever` shape the prompts as rollouts will have them. Raises `ConfigError` when the
    corpus has nothing to learn from, and `GymUnavailable` as the gym does.
    """
    references = _references(exemplars)
    drafts = _drafts(references, config)
    evaluations = _judged(drafts, gym, progress)
    drafts = _without_right_ones(drafts, evaluations)
    shown = _shown([reference.problem for reference in references], retriever, rollout.exemplars)
    if rollout.trace:
        keep_traces(draft.problem for draft in drafts)
    conversations = []
    for index, draft in enumerate(drafts):
        history = [_turn(draft.problem, draft.earlier, evaluations)] if draft.earlier is not None else []
        nearest = shown.get(draft.problem.id, ())
        messages = build_prompt(draft.problem, nearest, history, rollout, _estimated_tokens)
        conversations.append(
            Conversation(
                problem_id=draft.problem.id,
                kind=draft.kind,
                grade=draft.answer.grade,
                messages=messages,
                answer=format_completion(draft.answer.thinking, draft.answer.kernel_code),
            )
        )
        if index % 256 == 0 or index + 1 == len(drafts):
            progress("conversations", done=index + 1, total=len(drafts))
    return conversations


def _references(exemplars: Sequence[Exemplar]) -> list[_ReferenceExemplars]:
    """Group the train exemplars in Triton by their computation, in the order of the snapshot."""
    by_hash: dict[str, list[Exemplar]] = defaultdict(list)
    for exemplar in exemplars:
        if exemplar.split == "train" and exemplar.language == "triton" and exemplar.entry_point == "Model":
            by_hash[exemplar.reference_hash].append(exemplar)
    if not by_hash:
        raise ConfigError(
            "the snapshot has no Triton kernel to learn from; set ingest.generator_rows above 0"
        )
    return [_reference(members) for members in by_hash.values()]


def _reference(members: Sequence[Exemplar]) -> _ReferenceExemplars:
    first = members[0]
    sizes = f"# cpu: {first.cpu_sizes}\n" if first.cpu_sizes else ""
    name = f"{first.family or 'corpus'}-{sha256_text(first.reference_code)[:12]}"
    problem = parse_problem(
        sizes + first.reference_code, id=f"{first.source}/{name}", suite=first.source, family=first.family
    )
    kernels: dict[Grades, list[Exemplar]] = {"mistakes": [], "naive": [], "lazy": [], "good": []}
    for exemplar in members:
        if exemplar.grade.startswith("mistake"):
            kernels["mistakes"].append(exemplar)
        elif exemplar.grade == "naive":
            kernels["naive"].append(exemplar)
        elif exemplar.grade == "lazy":
            kernels["lazy"].append(exemplar)
        elif exemplar.claimed_correct is not False:
            kernels["good"].append(exemplar)
    return _ReferenceExemplars(problem, kernels)


def _drafts(references: Sequence[_ReferenceExemplars], config: ColdStartConfig) -> list[_ConversationDraft]:
    """Assign kernels to prompts, in exact shares, in a shuffled order."""
    rng = random.Random(f"conversations {config.seed}")
    num_second = round(config.conversations * config.repair_share)
    faster_share = FASTER_SHARE if any(r.kernels["naive"] and r.kernels["good"] for r in references) else 0.0
    num_faster = round(num_second * faster_share)
    num_repair = num_second - num_faster
    num_first = config.conversations - num_second
    first_bad, repair_bad, faster_bad = (
        round(number * config.mistake_share) for number in (num_first, num_repair, num_faster)
    )
    num_naive = min(round(num_first * config.naive_share), num_first - first_bad)
    num_lazy = min(round(num_first * config.lazy_share), num_first - first_bad - num_naive)
    first_good = num_first - first_bad - num_naive - num_lazy
    num_mended = round(config.judged * (1 - faster_share))
    mended = _pairs(references, "mistakes", num_mended, rng)
    sped_up = _pairs(references, "naive", config.judged - num_mended, rng)
    alone: list[_Choice] = [(reference, None) for reference in references]
    decks: list[tuple[Kind, int, Grades, list[_Choice]]] = [
        ("first", first_bad, "mistakes", alone),
        ("first", num_naive, "naive", alone),
        ("first", num_lazy, "lazy", alone),
        ("first", first_good, "good", alone),
        ("repair", repair_bad, "mistakes", mended),
        ("repair", num_repair - repair_bad, "good", mended),
        ("faster", faster_bad, "mistakes", sped_up),
        ("faster", num_faster - faster_bad, "good", sped_up),
    ]
    drafts: list[_ConversationDraft] = []
    for kind, count, answers, subjects in decks:
        choices = [(reference, earlier) for reference, earlier in subjects if reference.kernels[answers]]
        if count and not choices:
            log.warning("the snapshot has no %s kernels for %d %s turns: left out", answers, count, kind)
            continue
        for reference, earlier in _cycled(choices, count, rng):
            answer = rng.choice(reference.kernels[answers])
            drafts.append(_ConversationDraft(kind, reference.problem, answer, earlier))
    rng.shuffle(drafts)
    return drafts


def _pairs(
    references: Sequence[_ReferenceExemplars], earlier: Grades, count: int, rng: random.Random
) -> list[_Choice]:
    """Choose at most `count` kernels of some grade, with references that have a better kernel."""
    usable = [r for r in references if r.kernels["good"] and r.kernels[earlier]]
    drawn = [(r, rng.choice(r.kernels[earlier])) for r in _cycled(usable, count if usable else 0, rng)]
    return list({exemplar.id: (r, exemplar) for r, exemplar in drawn}.values())


def _cycled(items: Sequence[Item], count: int, rng: random.Random) -> Iterator[Item]:
    """`count` of the items: all of them in a new order, again and again."""
    while count > 0:
        yield from rng.sample(items, min(count, len(items)))
        count -= len(items)


def _judged(drafts: Sequence[_ConversationDraft], gym: Gym, progress: Progress) -> Evaluations:
    """Return the evaluation of every kernel that a second turn looks back on, by problem and exemplar; a
    problem whose reference fails on the judge's device has none."""
    earlier = {
        (draft.problem.id, draft.earlier.id): (draft.problem, draft.earlier)
        for draft in drafts
        if draft.earlier is not None
    }
    requests = [
        JudgeRequest(problem=problem, candidate=_candidate(exemplar), seed=seed_of("cold start", problem.id))
        for problem, exemplar in earlier.values()
    ]
    outcomes = zip(earlier, gym.judge(requests, progress), strict=True)
    return {key: outcome for key, outcome in outcomes if isinstance(outcome, Evaluation)}


def _without_right_ones(
    drafts: Sequence[_ConversationDraft], evaluations: Evaluations
) -> list[_ConversationDraft]:
    """Replace each repair of a correct earlier kernel, such as one with an unused fault, by another repair;
    shares stay exact as long as one repair is left. Leave out drafts whose earlier kernel was not judged."""
    drafts = [
        draft
        for draft in drafts
        if draft.earlier is None or (draft.problem.id, draft.earlier.id) in evaluations
    ]

    def is_right(draft: _ConversationDraft) -> bool:
        if draft.kind != "repair" or draft.earlier is None:
            return False
        return evaluations[draft.problem.id, draft.earlier.id].verdict is Verdict.CORRECT

    others = itertools.cycle([draft for draft in drafts if draft.kind == "repair" and not is_right(draft)])
    replaced = (next(others, None) if is_right(draft) else draft for draft in drafts)
    return [draft for draft in replaced if draft is not None]


def _shown(
    problems: Sequence[Problem], retriever: Retriever | None, count: int
) -> Mapping[str, tuple[Exemplar, ...]]:
    """Return the exemplars that a rollout of each problem would be shown, by problem id."""
    if retriever is None or count == 0:
        return {}
    matches = retriever.search_many(problems, count)
    return {
        problem.id: tuple(neighbour.exemplar for neighbour in neighbours)
        for problem, neighbours in zip(problems, matches, strict=True)
    }


def _turn(problem: Problem, earlier: Exemplar, evaluations: Evaluations) -> Turn:
    text = format_completion(earlier.thinking, earlier.kernel_code)
    return Turn(
        problem_id=problem.id,
        trajectory=0,
        index=0,
        messages=(),
        completion=Completion(text=text, finish_reason="stop", policy_version=earlier.source),
        candidate=_candidate(earlier),
        evaluation=evaluations[problem.id, earlier.id],
    )


def _candidate(exemplar: Exemplar) -> Candidate | NoCandidate:
    """Return the candidate as parsed from an answer: it has the hash of one that a policy writes."""
    return parse_completion(format_completion(exemplar.thinking, exemplar.kernel_code), "stop")


def _estimated_tokens(text: str) -> int:
    return round(len(text) / CHARS_PER_TOKEN)
