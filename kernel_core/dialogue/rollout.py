"""Multi-turn conversations: prompt, sample, parse, judge, feed back; all groups of a step together.

Every conversation runs the same number of turns unless `stop_at_speedup` ends it, never for being correct
alone: a turn is also there to make a correct kernel faster.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_core.config import RolloutConfig
from kernel_core.dialogue.answers import KeptAnswer, KeptAnswers, prompt_hash
from kernel_core.dialogue.episode import is_over, next_turn
from kernel_core.dialogue.overlap import Judgement, seconds_judging, side_by_side
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt
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
    """Judgements asked for again after a fault of ours."""
    num_judged: int = 0
    """Answers with a verdict: repeated and malformed ones too, and those of conversations left out later."""
    seconds_judging: float = 0.0
    """Wall clock in which something was being judged, waited for or not."""
    compared: Compared = field(default_factory=Compared)
    """Answers that were judged fast and in full."""

    @property
    def num_sampled_tokens(self) -> int:
        """Tokens of all answers, those of conversations that were left out included."""
        return sum(sample.num_tokens for sample in self.samples.values())


@dataclass(slots=True)
class _OpenConversation:
    problem: Problem
    trajectory: int
    exemplars: tuple[Exemplar, ...]
    turns: list[Turn] = field(default_factory=list)
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
    judge_seed: int | None = None,
    timing: bool = True,
    leave_out_faults: bool = False,
    one_by_one: bool = False,
    kept: KeptAnswers | None = None,
    progress: Progress = silent,
) -> Rollouts:
    """`group_size` conversations of `config.turns` turns for each problem, some judged while others write.

    What a conversation draws depends on `seed`, its problem, its index in the group and the turn alone.
    All candidates of a problem are judged on the same secret inputs, which `judge_seed` fixes (None:
    `seed`). Without `timing` no speed is measured. A bad completion is data. Raises `GymUnavailable` as the
    gym does; with `leave_out_faults`, a candidate that the gym fails on twice takes only its own conversation
    out, and it is an error only when no conversation is left. `one_by_one` is for a policy behind a server,
    which batches requests itself: each conversation goes at its own pace, whatever `batch_size` is. Answers
    go into `kept` before they are judged, and one that is there for the same prompt is not sampled again.
    """
    _refuse_repeated(problems)
    exemplars = _retrieve(retriever, problems, config.exemplars)
    conversations = [
        _OpenConversation(problem, trajectory, shown)
        for problem, shown in zip(problems, exemplars, strict=True)
        for trajectory in range(group_size)
    ]
    round_ = _Round(policy, config, seed, seed if judge_seed is None else judge_seed, timing, kept)
    overlap = config.overlap is not False
    together = one_by_one and overlap
    size = len(conversations) if one_by_one else config.sampling.batch_size
    judgements = side_by_side(
        _parts(conversations, group_size, 1 if together else size),
        round_.write,
        round_.take,
        gym,
        overlap=overlap,
        together=together,
        leave_out_faults=leave_out_faults,
        progress=progress,
        total=len(conversations) * config.turns,
    )
    return _rollouts(problems, conversations, judgements, round_.samples)


def _rollouts(
    problems: Sequence[Problem],
    conversations: Sequence[_OpenConversation],
    judgements: Sequence[Judgement[_RolloutPart]],
    samples: dict[TurnKey, Sample],
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
        samples=samples,
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
    seed: int
    judge_seed: int
    timing: bool
    kept: KeptAnswers | None
    samples: dict[TurnKey, Sample] = field(default_factory=dict)

    def write(self, part: _RolloutPart) -> list[JudgeRequest]:
        """Write the next turn of a part's conversations, as requests."""
        part.messages = [
            build_prompt(c.problem, c.exemplars, c.turns, self.config, self.policy.count_tokens)
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
                seed=seed_of(self.judge_seed, c.problem.id),
                timing=self.timing,
            )
            for c, candidate in zip(part.conversations, part.candidates, strict=True)
        ]

    def _sampled(self, part: _RolloutPart) -> list[Sample]:
        """Return a sample per conversation: the kept answer to the same prompt, else a new one, which
        is then kept."""
        asked = list(zip(part.conversations, part.messages, strict=True))
        known: list[Sample | None] = [None] * len(asked)
        if self.kept is not None:
            answers = [self.kept.find(c.key, messages) for c, messages in asked]
            known = [None if answer is None else answer.as_sample() for answer in answers]
        missing = [at for at, sample in enumerate(known) if sample is None]
        seeds = [seed_of(self.seed, *asked[at][0].key) for at in missing]
        if missing:
            new = self.policy.sample(
                [asked[at][1] for at in missing],
                temperature=self.config.sampling.temperature,
                max_new_tokens=self.config.sampling.max_new_tokens,
                seed=seeds,
            )
            if self.kept is not None:
                rows = zip(missing, new, seeds, strict=True)
                self.kept.keep([_answer(*asked[at], sample, seed) for at, sample, seed in rows])
            for at, sample in zip(missing, new, strict=True):
                known[at] = sample
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
            self.samples[c.problem.id, c.trajectory, len(c.turns)] = sample
            if isinstance(evaluation, NotJudged):
                c.left_out, c.not_judged = True, evaluation.reason
            elif evaluation is None:
                c.left_out = True
            else:
                c.turns.append(_turn(c, messages, sample, candidate, evaluation))
        going_on = [c for c in part.conversations if not (c.left_out or is_over(c.turns, self.config))]
        return _RolloutPart(going_on) if going_on else None


def seed_of(*parts: int | str) -> int:
    """Derive a 63-bit seed from these parts; stable over processes and Python versions."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _parts(
    conversations: Sequence[_OpenConversation], group_size: int, batch_size: int
) -> list[_RolloutPart]:
    """Pack as many whole groups as fit into a batch; a group that is larger than one is cut."""
    size = max(1, batch_size // group_size) * group_size if group_size <= batch_size else batch_size
    return [_RolloutPart(list(conversations[i : i + size])) for i in range(0, len(conversations), size)]


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
