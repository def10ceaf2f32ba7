"""Other names leave the computation, the scopes and the sizes of a problem as they are."""

from __future__ import annotations

import builtins
import io
import keyword
import random
import re
import tokenize
from functools import cache
from statistics import mean

import pytest
import torch

from kernel_core.corpus.normalise import reference_hash
from kernel_core.problems.generate import generate
from kernel_core.problems.graded import Generated
from kernel_core.problems.modules.generate import FAMILIES, RESERVED, generate_modules
from kernel_core.problems.renaming import under_other_names, with_drawn_names
from kernel_core.problems.source import parse_problem
from kernel_core.problems.vocabulary import LOCALS, POINTERS, RESULTS, WORDS

TRAINED = [name for name in FAMILIES if name not in RESERVED]
LAUNCH = {"options", "params", "specialization", "specialize_impl", "backend", "grid", "warmup", "debug"}
"""Names that Triton gives to what it passes beside a kernel's arguments."""

SAMPLES = [
    pytest.param(0, id="one draw"),
    *(pytest.param(seed, id=f"draw {seed}", marks=pytest.mark.exhaustive) for seed in range(1, 6)),
]


@cache
def pairs(seed: int) -> list[tuple[Generated, Generated]]:
    """Problems of all families, before and after."""
    made = [
        *(Generated(problem=problem) for problem in generate_modules("train", len(TRAINED), seed, TRAINED)),
        *(Generated(problem=problem) for problem in generate_modules("held_out", 5, seed, sorted(RESERVED))),
        *generate("train", 14, seed),
    ]
    return [(one, under_other_names(one, random.Random(f"{seed} {one.problem.id}"))) for one in made]


def sources(made: Generated) -> list[str]:
    return [made.problem.source, *(kernel.source for kernel in made.kernels)]


def tokens(source: str) -> list[tuple[int, str, bool]]:
    """Kind and text of each token, and whether it is an attribute of something else than the module."""
    found: list[tuple[int, str, bool]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        before = [text for _, text, _ in found[-2:]]
        found.append((token.type, token.string, before[-1:] == ["."] and before != ["self", "."]))
    return found


def names_of(before: Generated, after: Generated) -> dict[str, str]:
    """New names by old ones; fails where the texts differ by more than names."""
    names: dict[str, str] = {}
    for old, new in zip(sources(before), sources(after), strict=True):
        try:
            first, second = tokens(old), tokens(new)
        except (tokenize.TokenError, IndentationError):  # a mistake of the form
            continue
        for (kind, text, foreign), (other_kind, other, _) in zip(first, second, strict=True):
            assert kind == other_kind
            if kind not in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING) or foreign:
                assert text == other, (old, new)
            elif kind == tokenize.NAME and text != other:
                assert names.setdefault(text, other) == other, (text, other)
    return names


@pytest.mark.parametrize("seed", SAMPLES)
def test_texts_differ_by_their_names_alone(seed: int) -> None:
    changed: dict[bool, list[bool]] = {True: [], False: []}
    for before, after in pairs(seed):
        names = names_of(before, after)
        changed[bool(before.kernels)].append(bool(names))
        known = {word for text in sources(before) for word in re.findall(r"\w+", text)}
        assert len(set(names.values())) == len(names)
        assert not known.intersection(names.values())
        assert not names.keys() & {"Model", "ModelNew", "forward", "get_inputs", "get_init_inputs", "self"}
    assert mean(changed[True]) >= 0.9
    assert mean(changed[False]) >= 0.8  # many have one name alone, which 15 % keep


@pytest.mark.parametrize("seed", SAMPLES)
def test_a_replaced_name_is_in_no_text_any_more(seed: int) -> None:
    for before, after in pairs(seed):
        names = names_of(before, after)
        fixed = {text for one in sources(after) for _, text, foreign in safe_tokens(one) if foreign}
        layers = set(re.findall(r"self\.(\w+)", "\n".join(sources(after))))
        for old in names.keys() - fixed - layers:
            for text in (*sources(after), *(kernel.thinking for kernel in after.kernels)):
                found = re.search(rf"(?<![\w'.]){old}\b", text)
                assert not found or old in "aA", (old, text)


def safe_tokens(source: str) -> list[tuple[int, str, bool]]:
    try:
        return tokens(source)
    except (tokenize.TokenError, IndentationError):
        return []


@pytest.mark.parametrize("seed", SAMPLES)
def test_the_problem_is_the_same_to_the_corpus(seed: int) -> None:
    for before, after in pairs(seed):
        old, new = before.problem, after.problem
        assert (old.constants, old.cpu_constants, old.tags) == (new.constants, new.cpu_constants, new.tags)
        read = parse_problem(new.source, id=new.id, suite=new.suite, name=new.name)
        assert set(new.constants.items()) <= set(read.constants.items())
        assert (read.sha256, read.id) == (new.sha256, f"{new.suite}/{new.family}-{new.sha256[:12]}")
        assert reference_hash(old.source) == reference_hash(new.source)
        for one, other in zip(before.kernels, after.kernels, strict=True):
            assert (one.grade, one.fault) == (other.grade, other.fault)


def test_half_of_the_taught_problems_have_other_names_and_no_held_out_one() -> None:
    drawn = [made for seed in range(8) for made in generate("train", 25, seed)]
    changed = [with_drawn_names(made) != made for made in drawn]
    assert 70 <= sum(changed) <= 130
    assert changed == [with_drawn_names(made) != made for made in drawn]
    held_out = list(generate_modules("held_out", 30, 3, ("rotary",)))
    assert all("x, cos, sin)" in re.sub(": torch.Tensor", "", problem.source) for problem in held_out)


def test_taught_problems_name_their_inputs_in_hundreds_of_ways() -> None:
    named = [
        re.search(r"def forward\(self, ([^)]*)\)", problem.source)
        for problem in generate_modules("train", 400, 1)
    ]
    inputs = {text.split(":")[0] for match in named if match for text in match[1].split(", ")}
    assert len(inputs) > 200


def test_words_can_name_values_of_any_problem() -> None:
    words = {*WORDS, *RESULTS, *(word for others in LOCALS.values() for word in others)}
    assert len(WORDS) > 300
    for word in words:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", word), word
        assert not keyword.iskeyword(word) and not hasattr(builtins, word), word
    assert not {*WORDS, *RESULTS} & LAUNCH
    assert not {*WORDS, *RESULTS} & set(dir(torch.nn.Module()))
    for form in POINTERS:
        assert re.sub(r"\{\w*\}", "x", form).isidentifier()
