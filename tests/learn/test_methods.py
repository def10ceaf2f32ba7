"""RL and its controls: each method learns from what it says and from nothing else."""

import numpy as np
import pytest
import torch

from kernel_core.config import RewardWeights
from kernel_core.dialogue.rollout import Rollouts, roll_out
from kernel_core.dialogue.turns import Completion, Turn
from kernel_core.errors import ConfigError
from kernel_core.learn.conversations import needs_speed
from kernel_core.learn.credit import GradedTurn, grade
from kernel_core.learn.loop import Trainer
from kernel_core.learn.methods import shuffled
from kernel_core.learn.problem_sampler import Practice
from kernel_core.learn.update import new_optimiser, update
from kernel_core.learn.winners import BEST, WINNERS, Winners
from kernel_core.policy.protocol import Sample
from kernel_core.policy.torch_policy import TorchPolicy
from kernel_core.records import Candidate, Evaluation, RewardTerms, Verdict
from kernel_core.store import Store
from tests.learn.test_loop import Killed, everything, run, weights_of


@pytest.fixture
def of_method(train_config):
    """The small run of the loop's tests with another method, in two steps."""
    return lambda method, **changes: train_config.model_copy(update={"method": method, "steps": 2} | changes)


@pytest.fixture
def brief(brief_config):
    """A run of a method whose answers are cut off."""
    return lambda method, **changes: brief_config.model_copy(update={"method": method, "steps": 2} | changes)


@pytest.fixture(scope="module")
def expert_run(train_config, taught, gym, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("expert"))
    config = train_config.model_copy(update={"method": "expert_iteration", "steps": 2})
    return store, *run(config, store, taught, gym)


@pytest.mark.exhaustive
def test_shuffled_answers_exchange_their_rewards_within_a_turn_and_lose_none(
    train_config, taught, gym, tmp_path
):
    policy = TorchPolicy.load(str(taught), train_config.policy)
    problems = Practice.open(train_config).probe_problems()
    rollouts = roll_out(policy, gym, problems, None, train_config.rollout, group_size=8, seed=1)
    weights = train_config.curriculum.stages[1].weights
    groups = grade(rollouts.groups, weights, train_config)
    mixed = [[shuffled(group, seed) for seed in range(40)] for group in groups]
    assert any(one.advantage for group in groups for one in group)
    for group, orders in zip(groups, mixed, strict=True):
        for order in orders:
            assert [one.turn for one in order] == [one.turn for one in group]
            assert [one.terms for one in order] == [one.terms for one in group]
            for index in (0, 1):
                before, after = (
                    sorted((one.paid, one.following, one.advantage) for one in g if one.turn.index == index)
                    for g in (group, order)
                )
                assert after == before
        # Over many orders an answer earns the group's mean, which is 0: nothing can be learned from it.
        means = np.mean([[one.advantage for one in order] for order in orders], axis=0)
        own = np.array([one.advantage for one in group])
        assert np.abs(means).max() <= 0.6 * max(np.abs(own).max(), 1e-9)
        assert orders[0] == shuffled(group, 0)
        if own.any():
            assert any([one.advantage for one in order] != own.tolist() for order in orders)


def test_a_frozen_policy_keeps_every_bit_and_is_judged_all_the_same(brief, taught, gym, tmp_path):
    config = brief("frozen")
    trainer, reports = run(config, Store(tmp_path), taught, gym)
    start = TorchPolicy.load(str(taught), config.policy)
    assert torch.equal(weights_of(trainer.policy), weights_of(start))
    assert trainer.policy.version == start.version
    rows = list(Store(tmp_path).lines("metrics.jsonl"))[1:]
    answers = config.problems_per_step * config.group_size * config.rollout.turns
    assert [row["batch/num_judged"] for row in rows] == [answers, answers]
    assert not any(name.startswith("update/") or name == "alarm" for row in rows for name in row)
    assert not any(report.update.num_rows for report in reports)


@pytest.mark.exhaustive
def test_shuffled_rewards_train_as_many_rows_with_the_same_rewards(of_method, taught, gym, tmp_path):
    rl, mixed = (
        run(of_method(method, steps=1), Store(tmp_path / method), taught, gym)[1][0]
        for method in ("rl", "rl_shuffled")
    )
    assert mixed.reward_mean == rl.reward_mean
    assert _verdicts(tmp_path / "rl_shuffled") == _verdicts(tmp_path / "rl")
    assert mixed.update.num_rows == rl.update.num_rows
    assert mixed.update.num_skipped_rows == rl.update.num_skipped_rows
    assert mixed.update.grad_norm != rl.update.grad_norm


def _verdicts(folder):
    """The shares of the verdicts in the first step of a run."""
    _, row = Store(folder).lines("metrics.jsonl")
    return {key: share for key, share in row.items() if key.startswith("verdict/")}


def test_expert_iteration_keeps_the_fastest_distinct_kernels_and_learns_them(expert_run):
    store, _, reports = expert_run
    lines = list(store.lines(WINNERS))
    assert lines and {line["step"] for line in lines} <= {1, 2}
    for problem in {line["problem_id"] for line in lines}:
        for step in (1, 2):
            found = [one for one in lines if (one["problem_id"], one["step"]) == (problem, step)]
            assert len({one["kernel_hash"] for one in found}) == len(found) <= BEST
            assert [one["speedup"] for one in found] == sorted((o["speedup"] for o in found), reverse=True)
    last = reports[-1].update
    assert last.num_rows == len(Winners(store).rows(2, 100, seed=0)) and last.num_optimiser_steps == 1
    assert last.sampler_kl is None and last.loss > 0
    assert [row["batch/num_judged"] for row in list(store.lines("metrics.jsonl"))[1:]] == [16, 16]


@pytest.mark.parametrize("method", ["rl", "expert_iteration", "frozen", "rl_shuffled"])
def test_no_method_needs_a_speed_where_its_stage_pays_for_none(of_method, method):
    config = of_method(method)
    asked = [needs_speed(config, RewardWeights(correct=1.0, speed=speed)) for speed in (0.0, 1.0)]
    assert asked == [False, True]


def test_its_loss_on_the_winners_falls(expert_run, train_config, taught):
    store, _, _ = expert_run
    config = train_config.model_copy(update={"method": "expert_iteration"})
    policy = TorchPolicy.load(str(taught), config.policy)
    optimiser = new_optimiser(policy.model, config.lr)
    rows = Winners(store).rows(2, 100, seed=0)
    losses = [update(policy, optimiser, rows, config).loss for _ in range(6)]
    assert losses[-1] < 0.8 * losses[0]
    mean = -np.concatenate([policy.logprobs(row.prompt_ids, row.answer_ids, 0.7) for row in rows]).mean()
    assert update(policy, optimiser, rows, config).loss == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize(("by_speed", "kept"), [(False, [10, 11]), (True, [12, 10])])
def test_a_verdict_with_a_speed_wins_over_earlier_ones_only_where_speed_is_paid(tmp_path, by_speed, kept):
    """Three correct kernels, of which the judge has timed the last."""
    turns, samples = [], {}
    for number, speedup in enumerate((None, None, 1.3)):
        evaluation = Evaluation(
            problem_id="a",
            candidate_sha="",
            verdict=Verdict.CORRECT,
            trials=1,
            trials_passed=1,
            predicted_speedup=speedup,
            feedback="",
            gym_version="",
            device="cpu",
            seconds=0.0,
        )
        turn = Turn(
            problem_id="a",
            trajectory=number,
            index=0,
            messages=(),
            completion=Completion(text="", finish_reason="stop", policy_version=""),
            candidate=Candidate.from_source(f"x = {number}"),
            evaluation=evaluation,
        )
        turns.append(
            GradedTurn(turn=turn, terms=RewardTerms(total=1.0), paid=1.0, following=1.0, advantage=1.0)
        )
        ids = np.array([10 + number], np.int32)
        samples["a", number, 0] = Sample("", "stop", "", prompt_ids=ids, token_ids=ids)
    winners = Winners(Store(tmp_path))
    winners.add(1, [turns], Rollouts(groups=[], samples=samples), by_speed=by_speed)
    assert [int(row.answer_ids[0]) for row in winners.rows(1, 10, seed=0)] == kept


def test_winners_are_replayed_best_first_and_the_steps_own_before_earlier_ones(tmp_path):
    store = Store(tmp_path)

    def line(step, problem, kernel, speedup, token):
        store.append_line(
            WINNERS,
            {
                "step": step,
                "problem_id": problem,
                "kernel_hash": kernel,
                "speedup": speedup,
                "prompt_ids": [1],
                "answer_ids": [token],
            },
        )

    line(1, "a", "slow", 1.0, 10)
    line(1, "b", "only", 1.0, 20)
    line(2, "a", "fast", 3.0, 11)
    line(2, "a", "slow", 1.1, 12)  # the same kernel again, timed a little faster
    line(2, "c", "new", 2.0, 30)
    rows = Winners(store).rows(2, 10, seed=0)
    assert [int(row.answer_ids[0]) for row in rows] == [11, 12, 30, 20]
    assert len(Winners(store).rows(2, 2, seed=0)) == 2
    assert all(row.advantage == 1.0 and row.sampler_logprobs is None for row in rows)


@pytest.mark.exhaustive
def test_expert_iteration_that_is_killed_goes_on_as_if_nothing_had_happened(
    expert_run, train_config, taught, gym, tmp_path
):
    seen = 0

    def killer(label, done, total):
        nonlocal seen
        seen += label == "update"
        if seen == 2:
            raise Killed

    config = train_config.model_copy(update={"method": "expert_iteration", "steps": 2})
    store = Store(tmp_path)
    with pytest.raises(Killed):
        run(config, store, taught, gym, killer)
    trainer, _ = run(config, store, taught, gym)
    expected_store, expected, _ = expert_run
    assert everything(store, trainer.policy) == everything(expected_store, expected.policy)
    assert list(store.lines(WINNERS)) == list(expected_store.lines(WINNERS))


def test_a_limit_of_candidates_ends_every_method_after_the_same_step(brief, taught, gym, tmp_path):
    for method in ("rl", "rl_shuffled", "frozen"):
        config = brief(method, steps=3, candidates=3)
        _, reports = run(config, Store(tmp_path / method), taught, gym)
        assert [report.step for report in reports] == [1]
    again, none = run(config, Store(tmp_path / method), taught, gym)
    assert (again.done, none) == (True, [])


def test_a_run_does_not_change_its_method(brief, taught, gym, tmp_path):
    run(brief("frozen", steps=1), Store(tmp_path), taught, gym)
    policy = TorchPolicy.load(str(taught), brief("rl").policy)
    with pytest.raises(ConfigError, match="this run has method=frozen"):
        Trainer(brief("rl"), Store(tmp_path), policy, gym)
