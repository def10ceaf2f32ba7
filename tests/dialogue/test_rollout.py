"""Conversations from prompt to evaluation, with the real judge."""

import itertools
import threading
import time

import pytest
from waiting import LIMIT_S

from kernel_core.config import (
    BestOfNConfig,
    EvaluateConfig,
    GymConfig,
    PolicyConfig,
    RolloutConfig,
    SamplingConfig,
    TrainConfig,
)
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import format_completion
from kernel_core.dialogue.rollout import roll_out, seed_of
from kernel_core.errors import ConfigError, GymUnavailable
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.gym.pool.verdict_cache import Cache
from kernel_core.policy.scripted import ScriptedPolicy
from kernel_core.policy.tiny_model import new_policy
from kernel_core.problems.generate import generate
from kernel_core.problems.source import parse_problem, resize
from kernel_core.progress import silent
from kernel_core.records import Candidate, Exemplar, NoCandidate, Verdict
from kernel_core.retrieval.protocol import Neighbour
from kernel_core.runs.placement import placed

MADE = generate("train", 2, seed=4, families=("binary_chain", "elementwise_chain"))
"""Families whose kernels are judged fast. Tests that judge them share a seed, so that a verdict is kept."""
PROBLEMS = [resize(made.problem, made.problem.cpu_constants) for made in MADE]
"""Their own sizes are those of a CPU: the judge has no larger ones to run, which takes most of its time."""
BAD = "I would rather not."


def answer(made, grade: str) -> str:
    kernel = next(kernel for kernel in made.kernels if kernel.grade == grade)
    return format_completion(kernel.thinking, kernel.source)


def config(**changes) -> RolloutConfig:
    sampling = SamplingConfig(max_new_tokens=12, batch_size=3)
    return RolloutConfig(**({"turns": 2, "exemplars": 1, "sampling": sampling} | changes))


class OneExemplar:
    """A retriever that counts how often it is asked."""

    def __init__(self) -> None:
        self.searches = 0

    def search(self, query, k):
        return self.search_many([query], k)[0]

    def search_many(self, queries, k):
        self.searches += 1
        found = Exemplar(
            id="e",
            source="s",
            source_revision="1",
            row_key="e",
            licence="MIT",
            language="triton",
            reference_code="the reference",
            kernel_code="the kernel",
            reference_hash="",
            kernel_hash="",
        )
        return [[Neighbour(exemplar=found, score=0.9)] for _ in queries]


@pytest.fixture
def gym(quick_gym):
    return quick_gym


def scripted_by_problem(messages, seed):
    """Right for the first problem; for the second a refusal first, and then what is right."""
    if PROBLEMS[0].source in messages[0]["content"]:
        return answer(MADE[0], "fused")
    return BAD if len(messages) == 1 else answer(MADE[1], "fused")


def test_turns_are_sampled_judged_and_fed_back(gym):
    retriever = OneExemplar()
    rollouts = roll_out(
        ScriptedPolicy(scripted_by_problem), gym, PROBLEMS, retriever, config(), group_size=2, seed=1
    )
    assert [group.problem_id for group in rollouts.groups] == [problem.id for problem in PROBLEMS]
    assert set(rollouts.samples) == {
        (p.id, trajectory, turn) for p in PROBLEMS for trajectory in (0, 1) for turn in (0, 1)
    }
    assert retriever.searches == 1
    for trajectory in rollouts.groups[0].trajectories:
        first, second = trajectory.turns
        assert first.evaluation.verdict is Verdict.CORRECT, first.evaluation.feedback
        assert (first.repeats_earlier, second.repeats_earlier) == (False, True)
        assert isinstance(first.candidate, Candidate) and first.exemplar_ids == ("e",)
        assert "the kernel" in first.messages[0]["content"]
    for trajectory in rollouts.groups[1].trajectories:
        first, second = trajectory.turns
        assert isinstance(first.candidate, NoCandidate)
        assert first.evaluation.verdict is Verdict.MALFORMED
        assert first.evaluation.feedback in second.messages[-1]["content"]
        assert second.evaluation.verdict is Verdict.CORRECT, second.evaluation.feedback
        assert not second.repeats_earlier


def test_the_same_seed_gives_the_same_conversations_in_any_company(gym):
    texts = [problem.source for problem in PROBLEMS] + [answer(made, "fused") for made in MADE]
    policy = new_policy(
        PolicyConfig(hidden_size=32, num_layers=1, num_heads=2, vocab_size=400), texts, seed=0
    )
    both, again = (roll_out(policy, gym, PROBLEMS, None, config(), group_size=2, seed=3) for _ in range(2))
    alone = roll_out(policy, gym, PROBLEMS[1:], None, config(), group_size=2, seed=3)
    other = roll_out(policy, gym, PROBLEMS[1:], None, config(), group_size=2, seed=4)
    for key, sample in both.samples.items():
        assert sample.token_ids.tobytes() == again.samples[key].token_ids.tobytes()
        assert sample.logprobs.tobytes() == again.samples[key].logprobs.tobytes()
    for key, sample in alone.samples.items():
        assert sample.token_ids.tolist() == both.samples[key].token_ids.tolist()
    assert any(s.text != other.samples[key].text for key, s in alone.samples.items())
    turn = both.groups[0].trajectories[0].turns[0]
    assert turn.completion.num_tokens == len(both.samples[turn.problem_id, 0, 0].token_ids)
    assert turn.completion.policy_version == policy.version


def test_progress_counts_every_turn_of_every_conversation(gym):
    seen: dict[str, list[tuple[int, int]]] = {"sample": [], "judge": []}
    roll_out(
        ScriptedPolicy([BAD]),
        gym,
        PROBLEMS,
        None,
        config(),
        group_size=2,
        seed=0,
        progress=lambda label, done, total: seen[label].append((done, total)),
    )
    assert seen["sample"][-1] == seen["judge"][-1] == (8, 8)
    assert all(list(steps) == sorted(steps) for steps in seen.values())


class Watched:
    """The real policy or gym, after a pause, with the time of each call.

    Its call number `at` waits until another one's call at the same barrier has begun too.
    """

    def __init__(self, real, seconds: float = 0.0, meet=None, at: int = 0) -> None:
        self.real, self.seconds, self.meet, self.at = real, seconds, meet, at
        self.spans, self.numbers = [], itertools.count()
        self.version, self.count_tokens = real.version, getattr(real, "count_tokens", None)

    def sample(self, prompts, **settings):
        return self._timed(lambda: self.real.sample(prompts, **settings))

    def release(self):
        self.real.release()

    def judge(self, requests, progress=silent):
        return self._timed(lambda: self.real.judge(requests, progress))

    def _timed(self, act):
        begun = time.monotonic()
        if next(self.numbers) == self.at and self.meet is not None:
            self.meet.wait()
        time.sleep(self.seconds)
        result = act()
        self.spans.append((begun, time.monotonic()))
        return result


def test_writing_goes_on_while_others_are_judged(gym):
    """Four parts, two turns: overlapped, the second part is written while the first is judged."""
    problems = [made.problem for made in generate("train", 4, seed=8)]
    alone = config(sampling=SamplingConfig(max_new_tokens=12, batch_size=2))
    results = []
    for overlap in (True, False):
        meet = threading.Barrier(2, timeout=LIMIT_S) if overlap else None
        policy, judges = Watched(ScriptedPolicy([BAD]), meet=meet, at=1), Watched(gym, meet=meet)
        settings = alone.model_copy(update={"overlap": overlap})
        rollouts = roll_out(policy, judges, problems, None, settings, group_size=2, seed=0)
        results.append(rollouts.groups)
        both_at_once = any(
            min(written[1], judged[1]) > max(written[0], judged[0])
            for written in policy.spans
            for judged in judges.spans
        )
        assert both_at_once is overlap
        assert rollouts.seconds_judging > 0.0
    assert [[t.candidate for c in g.trajectories for t in c.turns] for g in results[0]] == [
        [t.candidate for c in g.trajectories for t in c.turns] for g in results[1]
    ]


def test_who_is_stopped_does_not_wait_for_the_judge(gym):
    calls, ended, second_begun, stopped = [], [], threading.Event(), threading.Event()

    def stopped_at_the_second_turn(messages, seed):
        if len(messages) > 1:
            second_begun.wait(LIMIT_S)
            raise KeyboardInterrupt
        return BAD

    problems = [made.problem for made in generate("train", 4, seed=8)]
    alone = config(sampling=SamplingConfig(max_new_tokens=12, batch_size=2))
    judges = Watched(gym)
    judge = judges.judge

    def only_the_first_ends(requests, progress=silent):
        calls.append(len(requests))
        if len(calls) > 1:
            second_begun.set()
            stopped.wait(LIMIT_S)
            ended.append(len(calls))
        return judge(requests, progress)

    judges.judge = only_the_first_ends
    with pytest.raises(KeyboardInterrupt):
        roll_out(
            ScriptedPolicy(stopped_at_the_second_turn), judges, problems, None, alone, group_size=2, seed=0
        )
    assert len(calls) > 1
    assert ended == []
    stopped.set()


def test_overlap_changes_no_bit_of_what_is_written(gym):
    texts = [problem.source for problem in PROBLEMS] + [answer(made, "fused") for made in MADE]
    tiny = PolicyConfig(hidden_size=32, num_layers=1, num_heads=2, vocab_size=400)
    policy = new_policy(tiny, texts, seed=0)
    problems = [made.problem for made in generate("train", 3, seed=9)]
    settings = config(sampling=SamplingConfig(max_new_tokens=24, batch_size=2))
    side_by_side, one_by_one = (
        roll_out(
            policy, judges, problems, None, settings.model_copy(update={"overlap": o}), group_size=2, seed=3
        )
        for o, judges in ((True, Watched(gym, 0.02)), (False, gym))
    )
    assert [group.problem_id for group in side_by_side.groups] == [p.id for p in problems]
    for key, sample in side_by_side.samples.items():
        assert sample.token_ids.tobytes() == one_by_one.samples[key].token_ids.tobytes()
        assert sample.logprobs.tobytes() == one_by_one.samples[key].logprobs.tobytes()


class Serving(ScriptedPolicy):
    """Answers many threads at once, as a server does, and counts them.

    The first `at_once` calls wait for each other; a call beyond them is seen if it begins meanwhile.
    """

    def __init__(self, answers, at_once: int) -> None:
        super().__init__(answers)
        self.lock, self.calls, self.now, self.most, self.longest = threading.Lock(), 0, 0, 0, 0
        self.at_once, self.together = at_once, threading.Barrier(at_once, timeout=LIMIT_S)

    def sample(self, prompts, **settings):
        with self.lock:
            self.calls, self.now = self.calls + 1, self.now + 1
            self.most, self.longest = max(self.most, self.now), max(self.longest, len(prompts))
            is_early = self.calls <= self.at_once
        if is_early:
            self.together.wait()
        time.sleep(0.05)
        with self.lock:
            self.now -= 1
        return super().sample(prompts, **settings)


@pytest.mark.parametrize(("overlap", "most", "longest"), [(None, 12, 1), (False, 1, 12)])
def test_before_a_server_each_conversation_goes_alone_whatever_the_batch_size(gym, overlap, most, longest):
    alone = config(overlap=overlap, sampling=SamplingConfig(max_new_tokens=12, batch_size=4))
    policy, settings = Serving(scripted_by_problem, at_once=most), {"group_size": 6, "seed": 1}
    usual = roll_out(ScriptedPolicy(scripted_by_problem), gym, PROBLEMS, None, alone, **settings)
    served = roll_out(policy, gym, PROBLEMS, None, alone, **settings, one_by_one=True)
    assert (policy.most, policy.longest) == (most, longest)
    turns, expected = (
        [(t.candidate, t.evaluation.verdict) for g in one.groups for c in g.trajectories for t in c.turns]
        for one in (served, usual)
    )
    assert turns == expected and len(turns) == 24


def test_before_a_server_a_problem_that_cannot_be_judged_is_soon_given_up(gym):
    failing = FailsOnProblem(gym, PROBLEMS[0].id)
    settings = {"group_size": 12, "seed": 1, "leave_out_faults": True, "one_by_one": True}
    left = roll_out(ScriptedPolicy(scripted_by_problem), failing, PROBLEMS, None, config(), **settings)
    assert [len(group.trajectories) for group in left.groups] == [0, 12]
    assert failing.num_asked < 2 * 12, "once each, and not each once more"


class FailsOn:
    """The real gym, but for candidates that it cannot work on; with `times`, only so often."""

    def __init__(self, gym, shas, times=10**9) -> None:
        self.gym, self.shas, self.left = gym, shas, times
        self.version = gym.version

    def judge(self, requests, progress=silent):
        met = [r for r in requests if getattr(r.candidate, "sha256", None) in self.shas]
        if met and self.left > 0:
            self.left -= 1
            raise GymUnavailable("three judges in a row died")
        return self.gym.judge(requests, progress)


class FailsOnProblem:
    """The real gym, but for a problem that it cannot work on; counts how often it was asked about it."""

    def __init__(self, gym, problem_id) -> None:
        self.gym, self.problem_id, self.num_asked, self.version = gym, problem_id, 0, gym.version

    def judge(self, requests, progress=silent):
        if any(request.problem.id == self.problem_id for request in requests):
            self.num_asked += 1
            raise GymUnavailable(f"the GPU has too little memory for {self.problem_id}")
        return self.gym.judge(requests, progress)


def tuned_or_fused(messages, seed):
    return answer(MADE[0], "fused" if seed % 2 else "tuned")


def test_a_fault_of_ours_takes_out_its_own_conversation_only_and_is_counted(gym):
    rollouts = roll_out(
        ScriptedPolicy(tuned_or_fused), gym, PROBLEMS[:1], None, config(), group_size=6, seed=1
    )
    first = [one.turns[0].candidate.sha256 for one in rollouts.groups[0].trajectories]
    poison = min(set(first), key=first.count)
    assert 0 < first.count(poison) < 6
    settings = {"retriever": None, "config": config(), "group_size": 6, "seed": 1}
    policy = ScriptedPolicy(tuned_or_fused)
    failing = FailsOn(gym, {poison})
    with pytest.raises(GymUnavailable):
        roll_out(policy, failing, PROBLEMS[:1], **settings)
    left = roll_out(policy, failing, PROBLEMS[:1], **settings, leave_out_faults=True)
    kept = left.groups[0].trajectories
    assert left.num_left_out == 6 - len(kept) >= first.count(poison)
    assert all(turn.candidate.sha256 != poison for one in kept for turn in one.turns)
    assert left.num_retried > 0


@pytest.mark.parametrize("batch_size", [6, 12])
def test_a_problem_that_cannot_be_judged_takes_out_its_own_group_only(gym, batch_size):
    failing = FailsOnProblem(gym, PROBLEMS[0].id)
    settings = config(sampling=SamplingConfig(max_new_tokens=12, batch_size=batch_size))
    policy = ScriptedPolicy(scripted_by_problem)
    left = roll_out(policy, failing, PROBLEMS, None, settings, group_size=6, seed=1, leave_out_faults=True)
    assert [len(group.trajectories) for group in left.groups] == [0, 6]
    assert left.num_left_out == 6
    assert failing.num_asked == 1 + 3  # together with others, and three candidates alone


def test_a_problem_that_the_judge_cannot_hand_over_takes_out_its_own_group_only(gym):
    handed = parse_problem(
        "import torch\nimport torch.nn as nn\n"
        "class Model(nn.Module):\n    def __init__(self, f):\n        super().__init__()\n"
        "    def forward(self, x):\n        return torch.relu(x)\n"
        "def get_inputs():\n    return [torch.rand(5, 33)]\n"
        "def get_init_inputs():\n    return [len]\n",
        id="t/takes_a_function",
        suite="t",
    )
    policy = ScriptedPolicy(lambda messages, seed: answer(MADE[0], "fused"))
    left = roll_out(policy, gym, [handed, PROBLEMS[0]], None, config(turns=1), group_size=2, seed=1)
    assert [len(group.trajectories) for group in left.groups] == [0, 2]
    assert "cannot be handed to a candidate" in left.groups[0].not_judged
    assert (left.groups[1].not_judged, left.num_retried) == ("", 0)


def test_a_candidate_that_writes_alone_and_cannot_be_judged_is_left_out_alone(gym):
    alone = config(sampling=SamplingConfig(max_new_tokens=12, batch_size=1))
    failing = FailsOn(gym, {answer_sha("tuned")})
    policy = ScriptedPolicy(tuned_or_fused)
    left = roll_out(policy, failing, PROBLEMS[:1], None, alone, group_size=6, seed=1, leave_out_faults=True)
    kept = left.groups[0].trajectories
    assert 0 < len(kept) < 6 and left.num_left_out == 6 - len(kept)
    assert all(turn.candidate.sha256 == answer_sha("fused") for one in kept for turn in one.turns)


def test_a_passing_fault_of_ours_is_retried_and_nothing_is_lost(gym):
    policy = ScriptedPolicy(tuned_or_fused)
    usual = roll_out(policy, gym, PROBLEMS[:1], None, config(), group_size=2, seed=1)
    shas = {turn.candidate.sha256 for one in usual.groups[0].trajectories for turn in one.turns}
    once = FailsOn(gym, shas, times=1)
    again = roll_out(policy, once, PROBLEMS[:1], None, config(), group_size=2, seed=1, leave_out_faults=True)
    assert (again.num_left_out, again.num_retried) == (0, 2)
    assert len(again.groups[0].trajectories) == 2


def test_a_gym_that_answers_nothing_is_an_error_even_where_faults_are_left_out(gym):
    shas = {answer_sha(grade) for grade in ("tuned", "fused")}
    with pytest.raises(GymUnavailable):
        roll_out(
            ScriptedPolicy(tuned_or_fused),
            FailsOn(gym, shas),
            PROBLEMS[:1],
            None,
            config(),
            group_size=4,
            seed=1,
            leave_out_faults=True,
        )


def answer_sha(grade):
    return parse_completion(answer(MADE[0], grade), "stop").sha256


def test_a_kernel_that_is_fast_enough_ends_its_conversation_and_a_correct_one_does_not(gym):
    policy = ScriptedPolicy(tuned_or_fused)
    for threshold, turns in ((0.01, 1), (1000.0, 2)):
        settings = config(stop_at_speedup=threshold)
        rollouts = roll_out(policy, gym, PROBLEMS[:1], None, settings, group_size=2, seed=1)
        trajectories = rollouts.groups[0].trajectories
        assert all(one.turns[0].evaluation.correct for one in trajectories)
        assert [len(one.turns) for one in trajectories] == [turns, turns]


@pytest.mark.exhaustive
def test_a_kernel_with_another_comment_is_the_same_kernel_again(gym):
    def with_a_comment_more(messages, seed):
        kernel = next(kernel for kernel in MADE[0].kernels if kernel.grade == "fused")
        return format_completion(kernel.thinking, f"{kernel.source}\n# attempt {len(messages)}\n")

    rollouts = roll_out(
        ScriptedPolicy(with_a_comment_more), gym, PROBLEMS[:1], None, config(), group_size=1, seed=0
    )
    first, second = rollouts.groups[0].trajectories[0].turns
    assert first.candidate.sha256 != second.candidate.sha256
    assert (first.repeats_earlier, second.repeats_earlier) == (False, True)


def test_a_problem_given_twice_is_refused(gym):
    with pytest.raises(ConfigError, match="more than once"):
        roll_out(ScriptedPolicy([BAD]), gym, [PROBLEMS[0]] * 2, None, config(), group_size=1, seed=0)


def test_seeds_are_stable_and_differ_by_every_part():
    assert seed_of(0, "a/b", 1) == 3114508065494555065
    assert len({seed_of(0, "a", 1), seed_of(1, "a", 1), seed_of(0, "b", 1), seed_of(0, "a", 2)}) == 4


def test_a_broken_gym_is_an_exception_and_never_an_evaluation():
    gym = PooledGym(GymConfig(), Cache(None))
    gym.close()
    answers = ScriptedPolicy([answer(MADE[0], "fused")])
    with pytest.raises(GymUnavailable):
        roll_out(answers, gym, PROBLEMS[:1], None, config(), group_size=1, seed=0)


@pytest.mark.parametrize(
    ("policy", "judge", "chosen", "settled"),
    [
        ("cpu", "cpu", None, None),
        ("cpu", "cuda", None, True),
        ("cuda", "cpu", None, None),
        ("cuda", "cuda", None, False),
        ("cuda", "cuda", True, True),
        ("cpu", "cpu", False, False),
    ],
)
def test_a_policy_does_not_sample_on_a_gpu_that_is_timed_on_unless_told_to(policy, judge, chosen, settled):
    for kind in (TrainConfig, EvaluateConfig, BestOfNConfig):
        config = kind.model_validate(
            {"policy": {"device": policy}, "gym": {"device": judge}, "rollout": {"overlap": chosen}}
        )
        assert placed(config, num_gpus=1).rollout.overlap is settled
