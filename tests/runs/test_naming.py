"""Runs of one base: the first has its name, later ones a number, and one's own is found again."""

import itertools

from kernel_core.runs.naming import names_after, own_or_free
from kernel_core.runs.run_folder import Run


def begin(root, name, steps):
    """A run that a command with so many steps made."""
    with Run(str(root), name).owned("train", {"config": {"steps": steps}}):
        pass


def find(root, steps):
    """The run of a command with so many steps."""
    return own_or_free(str(root), "learn", lambda command: command["parameters"]["config"]["steps"] == steps)


def test_names_are_the_base_and_then_numbers():
    assert list(itertools.islice(names_after("learn"), 3)) == ["learn", "learn-0002", "learn-0003"]


def test_the_same_command_finds_its_run_and_another_gets_a_free_name(tmp_path):
    assert find(tmp_path, 3) == "learn"
    begin(tmp_path, "learn", 3)
    assert find(tmp_path, 3) == "learn"
    assert find(tmp_path, 4) == "learn-0002"
    begin(tmp_path, "learn-0002", 4)
    assert (find(tmp_path, 3), find(tmp_path, 4), find(tmp_path, 5)) == ("learn", "learn-0002", "learn-0003")
