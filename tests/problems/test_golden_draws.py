"""Problems and graded kernels of a seed are those that `tests/golden/draws.json` records."""

from __future__ import annotations

import pytest
from golden import differences, draws, first_draws, recorded


def _recorded(first: bool) -> dict[str, str]:
    return {name: text for name, text in recorded("draws").items() if name.startswith("first of ") == first}


def test_the_first_draw_of_each_family_is_the_recorded_one() -> None:
    changed = differences(_recorded(True), first_draws())
    assert not changed, "\n".join(("`just golden draws --write` records these:", *changed))


@pytest.mark.exhaustive
def test_twenty_draws_of_each_family_and_split_are_the_recorded_ones() -> None:
    assert not differences(_recorded(False), draws())
