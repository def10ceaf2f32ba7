"""Weights that begin as one number have others where kernels are judged, the same on both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from kernel_core.gym.channel.constant_perturbation import VariedConstants, copy_state
from kernel_core.records import Evaluation

_INITS = {name: getattr(nn.init, name) for name in ("ones_", "zeros_", "constant_")}


class Block(nn.Module):
    """Every kind of weight."""

    def __init__(self, width: int, gain: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.drawn_after = nn.LayerNorm(width)
        nn.init.normal_(self.drawn_after.weight)
        self.scale = nn.Parameter(torch.ones(width))
        self.gate = nn.Parameter(torch.zeros(1))
        self.gain = nn.Parameter(torch.tensor(gain))
        self.default = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mask", torch.ones(width))


def varied_block(gain: float = 3.0) -> tuple[Block, dict[str, float]]:
    """One, constructed as a judge does."""
    torch.manual_seed(42)
    with VariedConstants() as varied:
        block = Block(5, gain)
    return block, varied.vary(block, [5, gain])


def test_what_begins_as_one_number_is_varied_and_the_rest_is_as_it_was() -> None:
    block, constants = varied_block()
    torch.manual_seed(42)
    plain = Block(5, 3.0)
    assert constants == {
        "scale": 1.0,
        "gate": 0.0,
        "norm.weight": 1.0,
        "norm.bias": 0.0,
        "drawn_after.bias": 0.0,
    }
    for name, value in plain.state_dict().items():
        same = torch.equal(value, block.state_dict()[name])
        assert same is (name not in constants), name
    for name, constant in constants.items():
        values = block.state_dict()[name]
        assert ((values - constant).abs() <= 0.5).all() and values.unique().numel() == values.numel()


@pytest.mark.parametrize("gain", [0.0, 1.0, 3.0])
def test_a_number_that_the_constructor_is_given_is_for_kernels_to_know(gain: float) -> None:
    block, constants = varied_block(gain)
    assert "gain" not in constants
    assert block.gain.item() == gain


def test_many_numbers_are_no_number_that_a_constructor_is_given() -> None:
    with VariedConstants() as varied:
        scale = nn.ParameterDict({"scale": nn.Parameter(torch.full((8,), 0.5))})
    assert varied.vary(scale, [0.5]) == {"scale": 0.5}


@pytest.mark.parametrize(
    "begins",
    [torch.eye(8), torch.diag(torch.arange(1.0, 9.0)), torch.tril(torch.randn(8, 8)), torch.eye(8).half()],
)
def test_of_many_equal_numbers_each_becomes_another_and_the_rest_stays(begins: torch.Tensor) -> None:
    with VariedConstants() as varied:
        module = nn.ParameterDict({"turn": nn.Parameter(begins.clone())})
    assert varied.vary(module, []) == {"turn": 0.0}
    values = module["turn"].detach()
    assert (values[begins == 0] != 0).float().mean() > 0.9
    assert torch.equal(values[begins != 0], begins[begins != 0])
    assert varied.constant_of(nn.Parameter(begins.clone())) == 0.0


def test_a_small_scale_is_varied_by_what_shows() -> None:
    with VariedConstants() as varied:
        module = nn.ParameterDict({"scale": nn.Parameter(1e-6 * torch.ones(64))})
    varied.vary(module, [1e-6])
    assert module["scale"].abs().max() > 0.3


def test_drawn_weights_stay() -> None:
    torch.manual_seed(1)
    weights = {str(width): nn.Parameter(torch.randn(width, width)) for width in (1, 3, 40)}
    weights["in_half"] = nn.Parameter(torch.randn(300, 300).half())
    with VariedConstants() as varied:
        module = nn.ParameterDict(weights)
    assert varied.vary(module, []) == {}


def test_twice_the_same_and_torch_is_as_it_was_even_after_an_error() -> None:
    first, second = varied_block()[0], varied_block()[0]
    assert all(
        torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True)
    )
    with pytest.raises(ZeroDivisionError), VariedConstants():
        assert nn.init.ones_ is not _INITS["ones_"]
        raise ZeroDivisionError
    assert all(getattr(nn.init, name) is original for name, original in _INITS.items())


def test_other_modules_of_other_widths_change_nothing() -> None:
    with VariedConstants():
        alone = nn.LayerNorm(5)
    with VariedConstants():
        nn.BatchNorm1d(7)
        after = nn.LayerNorm(5)
    assert torch.equal(alone.weight, after.weight) and torch.equal(alone.bias, after.bias)


def test_large_weights_are_drawn_in_part_and_no_two_rows_are_alike() -> None:
    with VariedConstants():
        norm = nn.LayerNorm((300, 512))
    assert norm.weight.unique(dim=0).shape == (300, 512)
    assert norm.weight.min() < 0.6 and norm.weight.max() > 1.4


def test_buffers_and_integers_are_not_weights() -> None:
    with VariedConstants():
        assert torch.equal(nn.init.zeros_(torch.empty(4)), torch.zeros(4))
        counts = nn.Parameter(torch.empty(4, dtype=torch.int64), requires_grad=False)
        assert torch.equal(nn.init.ones_(counts), torch.ones(4, dtype=torch.int64))


def test_a_weight_under_another_name_is_found_by_its_constant_and_shape() -> None:
    block, constants = varied_block()

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(5, 5)
            self.gamma = nn.Parameter(torch.ones(5))
            self.beta = nn.Parameter(torch.zeros(5))
            self.scale = nn.Parameter(torch.ones(5))

    with VariedConstants() as varied:
        model = Renamed()
    unmatched = copy_state(model, block.state_dict(), constants, varied)
    assert torch.equal(model.scale, block.scale) and torch.equal(model.linear.weight, block.linear.weight)
    assert torch.equal(model.gamma, block.norm.weight) and torch.equal(model.beta, block.norm.bias)
    assert unmatched == ["default", "drawn_after.bias", "drawn_after.weight", "gain", "gate", "mask"]


_PROBLEM = (
    "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.gain = nn.Parameter(INIT)\n"
    "    def forward(self, x):\n        return x * self.gain\n"
    "def get_inputs():\n    return [torch.randn(64)]\n\ndef get_init_inputs():\n    return []\n"
)
_KERNEL = (
    "@triton.jit\ndef copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
    "    at = tl.arange(0, BLOCK)\n"
    "    x = tl.load(x_ptr + at, mask=at < n, other=0.0)\n"
    "    tl.store(y_ptr + at, x * FACTOR, mask=at < n)\n\n\n"
    "class ModelNew(nn.Module):\n"
    "    def forward(self, x):\n        y = torch.empty_like(x)\n"
    "        copy[(1,)](x, y, x.numel(), BLOCK=64)\n        return y\n"
)


@pytest.mark.parametrize(
    ("begins", "factor", "verdict"),
    [
        ("torch.ones(64)", "1.0", "wrong"),
        ("torch.ones(1)", "1.0", "wrong"),
        ("torch.full((64,), 0.5)", "0.5", "wrong"),
        ("torch.tensor(3.0)", "3.0", "correct"),
    ],
)
def test_a_kernel_that_leaves_a_weight_out_is_wrong(
    judge_text: Callable[..., Evaluation], begins: str, factor: str, verdict: str
) -> None:
    evaluation = judge_text(_PROBLEM.replace("INIT", begins), _KERNEL.replace("FACTOR", factor))
    assert evaluation.verdict == verdict, evaluation.feedback


_PACKED_KERNEL = (
    "@triton.jit\ndef scale(x_ptr, gain_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
    "    at = tl.arange(0, BLOCK)\n"
    "    x = tl.load(x_ptr + at, mask=at < n, other=0.0)\n"
    "    gain = tl.load(gain_ptr + at, mask=at < n, other=0.0)\n"
    "    tl.store(y_ptr + at, x * gain, mask=at < n)\n\n\n"
    "class ModelNew(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n"
    "        self.register_buffer('packed', nn.LayerNorm(64).weight.detach().clone())\n"
    "    def forward(self, x):\n        y = torch.empty_like(x)\n"
    "        scale[(1,)](x, self.packed, y, x.numel(), BLOCK=64)\n        return y\n"
)


def test_a_copied_layer_has_what_the_constructor_of_a_candidate_finds(
    judge_text: Callable[..., Evaluation],
) -> None:
    copied = _PROBLEM.replace("nn.Parameter(INIT)", "copy.deepcopy(nn.LayerNorm(64)).weight")
    evaluation = judge_text(f"import copy\n\n{copied}", _PACKED_KERNEL)
    assert evaluation.correct, evaluation.feedback
