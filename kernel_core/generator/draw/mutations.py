"""Mistakes in a written kernel, as people make them: each is one edit of the text, and changes the result."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

Edit = Callable[[str, random.Random], str | None]


def mutated(source: str, rng: random.Random) -> tuple[str, str] | None:
    """The name of a mistake and the source with it; None where none fits."""
    for name in rng.sample(list(MUTATIONS), len(MUTATIONS)):
        edited = MUTATIONS[name](source, rng)
        if edited is not None and edited != source:
            return name, edited
    return None


def _replaced(pattern: str, other: str | Callable[[re.Match[str]], str]) -> Edit:
    """An edit of one place where a pattern matches, drawn among all of them."""

    def edit(source: str, rng: random.Random) -> str | None:
        places = list(re.finditer(pattern, source, re.MULTILINE))
        if not places:
            return None
        place = rng.choice(places)
        return (
            source[: place.start()]
            + (place.expand(other) if isinstance(other, str) else other(place))
            + source[place.end() :]
        )

    return edit


MUTATIONS: dict[str, Edit] = {
    "missing_mask_in_reduction": _replaced(
        r"tl\.where\((?:mask|cols\[None, :\] < n_cols), ([^,()]+), (?:0\.0|float\([^)]*\))\)", r"\1"
    ),
    "sum_for_mean": _replaced(r"^( +(?:out|mean|var)\w* = .*) / n_(?:rows|cols)$", r"\1"),
    "wrong_initial_maximum": _replaced(r'float\("-inf"\)', "0.0"),
    "missing_eps": _replaced(r" \+ eps\w*\)", ")"),
    "maximum_for_sum": _replaced(r"= tl\.sum\(", "= tl.max("),
    "sum_for_maximum": _replaced(r"= tl\.max\(", "= tl.sum("),
    "lost_accumulation": _replaced(r"^( +)(\w+) \+= (.+)$", r"\1\2 = \3"),
    "lost_product": _replaced(r"acc = tl\.dot\((\w+), (\w+), acc, ", r"acc = tl.dot(\1, \2, "),
    "lost_padding": _replaced(r"^( +(?:i\w|\w0) = .*) - P\w?(\)\.to\(tl\.int32\))?$", r"\1\2"),
    "wrong_stride": _replaced(r"(\[:, None\]\)?) \* ([A-Z]\w*|n_cols) \+ ", r"\1 * (\2 + 1) + "),
    "short_grid": _replaced(r"\(triton\.cdiv\((\w+), 1024\),\)", r"(\1 // 1024,)"),
    "other_sign": _replaced(r"^( +(?!\w*offsets|i\w )\w+ = .*[\w)]) - (?=\w)", r"\1 + "),
    "lost_scale": _replaced(r" \* (?:\d+\.\d+|weight)(?![\w.])", ""),
    "lost_shift": _replaced(r" \+ (?:\d+\.\d+|bias)(?![\w.])", ""),
    "swapped_extreme": _replaced(r"tl\.maximum\(", "tl.minimum("),
    "other_extreme": _replaced(r"tl\.minimum\(", "tl.maximum("),
    "off_by_one": _replaced(r"^( +\w+ = )(tl\.load\(\w+ \+ )", r"\1\g<2>1 + "),
    "lost_root": _replaced(r"tl\.sqrt\(", "("),
    "lost_inverse": _replaced(r"tl\.rsqrt\(", "tl.sqrt("),
    "wrong_sign_of_exponent": _replaced(r"tl\.exp\(([^()]+)\)", r"tl.exp(-(\1))"),
    "wrong_comparison": _replaced(r"tl\.where\(([^(),]+) > ", r"tl.where(\1 < "),
}
"""By name."""
