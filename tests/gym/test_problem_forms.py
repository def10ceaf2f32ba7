"""Other people's forms of problems: pairs of arguments, nothing returned, autocast, numbers at random."""

import pytest
import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.oracle.problem_module import ProblemModule
from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.source import parse_problem, resize, with_members

TEXT = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        {forward}

def get_inputs(rows=64):
    return [torch.randn(rows, 32)]
"""
INIT = "\ndef get_init_inputs():\n    return {given}\n"


def problem(forward="return x", parameters="", given=None):
    text = TEXT.format(forward=forward, parameters=parameters)
    return parse_problem(text + (INIT.format(given=given) if given else ""), id="mine", suite="mine")


def test_get_init_inputs_may_be_missing():
    module = ProblemModule(problem().source, "mine")
    assert module.arguments() == []
    assert isinstance(module.construct([]), torch.nn.Module)


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ("[[], {'a': 1, 'b': 2}]", [1, 2]),
        ("[[3], {'c': 4}]", [3, 7, 4]),
        ("([5], {})", [5]),
        ("[6, 8]", [6, 8]),
        ("{'c': 4, 'a': 3}", [3, 7, 4]),
    ],
)
def test_a_pair_of_arguments_is_laid_out(given, arguments):
    module = ProblemModule(problem(parameters=", a, b=7, c=9", given=given).source, "mine")
    assert module.arguments() == arguments


@pytest.mark.parametrize(
    ("given", "parameters"), [("[[], {'no': 1}]", ", a"), ("[[], {'a': 1}]", ", *, a"), ("[[], {}]", ", a")]
)
def test_a_pair_that_does_not_fit_is_no_problem(given, parameters):
    with pytest.raises(NotAProblem, match="does not fit Model"):
        ProblemModule(problem(parameters=parameters, given=given).source, "mine").arguments()


def test_a_default_argument_is_a_size():
    resized = resize(with_members(problem()), {"get_inputs.rows": 8})
    assert Reference(resized, {}).draw(1, "own")[0].shape == (8, 32)


@pytest.mark.parametrize(
    "forward",
    [
        "return self.dropout(x)",
        "return x + torch.randn_like(x)",
        "return x * torch.bernoulli(torch.full_like(x, 0.5))",
    ],
)
def test_a_reference_that_draws_is_no_problem(forward):
    with pytest.raises(NotAProblem, match="draws random numbers"):
        Reference(problem(forward), {}).trial(1, "own")


@pytest.mark.parametrize(
    "forward",
    [
        "return F.dropout(x, 0.5, training=False)",
        "torch.manual_seed(3); return x + torch.randn_like(x)",
        "return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(3))",
        "torch.randn(3); return x",
    ],
)
def test_a_reference_whose_outputs_keep_is_one(forward):
    assert Reference(problem(forward), {}).trial(1, "own").expected


def test_nothing_returned_means_the_inputs_as_they_are_left():
    reference = Reference(problem("x.mul_(2)"), {})
    trial = reference.trial(1, "own")
    assert reference.returns_nothing
    assert torch.equal(trial.expected[0].value.float(), 2 * trial.inputs[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has autocast of its own")
@pytest.mark.parametrize(
    ("manner", "dtype"),
    [
        ("torch.autocast('cuda', dtype=torch.bfloat16)", "bfloat16"),
        ("torch.autocast(device_type='cuda')", "float16"),
        ("torch.amp.autocast('cuda', torch.bfloat16, enabled=False)", "float32"),
    ],
)
def test_autocast_for_a_gpu_casts_on_a_cpu(manner, dtype):
    forward = f"with {manner}: return x @ x.t()"
    assert Reference(problem(forward), {}).trial(1, "own").expected[0].dtype == dtype


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has autocast of its own")
def test_what_is_expected_under_autocast_is_of_the_narrow_values():
    forward = "with torch.autocast('cuda', dtype=torch.bfloat16): return x @ x.t()"
    trial = Reference(problem(forward), {}).trial(1, "mixed")
    narrow = trial.inputs[0].bfloat16()
    assert torch.equal(trial.expected[0].value.bfloat16(), narrow @ narrow.t())


def test_none_among_outputs_is_a_part_of_their_form():
    trial = Reference(problem("return x, None"), {}).trial(1, "own")
    assert trial.nesting == ["*", None]
    assert len(trial.expected) == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has generators of its own")
@pytest.mark.parametrize(
    "given",
    ["torch.randn(rows, 32)", "[torch.randn(rows, 32, generator=torch.Generator('cuda'), device='cuda')]"],
)
def test_a_tensor_alone_and_generators_of_a_gpu_give_inputs(given):
    text = problem().source.replace("[torch.randn(rows, 32)]", given)
    (drawn,) = ProblemModule(text, "mine").drawn(1)
    assert drawn.shape == (64, 32)


def test_inputs_by_name_are_no_problem():
    text = problem().source.replace("[torch.randn(rows, 32)]", "{'x': torch.randn(rows, 32)}")
    with pytest.raises(NotAProblem, match="give a list in the order of forward's parameters"):
        ProblemModule(text, "mine").inputs()
