"""Other names for a drawn problem: its values, pointers, block sizes and kernels, in all its texts alike.

Families name their values from few words, and a model trained long on them is sure of these. Half of the
problems get names from a large vocabulary. A name is replaced as a whole identifier, wherever it stands. The
new one is in no text of the problem, so scopes stay what they are and nothing is shadowed.
"""

from __future__ import annotations

import builtins
import keyword
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kernel_core.problems.graded import Generated, identity_of
from kernel_core.problems.roles import Roles, roles_of
from kernel_core.problems.vocabulary import BLOCKS, KERNELS, LOCALS, POINTERS, RESULTS, WORDS

RENAMED_SHARE = 0.5
_CHANGED_SHARE = 0.85
"""The share of a renamed problem's names that change."""
_LONGER_SHARE = 0.2
"""The share of names with a number or with a second word."""
_RESULT_SHARE = 0.7
"""The share of written pointers with the usual word for a result."""
_SECOND_WORDS = (
    *("in", "raw", "t", "flat", "vals", "proj", "map", "seq", "vec", "new", "all", "row", "value", "factor"),
    *("level", "coef", "term", "param", "unit", "step", "limit", "const", "rate", "mean", "max", "min"),
)

_FOREIGN = frozenset(
    {*dir(builtins), *keyword.kwlist, *keyword.softkwlist, "torch", "nn", "F", "tl", "triton"}
)
_WORD = r"[A-Za-z_]\w*"
_CODE = re.compile(
    r'(?P<text>"""[\s\S]*?"""|#[^\n]*)|(?P<quoted>"[^"\n]*"|\'[^\'\n]*\')'
    rf"|(?<![\w.])(?P<own>self\.)?(?P<name>{_WORD})"
)
_PROSE = re.compile(rf"`[^`\n]*`|(?m:^ +{_WORD}(?= \(|:))|(?<![\w'.]){_WORD}")
_LETTERS = frozenset(
    {"alpha", "beta", "gamma", "inp", "ids", "lhs", "rhs", "offs", "idx", "numel", "dx", "dy", "px", "py"}
)
"""Words without another meaning, beside those with a digit, an underscore, or one letter."""
_MENTIONED_A = re.compile(
    r"(?<![\w'.])([aA])\b(?! [\w(`])|(?<![\w'.])([aA]) (?:is|takes|belongs|repeats|has)\b"
    r"|(?<=[a-z,] )(A)\b|(?<=[-+*/@=] )(a)\b"
)
"""The letter as a name, and not as the article."""
_TRIES = 40


def with_drawn_names(made: Generated) -> Generated:
    """The problem and its kernels, in half of the cases under other names; the same for the same problem."""
    rng = random.Random(f"names {made.problem.sha256}")
    return under_other_names(made, rng) if rng.random() < RENAMED_SHARE else made


def under_other_names(made: Generated, rng: random.Random) -> Generated:
    """The problem and its kernels under drawn names.

    Sizes, layers and the entry points keep their names, and so does a name that the prose has as a word.
    """
    problem = made.problem
    sources = [problem.source, *(kernel.source for kernel in made.kernels)]
    roles = roles_of(sources)
    prose = [*(kernel.thinking for kernel in made.kernels), *_texts(sources)]
    kept = {name for size in problem.constants for name in (size, size.lower(), size.upper())}
    kept |= roles.fixed | set(_bare_words(prose)) | _quoted(sources) | _FOREIGN
    taken = {word for text in (*sources, *prose) for word in re.findall(_WORD, text)} | _FOREIGN
    constants = re.findall(rf"(?m)^({_WORD}) = ", problem.source)
    names = _draw_names(roles, kept, taken, constants, rng)
    other = identity_of(problem.suite, problem.family, _renamed(problem.source, names, roles))
    kernels = [
        kernel.model_copy(
            update={
                "source": _renamed(kernel.source, names, roles),
                "thinking": _in_prose(kernel.thinking, names),
            }
        )
        for kernel in made.kernels
    ]
    return Generated(problem=problem.model_copy(update=other), kernels=tuple(kernels))


def _texts(sources: Iterable[str]) -> Iterator[str]:
    """Comments and docstrings."""
    for source in sources:
        yield from (match["text"] for match in _CODE.finditer(source) if match["text"])


def _quoted(sources: Iterable[str]) -> set[str]:
    """Words in lower case that a string consists of: some are options of torch."""
    texts = {
        match["quoted"][1:-1] for source in sources for match in _CODE.finditer(source) if match["quoted"]
    }
    return {text for text in texts if not text.isupper()}


def _bare_words(prose: Iterable[str]) -> Iterator[str]:
    """Words that may be an identifier or plain English."""
    for text in prose:
        yield from (match[match.lastindex or 0] for match in _MENTIONED_A.finditer(text))
        for word in _PROSE.findall(text):
            if re.fullmatch(_WORD, word) and not _is_unmistakable(word) and word not in ("a", "A"):
                yield word


def _is_unmistakable(word: str) -> bool:
    if len(word) == 1:
        return word not in ("a", "A")
    return word in _LETTERS or word.isupper() or not word.isalpha()


def _in_prose(text: str, names: Mapping[str, str]) -> str:
    """The text with the names where they stand in backticks, in front of a description, or are no English."""

    def other(match: re.Match[str]) -> str:
        words = match[0]
        if words[0] in "` ":
            return re.sub(_WORD, lambda word: names.get(word[0], word[0]), words)
        return names.get(words, words) if _is_unmistakable(words) else words

    return _PROSE.sub(other, text)


def _renamed(source: str, names: Mapping[str, str], roles: Roles) -> str:
    def other(match: re.Match[str]) -> str:
        if match["text"]:
            return _in_prose(match["text"], names)
        if match["quoted"]:
            inner = match["quoted"][1:-1]
            return match["quoted"].replace(inner, names[inner]) if inner in names else match[0]
        name = match["name"]
        if match["own"]:
            return match["own"] + (names.get(name, name) if name in roles.held else name)
        return names.get(name, name)

    return _CODE.sub(other, source)


def _draw_names(
    roles: Roles, kept: set[str], taken: set[str], constants: Sequence[str], rng: random.Random
) -> dict[str, str]:
    """Old to new names; new ones become taken."""
    names: dict[str, str] = {}

    def give(old: Sequence[str], drawn: Iterable[Sequence[str]]) -> None:
        """The first of the drawn names that are all free."""
        for new in drawn:
            if not taken.intersection(new) and len(set(new)) == len(new):
                taken.update(new)
                names.update(zip(old, new, strict=True))
                return

    pointer = rng.choices(tuple(POINTERS), tuple(POINTERS.values()))[0]
    for number, group in enumerate(_groups(roles, kept, constants)):
        side = "out" if roles.stored.intersection(group) else "in"
        words = RESULTS if side == "out" and rng.random() < _RESULT_SHARE else WORDS
        form = pointer.replace("{side}", side).replace("{number}", str(number))
        if rng.random() < _CHANGED_SHARE:
            give(group, (_spelled(group, _word(words, rng), form) for _ in range(_TRIES)))
    block, kernel = rng.choice(("", *BLOCKS)), rng.choice(("", *KERNELS))
    for name in (*roles.locals, *roles.kernels):
        if name in kept or name in names:
            continue
        match = re.fullmatch(r"BLOCK(?:_SIZE)?((?:_[A-Z]+)?)", name)
        if name in LOCALS:
            give((name,), ((rng.choice(LOCALS[name]),) for _ in range(_TRIES)))
        elif match and block:
            give((name,), [(block.format(match[1]),)])
        elif kernel and re.fullmatch(r"[^_]\w*_kernel", name):
            give((name,), [(kernel.format(name.removesuffix("_kernel")),)])
    return names


def _groups(roles: Roles, kept: set[str], constants: Sequence[str]) -> list[list[str]]:
    """Names that get one word: a value, its pointers, and the constant of that name; capitals come last."""
    groups: dict[str, list[str]] = {}
    wanted = (*roles.values, *(name for name in constants if name.lower() in roles.values))
    for name in dict.fromkeys(wanted):
        stem = re.sub(r"_ptrs?$", "", name)
        if name not in kept and not (stem in kept and stem in roles.values):
            groups.setdefault(stem.lower(), []).append(name)
    return [sorted(group, key=str.isupper) for group in groups.values()]


def _word(words: Sequence[str], rng: random.Random) -> str:
    word = rng.choice(words)
    if rng.random() >= _LONGER_SHARE:
        return word
    return rng.choice((f"{word}{rng.randint(0, 4)}", f"{word}_{rng.choice(_SECOND_WORDS)}"))


def _spelled(group: Sequence[str], word: str, pointer: str) -> list[str]:
    """The word in the form of each old name: a pointer, several pointers, capitals, or as it is."""
    spellings: list[str] = []
    for name in group:
        base = word
        if name.endswith(("_ptr", "_ptrs")):
            base = pointer.format(word, capital=word.capitalize(), upper=word.upper())
            base += "s" * name.endswith("s")
        elif name.isupper() and (len(name) > 1 or word in spellings):
            base = word.capitalize() if len(name) == 1 and len(word) > 2 else word.upper()
        spellings.append(base)
    return spellings
