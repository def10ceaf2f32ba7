"""What goes into artifacts is finite, escaped and keyed as Prefect wants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.report.markdown import artifact_key, code_block, finite, markdown_table


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_are_not_finite_become_empty(value):
    assert finite(value) is None


def test_a_markdown_table_escapes_what_would_break_it():
    lines = markdown_table([{"name": "a|b", "code": "<img>\nx", "share": 0.123456, "none": None}])
    assert lines == [
        "| name | code | share | none |",
        "| --- | --- | --- | --- |",
        "| a\\|b | &lt;img> x | 0.123 |  |",
    ]


def test_no_rows_say_so():
    assert markdown_table([]) == ["(nothing)"]


@given(st.text())
def test_keys_are_lower_case_digits_and_dashes(words):
    assert set(artifact_key(words)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@given(st.text(alphabet="`ab\n<"))
def test_code_can_never_close_its_own_block(source):
    fence, *_, last = code_block(source).split("\n")
    assert last == fence.removesuffix("python")
    assert last not in source
