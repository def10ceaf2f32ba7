"""The reference hash sees what is computed and is blind to how it is written."""

from __future__ import annotations

import keyword

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.corpus.normalise import NotPython, fingerprint, kernel_hash

MODULE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

{size} = 1024

class {cls}(nn.Module):
    def __init__(self, {width}, {eps}=1e-5):
        super().__init__()
        self.{layer} = nn.Linear({width}, {width})
        self.register_buffer("{buffer}", torch.ones({width}))
        self.{eps} = {eps}

    def {method}(self, {inner}, {factor}=1.0):
        return [{item} * {factor} for {item} in {inner}.unbind(0)]

    def forward(self, {x}):
        {y} = F.relu(self.{layer}({x})) + self.{buffer}
        {y} = {y} / ({y}.norm() + self.{eps})
        {z} = torch.stack(self.{method}({y}, {factor}=2.0))
        return {helper}({z})

def {helper}({value}):
    return (lambda {item}: {item} - 1)({value})

def get_inputs():
    {x} = torch.rand({size}, 4)
    return [{x}]

def get_init_inputs():
    return [4]
"""
SLOTS = (
    "size cls width eps layer buffer method inner factor item x y z helper value".split()  # noqa: SIM905
)
RESERVED = {"torch", "nn", "F", "forward", "get_inputs", "get_init_inputs", "self", "super", "norm", "unbind"}
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name) and name not in RESERVED and not name.startswith("__")
)


def module(**names: str) -> str:
    return MODULE.format(**({slot: slot for slot in SLOTS} | names))


def reference_hash(source: str) -> str:
    return fingerprint(source).reference_hash


@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=len(SLOTS), max_size=len(SLOTS), unique=True))
def test_renaming_everything_that_is_the_authors_to_name_changes_no_hash(names: list[str]) -> None:
    renamed = module(**dict(zip(SLOTS, names, strict=True)))
    assert fingerprint(renamed).reference_hash == fingerprint(module()).reference_hash
    assert fingerprint(renamed).operators == fingerprint(module()).operators


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_other_sizes_change_the_reference_hash_and_never_the_structure_hash(one: int, other: int) -> None:
    sized = [fingerprint(module().replace("1024", str(size))) for size in (one, other)]
    assert (sized[0].reference_hash == sized[1].reference_hash) == (one == other)
    assert sized[0].structure_hash == sized[1].structure_hash


OTHER_COMPUTATIONS = {
    "another activation": ("F.relu", "F.gelu"),
    "another binary operator": ("/ (", "* ("),
    "another layer": ("nn.Linear", "nn.Bilinear"),
    "another constant": ("1e-5", "1e-6"),
    "another reduction": (".norm()", ".sum()"),
    "an argument left out": (", factor=2.0", ""),
    "operands swapped": ("item - 1", "1 - item"),
    "another attribute read": ("+ self.eps", "+ self.layer.eps"),
}


@pytest.mark.parametrize("change", OTHER_COMPUTATIONS.values(), ids=OTHER_COMPUTATIONS)
def test_another_computation_has_another_hash(change: tuple[str, str]) -> None:
    changed = module().replace(*change)
    assert changed != module()
    assert reference_hash(changed) != reference_hash(module())


SAME_COMPUTATIONS = {
    "comments and blank lines": ("def forward", "# what it does\n\n    def forward"),
    "a docstring": ("super().__init__()", '"""Set up."""\n        super().__init__()'),
    "annotations": ("def forward(self, x):", "def forward(self, x: torch.Tensor) -> torch.Tensor:"),
    "an old-style super": ("super().__init__()", "super(cls, self).__init__()"),
    "another way to import": ("import torch.nn.functional as F", "from torch.nn import functional as F"),
    "a size written where it is used": ("torch.rand(size, 4)", "torch.rand(1024, 4)"),
    "a main guard": ("def get_init_inputs", "if __name__ == '__main__':\n    1\n\ndef get_init_inputs"),
}


@pytest.mark.parametrize("change", SAME_COMPUTATIONS.values(), ids=SAME_COMPUTATIONS)
def test_another_way_to_write_it_has_the_same_hash(change: tuple[str, str]) -> None:
    changed = module().replace(*change)
    assert changed != module()
    assert reference_hash(changed) == reference_hash(module())


@pytest.mark.parametrize(
    "spelling",
    ["torch.relu(x)", "F.relu(x)", "x.relu()", "x.relu_()", "nn.ReLU()(x)", "torch.nn.functional.relu(x)"],
)
def test_all_spellings_of_an_operator_are_one(spelling: str) -> None:
    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        f"class Model(nn.Module):\n    def forward(self, x):\n        return {spelling}\n"
    )
    assert fingerprint(source).operators == ("relu",)


def test_layers_made_in_init_count_where_they_are_applied() -> None:
    source = """
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Softmax(dim=-1)
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    def forward(self, x):
        return self.last(self.first(x) * 3.0)
"""
    assert fingerprint(source).operators == ("linear", "relu", "scale", "softmax")


FUNCTION = """import torch


def {name}({x}):
    return {body}


class Model(torch.nn.Module):
    def forward(self, x):
        return {name}(x)
"""


def test_the_data_flow_of_a_helper_function_counts() -> None:
    def flow(name: str, x: str, body: str) -> str:
        return fingerprint(FUNCTION.format(name=name, x=x, body=body)).dataflow

    assert flow("halved", "x", "x.exp() * 0.5") == flow("scaled", "values", "0.25 * values.exp()")
    assert flow("halved", "x", "x.exp() * 0.5") != flow("halved", "x", "x.log() * 0.5")


@pytest.mark.parametrize("text", ["def f(:", "a\x00b", "(" * 5000, "1" + "+1" * 20_000], ids=range(4))
def test_what_is_not_python_is_named_so_whatever_it_is(text: str) -> None:
    with pytest.raises(NotPython):
        fingerprint(text)


def test_a_kernels_hash_ignores_comments_and_spacing_but_not_indentation_or_names() -> None:
    kernel = "for i in n:\n    a = 1  # one\n    b = 2\n"
    assert kernel_hash(kernel, "triton") == kernel_hash("for i in n:\n    a=1\n\n    b=2", "triton")
    assert kernel_hash(kernel, "triton") != kernel_hash("for i in n:\n    a = 1\nb = 2\n", "triton")
    assert kernel_hash(kernel, "triton") != kernel_hash(kernel.replace("a =", "c ="), "triton")
    assert kernel_hash("int a; // one", "cuda_cpp") == kernel_hash("int  a; /* two */", "cuda_cpp")
