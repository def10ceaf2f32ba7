"""Compositions: two or three harvested modules of fitting shapes in a chain, as one problem."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_core.harvest.candidates import HarvestCandidate
from kernel_core.harvest.extract import Extract, source_of
from kernel_core.harvest.problem_text import Body
from kernel_core.harvest.values import ArgumentValue, settings
from kernel_core.harvest.written import Traced, kind_of, split_of

MOST_USES = 6
"""Maximal number of chains with the same definition."""
_WIDTHS = (64, 128, 192, 256, 384, 512)
_FREE = ("CHANNELS", "FEATURES")
_TRIES = 40
_MOST_LINES = 70
_LINK_KINDS = ("activation", "norm", "pooling", "other")
"""Kinds of functions that may be a link; every class may be one."""


@dataclass(frozen=True)
class Link:
    """Harvested definition whose output has the shape of its one input."""

    candidate: HarvestCandidate
    trace: Traced
    form: str
    """Dimensions of its input, with `WIDTH_OF` for its channels."""


@dataclass(frozen=True)
class Composition:
    """A composition, ready for its trials."""

    parts: tuple[Link, ...]
    body: Body
    request: dict[str, Any]


def parts_of(harvested: Sequence[tuple[HarvestCandidate, Traced]]) -> list[Link]:
    """Return the definitions that can be a link of a chain."""
    parts = []
    for candidate, trace in harvested:
        if not trace.keeps_shape or trace.takes_first or not trace.inputs[0].startswith("torch.randn("):
            continue
        is_plain = candidate.body.is_function and kind_of(candidate.qualified_name) in _LINK_KINDS
        if candidate.extract.num_lines > _MOST_LINES or not (is_plain or not candidate.body.is_function):
            continue
        channels = [value.name for value in candidate.body.values if value.is_channel]
        form = re.sub(rf"\b({'|'.join((*channels, *_FREE))})\b", "C", trace.inputs[0])
        if "C" in re.findall(r"\w+", form):
            parts.append(Link(candidate, trace, form))
    return parts


def chains(parts: Sequence[Link], count: int, seed: str) -> Iterator[Composition]:
    """Yield at most `count` chains; no chain of training contains a held-out definition."""
    rng = random.Random(seed)
    uses: Counter[str] = Counter()
    seen: set[frozenset[str]] = set()
    made = 0
    for _ in range(_TRIES * count):
        if made == count or len(parts) < 2:
            return
        first = rng.choice(parts)
        fitting = [part for part in parts if _fits(first, part)]
        length = rng.choice((2, 3))
        if len(fitting) < length:
            continue
        links = (first, *rng.sample([part for part in fitting if part is not first], length - 1))
        names = frozenset(part.candidate.qualified_name for part in links)
        kinds = {kind_of(name) for name in names}
        if (
            len(names) < length
            or names in seen
            or len(kinds) < 2
            or any(uses[name] >= MOST_USES for name in names)
        ):
            continue
        seen.add(names)
        chain = _chain(links, rng)
        if chain is not None:
            uses.update(names)
            made += 1
            yield chain


def _fits(first: Link, second: Link) -> bool:
    return (
        first.form == second.form
        and first.candidate.package == second.candidate.package
        and split_of(first.candidate.qualified_name) == split_of(second.candidate.qualified_name)
    )


def _chain(links: Sequence[Link], rng: random.Random) -> Composition | None:
    merged = _merged([link.candidate.extract for link in links])
    if merged is None:
        return None
    made = [_constructed(link) for link in links]
    lines = ["class Model(nn.Module):", "    def __init__(self, channels):", "        super().__init__()"]
    lines += [f"        self.layer{index} = {text}" for index, text in enumerate(made, 1) if text]
    lines += ["", "    def forward(self, x):"]
    for index, (link, text) in enumerate(zip(links, made, strict=True), 1):
        call = f"self.layer{index}(x)" if text else f"{link.candidate.extract.name}(x)"
        lines.append(f"        x = {call}")
    source = source_of(merged) + "\n\n" + "\n".join([*lines, "        return x"]) + "\n"
    body = Body(
        source=source,
        takes_first=source,
        init=("CHANNELS",),
        values=(ArgumentValue("CHANNELS", rng.choice(_WIDTHS), 24, is_channel=True),),
        arguments=("x",),
        is_function=False,
    )
    inputs = re.sub(r"\bC\b", "CHANNELS", links[0].form)
    trials = []
    for setting in settings(rng):
        free = [name for name in setting.small if re.search(rf"\b{name}\b", inputs) and name != "CHANNELS"]
        large = [{name: lengths[name] for name in free} for lengths in setting.large]
        widths = rng.sample(_WIDTHS, 2)
        trials.append(
            {
                "small": {**{name: setting.small[name] for name in free}, "CHANNELS": 24},
                "inputs": [inputs],
                "init": ["CHANNELS"],
                "large": [[{**sizes, "CHANNELS": width} for sizes in large for width in widths]],
            }
        )
    return Composition(tuple(links), body, {"source": source, "takes_first": source, "trials": trials})


def _constructed(link: Link) -> str:
    """Return the expression that constructs a link; empty for a function."""
    body = link.candidate.body
    if body.is_function:
        return "" if not body.values else f"lambda x: {link.candidate.extract.name}(x)"
    channels = {value.name for value in body.values if value.is_channel}
    values = {value.name: repr(value.small) for value in body.values}
    given = ("channels" if argument in channels else values.get(argument, argument) for argument in body.init)
    return f"{link.candidate.extract.name}({', '.join(given)})"


def _merged(extracts: Sequence[Extract]) -> Extract | None:
    """Merge the definitions of several extracts; return None where one name means two things."""
    merged = Extract(extracts[-1].name, extracts[-1].node)
    for extract in extracts:
        for name, line in extract.imports.items():
            if merged.imports.setdefault(name, line) != line:
                return None
        for name, origin in extract.origins.items():
            if merged.origins.setdefault(name, origin) != origin:
                return None
        for name, node in extract.definitions.items():
            merged.definitions.setdefault(name, node)
    if set(merged.imports) & set(merged.definitions) or "Model" in merged.definitions:
        return None
    return merged


def has_configuration(candidate: HarvestCandidate) -> bool:
    """Return True if the constructor takes a configuration, so that the extract alone cannot be called."""
    node = candidate.extract.node
    return isinstance(node, ast.ClassDef) and "config" in ast.unparse(node)
