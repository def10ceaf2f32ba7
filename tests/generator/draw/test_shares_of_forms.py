"""Forms of an operator are drawn evenly: axes, broadcasts, sizes, and steps of optimisers."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from kernel_core.generator.draw import choice
from kernel_core.generator.draw import problems as draw
from kernel_core.generator.draw.forms import forms
from kernel_core.generator.draw.habits import draw_habits
from kernel_core.generator.draw.inputs import inputs_of
from kernel_core.generator.draw.singles import single_operator
from kernel_core.generator.draw.sizes import ONE, Axis
from kernel_core.generator.draw.sketch import Sketch
from kernel_core.generator.graded import whole_answer
from kernel_core.problems.source import parse_problem

COUNT = 400
ALONG_AN_AXIS = (
    "gather", "scatter", "scatter_add", "index", "index_add", "index_copy", "index_fill", "select_scatter",
    "cumsum", "softmax", "argmax", "sum", "flip", "roll", "cat", "stack", "select", "unsqueeze",
)  # fmt: skip


def _sketch(seed: str) -> Sketch:
    rng = random.Random(seed)
    return Sketch(rng, draw_habits(rng))


def _sketches(family: str, level: str) -> list[Sketch]:
    drawn = (random.Random(f"{family} {number}") for number in range(COUNT))
    return [draw.sketched(rng, (family,), {level: 1.0}, "train")[1] for rng in drawn]


@pytest.mark.parametrize("name", ALONG_AN_AXIS)
def test_axes_of_an_operator_are_drawn_evenly(name):
    drawn = [form for form in forms()[name] if form.varies]
    axes = Counter[int]()
    for number in range(COUNT):
        sketch = _sketch(f"{name} {number}")
        values, at = inputs_of(sketch, sketch.rng.choice(drawn))
        if next(iter(values.values())).rank == 3:
            axes[at] += 1
    assert set(axes) == {0, 1, 2}
    assert min(axes.values()) > 0.15 * axes.total(), axes


def test_indices_in_brackets_are_drawn_on_each_axis():
    sketches = [_sketch(f"index {number}") for number in range(COUNT)]
    for sketch in sketches:
        single_operator(sketch, "index")
    texts = [sketch.lines[-1].text for sketch in sketches]
    assert all(re.fullmatch(r"\w+\[.+\]", text) for text in texts)
    assert min(sum(part in text for text in texts) for part in ("[:, ", "[:, :, ", "[..., ")) > 0.03 * COUNT


def _pattern(shapes: list[tuple[Axis, ...]]) -> str:
    """`same`, `one` if a tensor has all axes, or `two` if each lacks one."""
    rank = max(map(len, shapes))
    wide = [(*[ONE] * (rank - len(shape)), *shape) for shape in shapes]
    if all(shape == wide[0] for shape in wide):
        return "same"
    whole = [any(axis is not ONE for axis in column) for column in zip(*wide, strict=True)]
    own = [[axis is not ONE for axis in shape] for shape in wide]
    return "one" if whole in own else "two"


def test_operators_on_two_tensors_broadcast_on_one_side_and_on_both():
    patterns = Counter[str]()
    rng = random.Random(0)
    for number in range(3 * COUNT):
        _, name = choice.single(rng, ("arithmetic", "pointwise", "comparison", "bits"), "train")
        form = rng.choice(forms()[name])
        if len(form.inputs) > 1:
            values, _ = inputs_of(_sketch(f"{name} {number}"), form)
            patterns[_pattern([value.axes for value in values.values()])] += 1
    shares = {pattern: count / patterns.total() for pattern, count in patterns.items()}
    assert shares["two"] > 0.15 and shares["one"] > 0.2 and shares["same"] > 0.2, shares


def test_images_are_resized_up_and_down_by_sizes_and_scales_in_each_mode():
    texts = [line.text for sketch in _sketches("resampling", "operators") for line in sketch.lines]
    for sketch in _sketches("resampling", "operators"):
        texts += sketch.constructor
    for mode in ("'nearest'", "'bilinear'", "'bicubic'", "'linear'", "'trilinear'"):
        of_mode = [text for text in texts if f"mode={mode}" in text]
        assert len(of_mode) > 0.03 * COUNT
        assert any("size=" in text for text in of_mode) and any("scale_factor=" in text for text in of_mode)
    for part in ("scale_factor=0.5", "scale_factor=1.5", "scale_factor=2", "=True", "=False"):
        assert sum(part in text for text in texts) > 0.05 * COUNT, part


def test_optimisers_and_attention_are_drawn_in_each_of_their_forms():
    drawn = Counter(
        name for sketch in _sketches("optimizer", "networks") for name in dict.fromkeys(sketch.operators)
    )
    steps = ("sgd", "adam", "rmsprop", "adagrad", "adadelta", "adamax", "lion", "lamb")
    assert min(drawn[f"{step}_update"] for step in steps) > 0.03 * COUNT, drawn
    assert drawn["nesterov_momentum"] > 0.02 * COUNT and drawn["decoupled_weight_decay"] > 0.03 * COUNT
    drawn = Counter(
        name for sketch in _sketches("attention", "networks") for name in dict.fromkeys(sketch.operators)
    )
    forms_of_attention = (
        "softmax",
        "feature_map",
        "repeat_interleave",
        "tril",
        "triu",
        "le",
        "tanh",
        "einsum",
    )
    assert min(drawn[name] for name in forms_of_attention) > 0.03 * COUNT, drawn


def test_optimisers_and_attention_have_more_draws_than_other_networks():
    families = Counter(
        draw.sketched(random.Random(number), (), {"networks": 1.0}, "train")[0] for number in range(COUNT)
    )
    assert min(families["optimizer"], families["attention"]) > 0.1 * COUNT, families


@pytest.mark.parametrize(
    "options",
    ["scale_factor=1.5", "size=(7, 9), mode='bilinear'", "scale_factor=0.5, mode='bicubic'"],
)
def test_a_kernel_that_resizes_reads_the_sizes_of_its_input(options):
    """Torch's decomposition takes the sizes of the input as numbers, so its kernels held for one size."""
    problem = parse_problem(
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\nclass Model(nn.Module):\n"
        f"    def forward(self, x):\n        return F.interpolate(x, {options})\n\n\n"
        "def get_inputs():\n    return [torch.randn(2, 3, 211, 223)]\n\n\n"
        "def get_init_inputs():\n    return []\n",
        id="test",
        suite="test",
    )
    source = whole_answer(problem).source
    assert "x.shape" in source
    assert not any(number in source for number in ("211", "210", "223", "222", "316", "334"))
