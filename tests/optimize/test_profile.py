"""The profile: regions end at products, floors bound times, and rows add up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernel_core.optimize.profile import Profile, profile
from kernel_core.optimize.target import Target, load_target


@pytest.fixture(scope="module")
def gated() -> Profile:
    return profile(load_target("tests.optimize.small_modules:block"), "cpu")


def test_a_norm_is_one_region_and_its_floor_is_one_launch(gated):
    norm = next(row for row in gated.rows if row.path == "norms.0" and not row.is_region)
    region = next(row for row in gated.rows if row.path == "norms.0" and row.is_region)
    assert norm.launches == region.launches == 6
    assert norm.floor_ms == pytest.approx(region.floor_ms)
    assert norm.gain_ms == pytest.approx(norm.predicted_ms - norm.floor_ms) and norm.times_floor > 4


def test_a_product_ends_a_region(gated):
    gates = [row for row in gated.rows if row.is_region and row.path == "mixers.0"]
    assert [row.kind for row in gates] == ["silu, mul"]


def test_the_whole_has_the_launches_of_its_parts(gated):
    children = [row for row in gated.rows if row.path in ("norms.0", "norms.1", "mixers.0", "mixers.1")]
    assert gated.whole.launches == sum(row.launches for row in children if not row.is_region) + 2
    assert all(row.floor_ms <= row.predicted_ms * 1.0001 for row in gated.rows)


def test_every_submodule_that_runs_is_measured(gated):
    measured = {row.path: row.measured_ms for row in gated.rows if not row.is_region}
    assert measured[""] >= measured["mixers.0"] > 0


def test_a_tensor_that_skips_a_product_does_not_join_what_is_behind_it():
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = nn.Linear(16, 16, bias=False)

        def forward(self, x):
            early = torch.relu(x).neg()
            return early + torch.tanh(self.product(early))

    rows = profile(Target("skip", Skip(), (torch.randn(4, 16),), {}), "cpu").rows
    assert sorted(row.kind for row in rows if row.is_region) == ["relu, neg", "tanh, add"]


def test_equal_rows_of_numbered_submodules_are_one_line(gated):
    lines = {(line["submodule"], line["what"]): line["places"] for line in gated.table()}
    assert lines["norms.*", "RMSNorm"] == 2
