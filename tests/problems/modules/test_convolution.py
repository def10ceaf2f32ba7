"""Convolutions and chains behind them."""

from __future__ import annotations

import ast
import random
import re

import pytest

from kernel_core.problems.modules.convolution import FAMILIES
from kernel_core.problems.modules.convolution.geometry import Wish, draw_geometry
from kernel_core.problems.source import parse_problem

from .conftest import draw, draw_anew


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_all_grades(family: str) -> None:
    for seed in range(20):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        assert [kernel.grade for kernel in draft.kernels] == ["naive", "fused", "tuned", "mistake"]
        assert all(len(kernel.thinking.split()) <= 60 for kernel in draft.kernels)
        assert draft == draw_anew(family, seed)
    assert len({draw(family, seed).reference for seed in range(20)}) == 20


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mistake_differs_from_the_kernel_that_it_is_made_of(family: str) -> None:
    for seed in range(40):
        *good, mistake = draw(family, seed).kernels
        assert mistake.source not in {kernel.source for kernel in good}, (family, seed, mistake.fault)


DOCSTRING_ROW = re.compile(
    r"^ {8}(\w+)(?: \(.*?\))?: [^.]*\.(?: (?:Defaults to|Default:|The default is) `?(.*?)`?\.)?$",
    re.MULTILINE,
)


KNOWN = {"tl", "triton", "float", "range", "isinstance", "tuple"}


def free_names(function: ast.FunctionDef, functions: set[str]) -> set[str]:
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    bound = {one.arg for one in function.args.args} | functions | KNOWN
    return {one.id for one in names} - bound - {one.id for one in names if isinstance(one.ctx, ast.Store)}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_name_in_a_kernel_is_a_parameter_or_assigned_there(family: str, seeds: range) -> None:
    for seed in seeds:
        for kernel in draw(family, seed).kernels:
            tree = ast.parse(kernel.source)
            functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
            for function in functions.values():
                assert not free_names(function, set(functions)), (family, seed, kernel.grade, function.name)


def test_a_docstring_names_the_arguments_of_its_constructor_with_their_defaults() -> None:
    described = 0
    for family in ("conv1d", "conv2d", "conv_transpose3d", "conv_depthwise", "conv_depthwise_separable"):
        for seed in range(30):
            tree = ast.parse(draw(family, seed).reference)
            model = next(node for node in tree.body if isinstance(node, ast.ClassDef))
            rows = DOCSTRING_ROW.findall(ast.get_docstring(model, clean=False) or "")
            if not rows:
                continue
            described += 1
            arguments = next(node for node in model.body if isinstance(node, ast.FunctionDef)).args
            names = [one.arg for one in arguments.args[1:]]
            defaults = [ast.unparse(one) for one in arguments.defaults]
            required = [""] * (len(names) - len(defaults))
            assert rows == list(zip(names, [*required, *defaults], strict=True)), (family, seed)
    assert described > 50


@pytest.mark.parametrize("transposed", [False, True])
def test_output_sizes_are_positive_on_the_cpu_and_the_gpu(transposed: bool) -> None:
    for seed in range(60):
        geometry = draw_geometry(random.Random(seed), Wish(rank=1 + seed % 3, transposed=transposed))
        for extent in (
            tuple(size.gpu for size in geometry.spatial),
            tuple(size.cpu for size in geometry.spatial),
        ):
            assert min(geometry.out_extent(extent)) >= 1, geometry
        assert geometry.in_channels.cpu % geometry.groups == 0
        assert geometry.out_channels.gpu % geometry.groups == 0
