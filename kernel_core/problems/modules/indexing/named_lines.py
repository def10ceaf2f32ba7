"""Lines of a formula, each with a name, some of which are read more than once.

No drawn formula is a gated unit or a rotation of pairs: these families are held out whole.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.probe import Array, points, value_of, worth_computing

_TRIES = 200
_MOST_RESULTS = 4
_INNER_SHARE = 0.6
"""The share of values read once that the reference writes inside the line that reads them."""
_NAMES = (
    *("t", "p", "q", "area", "width", "height", "delta", "low", "high", "total", "ratio", "part", "middle"),
    *("first", "second", "inner", "outer", "term", "span", "mixed", "base", "rest", "x_tanh", "x_sig"),
    *("denom", "num", "inter", "union", "luma", "maxc", "minc", "dist", "dx", "dy", "z", "s0", "s1"),
)
_FORMS: tuple[tuple[str, str], ...] = (
    ("add", "{a} + {b}"),
    ("sub", "{a} - {b}"),
    ("sub", "{b} - {a}"),
    ("mul", "{a} * {b}"),
    ("maximum", "torch.maximum({a}, {b})"),
    ("minimum", "torch.minimum({a}, {b})"),
    ("abs", "({a} - {b}).abs()"),
    ("mean", "({a} + {b}) / 2"),
    ("div", "{a} / ({b}.abs() + 1)"),
    ("sqrt", "torch.sqrt({a} * {a} + {b} * {b} + 1e-6)"),
    ("where", "torch.where({a} > {b}, {a}, 0.5 * {b})"),
    ("lerp", "0.7 * {a} + 0.3 * {b}"),
    ("clamp", "{a}.clamp(min=0)"),
    ("sigmoid", "torch.sigmoid({a})"),
    ("tanh", "torch.tanh({a})"),
    ("square", "{a} * {a}"),
    ("rsub", "1 - {a}"),
    ("exp", "torch.exp(-{a}.abs())"),
    ("mul", "{a} * (1 - {a})"),
)
_GATES = frozenset({"sigmoid", "tanh", "clamp"})
"""Functions of one value; their product with another value would be a gated unit."""


@dataclass(frozen=True)
class NamedLine:
    """One value: its name, torch's operator, the right side, and the names read."""

    name: str
    operator: str
    torch: str
    reads: tuple[str, ...]


def draw_lines(given: Sequence[str], rng: random.Random) -> tuple[list[NamedLine], list[str]]:
    """Lines that read all given values, at least one of their values twice, and the names of the results.

    Results are the values that no line reads, and sometimes more. Raises `AssertionError` where no draw
    of 200 has results that vary.
    """
    for _ in range(_TRIES):
        lines = _drawn(given, rng)
        reads = reads_of(lines)
        unread = [line.name for line in lines if not reads[line.name]]
        repeated = [line.name for line in lines if reads[line.name] > 1]
        if set(given) - set(reads) or not repeated or len(unread) > _MOST_RESULTS:
            continue
        more = [line.name for line in lines if line.name not in unread]
        chosen = {*unread, *rng.sample(more, min(len(more), rng.choice((0, 0, 1, 2))))}
        results = [line.name for line in lines if line.name in chosen]
        if all(worth_computing(_value(given, lines, name)) for name in results):
            return lines, results
    raise AssertionError(f"no lines over {', '.join(given)} vary")


def reads_of(lines: Sequence[NamedLine]) -> Counter[str]:
    """By name, the number of lines that read the value."""
    return Counter(name for line in lines for name in line.reads)


def reference_lines(
    lines: Sequence[NamedLine], results: Sequence[str], rng: random.Random
) -> list[tuple[str, str]]:
    """Names and right sides as a reference has them: values that one line alone reads may stand in it."""
    texts = {line.name: line.torch for line in lines}
    reads = reads_of(lines)
    mentions = Counter(word for text in texts.values() for word in re.findall(r"\w+", text))
    for line in lines:
        name = line.name
        reader = next((line for line in lines if name in line.reads), None)
        if reader is None or reads[name] > 1 or mentions[name] > 1 or name in results:
            continue
        if rng.random() < _INNER_SHARE:
            text = texts.pop(name)
            inner = text if re.fullmatch(r"torch\.\w+\([^()]*\)", text) else f"({text})"
            before, after = re.split(rf"\b{name}\b", texts[reader.name])
            texts[reader.name] = before + inner + after
    return list(texts.items())


def _value(given: Sequence[str], lines: Sequence[NamedLine], name: str) -> Array:
    """Values of one name where the given ones are random."""
    texts = [f"{line.name} = {line.torch}" for line in lines]
    return value_of([*texts, f"x = {name}"], dict.fromkeys(given), points())


def _drawn(given: Sequence[str], rng: random.Random) -> list[NamedLine]:
    values, unread = list(given), list(given)
    made, products, gates = set[str](), set[str](), set[str]()
    lines: list[NamedLine] = []
    names = [name for name in rng.sample(_NAMES, len(_NAMES)) if name not in given]
    for name in names[: rng.randint(max(3, len(given)), len(given) + 5)]:
        operator, template = rng.choice(_FORMS)
        first = unread[0] if unread and rng.random() < 0.6 else rng.choice(values)
        others = [value for value in values if value != first]
        if "{b}" in template and not others:
            continue
        reads = (first, rng.choice(others)) if "{b}" in template else (first,)
        text = template.format(a=reads[0], b=reads[-1])
        is_gated_unit = operator == "mul" and gates.intersection(reads)
        is_rotation = operator in ("add", "sub") and products.issuperset(reads)
        if text in made or is_gated_unit or is_rotation:
            continue
        made.add(text)
        lines.append(NamedLine(name, operator, text, reads))
        unread = [value for value in unread if value not in reads]
        values.append(name)
        if operator in ("mul", "square"):
            products.add(name)
        elif operator in _GATES:
            gates.add(name)
    return lines
