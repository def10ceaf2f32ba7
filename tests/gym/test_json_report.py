"""The keys of `dojo judge --json`, the labels of the guard, and what a policy reads."""

from __future__ import annotations

import ast

import pytest

from kernel_core.gym.judge.json_report import judge_report
from kernel_core.gym.judge.static_findings import inspect_source
from kernel_core.gym.verdict.feedback import MAX_CHARS, describe
from kernel_core.records import Evaluation, Finding, KernelUse, Platform, Provenance, Traffic, Verdict

_TRAFFIC = Traffic(
    bytes_accessed=2_000_000,
    bytes_distinct=1_000_000,
    flops=5,
    num_launches=1,
    own_share=1.0,
    gpu="H200",
    predicted_ms=0.01,
)


def test_report_has_the_keys_of_the_contract() -> None:
    evaluation = Evaluation(
        problem_id="p",
        candidate_sha="c",
        verdict=Verdict.CORRECT,
        trials_passed=3,
        trials=3,
        traffic=_TRAFFIC,
        predicted_speedup=1.8,
        provenance=Provenance(launched=("k",), num_launches=1, own_kernel_share=1.0),
        findings=(Finding(rule="r", detail="d"),),
        feedback="correct",
        gym_version="1",
        device="cpu",
        platform=Platform(python="3.11.7", torch="2.11.0", triton="3.6.0"),
        seconds=0.3,
    )
    assert judge_report(evaluation) == {
        "verdict": "correct",
        "findings": [{"rule": "r", "detail": "d"}],
        "trials_passed": 3,
        "trials": 3,
        "speedup": None,
        "predicted_speedup": 1.8,
        "runtime_ms": None,
        "reference_ms": None,
        "baseline": None,
        "baselines": [],
        "product_precision": None,
        "tolerances_passed": [],
        "predicted_runtime_ms": 0.01,
        "predicted_reference_ms": None,
        "own_kernel_share": 1.0,
        "feedback": "correct",
        "seconds": 0.3,
        "gym_version": "1",
        "device": "cpu",
        "platform": {"python": "3.11.7", "torch": "2.11.0", "triton": "3.6.0", "gpu": None, "driver": None},
        "sandbox": [],
        "problem_id": "p",
        "candidate_sha": "c",
    }


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("import gc\n", ["suspect_import"]),
        ("from inspect import stack\n", ["suspect_import"]),
        ("import torch\ny = torch.matmul(x, x)\n", ["library_compute"]),
        ("try:\n    import a\nexcept ImportError:\n    pass\n", []),
        ("def f():\n    try:\n        return 1\n    except Exception:\n        return 2\n", ["fallback"]),
        ("# import gc, pass, try\nx = 'sys._getframe'\n", []),
        ("f = frame.f_back\n", ["frames"]),
    ],
)
def test_guard_labels_by_meaning_not_by_words(text: str, rules: list[str]) -> None:
    assert [finding.rule for finding in inspect_source(ast.parse(text))] == rules


@pytest.mark.parametrize(
    ("verdict", "detail", "line", "text"),
    [
        (Verdict.MALFORMED, "no class ModelNew", 0, "not parsed: no class ModelNew"),
        (Verdict.NOT_COMPILED, "undefined x", 12, "did not compile: line 12: undefined x"),
        (Verdict.CRASHED, "ValueError: no", 9, "crashed: line 9: ValueError: no"),
        (Verdict.TIMED_OUT, "no result within 20 s", 0, "timed out: no result within 20 s"),
        (Verdict.WRONG, "output at [3] is 1, expected 2", 0, "wrong: output at [3] is 1, expected 2"),
        (Verdict.HACKED, "no kernel ran", 0, "not accepted: no kernel ran"),
        (Verdict.CORRECT, "", 0, "correct"),
    ],
)
def test_feedback_is_one_neutral_clause(verdict: Verdict, detail: str, line: int, text: str) -> None:
    assert describe(verdict, detail, line=line) == text


def test_feedback_on_a_correct_kernel_says_what_could_be_better() -> None:
    assert describe(Verdict.CORRECT, predicted_speedup=1.804, traffic=_TRAFFIC) == (
        "correct; predicted 1.80x of eager on H200; own kernels do 100 % of the work; 1 launch, 1 MB moved"
    )


def test_feedback_of_a_measured_kernel_says_what_it_took_of_the_gpu() -> None:
    use = KernelUse(
        name="softmax_" + "x" * 60,
        time_share=0.834,
        registers=64,
        spilled_bytes=32,
        shared_bytes=16_384,
        occupancy=0.5,
    )
    text = describe(
        Verdict.CORRECT, speedup=1.5, own_share=0.9, num_launches=2, slowest=use, bandwidth_share=0.62
    )
    assert text.startswith(
        "correct; 1.50x of eager; own kernels do 90 % of the work; 2 launches; softmax_xxx"
    )
    assert "83 % of the time, 64 registers, 32 B spilled, 16.4 kB shared, occupancy 50 %" in text
    assert text.endswith("inputs and outputs move at 62 % of the memory's peak")
    assert len(text) <= MAX_CHARS


def test_feedback_fits_a_prompt() -> None:
    text = describe(Verdict.CRASHED, "RuntimeError: " + "x\n" * 1000, line=3)
    assert len(text) == MAX_CHARS
    assert "\n" not in text
