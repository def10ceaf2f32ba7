"""Duplicates and leaks go; the generator's deliberate likenesses stay."""

from __future__ import annotations

import pytest

from kernel_core.corpus.decontaminate import Decontaminator, evaluation_problems
from kernel_core.corpus.deduplicate import without_exact_duplicates, without_near_duplicates
from kernel_core.corpus.normalise import fingerprint, kernel_hash
from kernel_core.corpus.shingles import code_tokens, jaccard, shingles_of
from kernel_core.errors import ConfigError
from kernel_core.problems.source import parse_problem
from kernel_core.records import Exemplar, Problem

REFERENCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        mean = x.mean(dim=-1, keepdim=True)
        centred = x - mean
        spread = (centred * centred).mean(dim=-1, keepdim=True)
        return centred / torch.sqrt(spread + 1e-5) * self.weight + self.bias

def get_inputs():
    return [torch.randn(256, 1024)]

def get_init_inputs():
    return [1024]
"""
PARAPHRASE = """
import torch as t

N, M = 512, 2048

class Standardised(t.nn.Module):
    '''Centre and scale.'''
    def __init__(self, features):
        super(Standardised, self).__init__()
        self.shift = t.nn.Parameter(t.zeros(features))
        self.gain = t.nn.Parameter(t.ones(features))

    def forward(self, data):
        mu = data.mean(dim=-1, keepdim=True)
        diff = data - mu
        var = (diff * diff).mean(dim=-1, keepdim=True)
        return diff / t.sqrt(var + 1e-6) * self.gain + self.shift

def get_inputs():
    return [t.randn(N, M)]

def get_init_inputs():
    return [M]
"""
KERNEL = "\n".join(f"    v{i} = tl.load(p{i} + offsets, mask=mask)" for i in range(60))


def exemplar(key: str, reference: str = REFERENCE, kernel: str = KERNEL, **fields: object) -> Exemplar:
    values = {
        "id": f"found/{key}",
        "source": "found",
        "source_revision": "1",
        "row_key": key,
        "licence": "MIT",
        "language": "triton",
        "reference_code": reference,
        "kernel_code": kernel,
        "reference_hash": fingerprint(reference).reference_hash,
        "kernel_hash": kernel_hash(kernel, "triton"),
    }
    return Exemplar.model_validate(values | fields)


def cleaned(rows: list[Exemplar], threshold: float = 0.9) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Keys of the rows that stay, and (key, reason, twin) of the others."""
    dropped: list[tuple[str, str, str]] = []

    def drop(row: Exemplar, reason: str, twin: str) -> None:
        dropped.append((row.row_key, reason, twin))

    fingerprints = {row.reference_hash: fingerprint(row.reference_code) for row in rows}
    kept = without_near_duplicates(without_exact_duplicates(rows, drop), fingerprints, threshold, drop)
    return [row.row_key for row in kept], dropped


def test_of_exact_duplicates_the_better_claim_stays() -> None:
    slower, faster = exemplar("a", claimed_speedup=1.0), exemplar("b", claimed_speedup=2.0)
    renamed = exemplar("c", REFERENCE.replace("centred", "zero_mean"), KERNEL + "  # the end")
    assert cleaned([slower, faster, renamed]) == (
        ["b"],
        [("a", "exact duplicate", "found/b"), ("c", "exact duplicate", "found/b")],
    )


def test_a_found_kernel_nearly_equal_to_another_of_the_same_computation_goes() -> None:
    near = exemplar("near", REFERENCE.replace("1024", "1000"), KERNEL.replace("v7 =", "seven ="))
    kept, dropped = cleaned([exemplar("first"), near])
    assert kept == ["first"] and dropped == [("near", "near duplicate", "found/first")]


def test_other_operators_are_never_a_near_duplicate_however_alike_the_text() -> None:
    other = REFERENCE.replace("torch.sqrt", "torch.log")
    alike = jaccard(fingerprint(other).shingles, fingerprint(REFERENCE).shingles)
    assert alike > 0.9
    assert cleaned([exemplar("a"), exemplar("b", other)], threshold=0.8)[0] == ["a", "b"]


def test_graded_kernels_of_one_problem_and_siblings_of_one_template_all_stay() -> None:
    mistake = KERNEL.replace("mask=mask", "", 1)
    sibling = REFERENCE.replace("1024", "2048")
    rows = [
        exemplar("fused", grade="fused"),
        exemplar("mistake", kernel=mistake, grade="mistake:missing_mask", claimed_correct=False),
        exemplar("sibling", sibling, KERNEL.replace("v7", "w7"), grade="fused"),
    ]
    tokens = [shingles_of(code_tokens(row.kernel_code, "triton")) for row in rows]
    assert jaccard(tokens[0], tokens[1]) > 0.9 and jaccard(tokens[0], tokens[2]) > 0.9
    assert cleaned(rows)[0] == ["fused", "mistake", "sibling"]


def test_two_nearly_equal_kernels_of_one_grade_and_problem_are_one() -> None:
    rows = [
        exemplar("a", grade="fused"),
        exemplar("b", kernel=KERNEL.replace("v7 =", "seven ="), grade="fused"),
    ]
    assert cleaned(rows)[0] == ["a"]


def evaluation(source: str = REFERENCE, suite: str = "dojo") -> Problem:
    return parse_problem(source, id=f"{suite}/it", suite=suite)


def leak(row: Exemplar, *problems: Problem, suites: tuple[str, ...] = ("dojo",)) -> str | None:
    found = Decontaminator(problems, suites).leak(row, fingerprint(row.reference_code))
    return found and found[0]


def test_an_evaluation_task_is_known_by_its_id_when_kernelbench_is_in_use() -> None:
    row = exemplar("task", task_level=1, task_id=89)
    assert leak(row, suites=("kernelbench",)) == "evaluation task by id"
    assert leak(row, suites=("dojo",)) is None


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (REFERENCE.replace("centred", "zero_mean"), "evaluation problem"),
        (REFERENCE.replace("1024", "77").replace("1e-5", "1e-8"), "evaluation problem at other sizes"),
        (PARAPHRASE, "evaluation problem rewritten"),
        (REFERENCE.replace("torch.sqrt", "torch.log"), None),
        (REFERENCE.replace(" + self.bias", ""), None),
    ],
    ids=["renamed", "resized", "rewritten", "another operator", "one operator fewer"],
)
def test_an_evaluation_problem_in_disguise_is_found(source: str, reason: str | None) -> None:
    assert leak(exemplar("row", source), evaluation()) == reason


def test_the_generators_siblings_of_its_own_evaluation_problems_are_no_leak_but_of_ours_they_are() -> None:
    row = exemplar("row", REFERENCE.replace("1024", "77"), source="generator")
    assert leak(row, evaluation(suite="generated"), suites=("generated",)) is None
    assert leak(row, evaluation(suite="generated"), evaluation()) == "evaluation problem at other sizes"
    same = exemplar("same", source="generator")
    assert leak(same, evaluation(suite="generated"), suites=("generated",)) == "evaluation problem"


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(ConfigError, match="no suite 'dojoo'; known: dojo"):
        evaluation_problems(["dojoo"])
