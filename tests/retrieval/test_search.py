"""Search gives the right kernels first, never the problem's own, and different ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_core.config import IndexConfig, IngestConfig
from kernel_core.corpus.normalise import fingerprint
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.problems.generate import generate
from kernel_core.problems.source import parse_problem
from kernel_core.retrieval.index import build_index
from kernel_core.retrieval.protocol import Retriever
from kernel_core.retrieval.search import neighbour_rows, open_retriever
from kernel_core.store import Store

NO_INPUTS = """
def get_inputs():
    return [torch.rand(4, 4)]


def get_init_inputs():
    return []
"""


@pytest.fixture(scope="module")
def retriever(index_folder: Path) -> Retriever:
    return open_retriever(Store(index_folder))


@pytest.mark.parametrize("split", ["validation", "held_out"])
def test_the_first_neighbour_of_an_unseen_problem_is_of_its_family(
    split: str, retriever: Retriever, snapshot: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {row.family for row in load_snapshot(snapshot)}
    problems = [made.problem for made in generate(split, 120, 7) if made.problem.family in known]  # type: ignore[arg-type]
    assert len(problems) >= 60
    found = retriever.search_many(problems, 1)
    hits = [near[0].exemplar.family == problem.family for problem, near in zip(problems, found, strict=True)]
    with capsys.disabled():
        print(f"\n{split}: first neighbour of the same family for {sum(hits)} of {len(hits)} problems")
    assert sum(hits) / len(hits) >= 0.8


def test_a_problem_never_gets_its_own_kernels_however_it_is_written(retriever: Retriever) -> None:
    for made in generate("train", 20, 0):
        own = fingerprint(made.problem.source).reference_hash
        renamed = made.problem.source.replace("Model(", "Other(") + "\n# copied\n"
        disguised = parse_problem(made.problem.source + "\n# hello\n", id="x/y", suite="x")
        for query in (made.problem, renamed, disguised):
            found = retriever.search(query, 5)
            assert len(found) == 5
            assert own not in {near.exemplar.reference_hash for near in found}


def test_a_kernelbench_problem_never_gets_a_kernel_written_for_its_task(tmp_path: Path) -> None:
    reference = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.{op}(1)\n"
    )
    rows = [
        {"row_key": op, "licence": "CC-BY-4.0", "language": "cuda_cpp", "kernel_code": f"int {op};"}
        | {"reference_code": reference.format(op=op), "task_level": 1, "task_id": task}
        for op, task in (("cumsum", 89), ("cumprod", 90))
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    snapshot = Store(tmp_path / "snapshot")
    config = IngestConfig(sources=(str(tmp_path / "rows.jsonl"),), decontaminate_against=())
    build_snapshot(config, snapshot)
    build_index(IndexConfig(), snapshot, Store(tmp_path / "index"))
    # Rewritten so far that no hash of ours would know it.
    source = reference.format(op="cumsum").replace("x.", "torch.abs(x).") + NO_INPUTS
    fields = {"id": "kernelbench/89", "suite": "kernelbench", "level": 1, "name": "89_cumsum"}
    found = open_retriever(Store(tmp_path / "index")).search(parse_problem(source, **fields), 5)
    assert [near.exemplar.task_id for near in found] == [90]


def test_only_kernels_that_may_be_shown_come_back_and_the_tuned_ones_first(retriever: Retriever) -> None:
    for made in generate("validation", 30, 1):
        for near in retriever.search(made.problem, 3):
            assert near.exemplar.grade == "tuned" and near.exemplar.claimed_correct


def test_neighbours_are_distinct_computations_nearest_first(retriever: Retriever) -> None:
    for made in generate("validation", 30, 2):
        found = retriever.search(made.problem, 4)
        scores = [near.score for near in found]
        assert scores == sorted(scores, reverse=True) and scores[0] <= 1.0001
        structures = {fingerprint(near.exemplar.reference_code).structure_hash for near in found}
        assert len(structures) == 4


def test_searching_many_at_once_is_searching_one_by_one(retriever: Retriever) -> None:
    queries = [made.problem for made in generate("held_out", 10, 3)]
    one_by_one = [retriever.search(query, 3) for query in queries]
    together = retriever.search_many(queries, 3)
    assert [[near.exemplar.id for near in found] for found in together] == [
        [near.exemplar.id for near in found] for found in one_by_one
    ]
    assert retriever.search_many(queries, 0) == [[]] * 10 and retriever.search_many([], 3) == []


@pytest.mark.parametrize(
    ("words", "family"),
    [("softmax over rows", "softmax"), ("a layer norm", "layer_norm"), ("cumsum of each row", "cumsum")],
)
def test_words_find_what_they_name(words: str, family: str, retriever: Retriever) -> None:
    assert retriever.search(words, 1)[0].exemplar.family == family


@pytest.mark.parametrize("odd", ["", " ", "def broken(:", "\x00", "ünïcödé ✓", "x" * 100_000])
def test_any_text_is_a_query(odd: str, retriever: Retriever) -> None:
    assert len(retriever.search(odd, 2)) == 2


def test_asking_for_more_than_there_is_gives_all_there_is(retriever: Retriever, snapshot: Store) -> None:
    references = {row.reference_hash for row in load_snapshot(snapshot)}
    assert len(retriever.search("relu", 10_000)) == len(references)


def test_neighbours_make_table_rows_with_licence(retriever: Retriever) -> None:
    row = neighbour_rows(retriever.search("softmax", 1))[0]
    assert row["licence"] == "Apache-2.0" and row["language"] == "triton" and row["family"] == "softmax"
