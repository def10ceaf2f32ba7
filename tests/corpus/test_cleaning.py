"""Duplicates and leaks go; the generator's deliberate likenesses stay."""

from __future__ import annotations

import ast
import random
from typing import TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_core.corpus.decontaminate import Decontaminator, evaluation_problems
from kernel_core.corpus.deduplicate import without_exact_duplicates, without_near_duplicates
from kernel_core.corpus.nearness import nearness
from kernel_core.corpus.normalise import fingerprint, kernel_hash
from kernel_core.corpus.shingles import code_tokens, jaccard, shingles_of
from kernel_core.errors import ConfigError
from kernel_core.problems.generate import generate
from kernel_core.problems.load import load_dojo
from kernel_core.problems.source import parse_problem
from kernel_core.progress import silent
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


@pytest.mark.parametrize(
    ("reference", "kernel"),
    [
        (REFERENCE.replace("1024", "77"), KERNEL.replace("mask=mask", "mask=mask, other=1.5")),
        (REFERENCE.replace("spread", "var"), KERNEL.replace("offsets", "where").replace("v", "tile")),
        (PARAPHRASE, KERNEL),
    ],
    ids=["other numbers", "other names", "other order and import style"],
)
def test_a_found_row_that_differs_in_what_its_author_chose_is_a_near_duplicate(
    reference: str, kernel: str
) -> None:
    numbered = KERNEL.replace("mask=mask", "mask=mask, other=0.0")
    first = exemplar("first", kernel=numbered if "other=" in kernel else KERNEL)
    assert cleaned([first, exemplar("second", reference, kernel)], threshold=0.95)[0] == ["first"]


@pytest.mark.parametrize(
    "other",
    [
        REFERENCE.replace("dim=-1", "dim=0"),
        REFERENCE.replace("mean = x.mean", "x = torch.relu(x)\n        mean = x.mean"),
        REFERENCE.replace("centred / torch.sqrt", "torch.sqrt(centred) / ").replace(
            "(spread + 1e-5)", "(spread)"
        ),
    ],
    ids=["another dimension", "one operator more", "an operator in another place"],
)
def test_a_row_of_another_computation_stays_though_its_kernel_is_the_same(other: str) -> None:
    assert cleaned([exemplar("a"), exemplar("b", other)], threshold=0.95)[0] == ["a", "b"]


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


PROBLEMS = [*load_dojo(), *(made.problem for made in generate("held_out", 60, seed=3))]


@given(st.sampled_from(PROBLEMS), st.randoms(use_true_random=False))
def test_renaming_reordering_and_other_numbers_hide_no_evaluation_problem(
    problem: Problem, rng: random.Random
) -> None:
    disguised = exemplar("row", rewritten(problem.source, rng))
    assert leak(disguised, problem) is not None


def rewritten(source: str, rng: random.Random) -> str:
    """The module with other names and numbers, and neighbouring assignments swapped where they may be."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for at in range(len(node.body) - 1):
                if rng.random() < 0.5 and not _shared(node.body[at], node.body[at + 1]):
                    node.body[at : at + 2] = reversed(node.body[at : at + 2])
        elif isinstance(node, ast.Constant) and isinstance(node.value, float):
            node.value = round(node.value * rng.choice((0.5, 2.0, 3.0)), 9)
    bound = {node.id for node in ast.walk(tree) if _is_bound(node)}
    names = {name: f"{rng.choice('abc')}_{index}" for index, name in enumerate(sorted(bound))}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


def _is_bound(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _shared(one: ast.stmt, other: ast.stmt) -> bool:
    if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
        return True
    names = [
        {ast.unparse(node) for node in ast.walk(at) if isinstance(node, ast.Name)} for at in (one, other)
    ]
    return bool(names[0] & names[1] - {"self", "torch", "nn", "F"})


def test_what_the_rules_let_pass_goes_when_its_embedding_is_that_of_a_problem() -> None:
    cosine = "import torch\nclass Model:\n    def forward(self, x): return x.cos()"
    rows = [exemplar("same"), exemplar("other", cosine)]
    near = nearness(rows, [evaluation(REFERENCE.replace("256", "128"))], silent)
    assert near is not None and near.given_away() == {rows[0].reference_hash: "dojo/it"}
    (survivor,) = near.survivors(rows[1:], limit=5)
    assert (survivor.problem, survivor.exemplar) == ("dojo/it", "found/other") and survivor.similarity < 0.9


def test_the_generators_siblings_of_its_own_evaluation_problems_are_no_leak_but_of_ours_they_are() -> None:
    row = exemplar("row", REFERENCE.replace("1024", "77"), source="generator")
    assert leak(row, evaluation(suite="generated"), suites=("generated",)) is None
    assert leak(row, evaluation(suite="generated"), evaluation()) == "evaluation problem at other sizes"
    same = exemplar("same", source="generator")
    assert leak(same, evaluation(suite="generated"), suites=("generated",)) == "evaluation problem"


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(ConfigError, match="no suite 'dojoo'; known: dojo"):
        evaluation_problems(["dojoo"])
