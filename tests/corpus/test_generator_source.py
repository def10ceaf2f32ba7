"""Settings of ingest decide which problems of the generators and which of their kernels are taught."""

from collections import Counter

import pytest

from kernel_core.config import IngestConfig
from kernel_core.corpus.generator_source import generated_exemplars
from kernel_core.corpus.registry import find_source, read_registry
from kernel_core.errors import ConfigError
from kernel_core.generator.graded import answered_problems
from kernel_core.problems.families import TRAINED
from kernel_core.problems.modules.generate import FAMILIES, RESERVED, generate_modules
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


@pytest.mark.parametrize("name", ("generator", "modules"))
def test_the_fused_and_tuned_kernels_alone_come_as_tuned(name):
    rows = {"generator_rows": 6, "modules_rows": 6}
    every, fastest = drawn(name, **rows), drawn(name, **rows, grades="fastest")
    assert {row.grade for row in fastest} == {"tuned"} < {row.grade for row in every}
    good = [row.kernel_hash for row in every if row.grade in ("fused", "tuned")]
    assert [row.kernel_hash for row in fastest] == good


def test_kernels_of_modules_are_the_generators():
    rows = drawn("modules", modules_rows=12)
    made = list(answered_problems(generate_modules("train", 12, 0)))
    assert [row.kernel_code for row in rows] == [kernel.source for each in made for kernel in each.kernels]
    assert all(row.claimed_correct is not row.grade.startswith("mistake:") for row in rows)
