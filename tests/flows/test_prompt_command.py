"""`dojo prompt` prints what would be sent; a language model gets the full template with room to answer."""

import re

import pytest

from flows.cli import run
from kernel_core.dialogue.parse import parse_completion
from kernel_core.records import Candidate

ENDPOINT = ["policy.kind=openai", "policy.model=m", "policy.endpoint=http://127.0.0.1:9/v1"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_model_behind_an_endpoint_gets_the_full_prompt_with_gpu_dtype_and_a_worked_example(capsys):
    assert run(["prompt", *ENDPOINT]) == 0
    shown = capsys.readouterr().out
    assert "--- system ---" in shown and "Triton" in shown
    assert "It runs on H200, in the dtypes that `get_inputs` gives (float32" in shown
    assert "template full" in shown and "max_new_tokens=1536" in shown
    system = shown.split("--- user ---")[0]
    example = re.search(r"<think>\nOne pass.*?</KERNEL>", system, re.DOTALL)
    candidate = parse_completion(example[0], "stop")
    assert isinstance(candidate, Candidate) and "add_relu_kernel" in candidate.source


def test_the_shipped_policy_gets_the_prompt_that_it_was_taught(capsys):
    assert run(["prompt"]) == 0
    shown = capsys.readouterr().out
    assert "--- system ---" not in shown
    assert "template auto" in shown or "template compact" in shown


def test_a_problem_of_ones_own_is_shown_in_it(tmp_path, capsys):
    import flows.presets

    problem = flows.presets.PREFECT_YAML.parent / "data" / "problems" / "quick_gelu_residual.py"
    assert run(["prompt", *ENDPOINT, "--problem", str(problem)]) == 0
    assert problem.read_text().splitlines()[-1] in capsys.readouterr().out
