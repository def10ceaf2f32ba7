"""Draws of the suite `graphs`: the same seed gives the same problems, and the table decides what there is."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from kernel_core.errors import ConfigError
from kernel_core.generator.draw import choice
from kernel_core.generator.draw import problems as draw
from kernel_core.generator.draw.forms import domain_of, forms, spellings, tails
from kernel_core.generator.operators import BUILDERS, pointwise
from kernel_core.problems.generators import ENDLESS_SUITES, generator_of
from kernel_core.problems.source import parse_problem, with_members

WITHOUT_FORM = frozenset(
    [
        "_max_pool1d", "_max_pool2d", "_max_pool3d", "_unsafe_index", "_unsafe_index_put",
        "adaptive_max_pool3d", "add_", "addcdiv_", "addcmul_", "alpha_dropout", "arange", "as_tensor",
        "bitwise_not", "broadcast_tensors", "broadcast_to", "byte", "char", "clone", "conj",
        "conj_physical", "constant_pad_nd", "contiguous", "conv_transpose3d", "convolution", "data",
        "detach", "double", "dropout1d", "dropout2d", "dropout3d", "expand", "eye", "feature_dropout",
        "fill", "fill_", "full", "full_like", "local_response_norm", "max_pool1d_with_indices",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "meshgrid", "multigammaln", "ones",
        "ones_like", "positive", "ravel", "requires_grad_", "reshape", "reshape_as", "resolve_conj",
        "resolve_neg", "row_stack", "scalar_tensor", "short", "split_with_sizes", "squeeze", "sub_",
        "tensor", "tensor_split", "type", "type_as", "unflatten", "unfold", "upsample", "upsample_nearest",
        "view", "view_as", "zero_", "zeros", "zeros_like",
    ]
)  # fmt: skip
"""Names that move no data by themselves, or that are another spelling of a name with a form."""
NOT_DRAWN_YET = frozenset(["bucketize", "searchsorted"])
"""Names whose forms are still to be written: the judge tries unsorted sequences. The list only shrinks."""


def test_a_seed_gives_the_same_problems_and_a_longer_draw_begins_with_the_shorter():
    short, long = draw.generate_graphs("train", 2, 5), draw.generate_graphs("train", 3, 5)
    assert long[:2] == short
    assert len({one.problem.sha256 for one in long}) == 3


def test_every_public_name_of_the_table_has_a_form():
    public = {name for name in (*BUILDERS, *pointwise()) if spellings(name)}
    assert public - set(forms()) - WITHOUT_FORM == NOT_DRAWN_YET


def test_a_new_line_of_the_pointwise_table_has_forms_and_a_domain_by_itself():
    (form, *_) = forms()["acosh"]
    assert form.arguments == "x" and form.inputs[0].fill == domain_of("acosh", 1) == "torch.rand({}) + 1.0"
    assert "relu" in tails() and "exp" not in tails() and "log" not in tails()


def test_each_kind_has_a_share_and_most_used_operators_are_drawn_more_often():
    kinds = choice.operator_families()
    assert set(choice.SHARES) == set(kinds) and sum(choice.SHARES.values()) > 0
    assert {name for names in kinds.values() for name in names} >= choice.MOST_USED
    rng = random.Random(0)
    drawn = [choice.single(rng, ("product", "layout"), "train") for _ in range(400)]
    products = sum(kind == "product" for kind, _ in drawn)
    share = choice.SHARES["product"] / (choice.SHARES["product"] + choice.SHARES["layout"])
    assert abs(products / len(drawn) - share) < 0.1
    assert sum(name in choice.MOST_USED for _, name in drawn) > 200


def test_operators_that_are_held_out_are_in_no_problem_of_training():
    held = choice.held_out_operators()
    share = len(held) / len({choice.canonical(name) for name in forms()} - choice.CORE)
    assert 0.1 < share < 0.25 and not held & choice.CORE
    drawn = [draw.drawn(random.Random(f"held {number}")) for number in range(120)]
    for draft in filter(None, drawn):
        if choice.split_of(draft.family, draft.operators) == "train":
            assert not {choice.canonical(name) for name in draft.operators} & held
    assert choice.split_of("pointwise", [min(held)]) == "held_out"


def test_a_held_out_draw_shows_an_operator_that_training_lacks():
    (made,) = draw.generate_graphs("held_out", 1, 0, ("pointwise",))
    assert {choice.canonical(name) for name in made.problem.tags[1:]} & choice.held_out_operators()


def test_texts_are_problems_and_kernels_keep_the_constructor():
    for made in draw.generate_graphs("train", 4, 2, levels={"chains": 1.0}):
        problem = parse_problem(made.problem.source, id="test", suite="test")
        sizes = made.problem.constants
        assert problem.constants.items() <= sizes.items() <= with_members(problem).constants.items()
        assert made.kernels[0].grade == "tuned" and "class ModelNew" in made.kernels[0].source
        assert " is (" in made.kernels[0].thinking.splitlines()[0]


def test_levels_choose_the_families():
    made = draw.generate_graphs("train", 4, 2, levels={"networks": 1.0})
    assert {one.problem.family for one in made} <= set(draw.NETWORKS)


def test_a_family_that_there_is_none_of_is_named():
    with pytest.raises(ConfigError, match="graphs has no family of softmaxx; its families"):
        draw.generate_graphs("train", 1, 0, ("softmaxx",))


def test_the_suite_is_one_of_the_endless_ones():
    assert "graphs" in ENDLESS_SUITES
    (made,) = generator_of("graphs").draw("train", 1, 3, ("softmax",))
    assert made.problem.suite == "graphs" and made.problem.family == "softmax"


@pytest.mark.exhaustive
def test_processes_share_a_draw_and_do_not_change_it():
    assert draw.generate_graphs("train", 70, 4, processes=2) == draw.generate_graphs("train", 70, 4)


def test_drawn_attention_with_a_softmax_is_one_kernel():
    made = draw.generate_graphs("train", 12, 3, ("attention",))
    online = [
        problem.kernels[0].source
        for problem in made
        if "softmax" in problem.problem.tags and not {"tril", "triu"} & {*problem.problem.tags}
    ]
    assert len(online) >= 6
    assert all(source.count("@triton.jit") == 1 and "new_top = " in source for source in online)


@pytest.mark.exhaustive
def test_a_draw_does_not_depend_on_the_order_of_sets():
    """Processes that share a draw have other hashes of strings each."""
    script = (
        "from kernel_core.generator.draw.problems import generate_graphs\n"
        "print(*(made.problem.sha256 for made in generate_graphs('train', 80, 7)))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1")
    }
    assert len(texts) == 1
