"""Published columns, exactly; one bad row costs one row; nothing in a row is ever run."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import types
import unittest.mock
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from kernel_core.config import IngestConfig
from kernel_core.corpus.extension_form import cuda_of
from kernel_core.corpus.registry import find_source, pinned, read_registry
from kernel_core.corpus.snapshot import build_snapshot, load_report, load_snapshot
from kernel_core.errors import CallerError, ConfigError, Corrupt, NotFound
from kernel_core.records import Exemplar
from kernel_core.store import Store

Row = dict[str, Any]
MakeRow = Callable[..., Row]
Writer = Callable[..., Path]


def ingest(
    path: Path, folder: Path, **settings: Any
) -> tuple[list[Exemplar], dict[str, int], dict[str, int]]:
    """The exemplars of one file, the count of each reason for a drop, and of each note."""
    store = Store(folder / "snapshot")
    build_snapshot(IngestConfig(sources=(str(path),), decontaminate_against=(), **settings), store)
    report = load_report(store)
    return (
        load_snapshot(store),
        {entry.reason: entry.count for entry in report.dropped},
        report.sources[0].notes,
    )


def test_the_shipped_registry_names_every_source_with_its_terms() -> None:
    registry = read_registry()
    assert set(registry.sources) == {"generator", "modules", "graphs", "kernelbook", "sakana"}
    assert all(source.licence and source.attribution for source in registry.sources.values())
    assert registry.sources["sakana"].splits == ("level_1", "level_2", "level_3")


def test_a_hub_source_without_any_revision_is_refused_and_says_how_to_give_one() -> None:
    registry = read_registry()
    bare = find_source("kernelbook", registry).model_copy(update={"revision": ""})
    with pytest.raises(CallerError, match="kernelbook@COMMIT"):
        pinned(bare, {})
    commit = "a" * 40
    assert pinned(find_source(f"kernelbook@{commit}", registry), {}).revision == commit
    branch = find_source("kernelbook@main", registry)
    assert pinned(branch, {"GPUMODE/KernelBook@main": commit}).revision == commit


def test_an_unknown_source_is_told_its_nearest_name() -> None:
    with pytest.raises(NotFound, match="did you mean kernelbook"):
        find_source("kernelbok", read_registry())


def test_a_missing_file_and_a_broken_registry_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"no corpus file .*absent\.parquet"):
        find_source(str(tmp_path / "absent.parquet"), read_registry())
    broken = tmp_path / "sources.toml"
    broken.write_text("schema = 1\n[x]\nkind = 'ftp'\n")
    with pytest.raises(ConfigError, match="kind"):
        read_registry(broken)


def test_a_file_can_be_registered_with_a_name_and_terms(
    tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    path = write_parquet([kernelbook_row()])
    registry = tmp_path / "sources.toml"
    entry = f'[mine]\nkind = "file"\nrepository = "{path}"\nlicence = "BSD-3-Clause"\nattribution = "us"\n'
    registry.write_text(Path(read_registry.__defaults__[0]).read_text() + entry)
    store = Store(tmp_path / "snapshot")
    build_snapshot(IngestConfig(sources=("mine",), decontaminate_against=()), store, sources_file=registry)
    (exemplar,) = load_snapshot(store)
    assert (exemplar.source, exemplar.licence) == ("mine", "BSD-3-Clause")
    assert exemplar.source_revision == hashlib.sha256(path.read_bytes()).hexdigest()


def test_an_unreachable_hub_is_named_and_gives_no_rows(tmp_path: Path) -> None:
    script = (
        "from kernel_core.config import IngestConfig\n"
        "from kernel_core.corpus.snapshot import build_snapshot\n"
        "from kernel_core.errors import SourceUnavailable\n"
        "from kernel_core.store import Store\n"
        f"store = Store({str(tmp_path)!r})\n"
        "for source in ('kernelbook@' + 'a' * 40, 'sakana@main'):\n"
        "    try:\n"
        "        build_snapshot(IngestConfig(sources=(source,), decontaminate_against=()), store)\n"
        "    except SourceUnavailable as error:\n"
        "        print(error)\n"
    )
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=offline, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert "kernelbook (GPUMODE/KernelBook) could not be reached" in first
    assert "sakana (SakanaAI/AI-CUDA-Engineer-Archive) could not be reached" in second
    assert not Store(tmp_path).sealed()


@pytest.mark.parametrize("recipe", ["build-rag-index-triton", "build-rag-index-cuda"])
def test_the_sources_of_a_recipe_are_read_at_the_commit_that_main_was_at_first_use(
    recipe: str,
    tmp_path: Path,
    sakana_row: MakeRow,
    kernelbook_row: MakeRow,
    write_parquet: Writer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hub is a local copy of its layout; only its answer about the commit is given."""
    just = Path(sys.executable).parent / "just"
    command = [just, "--dry-run", recipe]
    said = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True).stderr
    names = [
        name for name in said.partition("sources=[")[2].partition("]")[0].split(",") if name != "generator"
    ]
    for level in (1, 2, 3):
        row = sakana_row(0, Level_ID=level, CUDA_Code=f"torch::op_{level}(x);")
        write_parquet([row], f"sakana/data/level_{level}-00000-of-00001.parquet")
    write_parquet([kernelbook_row()], "kernelbook/dataset_permissive.parquet")
    registry = tmp_path / "sources.toml"
    shipped = Path(read_registry.__defaults__[0]).read_text()
    shipped = shipped.replace("SakanaAI/AI-CUDA-Engineer-Archive", str(tmp_path / "sakana"))
    registry.write_text(shipped.replace("GPUMODE/KernelBook", str(tmp_path / "kernelbook")))
    commits = iter("cd")
    answer = lambda *_, **__: SimpleNamespace(sha=next(commits) * 40)  # noqa: E731
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", answer)
    store = Store(tmp_path / "snapshot")
    config = IngestConfig(sources=tuple(names), decontaminate_against=())
    for _ in range(2):  # main has moved by the second time
        manifest = build_snapshot(config, store, sources_file=registry)
        assert {source["revision"] for source in manifest.meta["sources"].values()} == {"c" * 40}


def test_a_hub_set_is_streamed_split_by_split(
    tmp_path: Path, sakana_row: MakeRow, write_parquet: Writer
) -> None:
    for level in (1, 2):
        rows = [
            sakana_row(index, Level_ID=level, CUDA_Code=f"torch::op_{level}_{index}(x);") for index in (0, 1)
        ]
        write_parquet(rows, f"hub/data/level_{level}-00000-of-00001.parquet")
    registry = tmp_path / "sources.toml"
    shipped = Path(read_registry.__defaults__[0]).read_text()
    registry.write_text(
        shipped.replace("SakanaAI/AI-CUDA-Engineer-Archive", str(tmp_path / "hub")).replace(
            ', "level_3"]', "]"
        )
    )
    store = Store(tmp_path / "snapshot")
    config = IngestConfig(sources=(f"sakana@{'b' * 40}",), decontaminate_against=())
    manifest = build_snapshot(config, store, sources_file=registry)
    exemplars = load_snapshot(store)
    assert [exemplar.task_level for exemplar in exemplars] == [1, 1, 2, 2]
    assert {exemplar.source_revision for exemplar in exemplars} == {"b" * 40}
    assert manifest.meta["sources"]["sakana"] == {
        "revision": "b" * 40,
        "licence": "CC-BY-4.0",
        "attribution": "The AI CUDA Engineer Archive, Sakana AI",
    }


def test_kernelbook_is_put_in_kernelbench_form(
    tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    (exemplar,), _, notes = ingest(write_parquet([kernelbook_row()]), tmp_path)
    assert exemplar.entry_point == "Model" and exemplar.language == "inductor_triton"
    assert "class Model(nn.Module)" in exemplar.reference_code
    assert "super(Model, self)" in exemplar.reference_code
    assert "with RowScaler's own gain" in exemplar.reference_code, "text is not code"
    assert "class ModelNew(torch.nn.Module)" in exemplar.kernel_code
    assert "return [4, 2.0, 0.5]" in exemplar.reference_code, "the pair laid out flat, defaults filled in"
    assert exemplar.attribution == (
        "KernelBook, GPU MODE; from someone/layers (https://example.org/someone/layers, MIT)"
    )
    assert exemplar.claimed_correct is None and exemplar.licence == "MIT" and not notes


UNADAPTABLE = {
    "a computed pair": ("return [[4], {'shift': 0.5}]", "return make()"),
    "a keyword that __init__ has not": ("'shift'", "'slope'"),
    "Model taken by another class": ("class RowScaler", "class Model:\n    pass\n\n\nclass RowScaler"),
}


@pytest.mark.parametrize("change", UNADAPTABLE.values(), ids=UNADAPTABLE)
def test_a_kernelbook_row_that_cannot_be_adapted_is_kept_and_noted(
    change: tuple[str, str], tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    row = kernelbook_row()
    row["python_code"] = row["python_code"].replace(*change)
    (exemplar,), _, notes = ingest(write_parquet([row]), tmp_path)
    assert exemplar.entry_point == "RowScaler"
    assert [note.startswith("kept as published") for note in notes] == [True]


def test_sakana_claims_are_read_with_suspicion(
    tmp_path: Path, sakana_row: MakeRow, write_parquet: Writer
) -> None:
    rows = [
        sakana_row(0, CUDA_Code="torch::a(x);"),
        sakana_row(1, CUDA_Code="torch::b(x);", Max_Diff=None),
        sakana_row(2, CUDA_Code="torch::c(x);", Error="nvcc: error"),
        sakana_row(3, CUDA_Code="torch::d(x);", Correct=False),
        sakana_row(4, CUDA_Code="torch::e(x);", CUDA_Speedup_Native=148.0),
        sakana_row(5, CUDA_Code="torch::f(x);", CUDA_Speedup_Native=float("nan"), Max_Diff=float("nan")),
    ]
    exemplars, _, notes = ingest(write_parquet(rows), tmp_path)
    found = {exemplar.kernel_code: exemplar for exemplar in exemplars}
    assert [found[f"torch::{name}(x);"].claimed_correct for name in "abcdef"] == [
        True,
        None,
        None,
        False,
        True,
        None,
    ]
    assert [found[f"torch::{name}(x);"].claimed_speedup for name in "aef"] == [1.5, None, None]
    assert {note.split(":")[0]: count for note, count in notes.items()} == {
        "kept as published, not a ModelNew": 6,
        "claim of correctness not believed": 3,
        "claim of speed not believed": 2,
    }
    assert all(exemplar.language == "cuda_cpp" for exemplar in exemplars)


FUNCTIONAL = """import torch
import torch.nn as nn
import torch.nn.functional as F


def module_fn(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    \"\"\"Sums of rows.\"\"\"
    return torch.cumsum(x, dim=1) * scale


class Model(nn.Module):
    def __init__(self, num_features):
        super(Model, self).__init__()
        self.scale = nn.Parameter(torch.ones(num_features))

    def forward(self, x, fn=module_fn):
        return fn(x, self.scale)
"""


def test_a_sakana_kernel_becomes_a_model_new_over_its_functional_module(
    tmp_path: Path, sakana_row: MakeRow, write_parquet: Writer
) -> None:
    row = sakana_row(PyTorch_Code_Functional=FUNCTIONAL)
    (exemplar,), _, notes = ingest(write_parquet([row]), tmp_path)
    assert not notes and exemplar.language == "cuda_cpp"
    built: list[dict[str, Any]] = []

    class Extension:  # in place of a compiler, which this machine has not
        @staticmethod
        def forward(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return x.cumsum(1) * scale

    loading = types.ModuleType("torch.utils.cpp_extension")
    loading.load_inline = lambda **given: built.append(given) or Extension  # type: ignore[attr-defined]
    module: dict[str, Any] = {"__name__": "wrapped"}
    with unittest.mock.patch.dict(sys.modules, {"torch.utils.cpp_extension": loading}):
        exec(compile(exemplar.kernel_code, "wrapped", "exec"), module)
    assert cuda_of(exemplar.kernel_code) == row["CUDA_Code"].strip()
    given, x = built[0], torch.randn(3, 4)
    assert given["cuda_sources"].strip() == row["CUDA_Code"].strip() and given["name"].isidentifier()
    assert torch.equal(module["ModelNew"](4)(x), x.cumsum(1)) and "Model" not in module


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"CUDA_Code": "__global__ void f() {}"}, "binds no function"),
        (
            {"CUDA_Code": 'PYBIND11_MODULE(a, m) { m.def("f", &f); m.def("g", &g); }'},
            "none is called forward",
        ),
        ({"PyTorch_Code_Functional": "def module_fn(:"}, "not Python"),
        ({"PyTorch_Code_Functional": "def module_fn(x): ..."}, "no Model"),
        ({"PyTorch_Code_Functional": FUNCTIONAL.replace("fn=module_fn", "fn=None")}, "argument of forward"),
    ],
)
def test_a_sakana_kernel_that_cannot_be_wrapped_is_kept_and_noted(
    changes: dict[str, str], reason: str, tmp_path: Path, sakana_row: MakeRow, write_parquet: Writer
) -> None:
    row = sakana_row(**{"PyTorch_Code_Functional": FUNCTIONAL} | changes)
    (exemplar,), _, notes = ingest(write_parquet([row]), tmp_path)
    assert exemplar.kernel_code == row["CUDA_Code"]
    assert [note for note in notes if note.startswith("kept as published") and reason in note]


def test_kernel_names_that_repeat_within_a_task_are_told_apart(
    tmp_path: Path, sakana_row: MakeRow, write_parquet: Writer
) -> None:
    rows = [sakana_row(index, CUDA_Code=f"torch::only_{index}(x);") for index in range(3)]
    exemplars, _, _ = ingest(write_parquet(rows), tmp_path)
    assert [exemplar.row_key for exemplar in exemplars] == [f"1/89/89_cumsum_warp/{i}" for i in range(3)]


def test_python_repr_in_a_row_is_not_run(tmp_path: Path, sakana_row: MakeRow, write_parquet: Writer) -> None:
    bait = tmp_path / "run"
    code = f"__import__('pathlib').Path({str(bait)!r}).touch()"
    row = sakana_row(NCU_Profile=code, Torch_Profile=code, PyTorch_Code_Module=f"x = {code}")
    exemplars, _, _ = ingest(write_parquet([row]), tmp_path)
    assert len(exemplars) == 1 and not bait.exists()


def test_no_module_of_the_ingest_calls_eval_or_exec() -> None:
    folder = Path(read_registry.__code__.co_filename).parent
    for file in folder.glob("*.py"):
        calls = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
        assert not {"eval", "exec", "compile"} & {getattr(call.func, "id", "") for call in calls}, file


BAD_COLUMNS: dict[str, tuple[Callable[[Row], Row], dict[str, pa.DataType], str]] = {
    "missing": (
        lambda row: {k: v for k, v in row.items() if k != "uuid"},
        {},
        "column uuid of kernelbook is missing",
    ),
    "renamed": (
        lambda row: {("licences" if k == "licenses" else k): v for k, v in row.items()},
        {},
        "column licenses of kernelbook is missing; the columns that came: .*licences",
    ),
    "added": (
        lambda row: row | {"pytorch_code": "x"},
        {},
        "column pytorch_code is not one of kernelbook's",
    ),
    "another type": (
        lambda row: row | {"stars": "3"},
        {"stars": pa.string()},
        "column stars is string, kernelbook publishes int",
    ),
    "a list of another type": (
        lambda row: row | {"licenses": [1]},
        {"licenses": pa.list_(pa.int64())},
        "column licenses is list of int, kernelbook publishes list of string",
    ),
}


@pytest.mark.parametrize("case", BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_columns_that_are_not_the_published_ones_stop_the_ingest_and_are_named(
    case: tuple[Callable[[Row], Row], dict[str, pa.DataType], str],
    tmp_path: Path,
    kernelbook_row: MakeRow,
    write_parquet: Writer,
) -> None:
    spoil, types, message = case
    path = write_parquet([spoil(kernelbook_row())], **types)
    with pytest.raises(CallerError, match=message):
        ingest(path, tmp_path)


def test_columns_of_nobody_are_listed(tmp_path: Path, write_parquet: Writer) -> None:
    with pytest.raises(CallerError, match="the columns that came: prompt, reply"):
        ingest(write_parquet([{"prompt": "x", "reply": "y"}]), tmp_path)


def test_each_bad_row_costs_itself_and_is_counted_by_its_reason(
    tmp_path: Path, kernelbook_row: MakeRow, write_jsonl: Writer
) -> None:
    good = kernelbook_row(1)
    path = write_jsonl(
        [
            good,
            kernelbook_row(2, triton_code="  "),
            kernelbook_row(3, python_code=None),
            kernelbook_row(4, triton_code="a = 1\x00"),
            kernelbook_row(5, triton_code="\ud800"),
            kernelbook_row(6, triton_code="x = 1\n" * 20_000),
            kernelbook_row(7, triton_code="x" * 10_000_000),
            kernelbook_row(8, python_code="class Broken(:"),
            kernelbook_row(9, stars="many"),
            {"uuid": 10},
            b'{"uuid": "\xff"}',
            b'{"cut off',
            b"[1, 2]",
            kernelbook_row(1, triton_code="y = 2"),
            kernelbook_row(11),
        ]
    )
    exemplars, dropped, _ = ingest(path, tmp_path)
    assert [exemplar.row_key for exemplar in exemplars] == ["1"]
    assert dropped == {
        "empty field": 2,
        "NUL byte": 1,
        "broken Unicode": 2,
        "too long": 2,
        "the reference is not Python": 1,
        "other columns than the first row's": 2,
        "not JSON": 2,
        "row key seen before": 1,
        "exact duplicate": 1,
    }


def test_broken_unicode_in_parquet_costs_one_row(
    tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    rows = [kernelbook_row(1), kernelbook_row(2, triton_code="MARK"), kernelbook_row(3, triton_code="z = 1")]
    path = write_parquet(rows)
    table = pq.read_table(path)
    raw = [text.encode().replace(b"MARK", b"\xff\xfe") for text in table["triton_code"].to_pylist()]
    broken = pa.Array.from_buffers(pa.string(), len(raw), pa.array(raw, pa.binary()).buffers())
    position = table.schema.get_field_index("triton_code")
    pq.write_table(table.set_column(position, "triton_code", broken), path)
    exemplars, dropped, _ = ingest(path, tmp_path)
    assert [exemplar.row_key for exemplar in exemplars] == ["1", "3"]
    assert dropped == {"broken Unicode": 1}


def test_a_row_of_ten_megabytes_in_parquet_costs_one_row(
    tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    codes = ("x", "x" * 10_000_000, "tl.z")
    rows = [kernelbook_row(uuid, triton_code=code) for uuid, code in enumerate(codes, start=1)]
    exemplars, dropped, _ = ingest(write_parquet(rows), tmp_path)
    assert [exemplar.row_key for exemplar in exemplars] == ["1", "3"] and dropped == {"too long": 1}


def test_a_damaged_shard_of_a_file_costs_its_rows_and_no_others(
    tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    rows = [kernelbook_row(uuid, triton_code=f"tl.op_{uuid}(x)") for uuid in range(1, 7)]
    path = write_parquet(rows)
    pq.write_table(pq.read_table(path), path, row_group_size=2, write_page_checksum=True)
    column = pq.ParquetFile(path).metadata.row_group(1).column(3)
    data = bytearray(path.read_bytes())
    middle = column.data_page_offset + column.total_compressed_size // 2
    data[middle : middle + 8] = bytes(8)
    path.write_bytes(data)
    exemplars, dropped, _ = ingest(path, tmp_path)
    assert [exemplar.row_key for exemplar in exemplars] == ["1", "2", "5", "6"]
    assert dropped == {"damaged in the file": 2}


def test_a_file_of_exemplars_is_taken_but_its_hashes_are_not_believed(
    tmp_path: Path, write_jsonl: Writer
) -> None:
    reference = "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    row = {
        "row_key": "a",
        "licence": "Apache-2.0",
        "language": "triton",
        "reference_code": reference,
        "kernel_code": "class ModelNew: ...",
        "reference_hash": "forged",
        "claimed_speedup": 3,
    }
    (exemplar,), dropped, _ = ingest(
        write_jsonl([row, row | {"row_key": "b", "language": "cobol"}]), tmp_path
    )
    assert exemplar.reference_hash != "forged" and exemplar.source == "rows.jsonl"
    assert dropped == {"a value out of bounds": 1}


def test_a_file_that_is_not_parquet_is_a_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"not parquet")
    with pytest.raises(CallerError, match=r"rows\.parquet is not a Parquet file"):
        ingest(path, tmp_path)


def test_a_damaged_snapshot_is_corrupt(
    tmp_path: Path, kernelbook_row: MakeRow, write_parquet: Writer
) -> None:
    ingest(write_parquet([kernelbook_row()]), tmp_path)
    rows = tmp_path / "snapshot" / "exemplars.parquet"
    rows.write_bytes(rows.read_bytes()[:-10])
    with pytest.raises(Corrupt, match=r"exemplars\.parquet does not match its checksum"):
        load_snapshot(Store(tmp_path / "snapshot"))
