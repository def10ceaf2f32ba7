"""A user's module → verified kernels for its parts, and the whole module with them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from flows.best_of_n import best_of_n
from flows.running import running
from flows.stage_flow import stage_flow
from kernel_core.config import BestOfNConfig, GymConfig, ProblemsConfig
from kernel_core.optimize import MOST_PARTS
from tasks.assets import making
from tasks.optimize import confirm_winners, profile_module, prove_whole, write_problems

_SEARCH = "search"
"""Folder of the run for the winners of the search."""


@stage_flow("optimize", run_name="{run}: {target}")
def optimize(
    target: str,
    config: GymConfig,
    winners: str = "",
    search: BestOfNConfig | None = None,
    most_parts: int = MOST_PARTS,
    run: str = "optimize",
    root: str = "runs",
) -> None:
    """Profile a module, search kernels for its parts, and keep those that help the whole.

    Args:
        target: FILE.py, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION; see docs/optimize.md.
        config: Settings of the judge; its device is the module's.
        winners: Folder of a best-of-N run on the written problems, as further candidates.
        search: Best-of-N run on the written problems, whose winners are further candidates.
        most_parts: Most parts to try.
        run: Folder under the root; under a known name a run goes on.
        root: Local folder.
    """
    with running(run, root) as here:
        file = Path(target.partition(":")[0])
        text = file.read_bytes() if file.is_file() else b""
        settings = {"target": target, "gym": config.model_dump(), "winners": winners, "parts": most_parts}
        settings["search"] = search and search.model_dump()
        inputs = {"target": hashlib.sha256(text).hexdigest()}
        with making(here, "optimize", settings, {}, inputs, folder="optimize") as work:
            if not work.done:
                profile_module(target, config, work.store)
                write_problems(target, config, most_parts, here, work.store)
                folders = [winners] if winners else []
                if search is not None:
                    problems = ProblemsConfig(suite=work.store.path("problems"), split="all", limit=None)
                    best_of_n(search.model_copy(update={"problems": problems}), run, root, _SEARCH)
                    folders.append(here.store.path(_SEARCH))
                confirm_winners(config, folders, here, work.store)
                prove_whole(target, config, here, work.store)
