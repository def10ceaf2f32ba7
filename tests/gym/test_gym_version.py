"""Code that decides verdicts does not change without a new GYM_VERSION or an acknowledgement."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from golden import ACKNOWLEDGE, code_of, differences, judge_code, recorded

from kernel_core.gym.contract.version import GYM_VERSION

VERSIONS = Path(__file__).parents[2] / "docs" / "judge" / "versions.md"


def test_judge_code_is_the_recorded_code_of_this_version() -> None:
    changed = differences(recorded("judge"), judge_code())
    assert not changed, "\n".join((ACKNOWLEDGE, *changed))


def test_every_version_has_one_line_in_the_table() -> None:
    """The oldest ones share a line, which names the commit that has theirs."""
    table = VERSIONS.read_text()
    rows = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    oldest = re.search(r"^\| 1 to (\d+) \| `git show ", table, re.MULTILINE)
    assert oldest is not None
    assert rows == [str(number) for number in range(int(oldest[1]) + 1, int(GYM_VERSION) + 1)]


def test_comments_docstrings_and_layout_do_not_count_and_values_do() -> None:
    plain = "class A:\n    x: int = 3\n\ndef f(a, b):\n    return a + b\n"
    documented = (
        '"""Module."""\n# note\nclass A:\n    """Doc."""\n    x: int = 3\n    """Field."""\n\n'
        'def f(\n    a, b\n):\n    """Doc."""\n    return (a\n        + b)\n'
    )
    assert code_of(documented, ".py") == code_of(plain, ".py")
    assert code_of(plain.replace("3", "4"), ".py") != code_of(plain, ".py")
    assert code_of(plain.replace("a + b", "a - b"), ".py") != code_of(plain, ".py")


@pytest.mark.parametrize("changed", ["int f() { return 2; }", "int f() { return 1; } int g;"])
def test_native_code_counts_without_comments(changed: str) -> None:
    plain = code_of("int f() { return 1; }", ".cpp")
    assert code_of("int f() { /* one */ return 1;  // end\n}", ".cpp") == plain
    assert code_of(changed, ".cpp") != plain
