"""Local names of the host code, and sizes that are equal for every input."""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import Any

from kernel_core.generator.sizes import (
    ATOM,
    Size,
    as_size,
    host,
    is_named,
    product,
    run_of,
    single_dimensions,
)

_RESULT = re.compile(r"<(\d+)>")
"""The key of a result of torch's, before it has a name."""


def take_name(wanted: str, taken: set[str], mark: str = "") -> str:
    """Return a name that `taken` has not, with a number behind `mark` if need be, and add it there."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}{mark}{number}", number + 1
    taken.add(name)
    return name


class Names:
    """Local names of the host code for sizes that are more than a name."""

    def __init__(self, expanded: frozenset[tuple[str, int]] = frozenset()) -> None:
        self.expanded = set(expanded)
        """Tensors with their axes of size 1 that are repeated to the size of another tensor."""
        self.definitions: dict[str, str] = {}
        """Expressions by name, each made of names before it."""
        self.taken: set[str] = set()
        self.equal: dict[str, Size] = {}
        """Sizes that an operator needs to be equal to others, such as K of both factors, by their texts."""
        self.lengths: dict[str, int] = {}
        """Lengths of the module's tuples, such as `self.conv.stride`."""

    def fresh(self, wanted: str) -> str:
        """A name that nothing has yet."""
        return take_name(wanted, self.taken)

    def bind(self, size: int, wanted: str) -> int:
        """The size under a name of its own; names and literals stay."""
        if not isinstance(size, Size) or size.binds == ATOM or run_of(size) is not None:
            return size
        for name, text in self.definitions.items():
            if text == size.text:
                return Size(int(size), name)
        name = self.fresh(wanted)
        self.definitions[name] = size.text
        return Size(int(size), name)


NAMES: ContextVar[Names] = ContextVar("NAMES")
"""Names of the module that is being read or answered."""


def bind(size: int, wanted: str) -> int:
    """The size under a local name of the host code, where a module is being read."""
    names = NAMES.get(None)
    return size if names is None else names.bind(size, wanted)


def unify(size: int, other: int) -> None:
    """Say that two sizes are equal for every input that the module takes."""
    names = NAMES.get(None)
    if names is None or not isinstance(size, Size) or not (is_named(size) and is_named(other)):
        return
    text, its = canonical(size), canonical(other)
    # The host knows the size of a result of torch's only after the call.
    if isinstance(other, Size) and _made_at(text) > _made_at(its):
        text, its, size = its, text, other
    if text != its:
        names.equal[its] = size


def _made_at(text: str) -> int:
    """The number of the last result of torch's that a text names; -1 for inputs and weights alone."""
    return max(map(int, _RESULT.findall(text)), default=-1)


def expands(size: int, to: int) -> None:
    """Say that an axis of `size` is repeated to another size, so the size is 1 for every input."""
    names, run = NAMES.get(None), run_of(size)
    if names is not None and run is not None and int(size) == 1 and int(to) > 1:
        names.expanded |= {(run.tensor, axis) for axis in range(run.first, run.last + 1)}


def canonical(size: Any) -> str:
    """Host text of a size, the same for sizes that are equal."""
    names, text = NAMES.get(None), host(size)
    if names is None or not isinstance(size, Size):
        return text
    if text in names.equal:
        return canonical(names.equal[text])
    if len(size.factors) == 1 and size.factors[0] is size:
        return text
    parts = [as_size(factor) for factor in single_dimensions(size)]
    if len(parts) > 1 and any(host(part) in names.equal for part in parts):
        return canonical(product(names.equal.get(host(part), part) for part in parts))
    return text
