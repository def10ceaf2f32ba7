"""Statements of a problem's functions: which names they read and store, and what each does in one run."""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernel_core.generator.lines import folded
from kernel_core.generator.names import NAMES, Names
from kernel_core.generator.read import Unreadable, model_and_inputs
from kernel_core.generator.watch import Watch
from kernel_core.records import Problem

_PROBE = "__before__"


@dataclass
class Moment:
    """A place in a run, before a statement or behind the last one."""

    names: dict[str, Any]
    """Local names with their values."""
    steps: int
    """Calls of torch's until then."""
    entered: int
    """Calls of the problem's own functions until then."""


@dataclass
class Block:
    """Statements that run one after another: the body of a function, of a loop or of a condition."""

    owner: str
    """Name of the function behind that of its class."""
    function: ast.FunctionDef
    is_method: bool
    statements: list[ast.stmt]
    read_after: frozenset[str]
    """Names that the function reads behind the block, or in the loop around it."""
    runs: list[dict[int, Moment]] = field(default_factory=list)
    """Moments of each run by the number of the next statement."""

    @property
    def is_body(self) -> bool:
        """True for all statements of a function."""
        return self.statements is self.function.body

    def ranges(self, first: int, last: int) -> list[tuple[Moment, Moment]]:
        """Moments before and behind a range of statements in each run that has both."""
        return [(run[first], run[last + 1]) for run in self.runs if first in run and last + 1 in run]

    def paths(self, first: int, last: int, watch: Watch) -> set[tuple[str, ...]]:
        """Calls of torch's that a range of statements makes in its runs."""
        return {watch.calls(before.steps, after.steps) for before, after in self.ranges(first, last)}

    def results(self, first: int, last: int) -> list[str]:
        """Names that a range of statements stores and that are read behind it, in their order."""
        read = read_names(self.statements[last + 1 :]) | self.read_after
        stored = dict.fromkeys(
            part.id
            for statement in self.statements[first : last + 1]
            for part in _in_order(statement)
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
        )
        return [name for name in stored if name in read]

    def inputs(self, first: int, last: int) -> list[str]:
        """Names that a range of statements reads before it stores them, in their order."""
        stored, read = set[str](), dict[str, None]()
        for statement in self.statements[first : last + 1]:
            read |= dict.fromkeys(name for name in _read_in_order(statement) if name not in stored)
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                stored |= {
                    part.id
                    for part in ast.walk(statement)
                    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
                }
        return list(read)


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes in the order of the text."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _read_in_order(statement: ast.stmt) -> Iterator[str]:
    for part in _in_order(statement):
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
            yield part.target.id
        elif isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Store):
            yield part.id


def read_names(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """Names that statements read."""
    return frozenset(name for statement in statements for name in _read_in_order(statement))


def blocks_of(tree: ast.Module) -> list[Block]:
    """Blocks of the functions and methods of a text, in its order, without constructors."""
    blocks: list[Block] = []
    for node in tree.body:
        functions = [node] if isinstance(node, ast.FunctionDef) else []
        owner = ""
        if isinstance(node, ast.ClassDef):
            functions = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            owner = f"{node.name}."
        for function in functions:
            names = [argument.arg for argument in function.args.args]
            is_method = bool(owner) and names[:1] == ["self"]
            is_generator = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(function))
            if function.name == "__init__" or (owner and not is_method) or is_generator:
                continue

            def add(
                statements: list[ast.stmt],
                after: frozenset[str],
                name: str = owner + function.name,
                function: ast.FunctionDef = function,
                is_method: bool = is_method,
            ) -> None:
                blocks.append(Block(name, function, is_method, statements, after))
                for place, statement in enumerate(statements):
                    behind = read_names(statements[place + 1 :]) | after
                    if isinstance(statement, ast.For | ast.While):
                        add(statement.body, behind | read_names([statement]))
                    elif isinstance(statement, ast.With):
                        add(statement.body, behind)
                    elif isinstance(statement, ast.If):
                        add(statement.body, behind)
                        add(statement.orelse, behind)

            if function.name not in ("get_inputs", "get_init_inputs"):
                add(function.body, frozenset())
    return [block for block in blocks if block.statements]


def run_once(problem: Problem, tree: ast.Module, blocks: Sequence[Block]) -> tuple[types.ModuleType, Watch]:
    """Run a problem's module once, and give its blocks their runs. Returns the executed text and its calls.

    The caller sets the kind of tensors. Raises whatever the module raises.
    """
    watched = _with_probes(tree, blocks)
    module = types.ModuleType("problem")
    watch: Watch | None = None
    open_runs: dict[int, list[dict[int, Moment]]] = {}
    entered = 0

    def before(number: int, place: int, names: dict[str, Any]) -> None:
        nonlocal entered
        if watch is None or watch.is_over:
            return
        entered += place == 0 and blocks[number].is_body
        runs = open_runs.setdefault(number, [])
        if place == 0:
            runs.append({})
            blocks[number].runs.append(runs[-1])
        runs[-1][place] = Moment(names, len(watch.steps), entered)
        if place == len(blocks[number].statements):
            runs.pop()

    module.__dict__[_PROBE] = before
    exec(compile(watched, problem.id, "exec"), module.__dict__)
    model, inputs = model_and_inputs(module)
    NAMES.set(Names())
    watch = Watch(model)
    with watch.running(), torch.no_grad():
        outputs = model(*inputs)
    watch.finish(inputs, outputs)
    return module, watch


def _with_probes(tree: ast.Module, blocks: Sequence[Block]) -> ast.Module:
    """A copy of a text that says before each statement of a block where it is."""
    copied = copy.deepcopy(tree)
    numbers = {id(block.statements): number for number, block in enumerate(blocks)}
    pairs = list(zip(ast.walk(tree), ast.walk(copied), strict=True))
    for original, node in pairs:
        for name in ("body", "orelse"):
            number = numbers.get(id(getattr(original, name, None)))
            if number is None:
                continue
            own: list[ast.stmt] = []
            for place, statement in enumerate(getattr(node, name)):
                own += [_probe(number, place), statement]
            end = _probe(number, len(blocks[number].statements))
            if blocks[number].is_body:
                own = [ast.Try(body=own, handlers=[], orelse=[], finalbody=[end])]
            else:
                own.append(end)
            setattr(node, name, own)
    return ast.fix_missing_locations(copied)


def _probe(number: int, place: int) -> ast.stmt:
    return ast.parse(f"{_PROBE}({number}, {place}, dict(locals()))").body[0]


def replaced(source: str, statements: Sequence[ast.stmt], lines: Sequence[str]) -> str:
    """The text with other lines in place of some statements. Raises Unreadable where they share a line."""
    own = source.splitlines()
    first, last = statements[0], statements[-1]
    start, end = first.lineno - 1, last.end_lineno or last.lineno
    behind = own[end - 1].encode()[last.end_col_offset :].decode().strip()
    if own[start][: first.col_offset].strip() or (behind and not behind.startswith("#")):
        raise Unreadable("statements that share a line with others")
    indent = first.col_offset
    new = "\n".join(folded(line, indent) for line in lines)
    return "\n".join([*own[:start], new, *own[end:]]) + "\n"
