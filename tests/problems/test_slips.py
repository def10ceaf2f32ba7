"""Slips in right kernels: each kind is drawn, changes the text in one place, and fails before the judge."""

import random

import pytest

from kernel_core.corpus.generator_source import exemplars_of, slips_of
from kernel_core.corpus.registry import find_source, read_registry
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import format_completion
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.slips import SLIPS, draw_slip

MADE = generate_modules("train", 6, 5, ("conv_reduce", "linear_groupnorm", "linear_elementwise"))
EXPECTED = {
    "missing_parameter": "is not defined",
    "missing_argument": "missing 1 required",
    "unknown_name": "is not defined",
    "unknown_function": "line",
    "open_bracket": "never closed",
    "lost_axes": "shape",
    "layer_for_number": "line",
}


def right_kernel(made):
    return next(one.source for one in made.kernels if one.grade == "fused")


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_refused_and_the_feedback_says_where(name: str, quick_gym: Gym) -> None:
    drawn = [(made, SLIPS[name](right_kernel(made), random.Random(name))) for made in MADE]
    made, text = next((made, text) for made, text in drawn if text is not None)
    assert text != right_kernel(made)
    candidate = parse_completion(format_completion("", text), "stop")
    (evaluation,) = quick_gym.judge([JudgeRequest(problem=made.problem, candidate=candidate, seed=0)])
    assert evaluation.verdict != "correct"
    assert EXPECTED[name] in evaluation.feedback, evaluation.feedback


def test_every_kind_of_slip_is_drawn_and_the_same_for_the_same_seed() -> None:
    found = [draw_slip(right_kernel(made), random.Random(seed)) for made in MADE for seed in range(20)]
    assert {slip[0] for slip in found if slip} == set(SLIPS)
    assert draw_slip(right_kernel(MADE[0]), random.Random(3)) == draw_slip(
        right_kernel(MADE[0]), random.Random(3)
    )


def test_a_kernel_with_a_slip_is_claimed_wrong_and_shares_no_id_with_the_right_ones() -> None:
    source = find_source("generator", read_registry())
    right = list(exemplars_of(MADE[0], source))
    slips = list(slips_of(right, random.Random(0)))
    assert len(slips) == sum(one.claimed_correct for one in right)
    assert {one.grade.split(":")[0] for one in slips} == {"mistake"}
    assert not any(one.claimed_correct for one in slips)
    assert not {one.id for one in slips} & {one.id for one in right}
    assert not {one.kernel_code for one in slips} & {one.kernel_code for one in right}
