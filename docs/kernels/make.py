"""Write the kernels of this folder and their table: `just kernels`.

The problems beside this file are the input. A kernel whose text has changed is judged again on the CPU.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from kernel_core.generator.answer import Answer, answer
from kernel_core.interop.batch import request_of
from kernel_core.interop.judged import judge_here
from kernel_core.problems.load import load_file
from kernel_core.records import Evaluation, Problem, sha256_text

HERE = Path(__file__).parent
VERDICTS = HERE / "verdicts.json"
HEAD = """\
# Kernels that the generator writes

The [generator](../generator.md) wrote these kernels; no line was changed by hand. `just kernels` writes this
folder again. The CPU judge says `{verdict}` of each. Speed-ups are predicted for one forward pass on an H200,
relative to eager PyTorch.

| problem | | launches | speed-up |
|---|---|---|---|
"""
SUFFIX = "_kernel"


def answers() -> dict[str, tuple[Problem, Answer]]:
    """Each problem of this folder with its answer, by the problem's name."""
    files = [
        path for path in sorted(HERE.glob("*.py")) if not path.stem.endswith((SUFFIX, Path(__file__).stem))
    ]
    problems = {path.stem: load_file(path) for path in files}
    return {name: (problem, answer(problem)) for name, problem in problems.items()}


def sha_of(written: Answer) -> str:
    """Name of a kernel's text in `verdicts.json`."""
    return sha256_text(written.source)[:16]


def judged(answered: dict[str, tuple[Problem, Answer]], known: dict[str, Any]) -> dict[str, Any]:
    """Verdicts by the problem's name; kernels whose text is known keep theirs."""
    shas = {name: sha_of(written) for name, (_, written) in answered.items()}
    new = [name for name, sha in shas.items() if known.get(name, {}).get("sha") != sha]
    requests = [request_of(answered[name][0], answered[name][1].source, {}, 1, "cpu") for name in new]
    results = judge_here(requests, {"device": "cpu", "rules": "dojo", "cluster": "local"})[0] if new else []
    verdicts = {name: row for name, row in known.items() if name in answered}
    for name, result in zip(new, results, strict=True):
        outcome = result.outcome
        if not isinstance(outcome, Evaluation):
            raise outcome
        traffic = outcome.traffic
        verdicts[name] = {
            "sha": shas[name],
            "verdict": str(outcome.verdict),
            "launches": traffic and traffic.num_launches,
            "speedup": outcome.predicted_speedup and round(outcome.predicted_speedup, 2),
        }
    return dict(sorted(verdicts.items()))


def texts(answered: dict[str, tuple[Problem, Answer]], verdicts: dict[str, Any]) -> dict[str, str]:
    """The text of each file by its name: the table, and each kernel behind its plan."""
    rows, kernels = [], {}
    for name, (problem, written) in answered.items():
        tree = ast.parse(problem.source)
        model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
        verdict, file = verdicts[name], f"{name}{SUFFIX}.py"
        cells = [
            f"[{name.replace('_', ' ')}]({name}.py)", ast.get_docstring(model),
            f"[{verdict['launches']}]({file})", verdict["speedup"],
        ]  # fmt: skip
        rows.append(f"| {' | '.join(map(str, cells))} |\n")
        plan = "".join(f"# {line}\n" for line in written.thinking.splitlines())
        kernels[file] = f"{plan}{written.source.strip()}\n"
    verdicts_in_all = " or ".join(sorted({row["verdict"] for row in verdicts.values()}))
    return {"README.md": HEAD.format(verdict=verdicts_in_all) + "".join(rows), **kernels}


def main() -> None:
    """Judge what is new and write all files."""
    answered = answers()
    verdicts = judged(answered, json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {})
    VERDICTS.write_text(json.dumps(verdicts, indent=1) + "\n")
    for name, text in texts(answered, verdicts).items():
        (HERE / name).write_text(text)


if __name__ == "__main__":
    main()
