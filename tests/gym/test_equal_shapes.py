"""Changed sizes keep the relation of inputs: equal shapes stay equal, and nothing begins to broadcast."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.gym.judge.scaled_sizes import TO_LAUNCH, grown_sizes, turning_sizes
from kernel_core.gym.oracle.equal_shapes import SharedSizes
from kernel_core.gym.oracle.need import inputs_at
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.small_sizes import FOR_MANY_STEPS, FOR_WIDE_TILES, USUAL, with_small_sizes
from kernel_core.problems.source import parse_problem, with_members
from kernel_core.records import Problem

from .conftest import HEAD

TEXT = """
class Model(nn.Module):
    def forward(self, a, b, c):
        return {forward}

def get_inputs():
    return [{inputs}]
"""
FORWARDS = (
    "a * b + c",
    "torch.where(b < 0, a, c)",
    "a.masked_fill(b < 0, 0.5) - c",
    "torch.gather(a, -1, b.long()) + c",
    "torch.gather(a, 0, b.long()) + c",
    "a.scatter(-1, b.long(), a * 2) * c",
    "(a @ b.transpose(-1, -2)).sum(-1, keepdim=True) * a + c",
)
SIZES = st.sampled_from((16, 17, 64, 100, 512, 1024, 4096, 8193))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Two inputs of one shape, and one that may be broadcast to it."""
    shape = draw(st.lists(SIZES, min_size=2, max_size=4))
    is_broadcast = draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    other = [1 if one else size for one, size in zip(is_broadcast, shape, strict=True)]
    inputs = ", ".join(f"torch.rand({', '.join(map(str, sizes))})" for sizes in (shape, shape, other))
    return _problem(inputs, draw(st.sampled_from(FORWARDS)))


def _problem(inputs: str, forward: str) -> Problem:
    text = HEAD + TEXT.format(forward=forward, inputs=inputs)
    return with_members(parse_problem(text, id="test/shapes", suite="test"))


@settings(deadline=None, max_examples=25)
@given(problems(), st.sampled_from((USUAL, FOR_WIDE_TILES, FOR_MANY_STEPS)))
def test_changed_sizes_keep_equal_shapes_equal_and_broadcast_what_was_broadcast(problem, scale):
    own = [tensor.shape for tensor in inputs_at(problem, {})]
    run = with_small_sizes(problem, scale).cpu_constants
    tried = [run]
    if run and sum(tensor.nbytes for tensor in inputs_at(problem, run)) < 1 << 22:
        reference = Reference(problem, run)
        tried += [*grown_sizes(reference), *turning_sizes(reference), *turning_sizes(reference, TO_LAUNCH)]
    for sizes in tried:
        first, second, third = (tensor.shape for tensor in inputs_at(problem, sizes))
        assert first == second
        assert all(size == 1 or less == more for less, more, size in zip(third, first, own[2], strict=True))
        assert all(size > 1 or less == 1 for less, size in zip(third, own[2], strict=True))
        assert all(less in (1, size) for less, size in zip(third, first, strict=True))


def test_numbers_of_one_dimension_of_equal_shapes_are_one_size():
    problem = _problem("torch.rand(64, 512, 512), torch.rand(64, 512, 512), torch.rand(512, 1)", "a * b + c")
    shared = SharedSizes(problem)
    assert shared.with_size("get_inputs[1]", 32) == {"get_inputs[1]": 32, "get_inputs[4]": 32}
    assert shared.with_size("get_inputs[5]", 32) == {"get_inputs[2]": 32, "get_inputs[5]": 32}
    assert shared.with_size("get_inputs[6]", 32) == {"get_inputs[6]": 32}
    leaders = [name for name in problem.constants if shared.leads(name)]
    assert leaders == [f"get_inputs[{place}]" for place in (0, 1, 2, 6)]


def test_named_sizes_that_are_equal_by_chance_stay_several_sizes():
    text = (
        HEAD
        + "M = 512\nK = 512\nN = 512\n"
        + TEXT.format(forward="a @ b", inputs="torch.rand(M, K), torch.rand(K, N), torch.rand(1)")
    )
    shared = SharedSizes(with_members(parse_problem(text, id="test/shapes", suite="test")))
    assert all(shared.with_size(name, 7) == {name: 7} for name in "MKN")


HEADS = """
class Model(nn.Module):
    def forward(self, q, k, v):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v)

def get_inputs():
    return [torch.rand(2, {heads}, 512, 64), torch.rand(2, {few}, 512, 64), torch.rand(2, {few}, 512, 64)]
"""


@settings(deadline=None, max_examples=15)
@given(
    st.sampled_from((16, 24, 32, 48)), st.sampled_from((2, 4, 8)), st.sampled_from((USUAL, FOR_MANY_STEPS))
)
def test_heads_of_queries_remain_a_multiple_of_fewer_heads_of_keys(heads, few, scale):
    text = HEAD.replace("import torch.nn as nn", "import torch.nn as nn\nimport torch.nn.functional as F")
    text += HEADS.format(heads=heads, few=few)
    problem = with_members(parse_problem(text, id="test/heads", suite="test"))
    run = with_small_sizes(problem, scale).cpu_constants
    reference = Reference(problem, run)
    tried = [run, *grown_sizes(reference), *turning_sizes(reference), *turning_sizes(reference, TO_LAUNCH)]
    for sizes in tried:
        queries, keys, _ = (tensor.shape for tensor in inputs_at(problem, sizes))
        assert queries[1] % keys[1] == 0
