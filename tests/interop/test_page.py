"""The examples of docs/interop.md, run from the page's own text where their packages are installed."""

from __future__ import annotations

import pytest

from tests.fixtures.pages import block, printed

PAGE = "docs/interop.md"


@pytest.mark.exhaustive
def test_a_step_of_trl_rewards_the_answers_of_a_policy() -> None:
    pytest.importorskip("trl", reason="trl is an optional extra")
    assert "'reward'" in printed(*block(PAGE, "trl.GRPOTrainer"), {})


@pytest.mark.exhaustive
def test_an_environment_of_verifiers_has_problems_with_prompts() -> None:
    pytest.importorskip("verifiers.v1", reason="verifiers is an optional extra")
    lines = printed(*block(PAGE, "load_environment"), {}).splitlines()
    assert len(lines) == 2 and all(line.startswith("generated/") for line in lines)
