"""Formulas over pieces, neighbours, moved copies and indices of an axis."""

from __future__ import annotations

import random
import re

from kernel_core.problems.modules import indexing
from kernel_core.problems.modules.indexing.draws import draw_program
from kernel_core.problems.modules.indexing.formulas import Formula, draw_formula
from kernel_core.problems.modules.indexing.named_lines import draw_lines, reads_of
from kernel_core.problems.modules.indexing.tables import draw_table_program

from .conftest import draw

FAMILIES = [name for name in indexing.FAMILIES if name not in ("rearranged", "shared_values")]
"""Those over views of an axis."""


def test_nearly_every_draw_is_another_operator() -> None:
    drawn = {draw(family, seed).operators for family in FAMILIES for seed in range(60)}
    assert len(drawn) > 0.95 * 60 * len(FAMILIES)


def is_gated_unit(formula: Formula) -> bool:
    """Return True if the value `a` or `b` is multiplied with a function of the other."""
    text = "\n".join((*formula.torch, formula.result))
    if re.search(r"\) \* [ab]\b|\b[ab] \* [\w.]+\(", text):
        return True
    return bool(re.search(r"a \* b|b \* a", text) and re.search(r"^[ab] = ", text, re.MULTILINE))


def test_no_gated_unit_is_drawn() -> None:
    # The family `gated` is held out whole: one half times a function of the other.
    drawn = {
        gated: [draw_formula(("a", "b"), random.Random(seed), gated=gated) for seed in range(400)]
        for gated in (True, False)
    }
    assert not any(map(is_gated_unit, drawn[True]))
    assert sum(map(is_gated_unit, drawn[False])) > 10
    programs = [draw_program(random.Random(seed)) for seed in range(200)]
    assert all(program.gated for program in programs if program.length == "{n} // 2")


def test_tables_are_never_read_as_the_families_held_out_whole_read_them() -> None:
    # `row_gather` and `embedding_bag` have rows alone, `rotary` a difference of two products under tables,
    # `masked_softmax` a softmax under a table.
    for seed in range(300):
        assert len(draw_table_program(random.Random(seed)).names) > 1, seed
        for ending in ("mapped", "joined", "reduced"):
            draft = draw(f"table_{ending}", seed)
            assert not ("table" in draft.operators and "softmax" in draft.reference), seed
    sums = 0
    for seed in range(1000):
        formula = draw_formula(("a", "b", "c", "d"), random.Random(seed), gated=True, paired=True)
        text = "\n".join((*formula.torch, formula.result))
        sums += bool(re.search(r"\(\w+ \* \w+\) \+ \(\w+ \* \w+\)", text))
        difference = r"(?<!torch\.abs\()\(\w+ \* \w+\) - \(\w+ \* \w+\)(?!\) \*\* 2)"
        assert not re.search(difference, text), seed
    assert sums


def test_a_formula_over_many_values_uses_each_of_them() -> None:
    for seed in range(200):
        formula = draw_formula(("a", "b", "c"), random.Random(seed))
        text = " ".join((*formula.torch, formula.result))
        assert all(re.search(rf"\b{name}\b", text) for name in "abc"), (seed, text)


def test_a_name_of_a_value_is_given_to_no_other_value() -> None:
    names = ("g", "h", "r")
    for seed in range(200):
        for line in draw_formula(names, random.Random(seed)).torch:
            name, _, text = line.partition(" = ")
            assert name not in names or {*re.findall(r"\b[ghr]\b", text)} == {name}, (seed, line)


def test_every_arrangement_is_drawn() -> None:
    assert {draw("rearranged", seed).operators[0] for seed in range(60)} == {
        *("permute", "depth_to_space", "space_to_depth", "channel_shuffle", "window_partition"),
        *("merged_patches", "split_heads", "merged_heads", "patches"),
    }


def test_shared_values_come_from_components_parts_and_inputs() -> None:
    references = [draw("shared_values", seed).reference for seed in range(60)]
    openings = ("unbind(", "x[..., 0]", "chunk(", "torch.stack(", "torch.cat(")
    assert all(any(opening in reference for reference in references) for opening in openings)


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
