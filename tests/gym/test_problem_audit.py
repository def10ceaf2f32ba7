"""Problems that pay for nothing are found, and good ones are not accused."""

import pytest
import torch

from kernel_core.config import ProblemsConfig
from kernel_core.errors import NotAProblem, NotFound
from kernel_core.gym.judge.audited_problems import load_audited
from kernel_core.gym.judge.problem_audit import CHEATS, audit_problem
from kernel_core.gym.oracle.input_families import DRAWS, FAMILIES
from kernel_core.gym.oracle.input_generators import redraw
from kernel_core.problems.load import load_dojo
from kernel_core.problems.source import parse_problem
from kernel_core.store import Store

TEMPLATE = """
import torch
import torch.nn as nn

N = 33

class Model(nn.Module):
    def forward(self, x):
        return {expression}

def get_inputs():
    return [torch.rand(7, N)]

def get_init_inputs():
    return []
"""


def audit(expression):
    return audit_problem(parse_problem(TEMPLATE.format(expression=expression), id="t/p", suite="t"))


def by_draw(found):
    return {one.draw: set(one.accepted) for one in found.draws if one.usable}


def test_a_relu_of_numbers_above_zero_is_the_input_and_only_own_draws_hide_it():
    found = audit("torch.relu(x)")
    assert by_draw(found)["own"] == {"input"}
    assert by_draw(found)["normal"] == set()
    assert found.never_refused == ()


def test_an_output_that_is_always_zero_is_never_refused():
    assert {"zeros", "constant", "stale"} <= set(audit("x - x").never_refused)


def test_a_mean_over_a_softmax_is_one_constant_whatever_comes_in():
    assert {"constant", "stale"} <= set(audit("torch.softmax(x, 1).mean(1)").never_refused)


def test_half_of_the_work_passes_where_the_other_half_is_zero():
    assert "half" in audit("torch.cat([x, torch.zeros_like(x)])").never_refused


def test_a_softmax_accepts_nothing():
    assert all(accepted == set() for accepted in by_draw(audit("torch.softmax(3 * x, 1)")).values())


def test_a_family_that_the_reference_cannot_take_is_left_out():
    found = audit("torch.log(x)")
    assert {one.draw for one in found.draws if not one.usable} == set(DRAWS) - {"own", "positive"}


def test_a_reference_that_fails_is_not_a_problem():
    with pytest.raises(NotAProblem, match="fails on its own inputs"):
        audit("x.nothing()")


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(problem, id=problem.id, marks=() if number % 8 == 0 else pytest.mark.exhaustive)
        for number, problem in enumerate(load_dojo())
    ],
)
def test_our_own_suite_accepts_nothing_under_its_own_inputs(problem):
    found = audit_problem(problem)
    assert found.draws[0].accepted == ()
    assert found.never_refused == ()


def test_every_family_keeps_forms_and_leaves_integers_alone():
    labels = torch.arange(5)
    for draw in FAMILIES:
        given = [torch.rand(3, 4, dtype=torch.float16), (labels, 2.0)]
        values, (same, number) = redraw(given, draw)
        assert (values.shape, values.dtype) == ((3, 4), torch.float16)
        assert same is labels and number == 2.0


def test_the_audit_is_the_same_every_time():
    assert audit("torch.relu(x)") == audit("torch.relu(x)")
    assert list(CHEATS) == ["zeros", "constant", "input", "stale", "half"]


def test_mixed_inputs_show_what_normal_ones_hide():
    torch.manual_seed(3)
    for shape in ((8, 64), (6, 30, 20), (2, 5, 9, 9), (4, 4), (1, 300), (500,)):
        draws = ["mixed", *["turned"] * 8]  # of which each turns to one dimension
        both = [redraw([torch.rand(shape)], draw)[0] for draw in draws]
        assert all(values.isfinite().all() and (values > 0).any() for values in both)
        for dim in range(len(shape)):
            others = [size for other, size in enumerate(shape) if other != dim]
            if all(size < 4 for size in others):
                continue
            assert any((values.amax(dim) < 0).any() for values in both), "no negative numbers only"
            assert any((values.amin(dim) > 0).any() for values in both), "no positive numbers only"
            if max(others) > 4:
                assert any((values == 0).all(dim).any() for values in both), "no zeros only"
    for draw in ("mixed", "turned"):
        values = redraw([torch.rand(64, 500)], draw)[0]
        values = values if draw == "mixed" else values.T
        sizes = values.abs().median(dim=1)[0]
        assert sizes[sizes > 0].min() < 0.02 and sizes.max() > 4 and (sizes == 0).sum() == 1
        assert (values == 100).any() and (values == -100).any()
        assert ((values == values.amax(1, keepdim=True)).sum(1) > 1).any(), "no ties for the largest value"


def test_versions_of_mixed_inputs_leave_out_what_some_problems_do_not_take():
    torch.manual_seed(3)
    values = {draw: redraw([torch.rand(64, 500)], draw)[0] for draw in FAMILIES}
    for prefix in ("", "turned_"):
        largest = values[f"{prefix}nonzero"].abs().amax(1)
        assert 100 < largest.max() <= 125 and len(largest[largest > 70].unique()) > 30
        assert not any((values[f"{prefix}nonzero"] == 0).all(dim).any() for dim in (0, 1))
        assert 19 < values[f"{prefix}moderate"].abs().max() <= 20
        assert (values[f"{prefix}moderate"] == 0).sum() >= 64
    assert -1 < values["over_minus_one"].min() < -0.9 and values["over_minus_one"].max() > 10
    assert values["negative"].max() < -0.5 and values["negative"].min() > -10
    assert values["far_negative"].max() < -0.5 and (values["far_negative"].amax(1) < -200).sum() == 1
    assert -1 < values["within_one"].min() < -0.9 and 0.9 < values["within_one"].max() < 1


@pytest.mark.parametrize("rows", [4, 5, 8])
def test_halves_of_both_signs_are_among_the_mixed_inputs_of_few_rows(rows):
    for seed in range(50):
        torch.manual_seed(seed)
        values = redraw([torch.rand(rows, 300)], "mixed")[0]
        assert (values == 0.5).any() and (values == -0.5).any()


def folder_of(tmp_path, **expressions):
    for name, expression in expressions.items():
        (tmp_path / f"{name}.py").write_text("# cpu: N=9\n" + TEMPLATE.format(expression=expression))
    return ProblemsConfig(suite=str(tmp_path), split="all")


def test_problems_that_pay_for_nothing_are_left_out_and_a_suite_of_them_is_an_error(tmp_path, caplog):
    caplog.set_level("INFO")
    config = folder_of(tmp_path, idle="x - x", mean="torch.softmax(x, 1).mean(1)", relu="torch.relu(x)")
    memory = Store(tmp_path / "memory")
    for _ in range(2):
        problems, left_out = load_audited(config, memory)
        assert [problem.name for problem in problems] == ["relu"]
        assert {name.rpartition("/")[2] for name in left_out} == {"idle", "mean"}
        assert "2 of 3 problems pay for nothing" in caplog.text
    (tmp_path / "idle").mkdir()
    with pytest.raises(NotFound, match="pays for nothing"):
        load_audited(folder_of(tmp_path / "idle", idle="x - x"), memory)
    kept = sorted((tmp_path / "memory" / "audits").rglob("*.json"))
    assert len(kept) == 3
    for file in kept:  # a second look reads them
        file.write_text('{"accepted": []}')
    assert len(load_audited(config, memory).problems) == 3
    assert len(load_audited(config.model_copy(update={"audited": False})).problems) == 3


@pytest.mark.exhaustive
def test_a_problem_that_prints_or_ends_its_process_takes_no_other_along(tmp_path):
    config = folder_of(tmp_path, a="print(x) or x - x", b="__import__('os')._exit(3) or x", c="x - x", d="x")
    assert [problem.name for problem in load_audited(config).problems] == ["b", "d"]


@pytest.mark.exhaustive
def test_what_has_no_small_sizes_or_does_not_run_stays_and_is_named(tmp_path, caplog):
    text = TEMPLATE.replace("N = 33", "N = int(1e7)").format(expression="(x - x)[torch.nonzero(x)]")
    (tmp_path / "large.py").write_text(text)
    (tmp_path / "broken.py").write_text("# cpu: N=9\n" + TEMPLATE.format(expression="x @ x"))
    for _ in range(2):  # what does not run is not kept: each run is told
        caplog.clear()
        memory = Store(tmp_path / "memory")
        assert len(load_audited(ProblemsConfig(suite=str(tmp_path), split="all"), memory).problems) == 2
        assert "broken stays in the count, though no kernel can pass" in caplog.text


@pytest.mark.exhaustive
def test_a_large_problem_that_reads_values_is_tried_at_small_sizes(tmp_path):
    text = TEMPLATE.replace("N = 33", "N = 10_000_000").format(expression="(x - x)[torch.nonzero(x)]")
    (tmp_path / "zeros.py").write_text(text)
    with pytest.raises(NotFound, match="pays for nothing"):
        load_audited(ProblemsConfig(suite=str(tmp_path), split="all"))
