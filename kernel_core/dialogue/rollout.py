"""Multi-turn conversations: prompt, sample, parse, judge, feed back; all groups of a step together.

Every conversation runs the same number of turns unless `stop_at_speedup` ends it, never for being correct
alone: a turn is also there to make a correct kernel faster.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernel_core.config import RolloutConfig
from kernel_core.dialogue.answers import KeptAnswer, KeptAnswers, prompt_hash
from kernel_core.dialogue.episode import is_over, next_turn
from kernel_core.dialogue.overlap import Judgement, seconds_judging, side_by_side
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.dialogue.traces import keep_traces
from kernel_core.dialogue.turns import Completion, Trajectory, TrajectoryGroup, Turn
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.gym.contract.requests import Compared, Gym, JudgeRequest
from kernel_core.policy.protocol import Message, Policy, Sample
from kernel_core.progress import Progress, silent
from kernel_core.records import Candidate, Evaluation, Exemplar, NoCandidate, NotJudged, Problem
from kernel_core.retrieval.protocol import Retriever

TurnKey = tuple[str, int, int]
"""Problem id, trajectory, turn."""


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Groups of one step, with the sample of each turn (token ids and log-probabilities)."""

    groups: list[TrajectoryGroup]
    """One per problem, in order."""
    samples: dict[TurnKey, Sample]
    num_left_out: int = 0
    """Conversations that are in no group because a turn of theirs has no evaluation."""
    num_retried: int = 0
    """Judgements asked for again after a fault of ours, in all draws of the batch."""
    num_judged: int = 0
    """Answers with a verdict: repeated and malformed ones too, and those of conversations left out later."""
    seconds_judging: float = 0.0
    """Wall clock in which something of the batch was being judged, waited for or not."""
    compared: Compared = field(default_factory=Compared)
    """Answers that were judged fast and in full."""

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens of all answers, those of conversations that were left out included."""
        return sum(sample.num_tokens for sample in self.samples.values())


@dataclass(frozen=True, slots=True)
class Draw:
    """Conversations that are held in one way: `group_size` about each problem.

    What a conversation draws depends on `seed`, its problem, its index in the group and the turn alone. All
    candidates of a problem are judged on the same secret inputs, which `judge_seed` fixes. Without `timing`
    no speed is measured.
    """

    problems: Sequence[Problem]
    config: RolloutConfig
    group_size: int
    seed: int
    judge_seed: int
    timing: bool = True
    kept: KeptAnswers | None = None
    """Store of the answers: they go there before they are judged, and are not sampled again."""


@dataclass(slots=True)
class _OpenConversation:
    draw: Draw
    problem: Problem
    trajectory: int
    exemplars: tuple[Exemplar, ...]
    turns: list[Turn] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    """One a turn, and one more where the last turn has no evaluation."""
    left_out: bool = False
    """True if a turn has no evaluation: by a fault of ours, or because of its problem."""
    not_judged: str = ""
    """Reason why its problem is none on the judge's device."""

    @property
    def key(self) -> TurnKey:
        """Place of the turn to come."""
        return self.problem.id, self.trajectory, len(self.turns)


@dataclass(slots=True)
class _RolloutPart:
    """Conversations that write together, and what they wrote in the turn under way."""

    conversations: list[_OpenConversation]
    messages: list[tuple[Message, ...]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    candidates: list[Candidate | NoCandidate] = field(default_factory=list)


def roll_out(
    policy: Policy,
    gym: Gym,
    problems: Sequence[Problem],
    retriever: Retriever | None,
    config: RolloutConfig,
    *,
    group_size: int,
    seed: int,
    leave_out_faults: bool = False,
    one_by_one: bool = False,
    kept: KeptAnswers | None = None,
    progress: Progress = silent,
) -> Rollouts:
    """`group_size` conversations of `config.turns` turns for each problem; see `roll_out_together`."""
    [rollouts] = roll_out_together(
        policy,
        gym,
        [Draw(problems, config, group_size, seed, judge_seed=seed, kept=kept)],
        retriever,
        leave_out_faults=leave_out_faults,
        one_by_one=one_by_one,
        progress=progress,
    )
    return rollouts


def roll_out_together(
    policy: Policy,
    gym: Gym,
    draws: Sequence[Draw],
    retriever: Retriever | None,
    *,
    leave_out_faults: bool = False,
    one_by_one: bool = False,
    progress: Progress = silent,
) -> list[Rollouts]:
    """Hold the conversations of all draws in common batches, some judged while others write.

    All draws have the sampling settings of the first. A bad completion is data. Raises `GymUnavailable` as
    the gym does; with `leave_out_faults`, a candidate that the gym fails on twice takes only its own
    conversation out, and it is an error only when no conversation of a draw is left. `one_by_one` is for a
    policy behind a server, which batches requests itself: each conversation goes at its own pace, whatever
    `batch_size` is.
    """
    held = [_opened(draw, retriever) for draw in draws]
    conversations = [c for groups in held for group in groups for c in group]
    config = draws[0].config
    round_ = _Round(policy, config)
    overlap = config.overlap is not False
    together = one_by_one and overlap
    size = len(conversations) if one_by_one else config.sampling.batch_size
    judgements = side_by_side(
        _parts([group for groups in held for group in groups], 1 if together else size),
        round_.write,
        round_.take,
        gym,
        overlap=overlap,
        together=together,
        leave_out_faults=leave_out_faults,
        progress=progress,
        total=sum(c.draw.config.turns for c in conversations),
    )
    return [
        _rollouts(draw.problems, [c for group in groups for c in group], judgements)
        for draw, groups in zip(draws, held, strict=True)
    ]


def write_first_turns(
    policy: Policy, draws: Sequence[Draw], retriever: Retriever | None
) -> Iterator[list[JudgeRequest]]:
    """Write the first turns of all draws in common batches, and yield the requests of each batch.

    Nothing is judged. `roll_out_together` finds the answers in each draw's store.
    """
    groups = [group for draw in draws for group in _opened(draw, retriever)]
    round_ = _Round(policy, draws[0].config)
    for part in _parts(groups, draws[0].config.sampling.batch_size):
        yield round_.write(part)


def _opened(draw: Draw, retriever: Retriever | None) -> list[list[_OpenConversation]]:
    """Return the conversations of each problem before their first turns."""
    _refuse_repeated(draw.problems)
    exemplars = _retrieve(retriever, draw.problems, draw.config.exemplars)
    return [
        [_OpenConversation(draw, problem, trajectory, shown) for trajectory in range(draw.group_size)]
        for problem, shown in zip(draw.problems, exemplars, strict=True)
    ]


def _rollouts(
    problems: Sequence[Problem],
    conversations: Sequence[_OpenConversation],
    judgements: Sequence[Judgement[_RolloutPart]],
) -> Rollouts:
    """Return the groups and counts of finished conversations; raise `GymUnavailable` where a fault left
    none."""
    if any(judgement.fault for judgement in judgements) and all(c.left_out for c in conversations):
        fault = next(judgement.fault for judgement in reversed(judgements) if judgement.fault is not None)
        raise GymUnavailable(
            f"the gym left every one of {len(conversations)} conversations without an answer; last: {fault}"
        ) from fault
    return Rollouts(
        groups=_grouped(problems, conversations),
        samples={
            (c.problem.id, c.trajectory, turn): sample
            for c in conversations
            for turn, sample in enumerate(c.samples)
        },
        num_left_out=sum(c.left_out for c in conversations),
        num_retried=sum(judgement.num_retried for judgement in judgements),
        num_judged=sum(len(c.turns) for c in conversations),
        seconds_judging=seconds_judging(judgements),
    )


@dataclass(slots=True)
class _Round:
    """Writes the turns of parts and takes their judgements."""

    policy: Policy
    config: RolloutConfig
    """Its settings of sampling hold for all draws."""

    def write(self, part: _RolloutPart) -> list[JudgeRequest]:
        """Write the next turn of a part's conversations, as requests."""
        keep_traces(c.problem for c in part.conversations if c.draw.config.trace)
        part.messages = [
            build_prompt(c.problem, c.exemplars, c.turns, c.draw.config, self.policy.count_tokens)
            for c in part.conversations
        ]
        part.samples = self._sampled(part)
        if self.config.overlap is False:
            self.policy.release()
        part.candidates = [parse_completion(sample.text, sample.finish_reason) for sample in part.samples]
        return [
            JudgeRequest(
                problem=c.problem,
                candidate=candidate,
                seed=seed_of(c.draw.judge_seed, c.problem.id),
                timing=c.draw.timing,
            )
            for c, candidate in zip(part.conversations, part.candidates, strict=True)
        ]

    def _sampled(self, part: _RolloutPart) -> list[Sample]:
        """Return a sample per conversation: the kept answer to the same prompt, else a new one, which
        is then kept."""
        asked = list(zip(part.conversations, part.messages, strict=True))
        known = [_kept_sample(c, messages) for c, messages in asked]
        missing = [at for at, sample in enumerate(known) if sample is None]
        seeds = [seed_of(asked[at][0].draw.seed, *asked[at][0].key) for at in missing]
        if missing:
            new = self.policy.sample(
                [asked[at][1] for at in missing],
                temperature=self.config.sampling.temperature,
                max_new_tokens=self.config.sampling.max_new_tokens,
                seed=seeds,
            )
            answers = defaultdict[KeptAnswers, list[KeptAnswer]](list)
            for at, sample, seed in zip(missing, new, seeds, strict=True):
                known[at] = sample
                if (kept := asked[at][0].draw.kept) is not None:
                    answers[kept].append(_answer(*asked[at], sample, seed))
            for kept, written in answers.items():
                kept.keep(written)
        return [sample for sample in known if sample is not None]

    def take(self, judgement: Judgement[_RolloutPart]) -> _RolloutPart | None:
        """Add the judged turns to their conversations; gives the part that writes another, if one does."""
        part = judgement.part
        for c, messages, sample, candidate, evaluation in zip(
            part.conversations,
            part.messages,
            part.samples,
            part.candidates,
            judgement.evaluations,
            strict=True,
        ):
            c.samples.append(sample)
            if isinstance(evaluation, NotJudged):
                c.left_out, c.not_judged = True, evaluation.reason
            elif evaluation is None:
                c.left_out = True
            else:
                c.turns.append(_turn(c, messages, sample, candidate, evaluation))
        going_on = [c for c in part.conversations if not (c.left_out or is_over(c.turns, c.draw.config))]
        return _RolloutPart(going_on) if going_on else None


def seed_of(*parts: int | str) -> int:
    """Derive a 63-bit seed from these parts; stable over processes and Python versions."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _parts(groups: Sequence[Sequence[_OpenConversation]], batch_size: int) -> list[_RolloutPart]:
    """Pack as many whole groups as fit into a batch; a group that is larger than one is cut."""
    parts: list[_RolloutPart] = []
    for group in groups:
        for start in range(0, len(group), batch_size):
            piece = group[start : start + batch_size]
            if parts and len(parts[-1].conversations) + len(piece) <= batch_size:
                parts[-1].conversations += piece
            else:
                parts.append(_RolloutPart(list(piece)))
    return parts


def _kept_sample(conversation: _OpenConversation, messages: tuple[Message, ...]) -> Sample | None:
    kept = conversation.draw.kept
    answer = None if kept is None else kept.find(conversation.key, messages)
    return None if answer is None else answer.as_sample()


def _turn(
    conversation: _OpenConversation,
    messages: tuple[Message, ...],
    sample: Sample,
    candidate: Candidate | NoCandidate,
    evaluation: Evaluation,
) -> Turn:
    completion = Completion(
        text=sample.text,
        num_tokens=sample.num_tokens,
        finish_reason=sample.finish_reason,
        policy_version=sample.policy_version,
    )
    return next_turn(
        conversation.problem,
        conversation.turns,
        messages,
        completion,
        candidate,
        evaluation,
        trajectory=conversation.trajectory,
        exemplar_ids=tuple(exemplar.id for exemplar in conversation.exemplars),
    )


def _answer(
    conversation: _OpenConversation, messages: tuple[Message, ...], sample: Sample, seed: int
) -> KeptAnswer:
    problem_id, trajectory, turn = conversation.key
    return KeptAnswer(
        problem_id=problem_id,
        problem_sha256=conversation.problem.sha256,
        sample=trajectory,
        turn=turn,
        seed=seed,
        prompt_sha256=prompt_hash(messages),
        messages=messages,
        exemplar_ids=tuple(exemplar.id for exemplar in conversation.exemplars),
        text=sample.text,
        finish_reason=sample.finish_reason,
        num_tokens=sample.num_tokens,
        logprob=None if sample.logprobs is None else round(float(sample.logprobs.sum()), 3),
        policy_version=sample.policy_version,
    )


def _retrieve(
    retriever: Retriever | None, problems: Sequence[Problem], count: int
) -> list[tuple[Exemplar, ...]]:
    if retriever is None or count == 0 or not problems:
        return [() for _ in problems]
    matches = retriever.search_many(problems, count)
    return [tuple(neighbour.exemplar for neighbour in neighbours) for neighbours in matches]


def _grouped(
    problems: Sequence[Problem], conversations: Sequence[_OpenConversation]
) -> list[TrajectoryGroup]:
    trajectories: dict[str, list[Trajectory]] = {problem.id: [] for problem in problems}
    reasons: dict[str, str] = {}
    for c in conversations:
        if c.not_judged:
            reasons[c.problem.id] = c.not_judged
        if not c.left_out:
            trajectories[c.problem.id].append(Trajectory(problem_id=c.problem.id, turns=tuple(c.turns)))
    return [
        TrajectoryGroup(
            problem_id=id_,
            trajectories=() if id_ in reasons else tuple(known),
            not_judged=reasons.get(id_, ""),
        )
        for id_, known in trajectories.items()
    ]


def _refuse_repeated(problems: Sequence[Problem]) -> None:
    repeated = [id_ for id_, count in Counter(problem.id for problem in problems).items() if count > 1]
    if repeated:
        raise ConfigError(f"problem {repeated[0]} was given more than once; a step takes each problem once")
