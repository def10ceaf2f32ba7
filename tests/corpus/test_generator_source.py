"""Settings of ingest decide which problems of the generators and which of their kernels are taught."""

from collections import Counter

import pandas as pd
import pytest

from kernel_core.config import IngestConfig
from kernel_core.corpus.generator_source import generated_exemplars
from kernel_core.corpus.measured_grades import MEASURED, fastest_grades
from kernel_core.corpus.registry import find_source, read_registry
from kernel_core.errors import ConfigError
from kernel_core.problems.families import TRAINED
from kernel_core.problems.modules.generate import FAMILIES, RESERVED
from kernel_core.problems.modules.groups import GROUPS

REGISTRY = read_registry()


def drawn(name, **settings):
    return list(generated_exemplars(find_source(name, REGISTRY), IngestConfig(**settings)))


def problems_by_family(exemplars):
    return Counter(family for family, _ in {(one.family, one.reference_code) for one in exemplars})


def test_more_of_a_group_is_a_share_of_the_even_draw():
    even = drawn("modules", modules_rows=12)
    more = drawn("modules", modules_rows=12, modules_more={"convolutions": 0.5})
    assert more[: len(even)] == even  # a draw with more begins with the one without
    added = problems_by_family(more[len(even) :])
    assert added.total() == 6 and set(added) <= set(GROUPS["convolutions"])


def test_families_that_are_left_out_are_in_no_draw_and_their_part_of_a_group_is_not_made_up():
    left_out = tuple(name for name in FAMILIES if name not in ("conv2d", "softmax_row"))
    found = drawn("modules", modules_rows=4, modules_more={"convolutions": 3.0}, left_out=left_out)
    assert problems_by_family(found) == {"conv2d": 2 + 12 // len(GROUPS["convolutions"]), "softmax_row": 2}
    chains = drawn("generator", generator_rows=4, left_out=tuple(name for name in TRAINED if name != "outer"))
    assert set(problems_by_family(chains)) == {"outer"}


def test_a_family_to_leave_out_that_no_generator_has_names_the_nearest():
    with pytest.raises(ConfigError, match="no family 'softmaxrow'; did you mean softmax_row"):
        drawn("modules", modules_rows=1, left_out=("softmaxrow",))


def test_every_family_of_a_group_is_one_of_training():
    for group in GROUPS.values():
        assert set(group) <= set(FAMILIES) - RESERVED


def test_only_correct_kernels_of_the_grades_measured_fastest_are_kept():
    every, fastest = drawn("modules", modules_rows=6), drawn("modules", modules_rows=6, grades="fastest")
    assert {one.grade for one in fastest} == {"tuned"}
    assert {"naive"} < {one.grade for one in every}
    kept = {(one.family, one.row_key.rpartition("-")[2]) for one in fastest}
    assert all(grade in fastest_grades()[family] for family, grade in kept if family in fastest_grades())


def test_a_measured_grade_that_leaves_the_work_to_torch_is_not_taught(tmp_path):
    columns = ("family", "grade", "verdict", "speedup", "own_share")
    rows = [
        ("a", "naive", "correct", 1.0, 1.0),
        ("a", "lazy", "correct", 9.0, 0.1),
        ("a", "fused", "correct", 1.1, 1.0),
        ("a", "tuned", "wrong", None, None),
        ("b", "lazy", "correct", 1.0, 0.0),
    ]
    file = tmp_path / "measured.parquet"
    pd.DataFrame(rows, columns=columns).to_parquet(file)
    assert fastest_grades(file) == {"a": ("fused", "naive"), "b": ("fused", "tuned")}
    assert set(fastest_grades(MEASURED)) <= {*FAMILIES, *TRAINED}


def test_drawn_names_change_names_alone():
    plain, renamed = (drawn("generator", generator_rows=8, drawn_names=value) for value in (False, True))
    assert [one.family for one in plain] == [one.family for one in renamed]
    assert 0 < sum(a.kernel_code != b.kernel_code for a, b in zip(plain, renamed, strict=True)) < len(plain)


def test_the_generator_answers_the_problems_of_modules():
    settings = {"modules_rows": 12, "grades": "fastest"}
    own, written = (drawn("modules", **settings, kernels=author) for author in ("templates", "generator"))
    assert {row.grade for row in written} == {"tuned"}
    assert [row.reference_hash for row in written] == list(dict.fromkeys(row.reference_hash for row in own))
    assert not {row.kernel_hash for row in written} & {row.kernel_hash for row in own}
