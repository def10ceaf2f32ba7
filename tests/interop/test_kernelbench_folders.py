"""KernelBench's folders: what is written is read back the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_core.errors import ConfigError, Corrupt, NotFound
from kernel_core.interop.kernelbench import (
    ClaimedResult,
    SampleKey,
    number_of,
    read_kernels,
    read_results,
    write_kernels,
    write_problems,
    write_results,
)
from kernel_core.problems.load import load_folder, load_kernelbench
from kernel_core.problems.source import parse_problem, resize, with_members
from kernel_core.records import Candidate, Evaluation, Verdict

NAMES = ("first", "second")
PROBLEMS = load_folder("data/problems")


def _evaluation(verdict: Verdict) -> Evaluation:
    passed = 1 if verdict is Verdict.CORRECT else 0
    return Evaluation(
        problem_id="p",
        candidate_sha="c",
        verdict=verdict,
        trials=1,
        trials_passed=passed,
        feedback="as it is",
        gym_version="1",
        device="cpu",
        seconds=0.1,
    )


def test_problems_come_back_from_a_checkout_of_ours(tmp_path: Path) -> None:
    files = write_problems(PROBLEMS, tmp_path, level=1)
    assert files[0].parent == tmp_path / "KernelBench" / "level1"
    read = load_kernelbench([1], root=str(tmp_path))
    facts = ("source", "sha256", "family", "constants", "cpu_constants", "precision", "tags")
    assert [[getattr(one, fact) for fact in facts] for one in read] == [
        [getattr(one, fact) for fact in facts] for one in PROBLEMS
    ]
    assert [number_of(one) for one in read] == list(range(1, len(PROBLEMS) + 1))


def test_sizes_of_tuples_come_back(tmp_path: Path) -> None:
    """KernelBench's problems often name their sizes `input_shape = (4096, 512)` alone."""
    first = PROBLEMS[0]
    with_tuple = with_members(parse_problem("shape = (4096, 512)\n" + first.source, id="a/b", suite="a"))
    small = with_tuple.model_copy(update={"cpu_constants": {"shape[0]": 8, "shape[1]": 16}})
    write_problems([small], tmp_path)
    read = load_kernelbench([1], root=str(tmp_path))[0]
    assert (read.constants, read.cpu_constants) == (small.constants, small.cpu_constants)
    assert resize(read, read.cpu_constants).source.startswith("shape = (8, 16)\n")


def test_a_checkout_is_written_again_the_same(tmp_path: Path) -> None:
    write_problems(PROBLEMS[:3], tmp_path / "first")
    again = load_kernelbench([1], root=str(tmp_path / "first"))
    write_problems(again, tmp_path / "second")
    files = [{file.name: file.read_text() for file in (tmp_path / name).rglob("*.py")} for name in NAMES]
    assert files[0] == files[1]
    with pytest.raises(ConfigError, match="there already"):
        write_problems(again, tmp_path / "second")


def test_kernels_of_a_run_come_back_in_order(tmp_path: Path) -> None:
    kernels = {
        SampleKey(level=1, problem=problem, sample=sample): Candidate.from_source(f"# {problem} {sample}\n")
        for problem in (2, 10)
        for sample in (0, 1)
    }
    write_kernels(kernels, tmp_path)
    (tmp_path / "notes.py").write_text("")
    assert list(read_kernels(tmp_path).items()) == list(kernels.items())
    with pytest.raises(NotFound, match=r"_kernel\.py"):
        read_kernels(tmp_path / "nowhere")


def test_results_are_written_as_kernelbench_writes_them_and_read_as_claims(tmp_path: Path) -> None:
    file = tmp_path / "eval_results.json"
    keys = [SampleKey(level=1, problem=3, sample=sample) for sample in (0, 1)]
    write_results(zip(keys, map(_evaluation, (Verdict.CORRECT, Verdict.NOT_COMPILED)), strict=True), file)
    [[first, second]] = read_results(file).values()
    assert (first.sample, first.compiled, first.correctness, first.runtime_ms) == (0, True, True, None)
    assert (second.sample, second.compiled, second.correctness) == (1, False, False)
    assert second.metadata["compilation_error"] == "as it is"


def test_results_with_one_sample_a_problem_are_read_as_well(tmp_path: Path) -> None:
    file = tmp_path / "eval_results.json"
    file.write_text(json.dumps({"7": {"compiled": True, "correctness": True, "runtime": 1.5}}))
    claim = ClaimedResult(sample=0, compiled=True, correctness=True, runtime_ms=1.5, metadata={})
    assert read_results(file) == {7: [claim]}


@pytest.mark.parametrize("text", ["{", "[]", '{"x": []}', '{"1": [{"compiled": true}]}', '{"1": [3]}'])
def test_what_are_no_results_is_said_so(tmp_path: Path, text: str) -> None:
    file = tmp_path / "eval_results.json"
    file.write_text(text)
    with pytest.raises(Corrupt, match=r"eval_results\.json"):
        read_results(file)
