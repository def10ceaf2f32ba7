"""Two or three harvested modules of fitting shapes in a chain, as one problem."""

from __future__ import annotations

import ast
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_core.harvest.candidates import Candidate
from kernel_core.harvest.extract import Extract, source_of
from kernel_core.harvest.problem_text import Body
from kernel_core.harvest.values import Value, settings
from kernel_core.harvest.written import Traced, kind_of, split_of

MOST_USES = 6
"""How many chains one definition may be part of."""
_WIDTHS = (64, 128, 192, 256, 384, 512)
_FREE = ("CHANNELS", "FEATURES")
_TRIES = 40
_MOST_LINES = 70
_LINK_KINDS = ("activation", "norm", "pooling", "other")
"""What a function computes that may be a link; of classes, everything."""


@dataclass(frozen=True)
class Part:
    """A harvested definition that keeps the shape of its one input."""

    candidate: Candidate
    found: Traced
    form: str
    """Its input's dimensions, with `WIDTH_OF` for its channels."""


@dataclass(frozen=True)
class Chain:
    """A composition, ready for its trials."""

    parts: tuple[Part, ...]
    body: Body
    request: dict[str, Any]


def parts_of(harvested: Sequence[tuple[Candidate, Traced]]) -> list[Part]:
    """What can be a link of a chain."""
    found = []
    for candidate, one in harvested:
        if not one.keeps_shape or one.takes_first or not one.inputs[0].startswith("torch.randn("):
            continue
        is_plain = candidate.body.is_function and kind_of(candidate.qualified_name, "") in _LINK_KINDS
        if candidate.extract.num_lines > _MOST_LINES or not (is_plain or not candidate.body.is_function):
            continue
        channels = [value.name for value in candidate.body.values if value.is_channel]
        form = re.sub(rf"\b({'|'.join((*channels, *_FREE))})\b", "C", one.inputs[0])
        if "C" in re.findall(r"\w+", form):
            found.append(Part(candidate, one, form))
    return found


def chains(parts: Sequence[Part], count: int, seed: str) -> Iterator[Chain]:
    """At most `count` chains; no part of training meets one that is held out."""
    rng = random.Random(seed)
    uses: Counter[str] = Counter()
    seen: set[frozenset[str]] = set()
    made = 0
    for _ in range(_TRIES * count):
        if made == count or len(parts) < 2:
            return
        first = rng.choice(parts)
        fitting = [one for one in parts if _fits(first, one)]
        length = rng.choice((2, 3))
        if len(fitting) < length:
            continue
        links = (first, *rng.sample([one for one in fitting if one is not first], length - 1))
        names = frozenset(one.candidate.qualified_name for one in links)
        kinds = {kind_of(name, first.candidate.package.name) for name in names}
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


def _fits(one: Part, other: Part) -> bool:
    return (
        one.form == other.form
        and one.candidate.package == other.candidate.package
        and split_of(one.candidate.qualified_name) == split_of(other.candidate.qualified_name)
    )


def _chain(links: Sequence[Part], rng: random.Random) -> Chain | None:
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
        values=(Value("CHANNELS", rng.choice(_WIDTHS), 24, is_channel=True),),
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
                "large": [[{**one, "CHANNELS": width} for one in large for width in widths]],
            }
        )
    return Chain(tuple(links), body, {"source": source, "takes_first": source, "trials": trials})


def _constructed(link: Part) -> str:
    """The expression that constructs a link; empty for a function."""
    body = link.candidate.body
    if body.is_function:
        return "" if not body.values else f"lambda x: {link.candidate.extract.name}(x)"
    channels = {value.name for value in body.values if value.is_channel}
    values = {value.name: repr(value.small) for value in body.values}
    given = ("channels" if one in channels else values.get(one, one) for one in body.init)
    return f"{link.candidate.extract.name}({', '.join(given)})"


def _merged(extracts: Sequence[Extract]) -> Extract | None:
    """All definitions of several extracts; None where one name means two things."""
    merged = Extract(extracts[-1].name, extracts[-1].node)
    for one in extracts:
        for name, line in one.imports.items():
            if merged.imports.setdefault(name, line) != line:
                return None
        for name, origin in one.origins.items():
            if merged.origins.setdefault(name, origin) != origin:
                return None
        for name, node in one.definitions.items():
            merged.definitions.setdefault(name, node)
    if set(merged.imports) & set(merged.definitions) or "Model" in merged.definitions:
        return None
    return merged


def has_configuration(candidate: Candidate) -> bool:
    """Whether the constructor takes a configuration, so that the extract alone cannot be called."""
    node = candidate.extract.node
    return isinstance(node, ast.ClassDef) and "config" in ast.unparse(node)
