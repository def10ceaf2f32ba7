"""Each mistake changes the verdict of a right kernel under the judge."""

from __future__ import annotations

import random

import pytest

from kernel_core.config import GymConfig
from kernel_core.generator.answer import answer
from kernel_core.generator.draw.mutations import MUTATIONS, mutated
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate, Evaluation, Verdict
from tests.generator.small_problems import ROWS, problem

LINEAR = problem(
    "torch.relu(self.fc(a)) * 0.5 - b", ROWS, "torch.randn(5, 35)", layers="self.fc = nn.Linear(77, 35)"
)
NORM = problem("self.norm(a) * 1.5", ROWS, layers="self.norm = nn.LayerNorm(77)")
LONG = problem("(a * a).sum(dim=-1)", "torch.randn(2, 9001)")
FLAT = problem("torch.where(a > 0.2, torch.exp(a) + 0.7, a * 2) - b", ROWS, ROWS)
PROBLEMS = {
    "missing_mask_in_reduction": problem("(a + 1).sum(dim=-1)", ROWS),
    "sum_for_mean": NORM,
    "wrong_initial_maximum": problem("a.amax(dim=-1)", "torch.randn(2, 9001) - 9"),
    "missing_eps": problem(
        "self.norm(a)", "torch.randn(5, 77) * 0.01", layers="self.norm = nn.LayerNorm(77)"
    ),
    "maximum_for_sum": problem("a.sum(dim=-1)", ROWS),
    "sum_for_maximum": problem("a.amax(dim=-1)", ROWS),
    "lost_accumulation": LONG,
    "lost_product": problem("a @ b", "torch.randn(35, 200)", "torch.randn(200, 19)"),
    "lost_padding": problem(
        "self.conv(a)", "torch.randn(2, 3, 9, 8)", layers="self.conv = nn.Conv2d(3, 5, 3, padding=1)"
    ),
    "wrong_stride": LINEAR,
    "short_grid": problem("torch.sin(a)", "torch.randn(3, 500)"),
    "other_sign": FLAT,
    "lost_scale": LINEAR,
    "lost_shift": FLAT,
    "swapped_extreme": problem("torch.relu(a)", ROWS),
    "other_extreme": problem("torch.clamp(a, -0.5, 0.5)", ROWS),
    "off_by_one": problem("torch.sin(a)", ROWS),
    "lost_root": problem("a.norm(dim=-1)", ROWS),
    "lost_inverse": NORM,
    "wrong_sign_of_exponent": problem("torch.exp(a)", ROWS),
    "wrong_comparison": FLAT,
}


def judged(names: list[str]) -> dict[str, str]:
    requests, kept = [], []
    for name in names:
        asked = parse_problem(PROBLEMS[name], id=f"test/{name}", suite="test")
        right = answer(asked).source
        wrong = MUTATIONS[name](right, random.Random(0))
        assert wrong is not None and wrong != right, name
        requests += [
            JudgeRequest(problem=asked, candidate=Candidate.from_source(text), seed=1)
            for text in (right, wrong)
        ]
        kept.append(name)
    with open_gym(GymConfig(workers=1)) as gym:
        outcomes = [one.verdict if isinstance(one, Evaluation) else one for one in gym.judge(requests)]
    return dict(zip(kept, zip(outcomes[::2], outcomes[1::2], strict=True), strict=True))


def unproven(names: list[str]) -> dict[str, object]:
    return {
        name: pair
        for name, pair in judged(names).items()
        if pair[0] is not Verdict.CORRECT or pair[1] is Verdict.CORRECT
    }


@pytest.mark.exhaustive
def test_each_mistake_changes_the_verdict():
    assert set(PROBLEMS) == set(MUTATIONS)
    assert not unproven(list(MUTATIONS))


def test_a_mistake_changes_the_verdict():
    name = random.Random(len(MUTATIONS)).choice(sorted(MUTATIONS))
    assert not unproven([name])


def test_a_source_without_a_place_for_a_mistake_has_none():
    assert mutated("x = 1\n", random.Random(0)) is None
