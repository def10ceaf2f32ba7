"""An invented corpus in the published columns of KernelBook and the Sakana archive, with its truth.

Beside the two Parquet files stands a KernelBench checkout of invented tasks. Every Sakana row is one of its
tasks, as in the published set; some KernelBook rows repeat another row, and some give a task away.

    python benchmarks/synthetic_corpus.py FOLDER
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from paraphrase import paraphrase, renamed
from synthetic_cuda import cuda_variants
from synthetic_programs import Program, Spelling, Text, draw_programs, spell

from kernel_core.problems.load import load_dojo

KERNELBOOK_ROWS, SAKANA_ROWS = 18_162, 30_615
TASKS = {1: 100, 2: 100, 3: 50, 4: 20}
SAKANA_LEVELS = (1, 2, 3)
DUPLICATES = ("copy", "remarks", "renamed", "constants", "order")
LEAKS = ("same", "renamed", "paraphrased")

_DUPLICATE_SHARE = 0.248
"""Published: a quarter of KernelBook repeats."""
_WRONG_SHARE = 0.45
"""Published: about 17,000 of Sakana's 30,615 rows are said to be correct."""
_WRITE_ROWS = 2048
_SEED = 6


@dataclass(frozen=True)
class Truth:
    """What a row is: its key in the snapshot, its group, and what was planted."""

    key: str
    group: str
    planted: str = ""
    """Empty for a first of its kind; else the duplicate's or the leak's kind."""


@dataclass(frozen=True)
class Task:
    """An evaluation problem's id, level, number and module."""

    id: str
    level: int
    number: int
    source: str


def write_corpus(
    folder: Path, kernelbook_rows: int = KERNELBOOK_ROWS, sakana_rows: int = SAKANA_ROWS
) -> list[Truth]:
    """The files `kernelbook.parquet`, `sakana.parquet`, `truth.jsonl` and `KernelBench/levelN/*.py`."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = draw_programs(kernelbook_rows + sum(TASKS.values()), _SEED)
    tasks = list(_tasks(programs, folder))
    truth: list[Truth] = []
    book = _kernelbook(programs, [*tasks, *_dojo_tasks()], kernelbook_rows, truth)
    _write(folder / "kernelbook.parquet", book)
    if sakana_rows:
        _write(folder / "sakana.parquet", _sakana(tasks, sakana_rows, truth))
    (folder / "truth.jsonl").write_text("".join(json.dumps(vars(row)) + "\n" for row in truth))
    return truth


def _tasks(programs: Iterator[Program], folder: Path) -> Iterator[Task]:
    for level, count in TASKS.items():
        (folder / "KernelBench" / f"level{level}").mkdir(parents=True, exist_ok=True)
        for number in range(1, count + 1):
            source = _as_task(spell(next(programs), _spelling(level * 1000 + number)))
            name = f"{number}_Task{number}"
            (folder / "KernelBench" / f"level{level}" / f"{name}.py").write_text(source)
            yield Task(f"kernelbench/level{level}/{name}", level, number, source)


def _as_task(text: Text) -> str:
    return text.reference.replace(text.entry_point, "Model").replace("return [[], {}]", "return []")


def _dojo_tasks() -> list[Task]:
    return [Task(problem.id, 0, 0, problem.source) for problem in load_dojo()]


def _kernelbook(
    programs: Iterator[Program], tasks: Sequence[Task], count: int, truth: list[Truth]
) -> Iterator[dict[str, Any]]:
    """Rows in a shuffled order; a repeat may come before what it repeats."""
    rng = random.Random(f"rows {_SEED}")
    leaks = [(task, kind) for task in tasks for kind in LEAKS][:count]
    repeats = int((count - len(leaks)) * _DUPLICATE_SHARE) // len(DUPLICATES) * len(DUPLICATES)
    firsts = [next(programs) for _ in range(count - len(leaks) - repeats)]
    plans: list[tuple[Any, str]] = [(group, "") for group in range(len(firsts))]
    plans += [(rng.randrange(len(firsts)), DUPLICATES[index % len(DUPLICATES)]) for index in range(repeats)]
    plans += leaks
    rng.shuffle(plans)
    for uuid, (what, kind) in enumerate(plans):
        if isinstance(what, Task):
            text, group = _leak(what, kind, uuid), what.id
        else:
            text, group = _spelt(firsts[what], what, kind, uuid), str(what)
        truth.append(Truth(f"kernelbook/{uuid}", group, f"leak: {kind}" if isinstance(what, Task) else kind))
        yield _kernelbook_row(text, uuid)


def _spelling(seed: int) -> Spelling:
    return Spelling(seed, seed, seed, seed)


def _spelt(program: Program, first: int, kind: str, uuid: int) -> Text:
    """A program's first text, or another of it that differs in one way."""
    other = 10**7 + uuid
    changes = {"remarks": "remarks", "renamed": "names", "constants": "constants", "order": "order"}
    if kind not in changes:
        return spell(program, _spelling(first))
    return spell(program, Spelling(**vars(_spelling(first)) | {changes[kind]: other}))


def _leak(task: Task, kind: str, uuid: int) -> Text:
    """An evaluation problem as KernelBook would have it: another class name, the same computation."""
    rng = random.Random(f"leak {uuid}")
    source = {"same": str, "renamed": lambda s: renamed(s, rng), "paraphrased": lambda s: paraphrase(s, rng)}[
        kind
    ](task.source)
    entry = f"Layer{uuid}"
    kernel = spell(next(draw_programs(1, uuid)), _spelling(uuid))
    reference = re.sub(r"\bModel\b", entry, source)
    flat = re.search(r"def get_init_inputs\(\):\n    return (\[.*\])", reference, re.DOTALL)
    assert flat is not None, f"{task.id} has no flat init inputs"
    reference = reference.replace(flat[0], f"def get_init_inputs():\n    return [{flat[1]}, {{}}]")
    return Text(entry, reference, kernel.kernel.replace(f"{kernel.entry_point}New", f"{entry}New"))


def _kernelbook_row(text: Text, uuid: int) -> dict[str, Any]:
    return {
        "entry_point": text.entry_point,
        "original_triton_code": f"# AOT ID: ['{uuid}_inference']\n{text.kernel}\n{text.kernel}",
        "python_code": text.reference,
        "triton_code": text.kernel,
        "repo_name": f"somebody{uuid % 6847}/layers",
        "module_name": text.entry_point,
        "synthetic": False,
        "uuid": uuid,
        "licenses": ["MIT"],
        "stars": uuid % 900,
        "sha": f"{uuid:040x}",
        "repo_link": f"https://example.org/somebody{uuid % 6847}/layers",
    }


def _sakana(tasks: Sequence[Task], count: int, truth: list[Truth]) -> Iterator[dict[str, Any]]:
    """Hundreds of kernels a task, most of them nearly another's."""
    published = [task for task in tasks if task.level in SAKANA_LEVELS]
    for index in range(count):
        task = published[index % len(published)]
        variant, planted, code = cuda_variants(task.number, index // len(published))
        name = f"{task.number}_variant_{variant}"
        key = f"sakana/{task.level}/{task.number}/{name}/{index}"
        rng = random.Random(f"sakana {index}")
        wrong = random.Random(f"{task.id} {variant}").random() < _WRONG_SHARE
        truth.append(Truth(key, f"{task.id} {variant}", planted))
        yield {
            "Op_Name": f"{task.number}_Task{task.number}",
            "Level_ID": task.level,
            "Task_ID": task.number,
            "Kernel_Name": name,
            "CUDA_Runtime": rng.uniform(0.01, 3.0),
            "PyTorch_Native_Runtime": 1.0,
            "PyTorch_Compile_Runtime": 1.0,
            "CUDA_Speedup_Native": rng.choice((0.6, 1.1, 1.9, 4.0, 60.0)),
            "CUDA_Speedup_Compile": 1.0,
            "CUDA_Code": code,
            "PyTorch_Code_Module": task.source,
            "PyTorch_Code_Functional": _functional(task),
            "Correct": not wrong,
            "Max_Diff": rng.choice((None, 3.5)) if wrong else 1e-6,
            "Error": "CUDA error: an illegal memory access" if wrong and rng.random() < 0.5 else None,
            "NCU_Profile": None if wrong else "{'metrics': {'Occupancy': {'avg_value': 0.8}}}" * 20,
            "Torch_Profile": None if wrong else "{'aten::relu': {'cpu_time': 1}}" * 20,
            "Clang_Tidy": None if wrong else "{'stdout': '42 warnings generated'}" * 20,
            "__index_level_0__": index,
        }


def _functional(task: Task) -> str:
    """The archive's second form of a reference: a function, and a module that calls it."""
    return (
        "import torch\nimport torch.nn as nn\n\n\n"
        f"def module_fn(x):\n    return x * {task.number}\n\n\n"
        "class Model(nn.Module):\n    def forward(self, x, fn=module_fn):\n        return fn(x)\n"
    )


_LISTS = {"licenses": pa.list_(pa.string())}
_TYPES = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


def _write(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    writer: pq.ParquetWriter | None = None
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _WRITE_ROWS:
            writer = _append(path, writer, batch)
            batch = []
    if batch:
        writer = _append(path, writer, batch)
    assert writer is not None, "no rows"
    writer.close()


def _append(path: Path, writer: pq.ParquetWriter | None, rows: list[dict[str, Any]]) -> pq.ParquetWriter:
    writer = writer or pq.ParquetWriter(path, _schema(rows[0]))
    writer.write_table(pa.Table.from_pylist(rows, schema=writer.schema))
    return writer


def _schema(row: dict[str, Any]) -> pa.Schema:
    floats = {"Max_Diff": pa.float64()}
    return pa.schema(
        [
            (name, _LISTS.get(name) or floats.get(name) or _TYPES.get(type(value), pa.string()))
            for name, value in row.items()
        ]
    )


def main() -> int:
    """Write the corpus into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--kernelbook", type=int, default=KERNELBOOK_ROWS, help="rows in KernelBook's columns"
    )
    parser.add_argument("--sakana", type=int, default=SAKANA_ROWS, help="rows in Sakana's columns")
    arguments = parser.parse_args()
    truth = write_corpus(arguments.folder, arguments.kernelbook, arguments.sakana)
    print(f"{len(truth)} rows, {sum(bool(row.planted) for row in truth)} of them planted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
