"""The files of docs/kernels are what their command writes now."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "kernels"


def test_the_kernels_are_those_of_the_generator():
    make = runpy.run_path(str(FOLDER / "make.py"))
    answered = make["answers"]()
    verdicts = json.loads((FOLDER / "verdicts.json").read_text())
    assert {name: row["sha"] for name, row in verdicts.items()} == {
        name: make["sha_of"](written) for name, (_, written) in answered.items()
    }
    kernels = FOLDER.glob("*_kernel.py")
    committed = {path.name: path.read_text() for path in (FOLDER / "README.md", *kernels)}
    assert committed == make["texts"](answered, verdicts), "run `just kernels`"


def test_every_kernel_is_correct_and_none_stays_with_torch():
    verdicts = json.loads((FOLDER / "verdicts.json").read_text())
    assert len(verdicts) == 20 and {row["verdict"] for row in verdicts.values()} == {"correct"}
