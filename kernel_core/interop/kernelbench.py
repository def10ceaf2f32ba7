"""KernelBench's folders: problems of a checkout, kernels of a run, and its `eval_results.json`.

Problems are read by `kernel_core.problems.load.load_kernelbench`; the rest is here. A run's folder has files
`level_L_problem_P_sample_S_kernel.py`, and results are `{problem number: [results of samples]}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_core.errors import ConfigError, Corrupt, NotFound
from kernel_core.records import Candidate, Evaluation, Problem, Record

_KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")
_NUMBERED = re.compile(r"\d+_")


class SampleKey(Record):
    """A sample's name in a run: level, problem number within the level, and sample number."""

    level: int
    problem: int
    sample: int

    @property
    def file_name(self) -> str:
        """Return the name of its kernel's file."""
        return f"level_{self.level}_problem_{self.problem}_sample_{self.sample}_kernel.py"


class ClaimedResult(Record):
    """The result of a sample as KernelBench's evaluator wrote it. Our judge has not seen it."""

    sample: int
    compiled: bool
    correctness: bool
    runtime_ms: float | None
    """None where nothing was measured, which KernelBench writes as -1."""
    metadata: dict[str, Any]


def number_of(problem: Problem) -> int:
    """Return a problem's number in its level, with which its name begins.

    Raises `ConfigError` without one.
    """
    match = _NUMBERED.match(problem.name)
    if match is None:
        raise ConfigError(f"the name of {problem.id} does not begin with a number, as in 19_ReLU")
    return int(match[0][:-1])


def write_problems(problems: Sequence[Problem], root: Path, level: int = 1) -> list[Path]:
    """Write problems as a checkout has them, `KernelBench/levelN/N_name.py`; gives the files.

    A problem without a number gets its position, one without a level `level`. Sizes for a CPU and the family
    are comments on top, which our reader understands and KernelBench passes over.
    """
    files = []
    for position, problem in enumerate(problems, start=1):
        folder = root / "KernelBench" / f"level{problem.level or level}"
        folder.mkdir(parents=True, exist_ok=True)
        is_numbered = _NUMBERED.match(problem.name) is not None
        file = folder / f"{problem.name if is_numbered else f'{position}_{problem.name}'}.py"
        if file.exists():
            raise ConfigError(f"{file} is there already; write into an empty folder")
        file.write_text(directives(problem) + problem.source, encoding="utf-8")
        files.append(file)
    return files


def read_kernels(folder: Path) -> dict[SampleKey, Candidate]:
    """Read the kernels of a run's folder, by level, problem and sample.

    Raises `NotFound` where there are none.
    """
    kernels = {}
    for file in sorted(folder.glob("*.py")) if folder.is_dir() else ():
        if match := _KERNEL.fullmatch(file.name):
            key = SampleKey(level=int(match[1]), problem=int(match[2]), sample=int(match[3]))
            kernels[key] = Candidate.from_source(file.read_text(encoding="utf-8", errors="replace"))
    if not kernels:
        raise NotFound(f"no level_L_problem_P_sample_S_kernel.py in {folder}")
    return dict(sorted(kernels.items(), key=lambda item: (item[0].level, item[0].problem, item[0].sample)))


def write_kernels(kernels: Mapping[SampleKey, Candidate], folder: Path) -> None:
    """Write kernels as a run's folder, for KernelBench's own evaluator."""
    folder.mkdir(parents=True, exist_ok=True)
    for key, candidate in kernels.items():
        (folder / key.file_name).write_text(candidate.source, encoding="utf-8")


def write_results(evaluations: Iterable[tuple[SampleKey, Evaluation]], file: Path) -> None:
    """Write evaluations of one level as `eval_results.json`; no measured time is -1, as theirs."""
    from kernel_core.gym.judge.kernelbench_rules import result_of  # with torch, which takes seconds

    results: dict[str, list[dict[str, Any]]] = {}
    for key, evaluation in evaluations:
        results.setdefault(str(key.problem), []).append({"sample_id": key.sample, **result_of(evaluation)})
    file.write_text(json.dumps(results, indent=2))


def read_results(file: Path) -> dict[int, list[ClaimedResult]]:
    """Read the claims of an `eval_results.json` by problem number. Raises `NotFound` or `Corrupt`."""
    try:
        results = json.loads(file.read_text())
        return {
            int(problem): [_claim(sample) for sample in (samples if isinstance(samples, list) else [samples])]
            for problem, samples in results.items()
        }
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Corrupt(f"{file} is not an eval_results.json of KernelBench: {error!r}") from error


def _claim(result: Mapping[str, Any]) -> ClaimedResult:
    runtime = float(result["runtime"])
    return ClaimedResult(
        sample=result.get("sample_id", 0),
        compiled=result["compiled"],
        correctness=result["correctness"],
        runtime_ms=runtime if runtime > 0 else None,
        metadata=dict(result.get("metadata") or {}),
    )


def directives(problem: Problem) -> str:
    """Return comments for the top of a problem that tell our reader what its text does not state."""
    sizes = ", ".join(f"{name}={value!r}" for name, value in problem.cpu_constants.items())
    lines = [f"# cpu: {sizes}"] if sizes else []
    lines += [f"# precision: {problem.precision}"] if problem.precision != "own" else []
    lines += [f"# tags: {', '.join(problem.tags)}"] if problem.tags else []
    return "".join(f"{line}\n" for line in [*lines, f"# family: {problem.family}"])
