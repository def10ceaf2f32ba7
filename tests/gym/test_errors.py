"""Whatever a candidate raises is told as its error, at its line, and soon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel_core.records import Evaluation, Verdict

_PROBLEM = (
    "class Model(nn.Module):\n    def forward(self, x):\n        return x * 2\n\n"
    "def get_inputs():\n    return [torch.randn(64)]\n\ndef get_init_inputs():\n    return []\n"
)
_CANDIDATE = "class ModelNew(nn.Module):\n    def forward(self, x):\n"
_UNSPEAKABLE = "def unspeakable(self):\n    raise SystemExit(0)\n\n\n"


@pytest.mark.parametrize(
    ("before", "raised", "told"),
    [
        ("", "raise ValueError('a')", "ValueError: a"),
        ("", "error = ValueError('a'); error.__cause__ = error; raise error", "ValueError: a"),
        ("", "raise type('E' * 1000, (Exception,), {})('oh')", "E" * 200 + ": oh"),
        ("", "raise ValueError('\\ud800 is no character')", "ValueError: ? is no character"),
        (_UNSPEAKABLE, "raise type('Odd', (Exception,), {'__str__': unspeakable})()", "Odd"),
    ],
    ids=["plain", "its own cause", "a long name", "no Unicode", "a text that leaves"],
)
def test_an_error_is_told(judge_text: Callable[..., Evaluation], before: str, raised: str, told: str) -> None:
    evaluation = judge_text(_PROBLEM, f"{before}{_CANDIDATE}        {raised}\n")
    assert evaluation.verdict is Verdict.CRASHED
    assert evaluation.feedback.startswith("crashed: line ") and evaluation.feedback.endswith(f": {told}")


def test_the_user_of_a_candidate_has_a_name(judge_text: Callable[..., Evaluation]) -> None:
    """Torch's compiler asks for it, though the user of the process is in no table of users."""
    raised = "import getpass; raise ValueError(getpass.getuser())"
    assert judge_text(_PROBLEM, f"{_CANDIDATE}        {raised}\n").feedback.endswith("ValueError: candidate")
