"""Stages that do not depend on each other, side by side where neither disturbs the other."""

from __future__ import annotations

from collections.abc import Sequence

from flows.route import Mode, Stage, route_all
from kernel_core.config import EvaluateConfig
from kernel_core.runs.run_folder import Run
from tasks.evaluate import write_answers


def side_by_side(here: Run, mode: Mode, stages: Sequence[Stage]) -> None:
    """Run stages that do not depend on each other to their ends.

    Deployed, all of them begin at once, and the slots of the pool decide. In this process one runs after
    another, but judges of an evaluation on CPUs go on in the background: its policy writes first, because
    sampling would disturb the clock of other judges, and its scorecard is made last. Raises what `route_all`
    raises.
    """
    in_background = [mode == "inline" and _is_judged_aside(stage, stages) for stage in stages]
    for stage, is_aside in zip(stages, in_background, strict=True):
        if is_aside and (left := _unsealed(here, stage)):
            write_answers(left, here)
    order = sorted(range(len(stages)), key=in_background.__getitem__)
    route_all(mode, [stages[number] for number in order])


def _is_judged_aside(stage: Stage, stages: Sequence[Stage]) -> bool:
    """Return True for an evaluation with judges on CPUs that no other of the stages uses."""
    config = stage.parameters["config"]
    others = [other.parameters["config"] for other in stages if other is not stage]
    return (
        isinstance(config, EvaluateConfig)
        and config.answers is None
        and config.gym.device == "cpu"
        and bool(others)
        and all(other.gym != config.gym for other in others)
    )


def _unsealed(here: Run, stage: Stage) -> dict[str, EvaluateConfig]:
    """Return the groups of an evaluation without a scorecard, by folder."""
    groups: dict[str, EvaluateConfig] = stage.parameters["config"].by_folder(stage.parameters["name"])
    return {folder: asked for folder, asked in groups.items() if not here.store.child(folder).sealed()}
