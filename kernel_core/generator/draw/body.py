"""Lines of `forward` under names: nested expressions, and lines moved to a part of their own."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from kernel_core.generator.draw.habits import Habits
from kernel_core.generator.draw.prose import note
from kernel_core.generator.draw.sketch import Line, Sketch, Tensor
from kernel_core.problems.vocabulary import WORDS

MARK = re.compile(r"⟦\d+⟧")
RESULTS = ("x", "out", "y", "h", "z", "result", "value", "res", "hidden", "o")
_RESERVED = frozenset({"torch", "nn", "F", "math", "self", "input"})
_ALIASES = ("residual", "identity", "shortcut", "skip", "x0", "res")
_PART_NAMES = {
    "method": ("_forward_impl", "_apply", "_step", "_transform", "compute", "_activate", "_project"),
    "function": ("apply_op", "compute", "transform", "step", "fused_op", "_forward", "op"),
    "class": ("Block", "Layer", "BasicBlock", "Stage", "SubModule", "Head", "Core"),
}
_PART_INPUTS = ("x", "x", "x", "inp", "t", "h", "input", "z")


@dataclass
class Body:
    """The text of `forward`, and what was moved out of it."""

    lines: list[str]
    form: str = "none"
    name: str = ""
    part: list[str] = field(default_factory=list)
    """Lines of the method, function or `forward` that some lines were moved to."""
    argument: str = ""
    owned: list[str] = field(default_factory=list)
    """Lines of the constructor that belong to a class of the part."""


def body_of(sketch: Sketch, results: Sequence[Tensor], habits: Habits, rng: random.Random) -> Body:
    """Return `forward` in an author's habits."""
    lines = _inlined(sketch, [str(result) for result in results], habits, rng)
    inputs = {given.name for given in sketch.inputs}
    if habits.alias:
        _alias(lines, inputs, sketch.taken, rng)
    body, part = Body([]), None
    if habits.part != "none":
        part = _segment(lines, inputs, rng)
    if part is not None:
        body = _moved(sketch, lines, part, inputs, habits, rng)
        start, end = part
        (source,) = _sources(lines[start:end], inputs)
        call = f"{'' if body.form == 'function' else 'self.'}{_attribute(body)}({source})"
        operators = tuple(name for line in lines[start:end] for name in line.operators)
        lines[start:end] = [Line(lines[end - 1].mark, call, operators)]
    body.lines = _named(lines, inputs, sketch.taken, habits, rng)
    return body


def _alias(lines: list[Line], inputs: set[str], taken: set[str], rng: random.Random) -> None:
    """Name an input that is read again after the first step: `residual = x`."""
    free = [name for name in _ALIASES if name not in taken]
    reads = {name: [at for at, line in enumerate(lines) if name in _read(line.text)] for name in inputs}
    again = [name for name, places in reads.items() if len(places) > 1 and places[0] < places[-1] - 1]
    if not free or len(again) != 1:
        return
    alias, last = rng.choice(free), reads[again[0]][-1]
    taken.add(alias)
    lines[last] = replace(lines[last], text=re.sub(_word(again[0]), alias, lines[last].text))
    lines.insert(0, Line(alias, again[0]))


def _attribute(body: Body) -> str:
    return body.name.lower() if body.form == "class" else body.name


# --- parts


def _sources(lines: Sequence[Line], inputs: set[str]) -> list[str]:
    """Values that lines read and do not make, each once."""
    made = {line.mark for line in lines}
    return [
        name for name in dict.fromkeys(name for line in lines for name in _read(line.text))
        if name not in made and (MARK.fullmatch(name) or name in inputs)
    ]  # fmt: skip


def _segment(lines: Sequence[Line], inputs: set[str], rng: random.Random) -> tuple[int, int] | None:
    """A range of lines that read one value from outside and of which only the last is read outside."""
    ranges = []
    unpacked = {name for line in lines for name in _read(line.mark) if not MARK.fullmatch(line.mark)}
    for start in range(len(lines)):
        for end in range(start + 1, len(lines)):
            inner = {line.mark for line in lines[start : end - 1]}
            rest = {name for line in lines[end:] for name in _read(line.text)}
            if any(unpacked & {*_read(line.text)} for line in lines[start:end]):
                continue
            if (
                all(map(MARK.fullmatch, inner))
                and not inner & rest
                and len(_sources(lines[start:end], inputs)) == 1
            ):
                last = lines[end - 1]
                if last.operators and MARK.fullmatch(last.mark):
                    ranges.append((start, end))
    return rng.choice(ranges) if ranges else None


def _moved(
    sketch: Sketch,
    lines: Sequence[Line],
    place: tuple[int, int],
    inputs: set[str],
    habits: Habits,
    rng: random.Random,
) -> Body:
    """A class takes lines that own layers, a function lines that read nothing of `self`, a method others."""
    taken = lines[place[0] : place[1]]
    outer = [*lines[: place[0]], *lines[place[1] :]]
    own = _attributes(taken)
    form = habits.part
    owned = [line for line in sketch.constructor if line.split(" ")[0].removeprefix("self.") in own]
    if form == "class" and (not own or len(owned) != len(own) or own & _attributes(outer)):
        form = "method"
    if form == "function" and own:
        form = "method"
    name = rng.choice([name for name in _PART_NAMES[form] if name.lower() not in sketch.taken])
    (source,) = _sources(taken, inputs)
    argument = rng.choice(_PART_INPUTS)
    renamed = [replace(line, text=re.sub(_word(source), argument, line.text)) for line in taken]
    if rng.random() < 0.6:
        renamed[-1] = replace(renamed[-1], mark="")
    else:
        renamed.append(Line("", renamed[-1].mark))
    named = _named(renamed, {argument}, sketch.taken, habits, rng)
    return Body([], form, name, named, argument, owned if form == "class" else [])


def _word(name: str) -> str:
    return re.escape(name) if MARK.fullmatch(name) else rf"(?<![\w.]){name}\b(?!=)"


def _attributes(lines: Iterable[Line]) -> set[str]:
    return {name for line in lines for name in re.findall(r"self\.(\w+)", line.text)}


# --- names


def _named(
    lines: Sequence[Line], inputs: set[str], taken_elsewhere: set[str], habits: Habits, rng: random.Random
) -> list[str]:
    names: dict[str, str] = {}
    taken = inputs | _RESERVED
    last = {mark: at for at, line in enumerate(lines) for mark in _read(line.text)}
    written: list[str] = []
    for at, line in enumerate(lines):
        dying = [name for name in _read(line.text) if last[name] == at]
        filled = MARK.sub(lambda match: names[match[0]], line.text)
        target = line.mark
        if MARK.fullmatch(line.mark):
            given = [names.get(name, name) for name in dying if MARK.fullmatch(name) or name in inputs]
            target = names[line.mark] = _name(line.text, given, taken, taken_elsewhere, habits, rng)
            taken = taken | {target}
        statement = f"{target} = {filled}" if target else f"return {filled}"
        written += _noted(statement, line, len(written), habits, rng)
        if habits.spaced and target:
            written.append("")
    return written


def _noted(statement: str, line: Line, before: int, habits: Habits, rng: random.Random) -> list[str]:
    if not line.operators or habits.notes == "none":
        return [statement]
    text = note(line.operators, rng)
    if habits.notes == "trailing":
        return [f"{statement}  # {text}"] if len(statement) + len(text) < 90 else [statement]
    if habits.notes == "numbered":
        text = f"{before // 2 + 1}. {text}"
    return [f"# {text}", statement]


def _inlined(sketch: Sketch, results: Sequence[str], habits: Habits, rng: random.Random) -> list[Line]:
    end = ", ".join(results)
    lines = [*sketch.lines, Line("", end if len(results) > 1 or not sketch.lines else results[0])]
    kept: list[Line] = []
    for at, line in enumerate(lines):
        if not MARK.fullmatch(line.mark):
            kept.append(lines[at])
            continue
        uses = sum(other.text.count(line.mark) for other in lines[at + 1 :])
        user = next((k for k in range(at + 1, len(lines)) if line.mark in lines[k].text), None)
        if user is None:
            continue
        is_last = user == len(lines) - 1
        share = max(habits.nested, 0.4 if is_last else 0.0)
        if uses == 1 and len(line.text) + len(lines[user].text) < 80 and rng.random() < share:
            inner = line.text if (is_last and len(results) == 1) or _is_atom(line.text) else f"({line.text})"
            into = lines[user]
            lines[user] = Line(
                into.mark, into.text.replace(line.mark, inner), (*line.operators, *into.operators)
            )
        else:
            kept.append(line)
    return kept


def _is_atom(text: str) -> bool:
    node = ast.parse(MARK.sub("value", text), mode="eval").body
    return isinstance(node, ast.Call | ast.Name | ast.Attribute | ast.Subscript | ast.Constant)


def _read(text: str) -> list[str]:
    """Marks and plain names in an expression, in order."""
    return re.findall(r"⟦\d+⟧|(?<![\w.])[a-zA-Z_]\w*(?![\w(=])", text)


def _name(
    text: str,
    dying: Sequence[str],
    taken: set[str],
    taken_elsewhere: set[str],
    habits: Habits,
    rng: random.Random,
) -> str:
    if habits.naming == "rebind" and dying:
        return dying[0]
    if habits.naming == "operator":
        calls = re.findall(r"\.(\w+)\(", text)
        if calls and f"{calls[-1]}_out" not in taken and calls[-1].isidentifier():
            return f"{calls[-1]}_out"
    if habits.naming == "numbered":
        return next(f"h{k}" for k in range(1, 99) if f"h{k}" not in taken)
    pool = WORDS if habits.naming == "word" and habits.drawn_names else RESULTS
    names = [name for name in pool if name not in taken and name.lower() not in taken_elsewhere]
    return rng.choice(names) if names else next(f"x{k}" for k in range(1, 99) if f"x{k}" not in taken)
