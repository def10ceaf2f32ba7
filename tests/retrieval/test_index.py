"""The index: one vector a reference, resumable, repeatable, refused when damaged or stale."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

from kernel_core.config import IndexConfig, IngestConfig
from kernel_core.corpus.snapshot import build_snapshot, load_snapshot
from kernel_core.errors import CallerError, Corrupt, NotFound
from kernel_core.records import Exemplar
from kernel_core.retrieval import vectors as vectors_module
from kernel_core.retrieval.index import best_exemplars, build_index
from kernel_core.retrieval.search import open_retriever
from kernel_core.retrieval.vectorise import npy_bytes
from kernel_core.store import Store


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def exemplar(key: str, **fields: object) -> Exemplar:
    values = {
        "id": key,
        "source": "found",
        "source_revision": "1",
        "row_key": key,
        "licence": "MIT",
        "language": "triton",
        "reference_code": "x = 1",
        "kernel_code": key,
        "reference_hash": "same",
        "kernel_hash": key,
    }
    return Exemplar.model_validate(values | fields)


def test_one_vector_a_reference_and_what_made_it_in_the_manifest(snapshot: Store, index_folder: Path) -> None:
    meta = Store(index_folder).open_sealed("index").meta
    references = {row.reference_hash for row in load_snapshot(snapshot)}
    assert meta["num_references"] == len(references)
    assert meta["embedder"] == "offline" and meta["kind"] == "flat" and meta["dimension"] == 384
    vectors = faiss.read_index(str(index_folder / "vectors.faiss"))
    assert vectors.ntotal == len(references)
    lengths = np.linalg.norm(vectors.reconstruct_n(0, vectors.ntotal), axis=1)
    np.testing.assert_allclose(lengths, 1.0, atol=1e-5)
    assert not [file for file in index_folder.rglob("*") if file.suffix in (".pkl", ".pickle")]


def test_building_twice_gives_the_same_bytes_and_a_finished_index_is_returned(
    snapshot: Store, index_folder: Path, tmp_path: Path
) -> None:
    again = build_index(IndexConfig(), snapshot, Store(tmp_path))
    assert bytes_of(tmp_path) == bytes_of(index_folder)
    written = (tmp_path / "vectors.faiss").stat().st_mtime_ns
    assert build_index(IndexConfig(), snapshot, Store(tmp_path)) == again
    assert (tmp_path / "vectors.faiss").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        ({"grade": "naive"}, {"grade": "fused"}),
        ({"grade": "fused"}, {"grade": "tuned"}),
        ({"claimed_speedup": 1.1}, {"claimed_speedup": 3.0}),
        ({"claimed_correct": None, "claimed_speedup": 9.0}, {"claimed_correct": True}),
        ({"language": "cuda_cpp", "claimed_correct": True}, {"language": "triton"}),
        ({"grade": "tuned", "claimed_correct": False}, {"grade": "naive"}),
        ({"grade": "mistake:missing_mask"}, {"grade": "naive"}),
        ({"grade": "tuned", "split": "blocked"}, {"grade": "naive"}),
    ],
)
def test_of_one_references_kernels_the_best_that_may_be_shown_is_kept(
    worse: dict[str, object], better: dict[str, object]
) -> None:
    rows = [exemplar("worse", **worse), exemplar("better", **better)]
    assert [row.id for row in best_exemplars(rows)] == ["better"]
    assert [row.id for row in best_exemplars(rows[::-1])] == ["better"]


def test_a_corpus_of_mistakes_alone_is_refused(tmp_path: Path) -> None:
    rows = "".join(
        exemplar(
            str(i),
            reference_code=f"def f(x):\n    return x.{name}()",
            kernel_code=f"y = {i}",
            claimed_correct=False,
        ).model_dump_json()
        + "\n"
        for i, name in enumerate(("sin", "cos", "tan"))
    )
    (tmp_path / "rows.jsonl").write_text(rows)
    snapshot = Store(tmp_path / "snapshot")
    config = IngestConfig(sources=(str(tmp_path / "rows.jsonl"),), decontaminate_against=())
    build_snapshot(config, snapshot)
    with pytest.raises(CallerError, match="none of the 3 exemplars"):
        build_index(IndexConfig(), snapshot, Store(tmp_path / "index"))


@pytest.mark.exhaustive
def test_a_build_killed_while_embedding_goes_on_where_it_was(
    snapshot: Store, index_folder: Path, tmp_path: Path
) -> None:
    script = (
        "import sys\n"
        "from kernel_core.config import IndexConfig\n"
        "from kernel_core.retrieval import index, vectorise\n"
        "from kernel_core.store import Store\n"
        "vectorise._SHARD_ROWS = 40\n"
        "report = lambda *at: print(*at, flush=True) or sys.stdin.readline()\n"
        "index.build_index(IndexConfig(), Store(sys.argv[1]), Store(sys.argv[2]), report)\n"
    )
    killed = tmp_path / "killed"
    command = [sys.executable, "-c", script, snapshot.root, str(killed)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()  # it goes on when it is told to
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    shards = sorted(killed.rglob("[0-9]*.npy"))  # a half-written one is called `.tmp-…`
    assert shards and not Store(killed).sealed()
    shards[0].write_bytes(b"bit rot")
    done = subprocess.run(command, input="", capture_output=True, text=True, check=True)
    assert "embedding that part again" in done.stderr
    assert bytes_of(killed) == bytes_of(index_folder)
    assert not (killed / "shards").exists()


def test_beyond_the_size_for_exact_search_the_index_is_a_graph_built_the_same_each_time(
    snapshot: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "MAX_FLAT", 100)
    for name in ("one", "two"):
        assert build_index(IndexConfig(), snapshot, Store(tmp_path / name)).meta["kind"] == "hnsw"
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    found = open_retriever(Store(tmp_path / "one")).search("softmax", 3)
    assert len(found) == 3


def test_no_index_is_not_found_and_a_damaged_one_corrupt(index_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no complete index"):
        open_retriever(Store(tmp_path / "none"))
    for name in ("vectors.faiss", "exemplars.parquet", "references.parquet", "probe.npy", "rarity.npy"):
        spoilt = tmp_path / name
        shutil.copytree(index_folder, spoilt)
        data = bytearray((spoilt / name).read_bytes())
        data[len(data) // 2] ^= 1
        (spoilt / name).write_bytes(data)
        with pytest.raises(Corrupt, match="does not match its checksum"):
            open_retriever(Store(spoilt))
    (tmp_path / "vectors.faiss" / "vectors.faiss").unlink()
    with pytest.raises(Corrupt, match="is missing"):
        open_retriever(Store(tmp_path / "vectors.faiss"))


def test_an_index_that_was_only_half_written_is_none_and_is_built_again(
    snapshot: Store, index_folder: Path, tmp_path: Path
) -> None:
    half = tmp_path / "half"
    shutil.copytree(index_folder, half)
    (half / "manifest.json").unlink()
    whole = (half / "vectors.faiss").read_bytes()
    (half / "vectors.faiss").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(NotFound, match=r"no complete index .*run the stage that makes it"):
        open_retriever(Store(half))
    build_index(IndexConfig(), snapshot, Store(half))
    assert bytes_of(half) == bytes_of(index_folder)


def test_an_index_of_another_corpus_is_refused_with_the_command_that_rebuilds_it(
    snapshot: Store, index_folder: Path, tmp_path: Path
) -> None:
    open_retriever(Store(index_folder), snapshot)
    other = Store(tmp_path)
    build_snapshot(IngestConfig(generator_rows=5, decontaminate_against=()), other)
    with pytest.raises(Corrupt, match=r"another corpus .* `dojo index run=\S+ root=\S+`"):
        open_retriever(Store(index_folder), other)


@pytest.mark.parametrize("setting", ["index_version", "normaliser_version"])
def test_an_index_of_another_version_is_refused(setting: str, index_folder: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "old")
    shutil.copytree(index_folder, tmp_path / "old")
    manifest = store.read_json("manifest.json")
    manifest["meta"][setting] = "0"
    store.write_json("manifest.json", manifest)
    with pytest.raises(Corrupt, match=f"{setting} 0, this version reads \\d; .*`dojo index run="):
        open_retriever(store)


def test_a_model_that_is_not_the_one_that_built_the_index_is_noticed(
    index_folder: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path / "other")
    shutil.copytree(index_folder, tmp_path / "other")
    probe = np.load(tmp_path / "other" / "probe.npy")[::-1].copy()
    manifest = store.read_json("manifest.json")
    manifest["files"]["probe.npy"] = store.write("probe.npy", npy_bytes(probe))
    store.write_json("manifest.json", manifest)
    with pytest.raises(Corrupt, match="built by another model"):
        open_retriever(store)
