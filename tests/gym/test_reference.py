"""What the judge itself makes of a problem: draws from many threads, and large trials."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from kernel_core.gym.numerics.compare import all_pass
from kernel_core.gym.numerics.error_model import truncated
from kernel_core.gym.numerics.expected import Expected, Rounding, Undecided
from kernel_core.gym.oracle import reference, reference_outputs
from kernel_core.gym.oracle.input_families import DRAWS, Draw
from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.source import parse_problem

_SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return FORWARD


def get_inputs():
    return [torch.rand(64, 300)]


def get_init_inputs():
    return []
"""


def _reference(forward: str, *, tf32: bool = False) -> Reference:
    problem = parse_problem(_SOURCE.replace("FORWARD", forward), id="test/inline", suite="test")
    return Reference(problem, {}, tf32=tf32)


def _undecided(wanted: Expected) -> torch.Tensor:
    assert isinstance(wanted.tolerance, Undecided)
    return wanted.tolerance.places


def test_threads_that_draw_at_once_draw_what_each_would_alone() -> None:
    ours = [_reference("x.sum(1)"), _reference("x * 2")]
    jobs: list[tuple[int, Draw]] = [(seed, draw) for seed in range(40) for draw in DRAWS]
    alone = [ours[seed % 2].draw(seed, draw)[0] for seed, draw in jobs]
    state = torch.random.get_rng_state()
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda job: ours[job[0] % 2].draw(*job)[0], jobs))
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_where_lengths_are_drawn_all_draws_have_those_of_the_first() -> None:
    """A record of a pass has sizes, so other inputs must fit them."""
    drawn = "lengths = torch.randint(1, 9, (5,))\n    return [torch.rand(int(lengths.sum()), 3) + 1, lengths]"
    source = _SOURCE.replace("self, x", "self, x, lengths").replace("return [torch.rand(64, 300)]", drawn)
    text = source.replace("FORWARD", "torch.stack([one.sum(0) for one in x.split(lengths.tolist())])")
    problem = parse_problem(text, id="test/lengths", suite="test")
    for draw in ("own", "normal"):
        (x, lengths), (y, others) = (Reference(problem, {}).draw(seed, draw) for seed in (3, 4))
        assert len(x) == len(y) == lengths.sum() == others.sum()
        assert not torch.equal(x, y) and (draw != "own" or x.min() >= 1)
        assert torch.equal(Reference(problem, {}).draw(3, draw)[0], x)
    assert Reference(problem, {}).inputs_that_matter() == (0,)


def test_a_problem_that_asks_for_a_gpu_means_the_judges_device() -> None:
    source = _SOURCE.replace("FORWARD", "x * self.scale").replace(
        "torch.rand(64, 300)", 'torch.rand(64, 300, device="cuda").to("cuda:0").cuda()'
    )
    head = "    def __init__(self):\n        super().__init__()\n"
    made = head + '        self.scale = torch.ones(300, device=torch.device("cuda")).cuda()\n\n'
    source = source.replace("    def forward", made + "    def forward")
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    [expected] = ours.trial(1, "own").expected
    assert expected.value.device.type == "cpu"


def test_a_model_may_compute_tensors_of_its_weights_when_it_is_constructed() -> None:
    constructor = """    def __init__(self):
        super().__init__()
        self.layer = nn.utils.weight_norm(nn.Linear(300, 4))
        self.doubled = nn.Parameter(torch.rand(4)) * 2

    def forward"""
    source = _SOURCE.replace("    def forward", constructor).replace(
        "FORWARD", "self.layer(x) + self.doubled"
    )
    reference = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    assert reference.inputs_that_matter() == (0,)


def test_a_precision_is_none_of_8_bit_floats() -> None:
    text = _SOURCE.replace("FORWARD", "x.float()").replace("(64, 300)", "(64, 300).to(torch.float8_e4m3fn)")
    for source, dtype in (
        (text, torch.float8_e4m3fn),
        (text.replace("float8_e4m3fn", "float32"), torch.bfloat16),
    ):
        problem = parse_problem("# precision: bfloat16\n" + source, id="test/inline", suite="test")
        ours = Reference(problem, {})
        [x] = ours.inputs_of(ours.trial(1, "own"))
        assert x.dtype == dtype


def test_shapes_that_follow_from_the_values_are_compared_where_they_agree() -> None:
    ours = _reference("x[x > 0.5].reshape(-1)")
    trial = ours.trial(1, "mixed")
    assert ours.exactly(trial).expected[0].shape == trial.expected[0].shape


@pytest.mark.parametrize(
    ("forward", "is_measured"),
    [("x.sum(1)", True), ("torch.softmax(x, 1)", True), ("torch.softmax(x, 0)", False), ("x.sum()", False)],
)
def test_a_large_trial_allows_what_its_first_rows_need(
    forward: str, is_measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = _reference(forward)
    [exact] = ours.trial(5, "mixed").expected
    for module in (reference_outputs, reference):
        monkeypatch.setattr(module, "LARGE_BYTES", 1000)
    [large] = ours.trial(5, "mixed").expected
    allowed, most = large.rounding(), exact.rounding()
    assert isinstance(allowed.by_size, torch.Tensor) == is_measured
    if isinstance(allowed.by_size, torch.Tensor) and isinstance(most.by_size, torch.Tensor):
        assert 0 < float(allowed.by_size.max()) <= float(most.by_size.max())
    assert torch.allclose(large.value.double(), exact.value.double(), 1e-4, 1e-4)
    assert large.value.shape == exact.value.shape


def test_a_large_product_of_two_matrices_allows_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _SOURCE.replace("forward(self, x)", "forward(self, x, y)").replace("FORWARD", "x @ y")
    source = source.replace("[torch.rand(64, 300)]", "[torch.rand(64, 32), torch.rand(32, 96)]")
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {}, tf32=True)
    for module in (reference_outputs, reference):
        monkeypatch.setattr(module, "LARGE_BYTES", 1000)
    trial = ours.trial(5, "far_negative")
    [wanted] = trial.expected
    x, y = (truncated(one) for one in trial.inputs)
    assert all_pass(x @ y, wanted)
    assert not all_pass(1.005 * (x @ y), wanted)


def test_a_large_product_allows_tf32_where_its_first_rows_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    source = _SOURCE.replace("forward(self, x)", "forward(self, x, y)").replace("FORWARD", "x @ y")
    rows = "torch.rand(64, 32) * torch.arange(64)[:, None]"
    source = source.replace("[torch.rand(64, 300)]", f"[{rows}, torch.randn(64, 32, 48)[:, :, :]]")
    source = source.replace("x @ y", "(x[:, None] @ y)[:, 0]")
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {}, tf32=True)
    for module in (reference_outputs, reference):
        monkeypatch.setattr(module, "LARGE_BYTES", 20000)
    trial = ours.trial(5, "own")
    x, y = (truncated(one) for one in trial.inputs)
    assert all_pass((x[:, None] @ y)[:, 0], trial.expected[0])


def test_a_large_trial_that_refuses_tf32_is_not_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    cancelling = "torch.cat([x, x], 1) @ torch.cat([y, -1.001 * y])"
    source = _SOURCE.replace("forward(self, x)", "forward(self, x, y)").replace("FORWARD", cancelling)
    source = source.replace("[torch.rand(64, 300)]", "[torch.rand(64, 32), torch.rand(32, 96)]")
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {}, tf32=True)
    for module in (reference_outputs, reference):
        monkeypatch.setattr(module, "LARGE_BYTES", 1000)
    assert not ours.trial(1, "negative").is_usual


def test_places_in_a_sort_are_decided_but_among_equals() -> None:
    source = _SOURCE.replace("FORWARD", "torch.sort(torch.softmax(x, 1), 1)").replace(
        "torch.rand(64, 300)", "torch.rand(64, 300).round(decimals=2)"
    )
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    values, places = ours.trial(3, "own").expected
    assert not isinstance(values.tolerance, Undecided)
    equal = torch.zeros_like(_undecided(places))
    same = values.value[:, 1:] == values.value[:, :-1]
    equal[:, 1:] |= same
    equal[:, :-1] |= same
    assert (equal & _undecided(places)).sum() > 0.95 * equal.sum() > 0
    assert (_undecided(places) & ~equal).sum() < 0.01 * equal.numel()


def test_the_largest_of_many_numbers_is_decided() -> None:
    [place] = _reference("x.argmax(1)").trial(3, "own").expected
    assert not _undecided(place).any()


def test_that_an_input_in_a_tuple_is_written_to_is_seen() -> None:
    source = _SOURCE.replace("FORWARD", "x[0].add_(x[1])").replace(
        "[torch.rand(64, 300)]", "[(torch.rand(4), torch.rand(4))]"
    )
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    assert ours.trial(3, "own").changes_inputs


def test_half_precision_may_be_rounded_once_more_on_the_way() -> None:
    source = _SOURCE.replace("forward(self, x)", "forward(self, q, k)").replace(
        "FORWARD", "torch.softmax((q.float() / 3) @ k.float().T, 1)"
    )
    source = source.replace("[torch.rand(64, 300)]", "[torch.randn(32, 20).bfloat16() for _ in range(2)]")
    ours = Reference(parse_problem(source, id="test/inline", suite="test"), {})
    trial = ours.trial(3, "mixed")
    [strict], [kind] = trial.expected, ours.exactly(trial).expected
    q, k = trial.inputs
    rounded = torch.softmax((q / 3).float() @ k.float().T, 1)
    assert not all_pass(rounded, strict)
    assert all_pass(rounded, kind)
    assert not all_pass(torch.full_like(rounded, 1 / 32), kind)
    assert not all_pass(torch.softmax((q / 2).float() @ k.float().T, 1), kind)


_ATTENTION = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1) @ v
def get_inputs():
    return [torch.rand(SHAPE).to(DTYPE) for _ in range(3)]
def get_init_inputs():
    return []
"""


def _reference_of_attention(
    shape: tuple[int, ...], dtype: torch.dtype = torch.float32, *, tf32: bool = False
) -> Reference:
    source = _ATTENTION.replace("SHAPE", str(shape)).replace("DTYPE", str(dtype))
    return Reference(parse_problem(source, id="test/attention", suite="test"), {}, tf32=tf32)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax((q / 8) @ k.transpose(1, 2), dim=-1) @ v


def test_large_scores_that_differ_in_their_last_bits_decide_nothing() -> None:
    """For one of the batch, and every row, two keys come out nearly the same, by sums of huge terms."""
    ours = _reference_of_attention((8, 256, 64))
    trial = ours.trial(3, "far_negative")
    q, k, v = trial.inputs
    near = k.clone()
    near[:, 1::2] = k[:, ::2] * (1 + 1e-7 * torch.randn(k[:, ::2].shape[:2])[..., None])
    trial = replace(trial, inputs=[q, near, v])
    exact = torch.softmax(q.double() @ near.double().mT / 8, -1) @ v.double()
    [one] = trial.expected
    strict = replace(one, value=exact)
    [kind] = ours.exactly(replace(trial, expected=(strict,))).expected
    got = _attention(q, near, v)
    assert not all_pass(got, strict)
    assert all_pass(got, kind)
    assert not all_pass(_attention(q, near, v.roll(1, 1)), kind)
    assert not all_pass(_attention(q, near.roll(1, 1), v), kind)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", (1, 5, 6))
def test_which_of_several_large_scores_is_largest_is_left_to_chance(seed: int) -> None:
    """Among 2,560 rows there are some of which passes that stray at will all stay on one side, and some with
    more large scores than passes."""
    ours = _reference_of_attention((5, 512, 64), torch.bfloat16)
    trial = ours.trial(seed, "far_negative")
    q, k, v = trial.inputs
    base_two = (q.float() * (math.log2(math.e) / 8)).to(q.dtype)
    scores = base_two.double() @ k.double().mT * math.log(2)
    got = (torch.softmax(scores, -1) @ v.double()).to(q.dtype)
    [one], [kind] = trial.expected, ours.exactly(trial).expected
    assert not all_pass(got, one)
    assert all_pass(got, kind)
    assert not all_pass(got.roll(1, 1), kind)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", (17, 8, 18))
def test_a_row_of_small_values_and_a_large_one_may_be_another_row(seed: int) -> None:
    """Queries and keys are scaled and rounded. Where scores are nearly equal another row of values comes
    out, of which one may be a hundred times as large as all others."""
    ours = _reference_of_attention((4, 1024, 64), torch.bfloat16)
    trial = ours.trial(seed, "mixed")
    q, k, v = trial.inputs
    scores = (q * 64**-0.25).double() @ (k * 64**-0.25).double().mT
    got = (torch.softmax(scores, -1).bfloat16().double() @ v.double()).to(q.dtype)
    [kind] = ours.exactly(trial).expected
    assert all_pass(got, kind)
    assert not all_pass(got.roll(1, 1), kind)


def test_no_more_passes_stray_than_the_outputs_need() -> None:
    ours = _reference_of_attention((4, 64, 64))
    trial = ours.trial(3, "mixed")
    asked: list[float] = []

    def is_enough(expected: Sequence[Expected]) -> bool:
        [one] = expected
        assert isinstance(one.tolerance, Rounding) and isinstance(one.tolerance.spread, torch.Tensor)
        asked.append(float(one.tolerance.spread.sum()))
        return len(asked) == 1

    [few] = ours.exactly(trial, is_enough).expected
    [most] = ours.exactly(trial, is_enough).expected
    assert len(asked) == 3 and 0 < asked[0] == asked[1] <= asked[2]
    assert isinstance(few.tolerance, Rounding) and isinstance(most.tolerance, Rounding)
    assert not torch.equal(few.tolerance.spread, most.tolerance.spread)


def test_a_matrix_that_has_no_factors_where_it_strays_tells_nothing_about_others() -> None:
    squares = "(64 + 64 * x[:, :32, None]) @ (64 + 64 * x[:, :32, None]).mT"
    both = f"torch.cat([{squares}, x.new_zeros(1, 32, 32)]) + torch.eye(32)"
    reference = _reference(f"torch.linalg.cholesky({both})", tf32=True)
    trial = reference.trial(1, "own")
    [wanted] = trial.expected
    astray = wanted.value.clone()
    astray[:-1, -1, -1] *= 1.3
    assert not all_pass(astray, wanted)
    assert all_pass(astray, reference.exactly(trial).expected[0])
    astray[-1] *= 1.3
    assert not all_pass(astray, reference.exactly(trial).expected[0])


def test_the_last_bits_decide_nothing_where_sums_are_plain() -> None:
    ours = _reference("torch.softmax(x, 1)")
    trial = ours.trial(3, "mixed")
    [kind] = ours.exactly(trial).expected
    assert isinstance(kind.tolerance, Rounding) and isinstance(kind.tolerance.spread, torch.Tensor)
    assert (kind.tolerance.spread <= 1e-4 * kind.value + 1e-6).all()


def test_a_sum_of_exponentials_may_be_known_by_its_logarithm() -> None:
    """Beside a largest score of millions, float32 rounds away what the logarithm adds."""
    ours = _reference("torch.softmax(torch.cat([x, 4e6 * x[:1]]), 1)")
    trial = ours.trial(3, "own")
    exact = ours.exactly(trial).expected[0]
    value = exact.value.clone()
    value[-1] *= 1.2
    assert not all_pass(value, trial.expected[0])
    assert all_pass(value, exact)
    value[0] *= 1.01
    assert not all_pass(value, exact)


def test_what_lies_at_a_limit_strays_as_it_was_given() -> None:
    """One of many equal maxima always moves up, but all of them may be a last bit above a power of two."""
    power = "torch.exp2(torch.ceil(torch.log2(x.amax(1, keepdim=True) / 448) + 1e-9))"
    source = _SOURCE.replace("FORWARD", f"x / {power}").replace("[torch.rand(64, 300)]", "[_drawn()]")
    source += "def _drawn():\n    return torch.rand(64, 300).mul(9).clamp(max=7.0)"
    problem = parse_problem(source, id="test/inline", suite="test").model_copy(
        update={"precision": "bfloat16"}
    )
    ours = Reference(problem, {})
    trial = ours.trial(3, "own")
    [x] = ours.inputs_of(trial)
    other = x / 2.0**-6
    assert torch.equal(other.double(), 2 * trial.expected[0].value), "float64 is a last bit above"
    [exact] = ours.exactly(trial).expected
    assert all_pass(other, exact)
    assert not all_pass(2 * other, exact)


def test_what_is_exact_decides() -> None:
    """Halves round to even, and nothing is above zero by a last bit."""
    for forward in ("torch.round(x)", "(x > 0.5).float()"):
        ours = _reference(forward)
        trial = ours.trial(3, "mixed")
        [kind] = ours.exactly(trial).expected
        assert isinstance(kind.tolerance, Rounding) and isinstance(kind.tolerance.spread, torch.Tensor)
        assert not kind.tolerance.spread.any()


def test_an_epsilon_of_the_dtype_is_float32s_in_double_precision() -> None:
    ours = _reference("torch.nn.functional.rms_norm(x * 1e-4, (300,))")
    trial = ours.trial(3, "own")
    [x] = ours.inputs_of(trial)
    ratio = x * 1e-4 / (1e-8 * x.square().mean(1, keepdim=True) + torch.finfo(torch.float32).eps).sqrt()
    assert all_pass(ratio, trial.expected[0])


def test_exact_halves_are_rounded_as_torch_does() -> None:
    [whole] = _reference("torch.round(x).int()").trial(3, "mixed").expected
    assert not _undecided(whole).any()


def test_which_of_two_equals_comes_first_is_never_decided() -> None:
    ours = _reference("(x * 0.0 + torch.arange(300) // 2).topk(300, 1)[1]")
    [place] = ours.trial(3, "own").expected
    assert _undecided(place).all()


def test_a_stable_sort_decides() -> None:
    [place] = _reference("(x * 0.0).sort(dim=1, stable=True)[1]").trial(3, "own").expected
    assert not _undecided(place).any()


def test_whether_a_sum_that_cancels_is_above_zero_is_not_decided() -> None:
    """Of the same numbers, taken in two orders; whether an input is above a half is."""
    ours = _reference("(x.sum(1) - x.flip(1).cumsum(1)[:, -1] > 0, x > 0.5)")
    total, half = ours.trial(3, "mixed").expected
    assert _undecided(total).float().mean() > 0.2
    assert not _undecided(half).any()


def test_with_tf32_products_the_largest_of_nearly_equal_ones_is_not_decided() -> None:
    ours = _reference("(x @ (0.5 + 1e-4 * x).T).argmax(1), x.argmax(1)", tf32=True)
    product, number = ours.trial(3, "own").expected
    assert _undecided(product).float().mean() > 0.5
    assert not _undecided(number).any()


@pytest.mark.parametrize("fits", [True, False])
def test_inputs_that_honest_arithmetic_would_be_refused_on_are_not_for_a_problem(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention with TF32 products: unless each value can be looked into."""
    monkeypatch.setattr(reference_outputs, "_MOST_STRAYING_BYTES", {"cpu": 1 << 25 if fits else 0})
    ours = _reference_of_attention((8, 256, 64), tf32=True)
    assert ours.trial(3, "mixed").is_usual == fits
    assert ours.trial(3, "moderate").is_usual
    assert ours.trial(3, "own").is_usual


@pytest.mark.parametrize(
    ("forward", "safe", "unsafe"),
    [
        (
            "nn.functional.binary_cross_entropy(p, t) + x.abs().mean()",
            ["own", "unit", "unit, unit, mixed", "own, unit, far_negative"],
            ["mixed", "far_negative", "mixed, unit, unit", "unit, positive, own", "within_one, own, own"],
        ),
        (
            "t[(p[:, 0] * 64).long()] * x",
            ["own", "own, mixed, mixed", "own, own, far_negative"],
            ["mixed", "unit", "positive, own, own"],
        ),
        ("t[p[:, :64].argmax(1)] * x", ["own", "mixed", "far_negative"], []),
    ],
)
def test_a_processor_says_which_inputs_an_asserting_operator_takes(
    forward: str, safe: list[str], unsafe: list[str]
) -> None:
    """Asked as for a GPU, where such an assertion ends the process; nothing is computed there."""
    problem = parse_problem(
        _SOURCE.replace("forward(self, x)", "forward(self, p, t, x)")
        .replace("FORWARD", forward)
        .replace("[torch.rand(64, 300)]", "[torch.rand(64, 300), torch.rand(64, 300), torch.rand(64, 300)]"),
        id="test/inline",
        suite="test",
    )
    ours = Reference(problem, {})
    assert ours._asserts
    ours.device = "cuda"
    assert [draw for draw in (*safe, *unsafe) if ours.is_safe_with(draw)] == safe
