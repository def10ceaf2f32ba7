"""The page of the notebook is true: its cells run as they stand and print what stands below them.

`python tests/test_notebook_page.py` writes what they print into the page.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PAGE = REPOSITORY / "docs" / "recipes" / "judge_from_a_notebook.md"
_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
_END = "--- end of a cell ---"


def printed():
    """What each cell prints, by a process without a file of its own, as a notebook's."""
    cells = [text for kind, text in _BLOCK.findall(PAGE.read_text()) if kind == "python"]
    program = "".join(f"{cell}\nprint({_END!r})\n" for cell in cells)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [text.lstrip("\n") for text in done.stdout.split(_END)[:-1]]


def with_output(page, outputs):
    """The page with the output of each cell in the block after it."""
    left = list(outputs)
    last = ""

    def filled(found):
        nonlocal last
        if found[1] == "python":
            last = left.pop(0)
            return found[0]
        return f"```text\n{last}```"

    return _BLOCK.sub(filled, page)


@pytest.mark.exhaustive
def test_the_cells_print_what_the_page_shows():
    page = PAGE.read_text()
    assert page.count("```text\n") == 2
    assert with_output(page, printed()) == page


if __name__ == "__main__":
    PAGE.write_text(with_output(PAGE.read_text(), printed()))
