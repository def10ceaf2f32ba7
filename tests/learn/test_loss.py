"""The loss against its formula written out in float64, value and gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.config import TrainConfig
from kernel_core.learn.loss import k3, row_weights, summed_loss, surrogate, token_logprobs

EVERYTHING_ON = TrainConfig(kl_coefficient=0.3, entropy_coefficient=0.05)


def problem(seed, rows=4, tokens=5, vocabulary=7):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "logits": normal(rows, tokens, vocabulary),
        "old": normal(rows, tokens, vocabulary),
        "reference": normal(rows, tokens, vocabulary),
        "targets": torch.randint(vocabulary, (rows, tokens), generator=generator),
        "advantages": normal(rows),
        "mask": (torch.rand(rows, tokens, generator=generator) < 0.7).double(),
    }


def ours(logits, given, settings, temperature):
    logprobs, entropy = token_logprobs(logits, given["targets"], temperature, entropy_gradient=True)
    old, _ = token_logprobs(given["old"], given["targets"], temperature)
    reference, _ = token_logprobs(given["reference"], given["targets"], temperature)
    objective = surrogate(logprobs, old, given["advantages"], settings).objective_B_C
    kl = k3(logprobs, reference) if settings.kl_coefficient else None
    return summed_loss(objective, entropy, kl, given["mask"], settings)


def naive(logits, given, settings, temperature):
    """The docstring of `loss.py`, one token at a time."""

    def distribution(tensor, row, token):
        exponentials = [torch.exp(x / temperature) for x in tensor[row, token]]
        total = sum(exponentials)
        return [x / total for x in exponentials]

    loss = torch.zeros((), dtype=torch.float64)
    for row in range(logits.shape[0]):
        advantage = float(given["advantages"][row])
        for token in range(logits.shape[1]):
            if given["mask"][row, token] == 0:
                continue
            target = int(given["targets"][row, token])
            now = distribution(logits, row, token)
            old = distribution(given["old"], row, token)[target].detach()
            reference = distribution(given["reference"], row, token)[target].detach()
            ratio = now[target] / old
            low, high = 1 - settings.clip_low, 1 + settings.clip_high
            bounded = min(max(ratio, low), high)  # a bound is a constant: no gradient
            objective = min(ratio * advantage, bounded * advantage)
            if advantage < 0:
                objective = max(objective, settings.dual_clip * advantage)
            d = torch.log(reference) - torch.log(now[target])
            entropy = -sum(p * torch.log(p) for p in now)
            loss = loss - objective + settings.kl_coefficient * (torch.exp(d) - d - 1)
            loss = loss - settings.entropy_coefficient * entropy
    return loss


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "settings", [TrainConfig(), EVERYTHING_ON, TrainConfig(clip_low=0.05, clip_high=0.1, dual_clip=1.2)]
)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_loss_and_gradient_equal_the_formula_written_out(seed, settings, temperature):
    given = problem(seed)
    results = []
    for function in (ours, naive):
        logits = given["logits"].clone().requires_grad_()
        loss = function(logits, given, settings, temperature)
        loss.backward()
        results.append((loss.detach(), logits.grad))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-9, atol=1e-11)


def objective_of(ratio, advantage, settings=TrainConfig()):  # noqa: B008
    result = surrogate(
        torch.tensor([[math.log(ratio)]]), torch.zeros(1, 1), torch.tensor([float(advantage)]), settings
    )
    return float(result.objective_B_C[0, 0]), bool(result.clipped_B_C[0, 0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "clipped"),
    [
        (1.0, 2.0, 2.0, False),
        (1.5, 2.0, 2.56, True),  # high bound 1.28
        (0.5, 2.0, 1.0, False),  # still to be raised
        (0.5, -2.0, -1.6, True),  # low bound 0.8
        (1.5, -2.0, -3.0, False),  # still to be lowered
        (9.0, -2.0, -6.0, True),  # dual clip 3
    ],
)
def test_bounds_of_worked_examples(ratio, advantage, objective, clipped):
    found = objective_of(ratio, advantage)
    assert found[0] == pytest.approx(objective, rel=1e-5)
    assert found[1] is clipped


@given(st.floats(-8, 0), st.floats(-8, 0))
def test_k3_is_never_negative_and_nil_for_equal_policies(logprob, reference):
    value = float(k3(torch.tensor([[logprob]], dtype=torch.float64), torch.tensor([[reference]]).double()))
    assert value >= -1e-12
    assert float(k3(torch.tensor([[logprob]]), torch.tensor([[logprob]]))) == 0.0


def test_k3_is_an_unbiased_estimate_of_kl():
    now = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    reference = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    expected = float((now * k3(now.log()[None], reference.log()[None])[0]).sum())
    assert expected == pytest.approx(float((now * (now / reference).log()).sum()))


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("constant", [1 / 1536, 1 / 1536, 1 / 1536]),
        ("token", [1 / 10, 1 / 10, 1 / 10]),
        ("turn", [1 / 6, 1 / 24, 0.0]),
    ],
)
def test_what_a_token_of_each_row_counts(aggregation, expected):
    assert row_weights([2, 8, 0], aggregation) == pytest.approx(expected)
