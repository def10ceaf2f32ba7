"""Convolutions and chains behind them."""

from __future__ import annotations

import ast
import random
import re

import pytest

from kernel_core.problems.modules.convolution.geometry import draw_geometry

from .conftest import draw

DOCSTRING_ROW = re.compile(
    r"^ {8}(\w+)(?: \(.*?\))?: [^.]*\.(?: (?:Defaults to|Default:|The default is) `?(.*?)`?\.)?$",
    re.MULTILINE,
)


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
        geometry = draw_geometry(random.Random(seed), 1 + seed % 3, transposed=transposed)
        for extent in (
            tuple(size.gpu for size in geometry.spatial),
            tuple(size.cpu for size in geometry.spatial),
        ):
            assert min(geometry.out_extent(extent)) >= 1, geometry
        assert geometry.in_channels.cpu % geometry.groups == 0
        assert geometry.out_channels.gpu % geometry.groups == 0
