"""The whole ingest: resumable, repeatable, honest about what it left out."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kernel_core.config import IngestConfig
from kernel_core.corpus.snapshot import build_snapshot, load_report, load_snapshot
from kernel_core.errors import CallerError, ConfigError
from kernel_core.generator.graded import answered_problems
from kernel_core.problems.generate import generate
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.store import Store

CONFIG = IngestConfig(generator_rows=60, decontaminate_against=())


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_every_graded_kernel_of_a_generated_problem_is_an_exemplar(tmp_path: Path) -> None:
    store = Store(tmp_path)
    manifest = build_snapshot(CONFIG, store)
    exemplars = load_snapshot(store)
    made = generate("train", 60, 0)
    assert len(exemplars) == sum(len(problem.kernels) for problem in made) == manifest.meta["num_exemplars"]
    first = exemplars[: len(made[0].kernels)]
    assert [row.kernel_code for row in first] == [kernel.source for kernel in made[0].kernels]
    assert [row.thinking for row in first] == [kernel.thinking for kernel in made[0].kernels]
    for row in exemplars:
        assert row.grade.startswith("mistake:") == (row.claimed_correct is False)
        assert row.split == "train" and row.family and row.licence == "Apache-2.0"


def test_modules_are_a_source_beside_the_generator(tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"sources": ("modules", "generator"), "generator_rows": 3, "modules_rows": 6}
    )
    manifest = build_snapshot(config, Store(tmp_path))
    problems = list(generate_modules("train", 6, 0))
    made = list(answered_problems(problems))
    rows = [row for row in load_snapshot(Store(tmp_path)) if row.source == "modules"]
    assert manifest.meta["num_references"] == 9
    assert [row.kernel_code for row in rows] == [kernel.source for each in made for kernel in each.kernels]
    assert {row.family for row in rows} == {problem.family for problem in problems}
    assert {row.reference_code for row in rows} == {problem.source for problem in problems}
    for row in rows:
        assert row.thinking and row.cpu_sizes and row.grade and row.split == "train"
        assert row.grade.startswith("mistake:") == (row.claimed_correct is False)


def test_the_default_ingest_loses_nothing_of_the_generator_to_duplicates_or_its_own_splits(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    build_snapshot(IngestConfig(generator_rows=40, decontaminate_against=("dojo",)), store)
    report = load_report(store)
    rows_in = report.sources[0].rows_in
    assert report.num_exemplars + sum(entry.count for entry in report.dropped) == rows_in
    assert report.num_exemplars >= 0.9 * rows_in, report.dropped


def test_the_report_accounts_for_every_row(tmp_path: Path, kernelbook_row: Any, write_jsonl: Any) -> None:
    rows = [kernelbook_row(1), kernelbook_row(2), kernelbook_row(3, triton_code="")]
    store = Store(tmp_path / "snapshot")
    build_snapshot(IngestConfig(sources=(str(write_jsonl(rows)),), decontaminate_against=()), store)
    report = load_report(store)
    assert (report.sources[0].rows_in, report.sources[0].rows_out, report.num_exemplars) == (3, 1, 1)
    assert report.rows() == [
        {"source": "rows.jsonl", "step": "kept", "why": "MIT", "rows": 1},
        {"source": "rows.jsonl", "step": "read", "why": "empty field", "rows": 1},
        {"source": "rows.jsonl", "step": "deduplicate", "why": "exact duplicate", "rows": 1},
    ]
    assert report.dropped[1].examples == ("2 = rows.jsonl/1",)


def test_rows_of_an_earlier_snapshot_are_counted_under_its_file(tmp_path: Path) -> None:
    build_snapshot(IngestConfig(generator_rows=4, decontaminate_against=()), Store(tmp_path / "drawn"))
    file, store = tmp_path / "drawn" / "exemplars.parquet", Store(tmp_path / "again")
    build_snapshot(IngestConfig(sources=(str(file),), decontaminate_against=()), store)
    report = load_report(store)
    (entry,) = report.sources
    assert entry.rows_in == entry.rows_out == report.num_exemplars > 0
    both = Store(tmp_path / "both")
    build_snapshot(
        IngestConfig(sources=("generator", str(file)), generator_rows=4, decontaminate_against=()), both
    )
    assert sum(entry.rows_out for entry in load_report(both).sources) == load_report(both).num_exemplars


def test_problems_of_a_folder_leave_the_snapshot(
    tmp_path: Path, kernelbook_row: Any, write_jsonl: Any
) -> None:
    rows = write_jsonl([kernelbook_row(1)])
    build_snapshot(IngestConfig(sources=(str(rows),), decontaminate_against=()), Store(tmp_path / "all"))
    [kept] = load_snapshot(Store(tmp_path / "all"))
    (tmp_path / "asked").mkdir()
    (tmp_path / "asked" / "same.py").write_text(kept.reference_code)
    sources = ("generator", str(rows))
    held = IngestConfig(sources=sources, generator_rows=4, decontaminate_against=(str(tmp_path / "asked"),))
    build_snapshot(held, Store(tmp_path / "held"))
    assert [entry.reason for entry in load_report(Store(tmp_path / "held")).dropped] == ["evaluation problem"]
    with pytest.raises(ConfigError, match="or a folder of problems"):
        build_snapshot(
            held.model_copy(update={"decontaminate_against": ("nowhere",)}), Store(tmp_path / "bad")
        )


def test_a_finished_snapshot_is_returned_and_another_config_rebuilds_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = build_snapshot(CONFIG, store)
    written = (tmp_path / "exemplars.parquet").stat().st_mtime_ns
    assert build_snapshot(CONFIG, store) == first
    assert (tmp_path / "exemplars.parquet").stat().st_mtime_ns == written
    smaller = build_snapshot(CONFIG.model_copy(update={"generator_rows": 3}), store)
    assert smaller.meta["num_references"] == 3


@pytest.mark.exhaustive
def test_an_ingest_killed_at_any_moment_ends_with_the_same_bytes(
    tmp_path: Path, kernelbook_row: Any, write_jsonl: Any
) -> None:
    kernels = [f"def kernel_{i}(x):\n    return x + {i}\n" for i in range(400)]
    path = write_jsonl([kernelbook_row(i, triton_code=kernel) for i, kernel in enumerate(kernels)])
    config = IngestConfig(
        sources=("generator", str(path)), generator_rows=150, decontaminate_against=("dojo",)
    )
    build_snapshot(config, Store(tmp_path / "calm"))
    script = (
        "import sys\n"
        "from kernel_core.config import IngestConfig\n"
        "from kernel_core.corpus.snapshot import build_snapshot\n"
        "from kernel_core.store import Store\n"
        "config = IngestConfig.model_validate_json(sys.argv[1])\n"
        "build_snapshot(config, Store(sys.argv[2]), lambda *at: print(*at, flush=True))\n"
    )
    command = [sys.executable, "-c", script, config.model_dump_json(), str(tmp_path / "killed")]
    for wait_for in (1, 4):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(wait_for):
            process.stdout.readline()
        time.sleep(0.01 * wait_for)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    build_snapshot(config, Store(tmp_path / "killed"))
    assert bytes_of(tmp_path / "killed") == bytes_of(tmp_path / "calm")


def test_a_part_that_was_read_is_not_read_again(
    tmp_path: Path, kernelbook_row: Any, write_jsonl: Any
) -> None:
    path = write_jsonl([kernelbook_row(1)])
    store = Store(tmp_path / "snapshot")
    config = IngestConfig(sources=(str(path),), decontaminate_against=())
    build_snapshot(config, store)
    labels: list[str] = []
    looser = config.model_copy(update={"near_duplicate_threshold": 0.9})
    build_snapshot(looser, store, lambda label, done, total: labels.append(label))
    assert labels and not any(label.startswith("read") for label in labels)


def test_a_snapshot_that_would_be_empty_says_why(
    tmp_path: Path, kernelbook_row: Any, write_jsonl: Any
) -> None:
    path = write_jsonl([kernelbook_row(i, triton_code="") for i in range(3)])
    with pytest.raises(CallerError, match="would be empty: 3 empty field"):
        build_snapshot(IngestConfig(sources=(str(path),), decontaminate_against=()), Store(tmp_path / "s"))
    with pytest.raises(CallerError, match="would be empty: no rows came"):
        build_snapshot(CONFIG.model_copy(update={"generator_rows": 0}), Store(tmp_path / "t"))
