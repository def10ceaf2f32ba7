"""`dojo teach`: the generator's kernels for a module, judged; `--coverage` counts those of a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from flows.commands.judge import judge_one
from flows.commands.outputs import require_writable
from flows.terminal import say, working
from kernel_core.errors import ConfigError, NotAProblem
from kernel_core.interop.batch import request_of
from kernel_core.problems.load import load_file, load_folder

AT_ONCE = 128
"""Problems of a folder whose rows are written together."""


def teach(
    *,
    problem: Path | None = None,
    coverage: Path | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    precision: Literal["tf32x3", "tf32", "ieee"] = "tf32x3",
    out: Path | None = None,
    write_only: bool = False,
    seed: int | None = None,
    json_: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Write kernels for a module and judge them, or count what is answered in a folder.

    A convolution stays with torch's library where another step is left to write. So does a matrix product,
    unless it is of float32 values and computed in `tf32x3`. Where no kernel can be written for the whole
    module, those for a part are.

    Args:
        problem: a file in KernelBench's format; its code is run to read its graph
        coverage: a folder of such files, instead of one problem
        precision: of products of float32 values; `tf32x3` is as exact as IEEE's
        out: where the answer goes, by default `<problem>_kernel.py` in the current folder; of a folder, where
            the table goes as JSON lines
        write_only: count what is answered in a folder, without a judge
        seed: of the input draws; a fresh one by default
        json_: the last line of stdout is one JSON object
    """
    if (problem is None) == (coverage is None):
        raise ConfigError("give --problem FILE or --coverage FOLDER")
    if coverage is not None:
        return _cover(coverage, device, precision, out, not write_only, json_)
    assert problem is not None
    from kernel_core.generator.graded import widest_answer  # with torch, which takes seconds
    from kernel_core.generator.read import Unreadable

    read = load_file(problem)
    path = out or Path(f"{problem.stem}_kernel.py")
    require_writable("--out", path, problem)
    try:
        written = widest_answer(read, precision)
    except Unreadable as error:
        raise NotAProblem(f"{problem}: no kernel can be written for it: {error}") from error
    path.write_text(written.source, encoding="utf-8")
    say(written.thinking)
    for reason in dict.fromkeys(written.reasons):
        say(f"stays with PyTorch: {reason}")
    say(str(path))
    gym = {"device": device, "rules": "dojo", "cluster": "local"}
    return judge_one(request_of(read, written.source, {}, seed, device), gym, json_)


def _cover(folder: Path, device: str, precision: str, out: Path | None, judged: bool, as_json: bool) -> int:
    from kernel_core.generator.coverage import cover, summary

    problems, rows = load_folder(folder), list[dict[str, Any]]()
    if out is not None:
        require_writable("--out", out, folder)
        out.write_text("", encoding="utf-8")
    for start in range(0, len(problems), AT_ONCE):
        end = min(start + AT_ONCE, len(problems))
        with working(f"problems {start + 1} to {end} of {len(problems)}"):
            part = cover(problems[start:end], device, precision, judged)
        rows += part
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in part)
    counts = summary(rows)
    for outcome, number in counts.items():
        say(f"{number:5} {outcome}")
    if as_json:
        say(json.dumps(counts))
    return 0
