"""Answers that replace a part of a module: some statements of one function, with all other text kept.

A part is a range of statements that run one after another. Its inputs are local names and attributes of
`self`; its results are the names that are read behind it, or what the function returns.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from kernel_core.generator import literals
from kernel_core.generator.answer import Answer, Writer, module_text
from kernel_core.generator.library import LEAST_SHARE, first_with_work
from kernel_core.generator.library_calls import LibraryCalls
from kernel_core.generator.module import kept_whole
from kernel_core.generator.names import NAMES, Names
from kernel_core.generator.part_graph import NoPart, key_of, part_graph
from kernel_core.generator.read import Graph, without_values
from kernel_core.generator.statements import Block, blocks_of, replaced, run_once
from kernel_core.generator.watch import Watch
from kernel_core.problems.source import resize
from kernel_core.records import Problem

_LEAST_LIMIT, _ADDED = 3840, 2880
"""Characters of source: 1,200 tokens of any answer, and 900 tokens beyond the problem's own text."""
_MOST_CALLS = 8
"""Calls with inputs or attributes of their own that a part is read for."""
_TOO_LONG = 1.15
"""An answer that exceeds the limit by this factor is not tried with another statement."""
_LONGEST_LINE = 60
_LEAST_SHARE = 0.1
"""Least share of the first part's work that a further part has."""


def limit_of(problem: Problem) -> int:
    """Characters that an answer to a problem may have to be taught."""
    imports, text = kept_whole(problem.source)
    return max(_LEAST_LIMIT, len("\n".join([*imports, text])) + _ADDED)


@dataclass
class _Part:
    """A range of statements that has been answered."""

    block: Block
    first: int
    last: int
    work: int
    answer: Answer

    def overlaps(self, other: _Part) -> bool:
        """True where two parts share a line of text."""
        return not (self.lines[1] < other.lines[0] or other.lines[1] < self.lines[0])

    @property
    def lines(self) -> tuple[int, int]:
        """Numbers of the first and last line."""
        last = self.block.statements[self.last]
        return self.block.statements[self.first].lineno, last.end_lineno or last.lineno


def partial_answers(
    problem: Problem, precision: str = "tf32x3", on_meta: bool = False, most: int = 3
) -> list[Answer]:
    """Return answers that replace a part each, from the part with the most work; at most `most`.

    Work is counted in bytes that the part's calls read and write, in all its runs. Products, views, copies
    and conversions do not count. A part begins and ends with a statement that does work. It calls no other
    function of the problem's text, unless there is no such part. It has 1.5 % of the module's bytes and
    operations. No answer exceeds `limit_of(problem)`. No two parts share a line, and each has a tenth of the
    first's work. The earlier of equal parts comes first. A part whose text would differ between calls,
    or whose calls are others at the sizes for a CPU, is none. The list is empty where nothing can be written.
    """
    try:
        tree = ast.parse(problem.source)
        blocks = blocks_of(tree)
        limit = limit_of(problem)
        with without_values(on_meta):
            module, watch = run_once(problem, tree, blocks)
            small, small_watch = _at_cpu_sizes(problem)
            for is_local in (True, False):
                parts = [
                    part
                    for block, other in zip(blocks, small, strict=True)
                    for part in _Parts(
                        problem, precision, module, watch, block, (other, small_watch), limit
                    ).answered(is_local)
                ]
                if parts:
                    break
    except Exception:  # another program's code may raise anything
        return []
    chosen: list[_Part] = []
    for part in sorted(parts, key=lambda part: -part.work):
        is_apart = not any(part.overlaps(other) for other in chosen)
        if len(chosen) < most and is_apart and part.work >= _LEAST_SHARE * max(made.work for made in parts):
            chosen.append(part)
    return [part.answer for part in chosen]


def _at_cpu_sizes(problem: Problem) -> tuple[list[Block], Watch]:
    """Blocks with their runs and calls at the sizes for a CPU, where other conditions may hold."""
    if problem.cpu_constants:
        problem = resize(problem, problem.cpu_constants)
    tree = ast.parse(problem.source)
    blocks = blocks_of(tree)
    return blocks, run_once(problem, tree, blocks)[1]


class _Parts:
    """The parts of a block; `small` is the same block, with its calls, at the sizes for a CPU."""

    def __init__(
        self,
        problem: Problem,
        precision: str,
        module: types.ModuleType,
        watch: Watch,
        block: Block,
        small: tuple[Block, Watch],
        limit: int,
    ) -> None:
        self._problem, self._precision, self._module = problem, precision, module
        self._block, self._small, self._limit, self._watch = block, small, limit, watch
        self._names = {
            name
            for part in ast.walk(block.function)
            for name in [getattr(part, "id", None) or getattr(part, "arg", None)]
            if name is not None
        }

    def answered(self, is_local: bool) -> Iterator[_Part]:
        """Yield for each first statement the parts that do not exceed the limit.

        With `is_local`, those that call no other function of the problem's text; without it, the others.
        """
        size = len(self._block.statements)
        works = [self._work(place, place) for place in range(size)]
        for first in range(size):
            for last in range(first, size) if works[first] else ():
                runs = self._block.ranges(first, last)
                calls_others = any(before.entered != after.entered for before, after in runs)
                if is_local and calls_others:
                    break
                if is_local == calls_others or not works[last] or self._leaves_early(first, last):
                    continue
                if not self._has_one_path(first, last):
                    continue
                try:
                    written = first_with_work(functools.partial(self._answer, first, last))
                except Exception:  # no text, or what another program's code raises
                    continue
                if len(written.source) > _TOO_LONG * self._limit:
                    break
                work = self._work(first, last)
                if len(written.source) <= self._limit and work >= LEAST_SHARE * self._watch.cost:
                    yield _Part(self._block, first, last, work, written)

    def _has_one_path(self, first: int, last: int) -> bool:
        """True for a range that makes the same calls at the sizes for a CPU, where other branches may run."""
        block, watch = self._small
        paths = block.paths(first, last, watch)
        return bool(paths) and paths <= self._block.paths(first, last, self._watch)

    def _work(self, first: int, last: int) -> int:
        return sum(
            self._watch.work(before.steps, after.steps) for before, after in self._block.ranges(first, last)
        )

    def _leaves_early(self, first: int, last: int) -> bool:
        """True for a range that may leave its block before its end."""
        statements = self._block.statements[first : last + 1]
        leaving = [
            part
            for statement in statements
            for part in ast.walk(statement)
            if isinstance(part, ast.Return | ast.Break | ast.Continue)
        ]
        is_end = self._block.is_body and last + 1 == len(self._block.statements)
        return bool(leaving) and not (is_end and all(isinstance(part, ast.Return) for part in leaving))

    def _answer(self, first: int, last: int, library: LibraryCalls) -> Answer:
        """An answer that holds for all calls of the range."""
        block = self._block
        calls: dict[str, dict[str, Any]] = {}
        inputs = block.inputs(first, last)
        is_end = block.is_body and last + 1 == len(block.statements)
        results: list[str] | None = None if is_end else block.results(first, last)
        for before, after in self._block.ranges(first, last):
            if results is not None:
                results = [name for name in results if name in after.names]
            calls.setdefault(key_of(before.names, inputs), before.names)
        if not calls or len(calls) > _MOST_CALLS or results == []:
            raise NoPart("a part without calls or results, or with too many calls")
        texts: list[tuple[list[str], str]] = []
        for names in calls.values():
            writer = self._writer(first, last, inputs, results, names, library)
            texts.append((writer.body(), writer.kernels_text()))
            if texts[-1] != texts[0]:
                raise NoPart("the text differs between calls")
        if not writer.computes or writer.graph.reasons:
            raise NoPart("a part without work, or with calls that have no entry")
        lines, kernels = texts[0]
        if "grid" in self._names and any(line.startswith("grid = ") for line in lines):
            raise NoPart("the function has a name that launches use")
        source = _source(self._problem.source, block.statements[first : last + 1], lines, kernels)
        plan = f"{self._heading(first, last)}\n{writer.plan_text({})}"
        steps = ", ".join(dict.fromkeys(writer.graph.steps))
        number = len({kernel.name for kernel in writer.written})
        return Answer(source, plan, number, steps, kinds=writer.kinds)

    def _writer(
        self,
        first: int,
        last: int,
        inputs: Sequence[str],
        results: list[str] | None,
        names: dict[str, Any],
        library: LibraryCalls,
    ) -> _PartWriter:
        block = self._block
        given = [name for name in inputs if name in names and name != "self"]
        body = list(block.statements[first : last + 1])
        if results is not None:
            made = ast.Tuple([ast.Name(name, ast.Load()) for name in results], ast.Load())
            body.append(ast.Return(made))
        arguments = ["self"] * block.is_method + given
        function = ast.parse(f"def part({', '.join(arguments)}): pass").body[0]
        assert isinstance(function, ast.FunctionDef)
        function.body = body
        text = literals.with_literals(ast.fix_missing_locations(ast.Module([function], [])))
        namespace = self._module.__dict__ | literals.namespace()
        exec(compile(text, self._problem.id, "exec"), namespace)
        own = Names()
        own.taken |= {*self._names, "F", "self", "torch", "triton", "tl", "nn", "math"}
        NAMES.set(own)
        instance = names["self"] if block.is_method else nn.Module()
        graph = part_graph(
            instance, block.is_method, namespace["part"], {n: names[n] for n in given}, library
        )
        return _PartWriter(self._problem, graph, self._precision, results)

    def _heading(self, first: int, last: int) -> str:
        """Line of the plan that says what is replaced."""
        block = self._block
        statements = [statement for statement in block.function.body if not isinstance(statement, ast.Expr)]
        if block.is_body and statements == block.statements[first : last + 1]:
            return f"Part: {block.owner}. PyTorch keeps the rest."
        line = self._problem.source.splitlines()[block.statements[first].lineno - 1].strip()
        line = line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."
        return f"Part: {block.owner} from `{line}`. PyTorch keeps the rest."


class _PartWriter(Writer):
    """Writes a part; `results` are the names of its results, or None where the function returns them."""

    def __init__(self, problem: Problem, graph: Graph, precision: str, results: list[str] | None) -> None:
        super().__init__(problem, graph, precision)
        self._results = results

    def _result_lines(self) -> list[str]:
        if self._results is None:
            return super()._result_lines()
        texts = [self.result_text(result) for result in self.graph.outputs]
        pairs = [pair for pair in zip(self._results, texts, strict=True) if pair[0] != pair[1]]
        names, made = (", ".join(side) for side in zip(*pairs, strict=True))
        return [f"{names} = {made}"]


def _source(source: str, statements: Sequence[ast.stmt], lines: Sequence[str], kernels: str) -> str:
    """The problem's text with the lines of a part, below its kernels."""
    imports, text = kept_whole(replaced(source, statements, lines))
    return module_text(imports, kernels, text)
