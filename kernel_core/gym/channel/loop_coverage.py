"""The loops and grids that turned at the sizes that were judged, beside those of the problem's own sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kernel_core.gym.channel.messages import Kernel, Launch
from kernel_core.records import Constant

ENOUGH = 3
"""Turns that show what a loop does: the first, one from another's result, and one from that one's."""
MANY = 17
"""Turns of a loop, or programs along an axis, that show a fault of a buffer of eight or sixteen stages."""
_MANY_CHANNELS = 49
"""A size that shows a fault behind three blocks of sixteen channels."""
Turns = dict[str, int]
"""The most turns of each loop, programs along each axis of a grid, and the value of each size, by words for
it."""


def turns_of(
    loops: Iterable[tuple[int, int]], kernels: Sequence[Kernel], launches: Sequence[Launch]
) -> Turns:
    """Return the turns of a pass, as far as more of them show no more."""
    turns = {f"the loop in line {line}": min(count, MANY) for line, count in loops}
    for launch in launches:
        for axis, count in enumerate(launch.grid):
            name = f"axis {axis} of the grid of {kernels[launch.launch].name}"
            turns[name] = max(turns.get(name, 0), min(count, MANY))
    return turns


def values_of(sizes: Mapping[str, Constant]) -> Turns:
    """Return the values of sizes, as far as larger ones show no more."""
    whole = {name: size for name, size in sizes.items() if type(size) is int}
    return {f"the size {name}": min(size, _MANY_CHANNELS) for name, size in whole.items()}


def merged(*some: Mapping[str, int]) -> Turns:
    """Return the most turns in any of these."""
    return {name: max(turns.get(name, 0) for turns in some) for turns in some for name in turns}


def enough_of(own: Mapping[str, int]) -> Turns:
    """Return the turns at own sizes that a candidate must make where it is judged."""
    return {name: min(turns, ENOUGH) for name, turns in own.items()}


def missing(own: Mapping[str, int], judged: Mapping[str, int]) -> Turns:
    """Return the turns at own sizes of what turned less where it was judged."""
    return {name: turns for name, turns in own.items() if turns > judged.get(name, 0)}


def covering(
    needed: Mapping[str, int], judged: Mapping[str, int], tried: Sequence[Mapping[str, int]]
) -> list[int]:
    """Return the places of few passes, in their order, that turn most of what is needed, and more than was
    judged. Of the passes that turn as many of these most the first counts."""
    reached = [{name: min(turns.get(name, 0), enough) for name, enough in needed.items()} for turns in tried]
    most = {name: max((turns[name] for turns in reached), default=0) for name in needed}
    open_names = {name for name, turns in most.items() if turns > judged.get(name, 0)}
    chosen: list[int] = []
    while open_names:
        covers = [{name for name in open_names if turns[name] == most[name]} for turns in reached]
        place = max(range(len(covers)), key=lambda place: len(covers[place]))
        chosen.append(place)
        open_names -= covers[place]
    return sorted(chosen)
