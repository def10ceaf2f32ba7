"""Search gives the right kernels first, never the problem's own, and different ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_core.config import IndexConfig, IngestConfig, RetrievalConfig
from kernel_core.corpus.normalise import fingerprint
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot, seal_verified
from kernel_core.errors import CallerError
from kernel_core.problems.generate import generate
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import Problem, Verdict
from kernel_core.retrieval.index import build_index
from kernel_core.retrieval.protocol import Neighbour, Retriever
from kernel_core.retrieval.search import open_retriever
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


def test_a_neighbour_has_its_licence(retriever: Retriever) -> None:
    exemplar = retriever.search("softmax", 1)[0].exemplar
    assert exemplar.licence == "Apache-2.0" and exemplar.language == "triton" and exemplar.family == "softmax"


def test_filters_hold_before_the_search_and_nothing_left_is_refused(index_folder: Path) -> None:
    index = Store(index_folder)
    some = RetrievalConfig(languages=("triton",), licences=("Apache-2.0",), sources=("generator",))
    assert len(open_retriever(index, config=some).search("softmax", 5)) == 5
    with pytest.raises(CallerError, match=r"no exemplar .*'verified_only': True.* loosen"):
        open_retriever(index, config=RetrievalConfig(verified_only=True))


def test_an_excluded_problem_is_not_given_away_at_other_sizes_either(retriever: Retriever) -> None:
    made = generate("train", 1, 0)[0].problem
    resized = resize(made, {name: 77 for name, value in made.constants.items() if isinstance(value, int)})
    kin = fingerprint(made.source).structure_hash

    def structures(*exclude: Problem) -> set[str]:
        found = retriever.search("anything like " + made.family, 10_000, exclude)
        return {fingerprint(near.exemplar.reference_code).structure_hash for near in found}

    assert kin in structures() and kin not in structures(resized)


@pytest.mark.parametrize("mode", ["hybrid", "random"])
def test_every_mode_keeps_the_problem_itself_out_and_is_the_same_each_time(
    mode: str, index_folder: Path
) -> None:
    config = RetrievalConfig.model_validate({"mode": mode})
    retriever = open_retriever(Store(index_folder), config=config)
    for made in generate("train", 10, 0):
        own = fingerprint(made.problem.source).reference_hash
        found = retriever.search(made.problem, 4)
        assert len(found) == 4 and own not in {near.exemplar.reference_hash for near in found}
        assert found == retriever.search(made.problem, 4)


def test_diverse_neighbours_are_less_alike_and_begin_with_the_same_one(index_folder: Path) -> None:
    alike = open_retriever(Store(index_folder), config=RetrievalConfig(diversity=0.0))
    spread = open_retriever(Store(index_folder), config=RetrievalConfig(diversity=0.6))
    families: dict[str, int] = {"alike": 0, "spread": 0}
    for made in generate("validation", 20, 3):
        for name, retriever in (("alike", alike), ("spread", spread)):
            found = retriever.search(made.problem, 5)
            families[name] += len({near.exemplar.family for near in found})
        assert alike.search(made.problem, 1) == spread.search(made.problem, 1)
    assert families["spread"] > families["alike"]


def test_each_neighbour_says_why_it_was_chosen(retriever: Retriever) -> None:
    made = generate("validation", 1, 4)[0].problem
    near = retriever.search(made, 1)[0]
    assert near.why.startswith("applies ") and near.why.endswith("its maker found it correct")


@pytest.mark.exhaustive
def test_what_our_judge_found_fast_comes_before_its_equal(snapshot: Store, tmp_path: Path) -> None:
    rows = load_snapshot(snapshot)
    verified = Store(tmp_path / "snapshot")
    build_snapshot(IngestConfig(generator_rows=300, decontaminate_against=()), verified)
    unaided = [near.exemplar.id for near in search_in(verified, tmp_path / "before", "softmax")]
    last = unaided[-1]
    judged = {"verified": Verdict.CORRECT, "predicted_speedup": 9.0}
    seal_verified(verified, [row.model_copy(update=judged) if row.id == last else row for row in rows], {})
    aided = search_in(verified, tmp_path / "after", "softmax")
    assert [near.exemplar.id for near in aided].index(last) < unaided.index(last)
    only = open_retriever(Store(tmp_path / "after"), config=RetrievalConfig(verified_only=True))
    assert [near.exemplar.id for near in only.search("softmax", 9)] == [last]


def search_in(snapshot: Store, folder: Path, words: str) -> list[Neighbour]:
    build_index(IndexConfig(), snapshot, Store(folder))
    return open_retriever(Store(folder), config=RetrievalConfig(diversity=0.0)).search(words, 5)
