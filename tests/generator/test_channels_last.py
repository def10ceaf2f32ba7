"""Convolutions that stay with torch and have their channels last in memory."""

from __future__ import annotations

import pytest

from kernel_core.generator.graded import whole_answer
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_here
from kernel_core.problems.load import parse_problem
from tests.generator.small_problems import problem

IMAGES, VOLUMES = "torch.randn(3, 6, 10, 9)", "torch.randn(2, 5, 6, 7, 8)"
LAST = "memory_format=torch.channels_last"


def asked(expression: str, *inputs: str, layers: str):
    return parse_problem(problem(expression, *inputs, layers=layers), id="test/layout", suite="test")


def test_torch_copies_an_input_and_a_kernel_does_so_for_speed():
    read = asked("torch.relu(self.conv(a))", IMAGES, layers="self.conv = nn.Conv2d(6, 8, 3)")
    short, fast = whole_answer(read).source, whole_answer(read, for_speed=True).source
    assert f"a.contiguous({LAST})" in short and "channels_last_kernel" not in short
    assert f"torch.empty_like(a, {LAST})" in fast and "channels_last_kernel[" in fast
    tail = "(image * n_cols + cols[None, :]) * n_rows + rows[:, None]"
    assert tail in short and tail in fast


def test_a_kernel_between_two_convolutions_keeps_the_order():
    layers = "self.a, self.b = nn.Conv2d(6, 8, 3), nn.Conv2d(8, 4, 3)"
    source = whole_answer(asked("torch.relu(self.b(torch.tanh(self.a(a))))", IMAGES, layers=layers)).source
    assert source.count("a.contiguous(") == 1 and "torch.empty_like(conv2d)" in source
    assert "F.conv2d(channels_last_out, self.b.weight)" in source


@pytest.mark.parametrize(
    ("expression", "layers"),
    [
        ("self.conv(a).mean((2, 3))", "self.conv = nn.Conv2d(6, 8, 3)"),
        ("torch.relu(self.conv(a)).flatten(1)", "self.conv = nn.Conv2d(6, 8, 3)"),
        ("torch.relu(self.conv(a))", "self.conv = nn.Conv2d(6, 6, 3, groups=6)"),
        ("(lambda y: (y, torch.relu(y)))(self.conv(a))", "self.conv = nn.Conv2d(6, 8, 3)"),
    ],
    ids=["places", "view", "groups", "returned"],
)
def test_other_results_keep_their_order(expression: str, layers: str):
    assert "channels_last" not in whole_answer(asked(expression, IMAGES, layers=layers)).source


CASES = {
    "bias": ("torch.relu(self.conv(a))", IMAGES, "nn.Conv2d(6, 8, 3, padding=1)"),
    "no_bias": ("F.gelu(self.conv(a)) * 2", IMAGES, "nn.Conv2d(6, 70, 3, stride=2, bias=False)"),
    "few_channels": ("torch.tanh(self.conv(a))", "torch.randn(3, 1, 40, 41)", "nn.Conv2d(1, 3, 5)"),
    "image": ("torch.tanh(self.conv(a))", "torch.randn(1, 3, 20, 21)", "nn.Conv2d(3, 5, 1)"),
    "transposed": ("F.hardtanh(self.conv(a)) + 1", IMAGES, "nn.ConvTranspose2d(6, 5, 3, stride=2)"),
    "volume": ("F.mish(self.conv(a))", VOLUMES, "nn.Conv3d(5, 7, 3, dilation=2)"),
    "transposed_volume": ("F.silu(self.conv(a))", VOLUMES, "nn.ConvTranspose3d(5, 4, 3)"),
    "softmax": ("torch.softmax(self.conv(a), 1)", IMAGES, "nn.Conv2d(6, 80, 3)"),
    "minimum": ("torch.tanh(self.conv(a).min(1, keepdim=True)[0])", VOLUMES, "nn.Conv3d(5, 9, 2)"),
    "pool": ("F.max_pool2d(torch.relu(self.conv(a)), 3, 2, 1)", IMAGES, "nn.Conv2d(6, 8, 3)"),
    "mean_pool": ("F.avg_pool3d(self.conv(a), 2).sigmoid()", VOLUMES, "nn.Conv3d(5, 6, 3)"),
    "places": ("F.max_pool2d(self.conv(a), 2, return_indices=True)[1]", IMAGES, "nn.Conv2d(6, 8, 3)"),
}


CHAIN = "self.conv, self.b, self.c = nn.Conv2d(6, 8, 3), nn.Conv2d(8, 4, 3), nn.Conv2d(4, 4, 1)"


@pytest.mark.exhaustive
@pytest.mark.parametrize("for_speed", [False, True])
def test_answers_are_correct(for_speed: bool):
    problems = {
        name: asked(expression, images, layers=f"self.conv = {layer}")
        for name, (expression, images, layer) in CASES.items()
    }
    problems["chain"] = asked("torch.relu(self.c(self.b(torch.tanh(self.conv(a)))))", IMAGES, layers=CHAIN)
    answers = [whole_answer(read, for_speed=for_speed).source for read in problems.values()]
    assert all("channels_last" in source for source in answers)
    requests = [
        request_of(read, source, {}, 1, "cpu")
        for read, source in zip(problems.values(), answers, strict=True)
    ]
    judged, _ = judge_here(requests, {"device": "cpu", "rules": "dojo", "cluster": "local"})
    outcomes = {name: result.outcome for name, result in zip(problems, judged, strict=True)}
    verdicts = {name: getattr(outcome, "verdict", outcome) for name, outcome in outcomes.items()}
    assert verdicts == dict.fromkeys(problems, "correct")
