"""Candidates of a package: each definition that can be written out, with trials of sizes and inputs."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_core.harvest.extract import Extract, ExtractionRefused, extract, is_module_class
from kernel_core.harvest.packages import Library, Package
from kernel_core.harvest.problem_text import Body, body_of
from kernel_core.harvest.shapes import ladder
from kernel_core.harvest.values import ArgumentValue, DimensionSetting, settings
from kernel_core.records import Constant

NUM_VARIANTS = 2
"""Problems of one definition, which differ in their large sizes."""
_MOST_TRIALS = 150
_EQUAL_WIDTHS = (256, 384, 512, 768)


@dataclass(frozen=True)
class HarvestCandidate:
    """Definition that may become problems."""

    package: Package
    qualified_name: str
    extract: Extract
    body: Body
    copyright: tuple[str, ...]


@dataclass(frozen=True)
class DroppedCandidate:
    """Definition that does not, and the reason."""

    package: str
    qualified_name: str
    kind: str
    reason: str


def candidates_of(library: Library) -> Iterator[HarvestCandidate | DroppedCandidate]:
    """Yield every module class and function of a package, once: re-exports are the same definition."""
    for name in library.names():
        module = library.module(name)
        if module is None:
            continue
        for bound, node in module.definitions.items():
            is_class = isinstance(node, ast.ClassDef) and is_module_class(library, name, node)
            if not is_class and not isinstance(node, ast.FunctionDef):
                continue
            qualified = f"{name}.{bound}"
            try:
                made = extract(library, name, bound)
                body = body_of(made, random.Random(qualified))
            except ExtractionRefused as refused:
                kind = "class" if is_class else "function"
                yield DroppedCandidate(library.package.name, qualified, kind, str(refused))
                continue
            yield HarvestCandidate(library.package, qualified, made, body, module.copyright)


def request_of(body: Body, seed: str) -> dict[str, Any]:
    """Build the trials of a definition, for the caged process."""
    rng = random.Random(seed)
    trials = []
    for setting in settings(rng):
        channels = [value.name for value in body.values if value.is_channel]
        sizes = [value.name for value in body.values if not value.is_channel]
        for inputs in ladder(body.arguments, list(dict.fromkeys(channels)), sizes):
            trials.append(_trial(body, inputs, setting, rng))
    return {
        "source": body.source,
        "takes_first": body.takes_first,
        "trials": [trial for trial in trials if trial is not None][:_MOST_TRIALS],
    }


def _trial(
    body: Body, inputs: Sequence[str], setting: DimensionSetting, rng: random.Random
) -> dict[str, Any] | None:
    vocabulary = next(
        (value.name for value in body.values if "VOCAB" in value.name or "EMBEDDINGS" in value.name), None
    )
    if any("VOCAB" in expression for expression in inputs):
        if vocabulary is None:
            return None
        inputs = [expression.replace("VOCAB,", f"{vocabulary},") for expression in inputs]
    named = set(re.findall(r"\w+", " ".join((*inputs, *body.init))))
    own = {value.name for value in body.values}
    free = [name for name in (*setting.small, "HEADS", "HEAD_DIM") if name not in own and name in named]
    small = {name: {"HEADS": 4, "HEAD_DIM": 6}.get(name) or setting.small[name] for name in free}
    variants = []
    for variant in range(NUM_VARIANTS):
        options = []
        for equal in (False, True):
            width = rng.choice(_EQUAL_WIDTHS)
            for lengths in setting.large:
                chosen = {**lengths, "HEADS": 8, "HEAD_DIM": 64}
                large = {name: chosen[name] for name in free}
                options.append({**large, **_constants(body.values, width if equal or variant else 0)})
        variants.append(options)
    return {
        "small": {**small, **{value.name: value.small for value in body.values}},
        "inputs": list(inputs),
        "init": list(body.init),
        "large": variants,
    }


def _constants(values: Sequence[ArgumentValue], width: int) -> dict[str, Constant]:
    """Return the large values; with a width, all channels are as wide and heads share it."""
    constants = {value.name: value.large for value in values}
    if not width:
        return constants
    heads = next((v for v in constants.items() if "HEAD" in v[0] and "DIM" not in v[0]), None)
    for value in values:
        if value.is_channel and value.small == 24:
            constants[value.name] = width
        elif value.is_channel:
            constants[value.name] = 2 * width
        elif "HEAD" in value.name and "DIM" in value.name and heads is not None:
            constants[value.name] = width // int(heads[1])
    return constants
