"""Answers that replace a part of a module and keep the text around it."""

from __future__ import annotations

import ast

import pytest

from kernel_core.generator import graded, partial
from kernel_core.generator.graded import graded_kernels, taught_answers, whole_answer, widest_answer
from kernel_core.generator.module import kept_whole
from kernel_core.generator.partial import limit_of, partial_answers
from kernel_core.generator.read import Unreadable
from kernel_core.generator.statements import replaced
from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.load import parse_problem
from kernel_core.records import Candidate
from tests.generator.partial_problems import (
    IN_PLACE,
    LOOP,
    LOOP_OF_LAYERS,
    NORM_TWICE,
    OTHER_BRANCH,
    OTHER_LAYERS,
    TWO_RESULTS,
    UNREADABLE,
    WITHOUT_EFFECT,
)


def parsed(source: str):
    return parse_problem(source, id="test/partial", suite="test")


def heads(source: str, **options) -> list[str]:
    """First lines of the plans, in their order."""
    return [answer.thinking.partition("\n")[0] for answer in partial_answers(parsed(source), **options)]


@pytest.mark.parametrize(
    "source",
    [NORM_TWICE, TWO_RESULTS, LOOP, LOOP_OF_LAYERS, WITHOUT_EFFECT],
    ids=["norm", "results", "loop", "loop_of_layers", "without_effect"],
)
def test_each_part_is_judged_correct(source: str, quick_gym: Gym) -> None:
    answers = partial_answers(parsed(source))
    requests = [
        JudgeRequest(problem=parsed(source), candidate=Candidate.from_source(answer.source))
        for answer in answers
    ]
    verdicts = [evaluation.verdict for evaluation in quick_gym.judge(requests)]
    assert verdicts and verdicts == ["correct"] * len(answers), [answer.source for answer in answers]


def test_a_class_that_is_used_twice_has_most_work_and_is_replaced_in_one_place() -> None:
    first, *_ = partial_answers(parsed(NORM_TWICE))
    assert first.thinking.startswith("Part: Norm.forward. PyTorch keeps the rest.\n")
    assert first.source.count("@triton.jit") == 1
    assert "x, self.weight, out" in first.source and "self.eps" in first.source.split("def forward")[1]


def test_a_number_is_no_name_of_an_axis_of_one() -> None:
    source = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 6, 3)
        self.pool = nn.MaxPool2d(3, 2)

    def forward(self, x):
        return self._pooled(self.conv(x))

    def _pooled(self, x):
        return self.pool(x).tanh()

def get_inputs():
    return [torch.randn(1, 4, 40, 41)]

def get_init_inputs():
    return []
"""
    texts = [answer.source for answer in partial_answers(parsed(source))]
    assert any("x.shape" in text and "// self.pool.stride + 1" in text for text in texts)
    assert not any("+ batch" in text for text in texts)


def test_text_outside_of_the_part_stays_byte_for_byte() -> None:
    first, *_ = partial_answers(parsed(NORM_TWICE))
    _, _, rest = NORM_TWICE.partition("class Norm(")
    own, _, behind = ("class Norm(" + rest).partition("        # the second moment\n")
    assert own + "        # the second moment\n" in first.source
    assert "\nSCALE = 2.0\n" in first.source
    kept = behind.partition("\n\n\nclass Mixer")[2].partition("\n\n\ndef unused")[0]
    assert "class Mixer" + kept in first.source
    model = behind.partition("class Model(nn.Module)")[2].partition("\n\nSIZE")[0]
    model = model.replace('\n    """Two norms around a layer."""\n', "")
    assert "class ModelNew(nn.Module)" + model.replace("super(Model,", "super(ModelNew,") in first.source
    for gone in (
        "def unused",
        "SIZE",
        "get_inputs",
        "get_init_inputs",
        "Adapted",
        "of each row",
        "without a mean",
    ):
        assert gone in NORM_TWICE and gone not in first.source
    assert first.source.startswith("import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n")


def test_a_range_of_statements_has_the_results_that_are_read_behind_it() -> None:
    first, *_ = partial_answers(parsed(TWO_RESULTS))
    assert "from `value = torch.tanh(value) * self.limit`" in first.thinking
    assert "value, gate = out, out_2" in first.source and "self.limit" in first.source.split("[grid")[-1]
    assert "        value, gate = self.inner(x).chunk(2, dim=-1)\n" in first.source
    assert "        value, gate = self.outer(value), self.outer(gate)\n" in first.source


def test_parts_come_by_their_work_and_share_no_line() -> None:
    assert heads(NORM_TWICE) == [
        "Part: Norm.forward. PyTorch keeps the rest.",
        "Part: Mixer.forward from `x = x * SCALE + 1.50e-3`. PyTorch keeps the rest.",
    ]
    assert heads(NORM_TWICE, most=1) == heads(NORM_TWICE)[:1]


def test_a_part_whose_text_differs_between_calls_is_none() -> None:
    same, other = (OTHER_LAYERS.replace("{second}", layer) for layer in ("nn.ReLU()", "nn.GELU()"))
    assert heads(same) == ["Part: Step.forward. PyTorch keeps the rest."]
    assert not any("Step.forward" in head for head in heads(other))


def test_statements_that_the_results_do_not_need_or_no_input_reaches_are_no_part() -> None:
    assert heads(WITHOUT_EFFECT) == [
        "Part: Model.forward from `x = self.proj(x) * weight`. PyTorch keeps the rest."
    ]


def test_a_statement_that_changes_its_input_in_place_is_no_part() -> None:
    assert heads(IN_PLACE.replace("{step}", "F.relu(x)")) == [
        "Part: Model.forward from `x = F.relu(x)`. PyTorch keeps the rest."
    ]
    assert heads(IN_PLACE.replace("{step}", "x.relu_()")) == []


def test_the_whole_module_is_taught_unless_it_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = parsed(NORM_TWICE)
    whole = whole_answer(problem)
    assert len(whole.source) <= limit_of(problem)
    assert [answer.source for answer in taught_answers(problem)] == [whole.source]
    monkeypatch.setattr(graded, "limit_of", lambda problem: len(whole.source) - 1)
    parts = taught_answers(problem)
    assert [part.source for part in parts] == [part.source for part in partial_answers(problem)]
    assert [kernel.source for kernel in graded_kernels(problem)] == [part.source for part in parts]


def test_no_part_exceeds_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    longest, *_ = partial_answers(parsed(TWO_RESULTS))
    monkeypatch.setattr(partial, "limit_of", lambda problem: len(longest.source) - 1)
    shorter = partial_answers(parsed(TWO_RESULTS))
    assert shorter and all(len(answer.source) < len(longest.source) for answer in shorter)


def test_fake_and_meta_tensors_give_the_same_parts() -> None:
    on_meta = partial_answers(parsed(NORM_TWICE), on_meta=True)
    assert [answer.source for answer in on_meta] == [
        answer.source for answer in partial_answers(parsed(NORM_TWICE))
    ]


def test_only_definitions_that_the_model_needs_are_kept() -> None:
    source = """\
# A header.
import math
import torch.nn as nn


width = 8
# How often.
count, unread = 2, 3


def helper(x, width=width):  # with a default
    count = width
    return x * count


@decorated
class Base(nn.Module):
    pass
helper_2 = "Model"


class Model(Base):
    def make(self):
        return Model, helper(count)


def get_inputs():
    return [width]
"""
    imports, text = kept_whole(source)
    assert imports == ["import math", "import torch.nn as nn"]
    start, end = source.index("def helper("), source.index("\nhelper_2")
    model = source[source.index("class Model") : source.index("\n\n\ndef get_inputs")]
    model = model.replace("class Model(", "class ModelNew(").replace("return Model,", "return ModelNew,")
    assert text == f"width = 8\ncount, unread = 2, 3\n\n\n{source[start:end]}\n\n\n{model}"


def test_statements_that_share_a_line_are_refused() -> None:
    source = "def f(x):\n    x = x + 1; y = x * 2  # twice\n    return y\n"
    body = ast.parse(source).body[0].body
    with pytest.raises(Unreadable, match="share a line"):
        replaced(source, body[:1], ["x = 3"])
    with pytest.raises(Unreadable, match="share a line"):
        replaced(source, body[1:2], ["y = 3"])
    assert replaced(source, body[:2], ["y = 3"]) == "def f(x):\n    y = 3\n    return y\n"


def test_a_module_that_cannot_be_read_whole_has_a_part() -> None:
    problem = parsed(UNREADABLE)
    with pytest.raises(Unreadable):
        whole_answer(problem)
    assert widest_answer(problem).source == taught_answers(problem)[0].source
    assert widest_answer(problem).thinking.startswith("Part: Inner.forward. PyTorch keeps the rest.")


def test_a_part_runs_at_the_sizes_for_a_cpu_too() -> None:
    inside = "Part: Model.forward from `if x.shape[-1] > 12:`. PyTorch keeps the rest."
    assert inside in heads(OTHER_BRANCH.replace("# cpu: SIZE=12\n", ""))
    assert inside in heads(OTHER_BRANCH.replace("SIZE=12", "SIZE=16"))
    assert inside not in heads(OTHER_BRANCH)
