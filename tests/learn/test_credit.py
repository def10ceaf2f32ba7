"""From judged conversations to advantages and training rows."""

import numpy as np
import pytest

from kernel_core.config import RewardWeights, TrainConfig
from kernel_core.dialogue.rollout import Rollouts
from kernel_core.dialogue.turns import Completion, Trajectory, TrajectoryGroup, Turn
from kernel_core.learn.credit import grade, paid_rewards, rows_of, varies
from kernel_core.learn.metrics import measure
from kernel_core.policy.protocol import Sample
from kernel_core.records import Candidate, Evaluation, Provenance, Verdict

WEIGHTS = RewardWeights(format=0.1, compile=0.2, correct=1.0, hack_penalty=-0.5)
CORRECT, WRONG, HACKED = Verdict.CORRECT, Verdict.WRONG, Verdict.HACKED
CONFIG = TrainConfig(gamma=0.5)
ABSOLUTE = TrainConfig(gamma=0.5, credit="absolute")


def turn(verdict, index, trajectory=0, source=None, finish_reason="stop", repeats=False, own_share=None):
    candidate = Candidate.from_source(source or f"kernel {trajectory} {index}")
    return Turn(
        problem_id="p",
        trajectory=trajectory,
        index=index,
        messages=(),
        completion=Completion(text="", finish_reason=finish_reason, policy_version="v"),
        candidate=candidate,
        evaluation=Evaluation(
            problem_id="p",
            candidate_sha=candidate.sha256,
            verdict=verdict,
            trials=1,
            trials_passed=int(verdict is CORRECT),
            provenance=Provenance(launched=(), num_launches=1, own_kernel_share=own_share),
            feedback="",
            gym_version="t",
            device="cpu",
            seconds=0.0,
        ),
        repeats_earlier=repeats,
    )


def conversation(*verdicts, trajectory=0, repeats=()):
    turns = tuple(turn(v, i, trajectory, repeats=i in repeats) for i, v in enumerate(verdicts))
    return Trajectory(problem_id="p", turns=turns)


def group(*conversations):
    return TrajectoryGroup(problem_id="p", trajectories=conversations)


def sampled(answered):
    """Rollouts of a group in which each turn wrote two tokens."""
    ids = np.array([1, 2], np.int32)
    keys = [("p", turn.trajectory, turn.index) for c in answered.trajectories for turn in c.turns]
    sample = Sample("", "stop", "v", ids, ids, np.zeros(2, np.float32))
    return Rollouts(groups=[answered], samples=dict.fromkeys(keys, sample))


def test_by_progress_breaking_a_kernel_costs_what_it_was_worth():
    kept = paid_rewards(conversation(CORRECT, CORRECT, repeats=(1,)), WEIGHTS, CONFIG)
    broken = paid_rewards(conversation(CORRECT, WRONG), WEIGHTS, CONFIG)
    assert kept == pytest.approx([1.3, 0.0])
    assert broken == pytest.approx([1.3, -1.0])


def test_by_absolute_credit_a_repeated_kernel_earns_nothing_and_a_broken_one_its_format():
    assert paid_rewards(conversation(CORRECT, CORRECT, repeats=(1,)), WEIGHTS, ABSOLUTE)[1] == 0.0
    assert paid_rewards(conversation(CORRECT, WRONG), WEIGHTS, ABSOLUTE)[1] == pytest.approx(0.3)


def test_the_penalty_of_a_hack_is_never_given_back():
    paid = paid_rewards(conversation(HACKED, CORRECT), WEIGHTS, CONFIG)
    assert sum(paid) == pytest.approx(1.3 - 0.5)


def test_returns_and_advantages_of_a_worked_group():
    answered = group(conversation(WRONG, CORRECT, trajectory=0), conversation(CORRECT, WRONG, trajectory=1))
    (graded,) = grade([answered], WEIGHTS, CONFIG)
    assert [g.following for g in graded] == pytest.approx([0.3 + 0.5, 1.0, 1.3 - 0.5, -1.0])
    assert [g.advantage for g in graded] == pytest.approx([0.0, 1.0, 0.0, -1.0])


def test_keeping_a_kernel_that_works_is_as_good_as_mending_one():
    kept = conversation(CORRECT, CORRECT, trajectory=0, repeats=(1,))
    mended = conversation(WRONG, CORRECT, trajectory=1)
    broken = conversation(CORRECT, WRONG, trajectory=2)
    (graded,) = grade([group(kept, mended, broken)], WEIGHTS, CONFIG)
    last = [g.advantage for g in graded if g.turn.index == 1]
    assert last == pytest.approx([0.5, 0.5, -1.0])


def test_a_group_whose_turns_are_all_alike_has_nothing_to_teach():
    alike = group(conversation(WRONG, WRONG, trajectory=0), conversation(WRONG, WRONG, trajectory=1))
    mixed = group(conversation(WRONG, WRONG, trajectory=0), conversation(WRONG, CORRECT, trajectory=1))
    graded = grade([alike, mixed], WEIGHTS, CONFIG)
    assert [varies(answered) for answered in graded] == [False, True]


def test_a_turn_that_the_policy_could_not_write_enters_no_baseline():
    unwritten = Trajectory(problem_id="p", turns=(turn(WRONG, 0, 2, finish_reason="error"),))
    written = [Trajectory(problem_id="p", turns=(turn(v, 0, i),)) for i, v in enumerate((CORRECT, WRONG))]
    (graded,) = grade([group(*written, unwritten)], WEIGHTS, CONFIG)
    assert [g.advantage for g in graded] == pytest.approx([1.0, -1.0, 0.0])


def test_a_turn_that_could_not_be_written_takes_nothing_from_the_kernel_before_it():
    cut = Trajectory(
        problem_id="p", turns=(turn(CORRECT, 0), turn(Verdict.MALFORMED, 1, finish_reason="error"))
    )
    assert paid_rewards(cut, WEIGHTS, CONFIG) == pytest.approx([1.3, 0.0])
    kept, wrong = conversation(CORRECT, CORRECT, trajectory=1), conversation(WRONG, WRONG, trajectory=2)
    (graded,) = grade([group(cut, kept, wrong)], WEIGHTS, CONFIG)
    first, second, same = graded[0], graded[1], graded[2]
    assert first.advantage == pytest.approx(same.advantage) and first.advantage > 0
    assert (second.paid, second.following, second.advantage) == (0.0, 0.0, 0.0)


def test_a_lost_profile_neither_pays_nor_costs():
    weights = RewardWeights(correct=1.0, own_share=1.0)
    shares = (0.9, None, 0.5)
    conversations = [
        Trajectory(problem_id="p", turns=(turn(CORRECT, 0, i, own_share=share),))
        for i, share in enumerate(shares)
    ]
    (graded,) = grade([group(*conversations)], weights, CONFIG)
    assert [g.terms.own_share for g in graded] == pytest.approx([0.9, 0.7, 0.5])
    assert graded[1].advantage == pytest.approx(0.0)
    lost = [Trajectory(problem_id="p", turns=(turn(CORRECT, 0, i),)) for i in range(3)]
    assert not varies(grade([group(*lost)], weights, CONFIG)[0])


def test_rows_carry_the_tokens_that_were_sampled():
    answered = group(conversation(WRONG, trajectory=0), conversation(CORRECT, trajectory=1))
    samples = {
        ("p", trajectory, 0): Sample(
            text="",
            finish_reason="stop",
            policy_version="v",
            prompt_ids=np.array([1, 2], np.int32),
            token_ids=np.array([3] * trajectory, np.int32),
            logprobs=np.zeros(trajectory, np.float32),
        )
        for trajectory in (0, 1)
    }
    rows = rows_of(grade([answered], WEIGHTS, CONFIG), Rollouts(groups=[answered], samples=samples))
    assert len(rows) == 1  # the other wrote nothing
    assert rows[0].answer_ids.tolist() == [3]
    assert rows[0].advantage == pytest.approx(1.0)


def test_a_stopped_conversation_is_compared_by_what_it_stands_at():
    """Otherwise the baseline of the others would depend on who stopped."""
    stopped = conversation(CORRECT, trajectory=0)
    kept = conversation(CORRECT, CORRECT, trajectory=0, repeats=(1,))
    other = conversation(WRONG, CORRECT, trajectory=1)
    (with_stop,) = grade([group(stopped, other)], WEIGHTS, CONFIG)
    (without,) = grade([group(kept, other)], WEIGHTS, CONFIG)
    assert [g.advantage for g in with_stop if g.turn.trajectory == 1] == pytest.approx(
        [g.advantage for g in without if g.turn.trajectory == 1]
    )


def test_masking_regressions_takes_them_out_of_loss_and_baseline():
    config = CONFIG.model_copy(update={"mask_regressions": True})
    answered = group(
        conversation(CORRECT, WRONG, trajectory=0),
        conversation(WRONG, CORRECT, trajectory=1),
        conversation(WRONG, WRONG, trajectory=2),
    )
    (graded,) = grade([answered], WEIGHTS, config)
    last = [g.advantage for g in graded if g.turn.index == 1]
    assert last == pytest.approx([0.0, 1.0, -1.0])
    # By `kept`, so that a KL or entropy term does not bring them back.
    assert [row.kept for row in rows_of([graded], sampled(answered))] == [True, False, True, True, True, True]


def test_masking_truncated_answers_takes_them_out_of_loss_and_baseline_whatever_their_verdict():
    config = CONFIG.model_copy(update={"mask_truncated": True})
    answers = [(CORRECT, "stop"), (WRONG, "stop"), (WRONG, "length"), (CORRECT, "length")]
    answered = group(
        *(
            Trajectory(problem_id="p", turns=(turn(verdict, 0, i, finish_reason=reason),))
            for i, (verdict, reason) in enumerate(answers)
        )
    )
    (graded,), (unmasked,) = grade([answered], WEIGHTS, config), grade([answered], WEIGHTS, CONFIG)
    assert [g.advantage for g in graded] == pytest.approx([1.0, -1.0, 0.0, 0.0])
    assert [row.kept for row in rows_of([graded], sampled(answered))] == [True, True, False, False]
    assert [g.advantage for g in unmasked] == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    assert measure([graded], "predicted")["kernel/truncated_rate"] == 0.5


def test_a_group_with_one_answer_that_was_not_truncated_has_nothing_to_compare():
    config = CONFIG.model_copy(update={"mask_truncated": True})
    answered = group(
        conversation(CORRECT, trajectory=0),
        Trajectory(problem_id="p", turns=(turn(WRONG, 0, 1, finish_reason="length"),)),
    )
    assert not varies(grade([answered], WEIGHTS, config)[0])


@pytest.mark.parametrize("credit", ["progress", "absolute"])
def test_a_masked_truncated_turn_takes_nothing_from_the_turn_before_it(credit):
    config = TrainConfig(gamma=0.5, credit=credit, mask_truncated=True)
    cut = Trajectory(problem_id="p", turns=(turn(CORRECT, 0), turn(WRONG, 1, finish_reason="length")))
    ended = conversation(CORRECT, trajectory=1)
    first, second, same = grade([group(cut, ended)], WEIGHTS, config)[0]
    assert second.masked and not first.masked
    assert second.advantage == 0.0
    if credit == "progress":
        assert first.following == pytest.approx(same.following)


def test_pretrained_models_mask_truncated_answers_unless_told_otherwise():
    coder = {"policy": {"model": "Qwen/Qwen2.5-Coder-0.5B"}}
    assert TrainConfig.model_validate(coder).mask_truncated and not TrainConfig().mask_truncated
    assert not TrainConfig.model_validate({**coder, "mask_truncated": False}).mask_truncated


def test_profile_rejection_takes_correct_turns_of_unknown_share_only_as_published():
    answered = group(conversation(WRONG, trajectory=0), conversation(CORRECT, trajectory=1))
    graded, rollouts = grade([answered], WEIGHTS, CONFIG), sampled(answered)
    assert [row.kept for row in rows_of(graded, rollouts, "published")] == [True, False]
    assert [row.kept for row in rows_of(graded, rollouts, "corrected")] == [True, True]
    assert [row.conversation for row in rows_of(graded, rollouts)] == [0, 1]


def test_by_absolute_credit_turns_that_a_stop_spared_are_in_no_baseline():
    """As a failure they would pay the others for going on, whatever they wrote."""
    stopped = conversation(CORRECT, trajectory=0)
    others = [conversation(WRONG, WRONG, trajectory=1), conversation(WRONG, CORRECT, trajectory=2)]
    (graded,) = grade([group(stopped, *others)], WEIGHTS, ABSOLUTE)
    second = [g.advantage for g in graded if g.turn.index == 1]
    assert second == pytest.approx([-1.0, 1.0])


@pytest.mark.parametrize("config", [CONFIG, ABSOLUTE], ids=["progress", "absolute"])
def test_kevin_counts_only_turns_that_took_place(config):
    stopped = conversation(CORRECT, trajectory=0)
    other = conversation(WRONG, CORRECT, trajectory=1)
    (graded,) = grade([group(stopped, other)], WEIGHTS, config.model_copy(update={"estimator": "kevin"}))
    assert sum(g.advantage for g in graded) == pytest.approx(0.0)
    assert len(graded) == 3


def test_a_group_that_ends_alike_by_other_ways_does_not_vary():
    """Rewards by progress are differences, and their sums differ by rounding."""
    weights = RewardWeights(format=0.1, compile=0.7, correct=0.6)
    ways = [(WRONG, CORRECT), (CORRECT, CORRECT), (CORRECT, CORRECT)]
    answered = group(*(conversation(*verdicts, trajectory=i) for i, verdicts in enumerate(ways)))
    (graded,) = grade([answered], weights, TrainConfig(gamma=1.0))
    assert not varies(graded)
    assert all(g.advantage == 0.0 for g in graded)
