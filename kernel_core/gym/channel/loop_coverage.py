"""The loops and grids that turned at the sizes that were judged, beside those of the problem's own sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kernel_core.gym.channel.messages import Kernel, Launch

ENOUGH = 3
"""Turns that show what a loop does: the first, one from another's result, and one from that one's."""
_ENOUGH_PROGRAMS = 2
"""Programs along an axis of a grid: one, and its neighbour."""
Turns = dict[str, int]
"""The most turns of each loop, and of programs along each axis of a grid, by words for it."""


def turns_of(
    loops: Iterable[tuple[int, int]], kernels: Sequence[Kernel], launches: Sequence[Launch]
) -> Turns:
    """Return the turns of a pass, as far as more of them show no more."""
    turns = {f"the loop in line {line}": min(count, ENOUGH) for line, count in loops}
    for launch in launches:
        for axis, count in enumerate(launch.grid):
            name = f"axis {axis} of the grid of {kernels[launch.launch].name}"
            turns[name] = max(turns.get(name, 0), min(count, _ENOUGH_PROGRAMS))
    return turns


def merged(*some: Mapping[str, int]) -> Turns:
    """Return the most turns in any of these."""
    return {name: max(turns.get(name, 0) for turns in some) for turns in some for name in turns}


def missing(own: Mapping[str, int], judged: Mapping[str, int]) -> Turns:
    """Return the turns at own sizes of what turned less where it was judged."""
    return {name: turns for name, turns in own.items() if turns > judged.get(name, 0)}


def covering(needed: Mapping[str, int], tried: Sequence[Mapping[str, int]]) -> list[int]:
    """Return the places of the first passes, in their order, that turn most of what is needed."""
    chosen: list[int] = []
    for name in needed:
        most = max((turns.get(name, 0) for turns in tried), default=0)
        places = [place for place, turns in enumerate(tried) if turns.get(name, 0) == most]
        if most > 1 and not set(places) & set(chosen):
            chosen.append(places[0])
    return sorted(chosen)
