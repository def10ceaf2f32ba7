"""Reductions, scans, norms, pooling, losses, attention."""

from __future__ import annotations

import random
from typing import Any

from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.reduction.layout import draw_layout
from kernel_core.problems.source import parse_problem, resize

from .conftest import draw


def test_a_layout_fits_a_gpu_and_keeps_its_dimension_in_bounds() -> None:
    for seed in range(200):
        layout = draw_layout(random.Random(seed), (2, 3, 4, 5), most_n=4096)
        numbers = [size.gpu for size in layout.sizes]
        total = 1
        for number in numbers:
            total *= number
        assert 10_000_000 < total < 100_000_000
        assert numbers[layout.dim] <= 4096


def test_a_dimension_in_the_middle_is_drawn_as_often_as_the_last_and_may_have_a_name() -> None:
    layouts = [draw_layout(random.Random(seed), (3, 4)) for seed in range(400)]
    dims = [layout.dim % len(layout.sizes) for layout in layouts]
    middle = sum(0 < dim < len(layout.sizes) - 1 for dim, layout in zip(dims, layouts, strict=True))
    last = sum(dim == len(layout.sizes) - 1 for dim, layout in zip(dims, layouts, strict=True))
    assert 120 < last <= middle + 40 and middle > 120
    assert len({layout.name for layout in layouts}) >= 4


def test_some_losses_have_one_target_a_row_or_a_column() -> None:
    shapes = [input_shapes(draw("pair_loss", seed)) for seed in range(80)]
    assert sum(predictions == targets for predictions, targets in shapes) >= 40
    by_row = [
        predictions[0] for predictions, targets in shapes if targets in ((predictions[0], 1), predictions[:1])
    ]
    by_column = [targets for predictions, targets in shapes if targets == predictions[1:] != predictions[:1]]
    assert len(by_row) >= 4 and len(by_column) >= 4


def input_shapes(draft: Draft) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of both inputs at sizes of a CPU."""
    problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
    names: dict[str, Any] = {}
    exec(resize(problem, {size.name: size.cpu for size in draft.sizes}).source, names)
    predictions, targets = names["get_inputs"]()
    return tuple(predictions.shape), tuple(targets.shape)
