"""The script that measures writing one step ahead: its arms differ in what it says they do, and it runs."""

import runpy
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "sample_ahead.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)

    def run(*arguments, name="read"):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
        return runpy.run_path(str(SCRIPT), run_name=name)

    return run


@pytest.mark.parametrize(
    ("judge", "placed", "apart"), [("cpu", ([0], [1], []), "sample"), ("cuda", ([0], [0], [1]), "judge")]
)
def test_both_arms_have_the_same_places_and_one_gpu_has_one(script, monkeypatch, judge, placed, apart):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    own = script("--device", "cuda", "--judge-device", judge, "--set", "lr=0.5")
    arguments = own["_arguments"]()
    alone, in_order, ahead = (own["config_of"](arm, arguments) for arm in own["ARMS"].values())
    assert [list(gpus) for gpus in ahead.placement.gpus.values()] == [list(gpus) for gpus in placed]
    assert ahead == in_order.model_copy(update={"sample_ahead": True}) and ahead.lr == 0.5
    assert {gpu for gpus in alone.placement.gpus.values() for gpu in gpus} == {0}
    assert alone.placement.gpus[apart] == (0,)


@pytest.mark.slow
def test_every_step_is_a_row_and_the_arms_are_compared(script, capsys):
    short = ["--steps", "2", "--problems-per-step", "1", "--group", "2", "--judges", "1"]
    script(*short, "--set", "rollout.sampling.max_new_tokens=8", name="__main__")
    printed = capsys.readouterr().out
    for arm in ("in order", "one step ahead"):
        assert all(f"| {arm} | {step} |" in printed for step in (1, 2))
    assert "times as long as" in printed and "reward of a step" in printed
