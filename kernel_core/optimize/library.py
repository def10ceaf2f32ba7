"""Library of winners: an importable package with the kernels of one module, their contracts and evidence.

    import sys; sys.path.insert(0, "RUN/optimize")
    import library
    library.install(model)

The package needs torch and triton alone.
"""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from kernel_core.errors import CallerError
from kernel_core.evaluation.metrics import SpeedKind
from kernel_core.harvest.packages import find_package
from kernel_core.optimize import dispatch
from kernel_core.optimize.search import Confirmed
from kernel_core.optimize.target import Target
from kernel_core.records import Evaluation

PACKAGE = "library"
_INIT = '''"""Triton kernels for {target}, by `dojo optimize`.

`install(model)` puts them in, and `uninstall(model)` takes them out.
Calls outside a kernel's contract run the original: see contracts.json for shapes and types, table.txt for
times. Put them in last: hooks and adapters inside a replaced submodule do not run.
"""

from pathlib import Path

from .dispatch import install_library, uninstall_library


def install(model, names=None):
    """Run each kernel in place of its submodules; return the paths. `names` restricts the kernels."""
    return install_library(model, Path(__file__).parent, __name__, names)


def uninstall(model):
    """Give every submodule its own forward back; return the paths."""
    return uninstall_library(model)
'''


def write_library(
    folder: Path,
    target: Target,
    winners: Sequence[Confirmed],
    places: Mapping[str, Sequence[str]],
    device: str,
) -> list[dict[str, Any]]:
    """Write the package of winners at their chosen places; return the rows of its table."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kind: SpeedKind = "measured" if device == "cuda" else "predicted"
    entries: dict[str, Any] = {}
    rows = []
    for winner in winners:
        name = kernel_name(winner)
        candidate, judged = winner.candidate, winner.selected.winner
        if not places.get(name) or candidate is None or judged is None:
            continue
        (folder / f"{name}.py").write_text(candidate.source, encoding="utf-8")
        evaluation = judged.again[0]
        entries[name] = {
            "paths": list(places[name]),
            "arguments": winner.part.contract.arguments,
            "contract": winner.part.contract.model_dump(mode="json"),
            "author": winner.author,
            "origin": origin_of(target.module.get_submodule(winner.part.paths[0])),
            "speed_kind": kind,
            "speedup": judged.speedup,
            "saved_ms": winner.saved_ms,
            "evidence": [_evidence(again) for again in judged.again],
        }
        rows.append(_row(name, entries[name], evaluation, kind))
    (folder / "contracts.json").write_text(json.dumps(entries, indent=1) + "\n")
    (folder / "__init__.py").write_text(_INIT.format(target=target.name))
    shutil.copy(dispatch.__file__, folder / "dispatch.py")
    wide = [_with_contract(row, entries[row["kernel"]]) for row in rows]
    (folder / "index.html").write_text(_page(target.name, wide))
    table = [list(wide[0]), *([_number(value) for value in row.values()] for row in wide)] if wide else []
    (folder / "table.txt").write_text("".join(f"{' | '.join(line)}\n" for line in table))
    return rows


def kernel_name(winner: Confirmed) -> str:
    """Return the module name of a part's kernel in the package."""
    return winner.part.problem.name.lower()


def origin_of(module: nn.Module) -> dict[str, str]:
    """Return the class that a kernel stands for, with the package and licence it comes from."""
    kind = type(module)
    origin = {"class": f"{kind.__module__}.{kind.__qualname__}"}
    try:
        package = find_package(kind.__module__.partition(".")[0])
    except (CallerError, ValueError):  # a user's own file, or no package with a known licence
        return origin
    return origin | {"package": f"{package.name} {package.version}", "licence": package.licence}


def _evidence(evaluation: Evaluation) -> dict[str, Any]:
    kept = {"verdict", "trials_passed", "speedup", "baseline", "predicted_speedup", "product_precision"}
    kept |= {"tolerances_passed", "gym_version", "device", "platform", "run_sizes"}
    return evaluation.model_dump(mode="json", include=kept)


def _row(name: str, entry: Mapping[str, Any], evaluation: Evaluation, kind: SpeedKind) -> dict[str, Any]:
    gpu = evaluation.traffic.gpu if evaluation.traffic else "a GPU"
    return {
        "kernel": name,
        "places": len(entry["paths"]),
        f"{kind} speed-up": entry["speedup"],
        "over": evaluation.baseline or f"eager on {gpu}",
        f"{kind} ms saved": entry["saved_ms"] * len(entry["paths"]),
        "author": entry["author"],
    }


def _with_contract(row: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    contract = entry["contract"]
    return {
        **row,
        "shapes": ", ".join("x".join(map(str, shape)) for shape in contract["shapes"]),
        "free up to": ", ".join(f"{name}<={size}" for name, size in contract["free"].items()),
        "types": ", ".join(dict.fromkeys(contract["dtypes"])),
        "origin": entry["origin"]["class"],
    }


def _page(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the table as a page of HTML."""
    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(_number(row[name]))}</td>' for name in names)}</tr>" for row in rows
    )
    title = html.escape(f"Kernels for {title}")
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title>"
        "<style>body{font:14px sans-serif}"
        "td,th{padding:3px 9px;text-align:left;border-bottom:1px solid #ccc}</style>"
        f"<h1>{title}</h1><table><tr>{head}</tr>{body}</table>\n"
    )


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
