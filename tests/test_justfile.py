"""The short names do what they say, with nothing but the environment of README.md."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
JUST = Path(sys.executable).parent / "just"


def lines_of(*words):
    done = subprocess.run([JUST, "--dry-run", *words], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_the_fast_tests_are_those_of_the_readme():
    in_readme = (
        '.venv/bin/pytest -q -n 3 --dist loadfile --durations=10 -m "not slow and not gpu and not exhaustive"'
    )
    assert in_readme in (REPOSITORY / "README.md").read_text()
    assert [line.strip() for line in lines_of("test")] == [in_readme]
    assert lines_of("check")[-1].strip() == in_readme


@pytest.mark.parametrize("recipe", ["check", "lint", "test", "golden", "train", "list", "ui"])
def test_recipes_need_only_the_environment(recipe):
    assert all(line.startswith(".venv/bin/") for line in lines_of(recipe))
