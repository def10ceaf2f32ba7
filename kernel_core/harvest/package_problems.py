"""Training problems of one installed package, as the corpus source `package:NAME` reads them."""

from __future__ import annotations

from pathlib import PurePosixPath

from kernel_core.harvest.harvest import COMPOSITIONS, harvest
from kernel_core.harvest.packages import Packages, find_package
from kernel_core.problems.source import parse_problem
from kernel_core.progress import Progress, silent
from kernel_core.records import Problem


def training_problems(name: str, progress: Progress = silent) -> list[Problem]:
    """Harvest a package; return its problems of the split `train`, unchecked for leaks.

    Raises `NotFound` where it is not installed, `ConfigError` without a permissive licence.
    """
    texts: dict[str, str] = {}
    harvest(Packages([find_package(name)]), texts.__setitem__, COMPOSITIONS, lambda problem: None, progress)
    return [
        parse_problem(text, id=f"{name}/{PurePosixPath(file).stem}", suite=name)
        for file, text in texts.items()
        if PurePosixPath(file).parent.name == "train"
    ]
