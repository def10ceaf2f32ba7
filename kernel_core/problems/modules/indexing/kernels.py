"""Kernels of views and formulas: a flat block of results, a row at a time, a block of columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.indexing.views import Axis, Geometry, View


@dataclass(frozen=True)
class Reading:
    """What a kernel reads, and the lengths that it needs."""

    axis: Axis
    geometry: Geometry
    views: tuple[View, ...]
    number: str = ""
    """A number of the module that the formulas use."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The tensors that are read, in the order of their first use."""
        found = [source for view in self.views for source in (view.index, view.source) if source]
        return tuple(dict.fromkeys(["x", *found]))

    def loads(self, lanes: str) -> list[str]:
        """Lines that load the value of each view.

        `lanes` names the places that are different in each lane, such as `j`; a load without one is of a
        single number and has no mask.
        """
        lines, last = [], ""
        for view in self.views:
            if view.index and (at := f"at = {_load(view.index, view.index_offset, lanes, '', '0')}") != last:
                lines.append(at)
                last = at
            known = f"{lanes}|at" if view.index else lanes
            lines.append(f"{view.name} = {_load(view.source, view.offset, known, view.valid, view.other)}")
        return lines


@dataclass(frozen=True)
class Running:
    """A reduction along the axis: a value for each lane, combined over the lanes of a row at its end."""

    start: str
    update: str
    """Assigns `acc` from `acc` and `value`."""
    fill: str
    """What a lane without a position adds."""
    over: str
    """The result of a row over `acc`."""
    after: str = "{v}"
    """The result from the combined value; `{m}` is the length."""


RUNNING: dict[str, Running] = {
    "sum": Running("0.0", "acc += value", "0.0", "tl.sum(acc, axis=0)"),
    "mean": Running("0.0", "acc += value", "0.0", "tl.sum(acc, axis=0)", "{v} / {m}"),
    "amax": Running('float("-inf")', "acc = tl.maximum(acc, value)", 'float("-inf")', "tl.max(acc, axis=0)"),
    "amin": Running('float("inf")', "acc = tl.minimum(acc, value)", 'float("inf")', "tl.min(acc, axis=0)"),
    "norm": Running("0.0", "acc += value * value", "0.0", "tl.sum(acc, axis=0)", "tl.sqrt({v})"),
}
ONLINE_ROW = (
    "new_m = tl.maximum(m_i, tl.max(value, axis=0))",
    "s_i = s_i * tl.exp(m_i - new_m) + tl.sum(tl.exp(value - new_m), axis=0)",
    "m_i = new_m",
)
ONLINE_COLUMN = (
    "new_m = tl.maximum(m_i, value)",
    "s_i = s_i * tl.exp(m_i - new_m) + tl.exp(value - new_m)",
    "m_i = new_m",
)


def flat(name: str, reading: Reading, body: Sequence[str], stores: Sequence[str]) -> str:
    """A kernel in which a program makes a block of results, whatever their rows."""
    length = reading.geometry.length
    inside = [*reading.loads("row|j|q|outer"), *body, *stores]
    places: tuple[tuple[str, str], ...]
    if reading.axis.last:
        places = (("row", f"row = offs // {length}"), ("j", f"j = offs % {length}"))
    else:
        places = (
            ("q", "q = offs % inner"),
            ("j", f"j = offs // inner % {length}"),
            ("outer", f"outer = offs // (inner * {length})"),
        )
    lines = [
        "offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "mask = offs < numel",
        *(line for word, line in places if _uses(inside, word)),
        *inside,
    ]
    return _function(name, reading, ("numel",), lines)


def rows(name: str, reading: Reading, body: Sequence[str], stores: Sequence[str]) -> str:
    """A kernel in which a program makes one row in blocks; the axis is the last one."""
    length = reading.geometry.length
    inside = [
        "j = start + tl.arange(0, BLOCK)", f"mask = j < {length}", *reading.loads("j"), *body, *stores,
    ]  # fmt: skip
    lines = ["row = tl.program_id(0).to(tl.int64)", f"for start in range(0, {length}, BLOCK):", *_in(inside)]
    return _function(name, reading, (), lines)


def reduced_rows(
    name: str, reading: Reading, body: Sequence[str], kind: str, ending: Sequence[str] = ()
) -> str:
    """A kernel in which a program reduces one row, and with `ending` makes the row from the result."""
    length = reading.geometry.length
    head = ["j = start + tl.arange(0, BLOCK)", f"mask = j < {length}", *reading.loads("j"), *body]
    lines = ["row = tl.program_id(0).to(tl.int64)"]
    if kind == "online":
        lines += ['m_i = float("-inf")', "s_i = 0.0"]
        update = ['value = tl.where(mask, value, float("-inf"))', *ONLINE_ROW]
    else:
        running = RUNNING[kind]
        lines.append(f"acc = tl.full((BLOCK,), {running.start}, dtype=tl.float32)")
        update = [f"value = tl.where(mask, value, {running.fill})", running.update]
    lines += [f"for start in range(0, {length}, BLOCK):", *_in([*head, *update])]
    if kind != "online":
        lines.append(f"total = {_after(kind, RUNNING[kind].over, length)}")
    if not ending:
        result = "m_i + tl.log(s_i)" if kind == "online" else "total"
        lines.append(f"tl.store(out_ptr + row, {result})")
    else:
        store = f"tl.store(out_ptr + row * {length} + j, value, mask=mask)"
        lines += [f"for start in range(0, {length}, BLOCK):", *_in([*head, *ending, store])]
    return _function(name, reading, (), lines)


def reduced_columns(
    name: str, reading: Reading, body: Sequence[str], kind: str, ending: Sequence[str] = ()
) -> str:
    """A kernel in which a program reduces a block of columns step by step; the axis is not the last one."""
    length = reading.geometry.length
    head = [*reading.loads("q|outer"), *body]
    lines = [
        "offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "mask = offs < columns", "q = offs % inner", "outer = offs // inner",
    ]  # fmt: skip
    if kind == "online":
        lines += ['m_i = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)']
        lines += ["s_i = tl.zeros((BLOCK,), dtype=tl.float32)"]
        update = list(ONLINE_COLUMN)
    else:
        lines.append(f"acc = tl.full((BLOCK,), {RUNNING[kind].start}, dtype=tl.float32)")
        update = [RUNNING[kind].update]
    lines += [f"for j in range({length}):", *_in([*head, *update])]
    if kind != "online":
        lines.append(f"total = {_after(kind, 'acc', length)}")
    if not ending:
        result = "m_i + tl.log(s_i)" if kind == "online" else "total"
        lines.append(f"tl.store(out_ptr + offs, {result}, mask=mask)")
    else:
        store = f"tl.store(out_ptr + (outer * {length} + j) * inner + q, value, mask=mask)"
        lines += [f"for j in range({length}):", *_in([*head, *ending, store])]
    return _function(name, reading, ("columns",), lines)


def call(reading: Reading, first: Sequence[str], text: str) -> str:
    """The arguments of a launch up to the block: tensors, `first`, and the lengths that the text uses."""
    tensors = ["self.weight" if source == "weight" else source for source in reading.sources]
    lengths = [f"self.{name}" if name == reading.number else name for name in _lengths(reading, [text])]
    return ", ".join((*tensors, "out", *first, *lengths))


def _lengths(reading: Reading, texts: Sequence[str]) -> tuple[str, ...]:
    """The lengths that a kernel's text uses, in the order of its arguments."""
    extra = [argument for view in reading.views for argument in view.arguments]
    names = dict.fromkeys(("n", reading.geometry.length, "inner", *extra, reading.number))
    return tuple(name for name in names if name and _uses(texts, name))


def _after(kind: str, combined: str, length: str) -> str:
    return RUNNING[kind].after.format(v=combined, m=length)


def _function(name: str, reading: Reading, first: Sequence[str], lines: Sequence[str]) -> str:
    pointers = [f"{source}_ptr" for source in reading.sources]
    listed = ", ".join((*pointers, "out_ptr", *first, *_lengths(reading, lines), "BLOCK: tl.constexpr"))
    text = "".join(f"    {line}\n" for line in lines)
    return f"@triton.jit\ndef {name}({listed}):\n{text}"


def _load(source: str, offset: str, lanes: str, valid: str, other: str) -> str:
    if not re.search(rf"\b({lanes})\b", offset):
        return f"tl.load({source}_ptr + {offset})"
    mask = f"mask & ({valid})" if valid else "mask"
    return f"tl.load({source}_ptr + {offset}, mask={mask}, other={other})"


def _uses(lines: Sequence[str], name: str) -> bool:
    return any(re.search(rf"\b{name}\b", line) for line in lines)


def _in(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
