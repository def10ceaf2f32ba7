"""Products, linear layers with chains, elementwise operators."""

from __future__ import annotations

import ast

import pytest
import torch

from kernel_core.gym.oracle.reference import Reference
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.modules.matmul import FAMILIES
from kernel_core.problems.source import parse_problem

from .conftest import draw, draw_anew

LINEAR = [name for name in FAMILIES if name.startswith("linear")]
SINGLE_OPERATORS = [name for name in FAMILIES if not name.startswith("linear")]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_good_kernels_and_a_mistake(family: str) -> None:
    for seed in range(8):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        grades = [kernel.grade for kernel in draft.kernels]
        assert grades[0] == "naive" and "fused" in grades and grades[-1] == "mistake"
        assert all(len(kernel.thinking.split()) <= 60 for kernel in draft.kernels)
        assert draft == draw_anew(family, seed)
    assert len({draw(family, seed).reference for seed in range(8)}) >= 7


@pytest.mark.parametrize("family", ["elementwise_chain", "linear_groupnorm"])
def test_other_inputs_give_another_output(family: str) -> None:
    """A clamp may make one value of all inputs, or the same largest value of all rows."""
    for generated in generate_modules("train", 52, 1, (family,)):
        reference = Reference(generated.problem, generated.problem.cpu_constants)
        one, other = (reference.trial(seed, "own", exact=False).expected[0].value for seed in (1, 2))
        assert not torch.allclose(one, other, 1e-3, 1e-3), generated.problem.source


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_know_no_size_of_the_problem(family: str) -> None:
    blocks = {256, 512, 1024, 2048, 4096}
    for seed in range(10):
        draft = draw(family, seed)
        sizes = {size.gpu for size in draft.sizes if size.gpu > 128} - blocks
        for kernel in draft.kernels:
            tree = ast.walk(ast.parse(kernel.source))
            numbers = {node.value for node in tree if isinstance(node, ast.Constant)}
            assert not numbers & sizes, (family, kernel.source)


@pytest.mark.parametrize("family", SINGLE_OPERATORS)
def test_no_operator_is_left_to_torch_where_there_is_one_alone(family: str) -> None:
    allowed = {"torch.nn", "torch.empty", "torch.empty_like", "torch.zeros"}
    for seed in range(8):
        for kernel in draw(family, seed).kernels:
            tree = ast.parse(kernel.source)
            forward = next(
                node
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name == "forward"
            )
            used = {ast.unparse(node) for node in ast.walk(forward) if isinstance(node, ast.Attribute)}
            assert {name for name in used if name.startswith("torch.")} <= allowed, kernel.source
            assert not any(isinstance(node, ast.MatMult) for node in ast.walk(forward)), kernel.source


def work_left_to_torch(source: str) -> set[str]:
    """Calls of `forward` into torch or a layer of the module, but for allocations."""
    forward = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "forward"
    )
    calls = {ast.unparse(node.func) for node in ast.walk(forward) if isinstance(node, ast.Call)}
    products = {ast.unparse(node) for node in ast.walk(forward) if isinstance(node, ast.MatMult)}
    return products | {
        name
        for name in calls
        if name.startswith(("torch.", "F.", "self.")) and not name.startswith("torch.empty")
    }


@pytest.mark.parametrize("family", LINEAR)
def test_chains_behind_a_linear_layer_have_a_product_of_their_own_above_the_naive_grade(family: str) -> None:
    for seed in range(8):
        for kernel in draw(family, seed).kernels:
            if kernel.grade in ("fused", "tuned"):
                assert "tl.dot(a, w, acc)" in kernel.source
                assert not work_left_to_torch(kernel.source), kernel.source


@pytest.mark.parametrize("family", ("matmul", "matmul_transposed"))
def test_products_with_a_short_shared_dimension_have_tiles(family: str) -> None:
    short = [draft for draft in (draw(family, seed) for seed in range(60)) if shared_dimension(draft) <= 64]
    assert len(short) >= 5
    for draft in short:
        assert all("tl.dot(" in kernel.source for kernel in draft.kernels)


def shared_dimension(draft: Draft) -> int:
    return next(size.gpu for size in draft.sizes if size.name.lower() in ("k", "n"))


def test_activations_have_one_operator_and_few_have_over_a_hundred_million_elements() -> None:
    large = 0
    for seed in range(400):
        draft = draw("activation", seed)
        assert len(draft.operators) == 1
        numel = 1
        for size in draft.sizes:
            numel *= size.gpu
        assert 1_000_000 <= numel <= 1_610_612_736
        large += numel > 100_000_000
    assert 0 < large <= 400 * 0.08
