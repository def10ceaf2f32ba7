"""Parts: the written problem computes what the submodule does, at its own sizes and at others."""

from __future__ import annotations

import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernel_core.optimize.part import problem_of, recorded_calls
from kernel_core.optimize.profile import profile
from kernel_core.optimize.stages import find_parts
from kernel_core.optimize.tape import Unwritable
from kernel_core.optimize.target import Target, load_target
from kernel_core.optimize.write import write_part
from kernel_core.problems.load import resize


def written(module: nn.Module, *args, **kwargs):
    """Return text and contract of a module as a part."""
    target = Target("test", module.eval(), args, kwargs)
    return write_part(module, recorded_calls(target, [""])[""])


def run_problem(source: str):
    """Return model, inputs and outputs of a problem's text."""
    module = types.ModuleType("problem")
    exec(source, module.__dict__)
    model, inputs = module.Model(*module.get_init_inputs()), module.get_inputs()
    return model, inputs, model(*inputs)


def test_free_dimensions_are_those_that_no_weight_has():
    target = load_target("tests.optimize.small_modules:block")
    _, contract = write_part(target.module, recorded_calls(target, [""])[""])
    assert contract.free == {"B": 2, "M": 12} and contract.shapes == (("B", "M", 32),)
    assert contract.weights["mixers_0_gate_weight"] == "mixers.0.gate.weight"


def test_a_problem_runs_at_other_sizes():
    target = load_target("tests.optimize.small_modules:conv_block")
    text, _ = write_part(target.module, recorded_calls(target, [""])[""])
    problem = problem_of(text, "ConvBlock")
    _, _, outputs = run_problem(resize(problem, {"B": 3, "H": 5, "WIDTH": 16}).source)
    assert outputs.shape == (3, 16, 5, 5)


def test_equal_submodules_are_one_part_with_two_places():
    target = load_target("tests.optimize.small_modules:block")
    parts = find_parts(target, profile(target, "cpu")).parts
    by_kind = {part.kind: part for part in parts}
    assert by_kind["RMSNorm"].paths == ("norms.0", "norms.1")
    assert by_kind["Block"].paths == ("",)
    assert len({part.problem.id for part in parts}) == len(parts)


def test_attributes_are_plain_numbers_again_after_the_tape():
    module = nn.GroupNorm(16, 64)
    written(module, torch.randn(2, 64, 5))
    assert type(module.num_channels) is int and type(module.num_groups) is int


def test_keyword_arguments_nests_and_constants_are_in_the_contract():
    class Rotate(nn.Module):
        def forward(self, x, positions, scale=1.0, mask=None):
            cosine, sine = positions
            half = x.shape[-1] // 2
            turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
            return (x * cosine + turned * sine) * scale, None

    positions = (torch.randn(1, 7, 24), torch.randn(1, 7, 24))
    text, contract = written(Rotate(), torch.randn(3, 7, 24), positions=positions, scale=2.0)
    assert contract.inputs == ("x", "positions_0", "positions_1")
    assert contract.result == {"tuple": [{"tensor": 0}, {"value": None}]}
    assert "x.shape[2] // 2" in text


def test_half_precision_and_indices_keep_their_types():
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(50, 32, dtype=torch.bfloat16)

        def forward(self, ids):
            return F.silu(self.table(ids))

    text, contract = written(Lookup(), torch.randint(0, 50, (2, 9)))
    _, inputs, outputs = run_problem(text)
    assert contract.dtypes == ("torch.int64",) and outputs.dtype == torch.bfloat16
    assert int(inputs[0].max()) < 50


class _Reads(nn.Module):
    def forward(self, x):
        return torch.relu(x) if float(x.sum()) > 0 else x.neg()


class _Remembers(nn.Module):
    def forward(self, x):
        return x * torch.from_numpy(__import__("numpy").ones(4, "float32"))


@pytest.mark.parametrize("module", [_Reads(), nn.Dropout(), _Remembers()])
def test_a_module_that_no_text_can_stand_for_is_refused(module):
    with pytest.raises(Unwritable):
        written(module, torch.ones(2, 4))


def test_a_submodule_that_runs_twice_is_refused():
    shared = nn.ReLU()
    target = Target("twice", nn.Sequential(shared, nn.Tanh(), shared), (torch.randn(4),), {})
    with pytest.raises(Unwritable, match="runs it 2 times"):
        write_part(shared, recorded_calls(target, ["0"])["0"])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("llama_layers", {"LlamaDecoderLayer", "LlamaAttention", "LlamaMLP", "LlamaRMSNorm"}),
        ("convnext_stage", {"ConvNextStage", "ConvNextLayer"}),
    ],
)
def test_modules_of_an_installed_package_are_written(name, kinds):
    target = load_target(f"tests.optimize.installed_modules:{name}")
    parts = find_parts(target, profile(target, "cpu")).parts
    assert kinds <= {part.kind for part in parts}
    assert all(len(part.paths) > 1 for part in parts if part.kind.endswith("Layer"))
