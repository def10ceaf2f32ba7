"""The guard labels whatever Python can be, and labels nothing that an honest kernel does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from exploit_files import FILES
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.gym.judge.static_findings import inspect_source

HONEST = [file for name, file in FILES.items() if name.startswith("honest_")]
LABELLED = {
    "import gc": "suspect_import",
    "import os, socket": "suspect_import",
    "from ctypes.util import find_library": "suspect_import",
    "try:\n    pass\nexcept E:\n    return 1": "fallback",
    "torch.bmm(a, b)": "library_compute",
    "torch.nn.functional": "library_compute",
    "frame.f_back": "frames",
    "eval(text)": "dynamic_code",
}
PLAIN = [
    "x = 1",
    "import torch",
    "tl.store(p, tl.load(q))",
    "from . import a",
    "a.b.c",
    "print(eval)",
    "y: int",
]
WRAPPERS = [
    "{}",
    "def f(self):\n{}",
    "class C:\n def f(self):\n{}",
    "if x:\n{}",
    "async def f():\n{}",
    "match x:\n case [1, *_]:\n{}",
]


def _wrapped(statement: str, wrapper: str) -> str:
    depth = wrapper.count("\n") + (wrapper != "{}")
    body = "\n".join(" " * depth + line for line in statement.split("\n")) if depth else statement
    return wrapper.format(body)


_STATEMENTS = st.sampled_from([*LABELLED, *PLAIN])
_TEXTS = st.lists(st.builds(_wrapped, _STATEMENTS, st.sampled_from(WRAPPERS)), max_size=6)


@settings(max_examples=150, deadline=None)
@given(_TEXTS.map("\n".join) | st.text(st.sampled_from("ab.=()[]:\n \t'\"#@*,0"), max_size=40))
def test_each_rule_is_found_once_wherever_it_stands(text: str) -> None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    findings = inspect_source(tree)
    rules = [finding.rule for finding in findings]
    expected = {rule for statement, rule in LABELLED.items() if statement.split("\n")[-1].strip() in text}
    assert rules == sorted(set(rules))
    assert expected <= set(rules)
    assert all(finding.detail.startswith("line ") for finding in findings)


@pytest.mark.parametrize("file", HONEST, ids=lambda file: file.stem)
def test_honest_kernels_have_no_mark_of_an_attack(file: Path) -> None:
    rules = {finding.rule for finding in inspect_source(ast.parse(file.read_text()))}
    assert not rules & {"frames", "dynamic_code"}


@pytest.mark.parametrize(
    "statement",
    [
        "y = self.conv3d(x)",
        "y = self.linear(self.matmul(x))",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cudnn.conv.fp32_precision = 'tf32'",
    ],
)
def test_own_modules_and_flags_are_no_library_operators(statement: str) -> None:
    assert not inspect_source(ast.parse(statement))
