"""A problem's text is understood by its syntax tree: constants, directives, resizing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.errors import ConfigError, NotAProblem
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import sha256_text

REFERENCE = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """N = 3 in a docstring is not a constant."""

    def forward(self, x):
        N = 4
        return torch.relu(x) * N


batch_size = 1024 * 2  # twice
N = -16
eps: float = 1e-5
mode = "mean"
affine = True
kernel_size = (3, 3)
half = batch_size // 2
a = b = 7
first, second = 1, 2


def get_inputs():
    return [torch.rand(batch_size, 8)]


def get_init_inputs():
    return []
'''


def parse(source: str = REFERENCE, **fields):
    return parse_problem(source, id="suite/19_ReLU", suite="suite", **fields)


def test_constants_are_plain_values_of_module_level_names_one_by_one() -> None:
    problem = parse()
    assert problem.constants == {
        "batch_size": 2048,
        "N": -16,
        "eps": 1e-5,
        "mode": "mean",
        "affine": True,
        "a": 7,
        "b": 7,
        "first": 1,
        "second": 2,
    }
    assert problem.sha256 == sha256_text(REFERENCE)
    assert (problem.name, problem.family) == ("19_ReLU", "relu")


def test_nothing_in_the_file_is_executed() -> None:
    bomb = REFERENCE.replace("mode =", 'raise SystemExit("executed")\nmode =')
    assert parse(bomb).constants["mode"] == "mean"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1 << 24", 1 << 24), ("2**20", 1 << 20), ("3 * 2**4 + 1", 49), ("1 << 99", None), ("9**9**9", None)],
)
def test_shifts_and_powers_are_constants_within_64_bits(text: str, value: int | None) -> None:
    problem = parse(f"{REFERENCE}\nlength = {text}\n")
    assert problem.constants.get("length") == value
    assert value is None or "length = 7\n" in resize(problem, {"length": 7}).source


def test_resize_rewrites_those_values_and_no_other_byte() -> None:
    small = resize(parse(), {"batch_size": 3, "mode": "sum", "second": 40})
    rewritten = REFERENCE.replace("1024 * 2", "3").replace('"mean"', "'sum'")
    assert small.source == rewritten.replace("second = 1, 2", "second = 1, 40")
    assert small.sha256 == sha256_text(small.source)
    assert small.constants["batch_size"] == 3
    assert parse(small.source).constants == small.constants


def test_a_name_of_a_chained_assignment_gets_one_of_its_own() -> None:
    small = resize(parse(), {"b": 9})
    assert "\na = b = 7; b = 9\n" in small.source
    assert parse(small.source).constants["a"] == 7
    again = resize(parse(small.source), {"a": 3, "b": 4})
    assert {name: parse(again.source).constants[name] for name in ("a", "b")} == {"a": 3, "b": 4}


def test_resize_finds_its_place_after_letters_of_several_bytes_and_over_several_lines() -> None:
    text = REFERENCE.replace("affine = True", "größe = 5; affine = True\nwide = (\n    64\n    * 2\n)")
    small = resize(parse(text), {"affine": False, "wide": 9, "größe": 1})
    assert "größe = 1; affine = False\nwide = (\n    9\n)" in small.source


@given(
    st.dictionaries(
        st.sampled_from(["batch_size", "N"]), st.integers(min_value=-(2**40), max_value=2**40), min_size=1
    )
)
def test_resizing_back_gives_an_equivalent_problem(sizes: dict[str, int]) -> None:
    problem = parse()
    there = resize(problem, sizes)
    assert {name: there.constants[name] for name in sizes} == sizes
    back = resize(there, {name: problem.constants[name] for name in sizes})
    assert back.constants == problem.constants
    assert resize(there, sizes).source == there.source


def test_an_unknown_size_names_the_nearest_constant() -> None:
    with pytest.raises(ConfigError, match="no constant batchsize: did you mean batch_size"):
        resize(parse(), {"batchsize": 4})


@pytest.mark.parametrize("value", [True, 2.5, "4"])
def test_a_size_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="wanted int as in batch_size = 2048"):
        resize(parse(), {"batch_size": value})


def test_a_whole_number_may_stand_for_a_float() -> None:
    assert resize(parse(), {"eps": 1}).constants["eps"] == 1


def test_directives_become_fields_and_leave_the_text() -> None:
    directives = (
        "# cpu: batch_size=17, eps=0.5\n# family: activation\n# tags: small, easy\n# precision: bfloat16\n"
    )
    problem = parse(directives + REFERENCE)
    assert problem.source == REFERENCE
    assert problem.cpu_constants == {"batch_size": 17, "eps": 0.5}
    assert (problem.family, problem.tags) == ("activation", ("small", "easy"))
    assert problem.precision == "bfloat16"


def test_a_directive_may_stand_between_the_code() -> None:
    above, between, below = REFERENCE.partition("class Model")
    problem = parse(f"{above}# cpu: batch_size=17\n{between}{below}")
    assert problem.source == REFERENCE
    assert problem.cpu_constants == {"batch_size": 17}


def test_other_comments_stay() -> None:
    assert parse("# Written by hand.\n" + REFERENCE).source.startswith("# Written by hand.\n")


@pytest.mark.parametrize(
    ("directive", "complaint"),
    [
        ("# precision: half", "is none of own, float16, bfloat16"),
        ("# cpu: M=3", "names M, which is not a constant"),
        ("# cpu: batch_size=torch.rand(1)", "not of the form"),
        ("# cpu: batch_size", "not of the form"),
        ("# cpu: 5) + dict(", "not of the form"),
    ],
)
def test_a_broken_cpu_directive_is_not_a_problem(directive: str, complaint: str) -> None:
    with pytest.raises(NotAProblem, match=complaint):
        parse(f"{directive}\n{REFERENCE}")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def broken(:\n", "is not Python"),
        ("x = 1\n", "lacks class Model, def get_inputs;"),
        (REFERENCE.replace("class Model", "class Net"), "lacks class Model;"),
        (REFERENCE.replace("def get_inputs", "def inputs"), "lacks def get_inputs;"),
        ("\0", "is not Python"),
    ],
)
def test_a_file_without_the_format_says_what_it_lacks(source: str, complaint: str) -> None:
    with pytest.raises(NotAProblem, match=complaint):
        parse(source)
