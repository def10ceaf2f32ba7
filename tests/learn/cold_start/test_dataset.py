"""Conversations of the cold start: the form of a rollout, exact shares, and the judge's real words."""

from collections import Counter

import pytest

from kernel_core.config import ColdStartConfig, PolicyConfig, RolloutConfig
from kernel_core.config.model_kind import learning_settings
from kernel_core.corpus.normalise import reference_hash
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import build_prompt
from kernel_core.errors import ConfigError
from kernel_core.learn.cold_start.dataset import build_conversations
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate
from kernel_core.retrieval.protocol import Neighbour

CONFIG = ColdStartConfig(
    conversations=40, repair_share=0.3, mistake_share=0.25, naive_share=0.5, judged=6, seed=1
)


@pytest.fixture(scope="module")
def conversations(exemplars, gym):
    return build_conversations(exemplars, gym, CONFIG)


def test_the_shares_are_exact(conversations):
    kinds = Counter(c.kind for c in conversations)
    assert kinds == {"first": 28, "repair": 8, "faster": 4}
    first = Counter(c.grade.split(":")[0] for c in conversations if c.kind == "first")
    assert (first["mistake"], first["naive"], first["fused"] + first["tuned"]) == (7, 14, 7)


def test_some_first_answers_are_lazy_when_asked_for(exemplars, gym):
    config = CONFIG.model_copy(update={"lazy_share": 0.125, "judged": 1})
    first = [c for c in build_conversations(exemplars, gym, config) if c.kind == "first"]
    grades = Counter(c.grade.split(":")[0] for c in first)
    assert (grades["mistake"], grades["naive"], grades["lazy"], grades["fused"] + grades["tuned"]) == (
        7,
        14,
        4,
        3,
    )


def test_second_turns_are_answered_with_good_kernels_and_as_many_mistakes_as_first_ones(conversations):
    second = Counter((c.kind, c.grade.split(":")[0] in ("fused", "tuned")) for c in conversations)
    assert (second["repair", True], second["repair", False]) == (6, 2)
    assert (second["faster", True], second["faster", False]) == (3, 1)


def test_a_pretrained_model_learns_no_faulty_answer_at_any_turn(exemplars, gym):
    _, shares = learning_settings(PolicyConfig(kind="torch", model="org/a-published-model"))
    config = CONFIG.model_copy(update={"mistake_share": shares["mistake_share"]})
    right = {one.kernel_code.strip() for one in exemplars if one.claimed_correct}
    answers = [parse_completion(c.answer, "stop") for c in build_conversations(exemplars, gym, config)]
    assert len(answers) == 40 and {one.source.strip() for one in answers} <= right


def test_every_second_turn_repairs_a_fault_where_no_slow_kernel_is_given(exemplars, gym):
    config = CONFIG.model_copy(update={"mistake_share": 0.0, "naive_share": 0.0})
    without = [one for one in exemplars if one.grade != "naive"]
    found = build_conversations(without, gym, config)
    assert Counter(c.kind for c in found) == {"first": 28, "repair": 12}
    right = {one.kernel_code.strip() for one in exemplars if one.claimed_correct}
    assert {parse_completion(c.answer, "stop").source.strip() for c in found} <= right


@pytest.mark.exhaustive
def test_no_second_turn_repairs_a_kernel_that_is_right(exemplars, gym):
    good = [one for one in exemplars if one.grade == "fused"][:3]
    faulty = [one for one in exemplars if one.grade.startswith("mistake")][:2]
    unharmed = [
        one.model_copy(update={"id": f"{one.id}/harmless", "grade": "mistake:harmless"}) for one in good
    ]
    config = CONFIG.model_copy(update={"mistake_share": 0.0, "naive_share": 0.0, "judged": 12})
    found = build_conversations([*good, *faulty, *unharmed], gym, config)
    assert Counter(c.kind for c in found) == {"first": 28, "repair": 12}
    assert not any("correct;" in c.messages[-1]["content"] for c in found if c.kind == "repair")
    without = build_conversations([*good, *unharmed], gym, config)
    assert Counter(c.kind for c in without) == {"first": 28}


def test_a_second_turn_shows_the_earlier_kernel_and_what_the_judge_said(conversations, exemplars):
    mistakes = {one.kernel_code.strip() for one in exemplars if one.grade.startswith("mistake")}
    for c in conversations:
        if c.kind == "repair":
            *_, question, kernel, result = c.messages
            assert [question["role"], kernel["role"], result["role"]] == ["user", "assistant", "user"]
            assert kernel["content"].removeprefix("<KERNEL>\n").removesuffix("\n</KERNEL>") in mistakes
            assert result["content"].startswith("# result\n")
            assert "correct" not in result["content"].splitlines()[1]


def test_a_slow_kernel_is_known_to_be_right_when_it_is_made_faster(conversations):
    hastened = [c.messages[-1]["content"] for c in conversations if c.kind == "faster"]
    assert hastened
    assert all("correct" in content for content in hastened)


def test_no_more_kernels_are_judged_than_asked_for(exemplars, gym):
    asked = []

    class Watched:
        version = gym.version

        def judge(self, requests, progress):
            asked.extend(requests)
            return gym.judge(requests, progress)

    build_conversations(exemplars, Watched(), CONFIG)
    assert 0 < len(asked) <= CONFIG.judged


def test_prompts_have_exactly_the_form_of_a_rollout(conversations, exemplars):
    one = next(c for c in conversations if c.kind == "first")
    texts = {e.reference_code for e in exemplars}
    shown = next(text for text in texts if text in one.messages[-1]["content"])
    problem = parse_problem(shown, id=one.problem_id, suite="generator")
    assert one.messages == build_prompt(problem, (), (), RolloutConfig(), len)


def test_every_answer_but_a_syntax_error_parses_to_its_kernel(conversations, exemplars):
    kernels = {one.kernel_code.strip() for one in exemplars}
    for c in conversations:
        parsed = parse_completion(c.answer, "stop")
        if c.grade != "mistake:syntax_error":
            assert isinstance(parsed, Candidate)
            assert parsed.source in kernels
            assert parsed.thinking


def test_retrieved_exemplars_stand_in_the_prompt_as_in_a_rollout(exemplars, gym):
    class Nearest:
        """The first good kernel of another reference."""

        def search_many(self, queries, k):
            good = [one for one in exemplars if one.grade == "fused"]
            return [
                [
                    Neighbour(exemplar=one, score=0.5)
                    for one in good
                    if one.reference_hash != reference_hash(query.source)
                ][:k]
                for query in queries
            ]

    config = CONFIG.model_copy(update={"conversations": 6, "repair_share": 0.0})
    for c in build_conversations(exemplars, gym, config, RolloutConfig(exemplars=1), Nearest()):
        assert "# reference\n" in c.messages[0]["content"]


def test_the_same_seed_gives_the_same_conversations_and_another_seed_others(conversations, exemplars, gym):
    assert build_conversations(exemplars, gym, CONFIG) == conversations
    other = CONFIG.model_copy(update={"seed": 2, "repair_share": 0.0})
    assert build_conversations(exemplars, gym, other) != conversations


def test_exemplars_that_are_blocked_are_never_learned(exemplars, gym):
    blocked = [one.model_copy(update={"split": "blocked"}) for one in exemplars]
    with pytest.raises(ConfigError, match="no Triton kernel to learn from"):
        build_conversations(blocked, gym, CONFIG)
