"""Groups without variance are drawn again, counted, and never taken twice."""

import pytest

from kernel_core.config import GymConfig, RewardWeights, RolloutConfig, SamplingConfig, TrainConfig
from kernel_core.dialogue.prompt import format_completion
from kernel_core.dialogue.rollout import roll_out
from kernel_core.errors import GymUnavailable
from kernel_core.learn.credit import varies
from kernel_core.learn.problem_sampler import Practice
from kernel_core.learn.step_batch import gather
from kernel_core.policy.scripted import ScriptedPolicy
from kernel_core.problems.families import TRAINED
from kernel_core.problems.generate import generate
from kernel_core.progress import silent
from kernel_core.reward.curriculum import CurriculumState

WEIGHTS = RewardWeights(format=0.5, correct=1.0)
MADE = generate("train", 4, seed=4)
GOOD = {
    made.problem.id: format_completion(kernel.thinking, kernel.source)
    for made in MADE
    for kernel in made.kernels
    if kernel.grade == "fused"
}
TEACHES = MADE[2].problem


def config_of(**changes) -> TrainConfig:
    rollout = RolloutConfig(turns=1, exemplars=0, sampling=SamplingConfig(batch_size=4))
    gym = GymConfig(workers=1, trials=1, compile_gate=False)
    return TrainConfig(problems_per_step=2, group_size=2, rollout=rollout, gym=gym, **changes)


def half_right_on_one_problem(messages, seed):
    """Always the same on every problem but one, which is answered well or not by the seed."""
    if TEACHES.source in messages[0]["content"] and seed % 2:
        return GOOD[TEACHES.id]
    return "nothing"


@pytest.fixture(scope="module")
def judges(gym):
    return gym


def held(config, judges, order, seed=3):
    problems = [MADE[index].problem for index in order]

    def choose(draw, taken):
        return [p for p in problems[2 * draw :][:2] if p not in taken]

    def converse(chosen, draw):
        return roll_out(
            ScriptedPolicy(half_right_on_one_problem),
            judges,
            chosen,
            None,
            config.rollout,
            group_size=2,
            seed=seed,
            leave_out_faults=True,
        )

    return gather(config, WEIGHTS, choose, converse)


def seed_that_splits(judges):
    for seed in range(20):
        if varies(held(config_of(), judges, [2, 0], seed).graded[0]):
            return seed
    raise AssertionError("no seed of twenty splits the group")


def test_groups_that_are_all_alike_are_drawn_again_and_counted(judges):
    seed = seed_that_splits(judges)
    alone = held(config_of(), judges, [0, 1, 2, 3], seed)
    assert (len(alone.graded), alone.num_resampled) == (2, 0)
    again = held(config_of(resample_rounds=1), judges, [0, 1, 2, 3], seed)
    assert (len(again.graded), again.num_resampled) == (4, 2)
    assert [varies(group) for group in again.graded] == [False, False, True, False]
    assert [group.problem_id for group in again.rollouts.groups] == [p.id for p in again.problems]
    # In the update a problem that teaches took the place of one that does not: two groups, as without it.
    learned = again.learned(problems_per_step=2)
    assert learned == [again.graded[0], again.graded[2]]
    assert alone.learned(problems_per_step=2) == alone.graded


def test_no_more_is_drawn_than_groups_were_alike_and_rounds_end(judges):
    seed = seed_that_splits(judges)
    one_alike = held(config_of(resample_rounds=1), judges, [2, 0, 1, 3], seed)
    assert (len(one_alike.graded), one_alike.num_resampled) == (3, 1)
    exhausted = held(config_of(resample_rounds=5), judges, [0, 1], seed)
    assert (len(exhausted.graded), exhausted.num_resampled) == (2, 0)


def test_a_further_draw_that_the_gym_cannot_judge_is_given_up_and_the_first_one_kept(judges):
    drawn_again = {MADE[index].problem.id for index in (1, 3)}

    class Failing:
        version = judges.version

        def judge(self, requests, progress=silent):
            if any(request.problem.id in drawn_again for request in requests):
                raise GymUnavailable("the GPU has too little memory")
            return judges.judge(requests, progress)

    kept = held(config_of(resample_rounds=2), Failing(), [2, 0, 1, 3], seed_that_splits(judges))
    assert [len(group) for group in kept.graded] == [2, 2]
    assert (kept.num_resampled, kept.rollouts.num_left_out) == (0, 2)


def test_a_further_draw_that_is_cut_is_of_all_families():
    practice, state = Practice.open(TrainConfig(problems_per_step=8)), CurriculumState()
    first = {
        problem.family
        for step in range(1, 25)
        for problem in practice.choose(state, step, draw=1, taken=practice.choose(state, step))[:2]
    }
    assert len(first & set(TRAINED)) > len(TRAINED) / 2


def test_a_further_draw_of_a_step_takes_none_of_its_problems_again():
    practice, state = Practice.open(config_of()), CurriculumState()
    first = practice.choose(state, step=1)
    assert first == practice.choose(state, step=1)
    further = practice.choose(state, step=1, draw=1, taken=first)
    assert not {p.id for p in first} & {p.id for p in further}
    assert further == practice.choose(state, step=1, draw=1, taken=first)
