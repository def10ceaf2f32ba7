"""`dojo optimize`: a user's module, made faster by verified kernels."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.console import Console

from flows.arguments import Root, Words
from flows.terminal import working
from kernel_core.config.base import laid_over
from kernel_core.optimize import MOST_PARTS
from kernel_core.runs.host_gpus import require_gpu_here


def optimize(
    target: Annotated[str, Parameter(name="TARGET")],
    /,
    *words: Words,
    device: Literal["cpu", "cuda"] = "cpu",
    gpu: Literal["H200", "H100", "A100", "L4"] = "H200",
    winners: str = "",
    parts: int = MOST_PARTS,
    run: str = "",
    root: Root = "runs",
    dry_run: bool = False,
) -> int:
    """Find the parts of a module that faster kernels exist for, and prove them in the whole module.

    Settings are those of `dojo best-of`: its policy writes candidates too.

    Args:
        target: FILE.py, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION; see docs/optimize.md
        device: where the module runs and kernels are judged; on a cpu speed is predicted
        gpu: that times are predicted for
        winners: folder of a best-of-N run on the problems of this run, as further candidates
        parts: most parts to try, those with the largest bound of their gain
        run: folder under the root, named after the target by default
        dry_run: print the profile and what would be tried; judge nothing
    """
    if device == "cuda":
        require_gpu_here("--device")
    if dry_run:
        return _show_parts(target, device, gpu, parts)
    from flows.commands.stages import resume
    from flows.presets import preset_and_settings, settings_for
    from kernel_core.optimize.target import loaded, target_name

    with working(f"loading {target}"):
        loaded(target, device)
    # On CUDA one judge, on the module's GPU.
    config = {"device": device, "predict_gpu": gpu, **({"workers": 1} if device == "cuda" else {})}
    given = {"target": target, "config": config, "winners": winners, "most_parts": parts, "root": root}
    if words:
        preset_name, settings = preset_and_settings(words)
        chosen = settings_for("best-of-n", preset_name, None, settings, os.environ)
        given["search"] = laid_over(chosen["config"], {"gym": config})
    return resume("optimize", given | {"run": run or f"optimize-{target_name(target)}"})


def _show_parts(target: str, device: str, gpu: str, most_parts: int) -> int:
    """Print the profile and the parts with their predicted bounds."""
    from kernel_core.optimize.profile import profile
    from kernel_core.optimize.stages import find_parts
    from kernel_core.optimize.target import load_target
    from kernel_core.report.overview import rows_table

    with working(f"profiling {target}"):
        loaded = load_target(target, device)
        rows = profile(loaded, device, gpu)
        parts = find_parts(loaded, rows, most=most_parts)
    console, whole = Console(), rows.whole
    console.print(rows_table(f"profile of {target}: predicted for {gpu}, eager mode", rows.table()))
    console.print(rows_table("what would be tried, with upper bounds of the gain", parts.rows(whole)))
    for path, reason in parts.left_out.items():
        console.print(f"left out: {path or '(whole)'}: {reason}", markup=False, highlight=False)
    return 0
