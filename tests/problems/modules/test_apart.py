"""Problems whose work stands in functions or in a layer: the same values, the same names of weights."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from kernel_core.problems.modules.apart import SHARE, as_layer, in_functions
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import FAMILIES, generate_modules
from kernel_core.problems.source import parse_problem, resize

from .conftest import draw
from .test_interpreted import all_sources, check, outcomes

LARGE_ON_A_CPU = ("conv3d", "conv_transpose3d")


def executed(draft: Draft, reference: str) -> dict[str, Any]:
    problem = parse_problem(reference, id="modules/drawn", suite="modules")
    names: dict[str, Any] = {"__name__": "problem"}
    exec(resize(problem, {size.name: size.cpu for size in draft.sizes}).source, names)
    return names


def results(names: dict[str, Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = names["Model"](*names["get_init_inputs"]())
    torch.manual_seed(1)
    with torch.no_grad():
        found = model(*names["get_inputs"]())
    return list(found) if isinstance(found, tuple | list) else [found]


def assert_same(draft: Draft, reference: str) -> None:
    ours, plain = results(executed(draft, reference)), results(executed(draft, draft.reference))
    assert len(ours) == len(plain)
    assert all(torch.equal(one, other) for one, other in zip(ours, plain, strict=True)), reference


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in LARGE_ON_A_CPU])
def test_a_problem_written_apart_computes_the_same(family: str) -> None:
    for seed in range(2):
        draft = draw(family, seed)
        assert_same(draft, as_layer(draft, random.Random(seed)).reference)
        for number in range(3):
            apart = in_functions(draft.reference, draft.operators, random.Random(number))
            if apart is not None:
                assert_same(draft, apart)


def test_kernels_name_weights_as_the_layer_of_the_problem_does() -> None:
    for family in ("linear_elementwise", "conv_norm", "batch_norm", "embedding", "layer_norm"):
        draft = as_layer(draw(family, 1), random.Random(1))
        names = executed(draft, draft.reference)
        wanted = names["Model"](*names["get_init_inputs"]()).state_dict()
        assert wanted and all(len(name.split(".")) > 1 for name in wanted)
        for kernel in draft.kernels:
            written: dict[str, Any] = {"__name__": "kernel"}
            exec(kernel.source.replace("@triton.jit", ""), written)
            model = written["ModelNew"](*names["get_init_inputs"]())
            assert list(model.state_dict()) == list(wanted), kernel.source


@pytest.mark.exhaustive
def test_kernels_of_problems_written_apart_are_what_their_grades_say() -> None:
    drafts = [
        as_layer(draw(family, seed), random.Random(seed))
        for family in ("linear_elementwise", "channel_parameter", "conv_norm", "table_joined")
        for seed in range(2)
    ]
    for draft, answers in zip(drafts, outcomes(drafts, all_sources(drafts)), strict=True):
        check(draft, answers)


def test_two_functions_share_the_lines() -> None:
    lines = "a = x + 1", "b = a * self.scale", "return torch.relu(b)"
    body = "".join(f"        {line}\n" for line in lines)
    reference = f"class Model(nn.Module):\n    def forward(self, x):\n{body}"
    texts = {in_functions(reference, ("add", "mul"), random.Random(seed)) for seed in range(40)}
    assert any(text is not None and text.count("\ndef ") + text.startswith("def ") == 2 for text in texts)
    assert all(text is not None and "self.scale" in text and "return torch.relu(b)" in text for text in texts)


def test_a_layer_that_is_called_stays_in_its_class() -> None:
    assert in_functions(draw("conv2d", 0).reference, ("conv2d",), random.Random(0)) is None


def test_a_share_of_the_taught_problems_is_written_apart_and_none_that_evaluate() -> None:
    def share(split: Any) -> float:
        made = generate_modules(split, 100, 3, ("axis_mapped", "linear_elementwise", "conv_pool"))
        parts = [sum(one.problem.source.count(f"\n{word} ") for word in ("class", "def")) for one in made]
        return sum(number > 3 for number in parts) / len(made)  # Model and two functions are always there

    assert share("held_out") == 0.0
    assert abs(share("train") - SHARE) < 0.1
