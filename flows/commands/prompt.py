"""`dojo prompt`: the messages that a policy would get for a problem, and the limits that apply to them."""

from __future__ import annotations

import os
from pathlib import Path

from flows.arguments import Settings, Words
from flows.presets import build_parameters, preset_and_settings, settings_for
from flows.server import prepare_environment
from flows.terminal import say
from kernel_core.config import EvaluateConfig
from kernel_core.report.first_prompt import first_prompt
from kernel_core.runs.resolve import choose_weights, suited_to
from kernel_core.runs.run_folder import Run


def prompt(*words: Words, config: Settings = None, problem: Path | None = None) -> int:
    """Print the first prompt of an evaluation with these settings; no policy is opened.

    Args:
        problem: a problem's file; the first of the suite by default
    """
    prepare_environment()
    preset, assignments = preset_and_settings(words)
    settings = settings_for("evaluate", preset, config, assignments, os.environ)
    parameters = build_parameters("evaluate", settings)
    asked: EvaluateConfig = parameters["config"]
    run = Run(parameters.get("root", "runs"), parameters.get("run", "evaluate"))
    weights = choose_weights(run, asked.policy, asked.checkpoint)
    say(first_prompt(run, suited_to(asked, weights), problem))
    return 0
