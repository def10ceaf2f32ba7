"""Formulas over pieces, neighbours, moved copies and indices of an axis."""

from __future__ import annotations

import random
import re

import pytest

from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.modules import indexing
from kernel_core.problems.modules.indexing.draws import draw_program
from kernel_core.problems.modules.indexing.formulas import draw_formula
from kernel_core.problems.modules.indexing.named_lines import draw_lines, reads_of
from kernel_core.problems.modules.indexing.tables import draw_table_program
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import Candidate

from .conftest import draw, draw_anew

FAMILIES = [name for name in indexing.FAMILIES if name not in ("rearranged", "shared_values")]
"""Those over views of an axis."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_draw_parses_repeats_itself_and_has_good_kernels_and_a_mistake(family: str) -> None:
    for seed in range(30):
        draft = draw(family, seed)
        problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert {size.name for size in draft.sizes} <= set(problem.constants)
        good = {kernel.source for kernel in draft.kernels if kernel.grade != "mistake"}
        wrong = [kernel for kernel in draft.kernels if kernel.grade == "mistake"]
        assert 2 <= len(good) <= 3
        assert len(wrong) == 1 and wrong[0].source not in good, (seed, wrong[0].fault)
        assert all(
            len(kernel.source) < 3400 and "j runs along" in kernel.thinking for kernel in draft.kernels
        )
        assert draft == draw_anew(family, seed)


def test_nearly_every_draw_is_another_operator() -> None:
    drawn = {draw(family, seed).operators for family in FAMILIES for seed in range(60)}
    assert len(drawn) > 0.95 * 60 * len(FAMILIES)


def test_no_gated_unit_is_drawn() -> None:
    # The family `gated` is held out whole: one half times a function of the other.
    products = 0
    for seed in range(400):
        formula = draw_formula(("a", "b"), random.Random(seed), gated=True)
        before, product, _ = " ".join(formula.triton).partition("value = a * b")
        products += bool(product)
        assert not re.search(r"value = (a|b)\w* \* (a|b)\w*", " ".join(formula.triton)) or not before, seed
    assert products > 10
    programs = [draw_program(random.Random(seed)) for seed in range(200)]
    assert all(program.gated for program in programs if program.reading.geometry.length == "half")


def test_tables_are_never_read_as_the_families_held_out_whole_read_them() -> None:
    # `row_gather` and `embedding_bag` have rows alone, `rotary` a difference of two products under tables,
    # `masked_softmax` a softmax under a table.
    for seed in range(300):
        program = draw_table_program(random.Random(seed))
        assert len(program.names) > 1, seed
        drafts = [draw(f"table_{ending}", seed) for ending in ("mapped", "joined", "reduced")]
        for draft in drafts:
            tables = re.search(r"row (// H )?% S", draft.kernels[0].source)
            assert not (tables and "softmax" in draft.reference), seed
        if program.paired:
            formula = draw_formula(program.names, random.Random(seed), gated=True, paired=True)
            found = re.search(
                r"one = \w+ \* \w+\n(.*\n)*two = \w+ \* \w+\n(.*\n)*value = one - two",
                "\n".join(formula.triton),
            )
            assert not found, seed


def test_a_formula_over_many_values_uses_each_of_them() -> None:
    for seed in range(200):
        formula = draw_formula(("a", "b", "c"), random.Random(seed))
        for lines in ((*formula.torch, formula.result), formula.triton):
            assert all(re.search(rf"\b{name}\b", " ".join(lines)) for name in "abc"), (seed, lines)


def test_a_name_of_a_value_is_given_to_no_other_value() -> None:
    names = ("g", "h", "r")
    for seed in range(200):
        for line in draw_formula(names, random.Random(seed)).torch:
            name, _, text = line.partition(" = ")
            assert name not in names or {*re.findall(r"\b[ghr]\b", text)} == {name}, (seed, line)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_correct_and_mistakes_are_not(family: str, seed: int, quick_gym: Gym) -> None:
    draft = draw(family, seed)
    problem = parse_problem(draft.reference, id=f"modules/{family}-{seed}", suite="modules")
    problem = resize(problem, {size.name: size.cpu for size in draft.sizes})
    kernels = (draft.kernels[-2], draft.kernels[-1])
    requests = [JudgeRequest(problem=problem, candidate=Candidate.from_source(one.source)) for one in kernels]
    good, wrong = quick_gym.judge(requests)
    assert good.verdict == "correct", good.feedback
    assert wrong.verdict != "correct", wrong.feedback


def test_every_arrangement_is_drawn_with_three_kernels_and_a_mistake() -> None:
    drafts = [draw("rearranged", seed) for seed in range(60)]
    forms = {draft.operators[0] for draft in drafts}
    assert forms == {
        *("permute", "depth_to_space", "space_to_depth", "channel_shuffle", "window_partition"),
        *("merged_patches", "split_heads", "merged_heads", "patches"),
    }
    for draft in drafts:
        assert [kernel.grade for kernel in draft.kernels] == ["naive", "fused", "tuned", "mistake"]
        assert len({kernel.source for kernel in draft.kernels}) == 4
        assert all("come in the order" in kernel.thinking for kernel in draft.kernels[:3])


def test_a_kernel_of_shared_values_keeps_each_value_under_a_name_of_its_own() -> None:
    drafts = [draw("shared_values", seed) for seed in range(60)]
    openings = ("unbind(", "x[..., 0]", "chunk(", "torch.stack(", "torch.cat(")
    assert all(any(one in draft.reference for draft in drafts) for one in openings)
    for draft in drafts:
        parse_problem(draft.reference, id="modules/drawn", suite="modules")
        assert [kernel.grade for kernel in draft.kernels] == ["naive", "fused", "tuned", "mistake"]
        assert len({kernel.source for kernel in draft.kernels}) == 4
        for kernel in draft.kernels:
            body = kernel.source.split("mask = offs < numel")[1].split("tl.store")[0]
            assigned = re.findall(r"^    (\w+) = ", body, re.MULTILINE)
            assert len(set(assigned)) == len(assigned)


def test_no_formula_of_named_lines_is_a_gated_unit_or_a_rotation() -> None:
    """Both families are held out whole, so that no training problem may be one of them."""
    for seed in range(200):
        lines, results = draw_lines(("a", "b", "c", "d"), random.Random(seed))
        operator = {line.name: line.operator for line in lines}
        assert any(count > 1 for count in reads_of(lines).values())
        assert set(results) >= {line.name for line in lines} - set(reads_of(lines))
        for line in lines:
            read = [operator.get(name, "") for name in line.reads]
            if line.operator == "mul" and len(read) == 2:
                assert not {"sigmoid", "tanh", "clamp"}.intersection(read), line
            if line.operator in ("add", "sub"):
                assert not {"mul", "square"}.issuperset(read), line
