"""The tour names files and functions that exist, and its main path stays short."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
TOUR = (REPOSITORY / "docs" / "tour.md").read_text()
MOST_FILES = 15
HOPS = re.findall(r"^\| \d+ \| `(.+?)` \| (.+?) \|", TOUR, re.MULTILINE)


def test_the_main_path_is_short() -> None:
    assert 10 < len(HOPS) <= MOST_FILES


def test_each_hop_names_functions_of_its_file() -> None:
    for path, cell in HOPS:
        source = (REPOSITORY / path).read_text()
        for name in re.findall(r"`(\w+)`", cell):
            assert re.search(rf"def {name}\(", source), f"{path} has no {name}"


def test_the_files_beside_the_path_exist() -> None:
    paths = re.findall(r"`((?:flows|tasks|kernel_core|tests|data)/[\w./]+)`", TOUR)
    assert paths
    for path in paths:
        assert (REPOSITORY / path).exists(), path
