"""Answers a problem: reads its module, plans the kernels, and writes `ModelNew` in KernelBench's format."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.utils._pytree import tree_flatten, tree_map

from kernel_core.generator.fuse import Plan, Region, in_two_stages
from kernel_core.generator.index import AXES
from kernel_core.generator.ir import CHEAP, Value, make
from kernel_core.generator.kernel import Unfusable
from kernel_core.generator.read import Graph, Unreadable, forward_of, read
from kernel_core.generator.schedules import conv, flat, gemm, partial, row, scan, scatter, window
from kernel_core.generator.schedules.written import Context, Written
from kernel_core.generator.sizes import Size, canonical, host, run_in, shape_text
from kernel_core.records import Problem

SCHEDULES: dict[str, Callable[[Context], Written]] = {
    "flat": flat.write, "reduce": row.write, "dot": gemm.write, "conv": conv.write, "window": window.write,
    "scan": scan.write, "partial": partial.write, "scatter": scatter.write,
}  # fmt: skip
_LONGEST_INPUT = 80
"""Characters of an input's expression that the plan repeats."""
_SPATIAL, _MANY_DIMENSIONS = ("conv", "window"), 2
"""Regions that need dimensions of an image one by one; so many get names together."""


@dataclass
class Answer:
    """A module with kernels for a problem."""

    source: str
    thinking: str
    """The plan: what becomes a kernel, what fuses, how the work is split."""
    kernels: int
    reasons: list[str] = field(default_factory=list)
    """Calls that stay torch's, and why."""


def answer(
    problem: Problem, precision: str = "tf32", on_meta: bool = False, library: frozenset[str] = frozenset()
) -> Answer:
    """Return kernels for a problem; calls of the functions in `library` stay torch's.

    Raises Unreadable where its module cannot be read or has nothing to write.
    """
    graph = read(problem, on_meta, library)
    try:
        return _Writer(problem, graph, precision).answer()
    except Unreadable:
        raise
    except Exception as error:  # a form that no schedule was written for; others go on
        raise Unreadable(f"no kernel text: {type(error).__name__}: {error}") from error


class _Writer:
    """Host code and kernels of one graph."""

    def __init__(self, problem: Problem, graph: Graph, precision: str) -> None:
        self.problem, self.graph, self.precision = problem, graph, precision
        leaves = [leaf for leaf in tree_flatten(graph.outputs)[0] if isinstance(leaf, Value)]
        if not leaves:
            raise Unreadable("forward returns no tensor")
        self.outputs = in_two_stages(leaves)
        self.plan = Plan(self.outputs)
        is_torchs = any(value.op == "call" for value in self.plan.values)
        if not self.plan.regions and not is_torchs:  # views alone: kernels copy them
            self.outputs = [make("copy", (view,), view.shape, view.dtype) for view in self.outputs]
            self.plan = Plan(self.outputs)
        self.final = dict(zip(map(id, leaves), self.outputs, strict=True))
        self.names: dict[int, str] = {}
        self.taken = graph.names.taken
        self.written: list[Written] = []
        self.lines: list[str] = []
        self.keys: dict[str, str] = {}
        self.totals: dict[str, list[str]] = {}
        """Sizes of each launch, by the name of its kernel."""
        self.assigned: dict[str, str] = {}
        """Host texts of the totals of the last launch by name."""
        self.kernel_names: set[str] = set()

    def answer(self) -> Answer:
        """The text; regions that cannot be written are made smaller until they can."""
        ready = self._write_regions()
        for leaf in self.graph.inputs:
            if self._is_used(leaf):
                self.lines.append(f"{leaf.text} = {leaf.text}.contiguous()")
        self._host_lines(ready)
        result = tree_map(
            lambda leaf: _Text(self._expression(self.final[id(leaf)])) if isinstance(leaf, Value) else leaf,
            self.graph.outputs,
        )
        self.lines.append(f"return {_nest(result)}")
        if not self.written:
            raise Unreadable("; ".join(["nothing to write a kernel for", *self.graph.reasons]))
        body = self._with_sizes([self._with_keys(line) for line in self.lines])
        return Answer(self._source(body), self._thinking(), len(self.written), self.graph.reasons)

    def _is_used(self, leaf: Value) -> bool:
        return any(leaf in value.tensors for value in self.plan.values) or leaf in self.outputs

    # --- kernels

    def _write_regions(self) -> dict[int, Written]:
        while True:
            try:
                self.written, self.kernel_names = [], set()
                ready = {}
                for region in self.plan.regions:
                    written = self._write(region)
                    ready[id(region)] = written
                    self.written.append(written)
                return ready
            except _Smaller:
                self.plan.partition()

    def _write(self, region: Region) -> Written:
        materialised = self.plan.materialised | {
            id(value) for value in self.plan.values if value.op in ("leaf", "call")
        }
        name = self._kernel_name(region)
        context = Context(region, materialised - set(region.core), self._short, name, self.precision)
        try:
            return SCHEDULES[region.kind](context)
        except Unfusable as error:
            if len(region.core) == 1 and region.kind != "flat":
                raise Unreadable(f"no schedule for {region.kind}: {error}") from error
            if region.kind == "flat":
                raise Unreadable(f"no flat kernel: {error}") from error
            last = list(region.core)[-1]
            self.plan.refused.add(last)
            raise _Smaller from error

    def _kernel_name(self, region: Region) -> str:
        named: list[str] = []
        for value in region.core.values():
            word = (
                value.entry.name.strip("_")
                if value.op == "point"
                else value.kind
                if value.op in ("reduce", "scan")
                else value.op
            )
            word = {"dot": "matmul", "window": "pool", "scan": "cumulative", "take": "gather"}.get(word, word)
            if word not in ("reshape", "cast", *named):
                named.append(word)
        words = [word for word in named if word not in ("add", "sub", "mul", "true_divide")] or named
        base = "_".join(words[:3]) + "_kernel"
        name, number = base, 2
        while name in self.kernel_names:
            name, number = f"{base}_{number}", number + 1
        self.kernel_names.add(name)
        return name

    def _short(self, value: Value) -> str:
        """Name of a tensor in a kernel."""
        if value.op == "leaf":
            parts = [part for part in re.split(r"[.\[\]]+", value.text) if part and part != "self"]
            return "_".join(parts[-2:]) if len(parts) > 1 and parts[-1].isdigit() else parts[-1]
        return self.names.get(id(value), "x")

    # --- host

    def _host_lines(self, ready: dict[int, Written]) -> None:
        """Launches and calls, each as soon as its tensors are there."""
        waiting: list[Any] = [*self.plan.regions]
        groups: dict[int, list[Value]] = {}
        for value in self.plan.values:
            if value.op == "call":
                groups.setdefault(id(value.group), []).append(value)
        waiting += list(groups.values())
        have = {id(value) for value in self.plan.values if value.op == "leaf"}
        while waiting:
            for item in waiting:
                needs = self._needs_of(item, ready)
                if all(id(value) in have for value in needs):
                    break
            else:
                raise Unreadable("kernels that wait for each other")
            waiting.remove(item)
            if isinstance(item, Region):
                self._launch(ready[id(item)])
                have |= {id(value) for value in item.outputs}
            else:
                self._call(item)
                have |= {id(value) for value in item}

    def _needs_of(self, item: Any, ready: dict[int, Written]) -> list[Value]:
        if isinstance(item, Region):
            written = ready[id(item)]
            start = written.starts_from
            own = [] if start is None or start.op == "full" else [self._base(start)]
            return own + [
                argument for argument in written.tensors.values() if argument not in written.outputs
            ]
        return [self._base(tensor) for tensor in item[0].tensors]

    def _base(self, value: Value) -> Value:
        while value.op in CHEAP and id(value) not in self.plan.materialised:
            value = value.inputs[0]
        return value

    def _launch(self, written: Written) -> None:
        for value in written.outputs:
            made = self._allocated(value, written)
            self.lines.append(f"{self._name(value, 'out')} = {made}")
        numbers = self._numbers(written)
        own = self._totals(written, numbers)

        def renamed(text: str) -> str:
            return re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda match: own.get(match[0], match[0]), text)

        tensors = [self._expression(value) for value in written.tensors.values()]
        given = [own.get(name, numbers[name]) for name in written.numbers]
        grid = renamed(written.grid)
        if grid.startswith("lambda"):
            self.lines.append(f"grid = {grid}")
            grid = "grid"
        constants = [f"{name}={renamed(text)}" for name, text in written.constants.items()]
        self.lines.append(f"{written.name}[{grid}]({', '.join([*tensors, *given, *constants])})")

    def _shapes(self, written: Written) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of a launch's tensors that the host has, those that are read first."""
        known = sorted(written.tensors.values(), key=lambda tensor: tensor in written.outputs)
        return [
            (self._expression(tensor), tensor.shape)
            for tensor in known
            if tensor.op == "leaf" or id(tensor) in self.names
        ]

    def _numbers(self, written: Written) -> dict[str, str]:
        """Host texts of a launch's numbers by their arguments; sizes by the shapes of its own tensors."""
        shapes = self._shapes(written)
        texts = dict(written.numbers)
        for name, size in written.sizes.items():
            run = run_in(size, shapes)
            texts[name] = canonical(size)
            if run is not None:
                texts[name] = run.flat_text if written.totals.get(name) else run.text
        return texts

    def _totals(self, written: Written, numbers: dict[str, str]) -> dict[str, str]:
        """Write the lines that compute a launch's totals; names by those of the arguments."""
        own: dict[str, str] = {}
        for argument in written.totals:
            text, name = numbers[argument], argument
            if name in self.taken:
                name = self._free(name)
            for other, its in own.items():
                if re.search(rf"{re.escape(numbers[other])}(?![\w.\[])", text) and other != argument:
                    text = text.replace(numbers[other], its)
            own[argument] = name
            self.totals.setdefault(written.name, []).append(f"{name} = {text}")
            if self.assigned.get(name) != text and name != text:
                self.lines.append(f"{name} = {text}")
            self.assigned = {
                known: its for known, its in self.assigned.items() if name not in _words(its)
            } | {name: text}
        return own

    def _allocated(self, value: Value, written: Written) -> str:
        """Host text of an output: empty, full of one number, or a copy of the tensor that it starts from."""
        start, function, fill = written.starts_from, "empty", ""
        if start is not None and start.op != "full":
            return f"{self._expression(start)}.clone()"
        if start is not None:
            function, fill = "full", f", {host(start.inputs[0])}"
        tensors = [argument for argument in written.tensors.values() if argument not in written.outputs]
        for tensor in tensors:
            if tensor.dtype == value.dtype and list(map(host, tensor.shape)) == list(map(host, value.shape)):
                return f"torch.{function}_like({self._expression(tensor)}{fill})"
        source = next(iter(tensors), None) or next(iter(self.graph.inputs), None)
        if source is None:
            raise Unreadable("a kernel without a tensor that says its device")
        same = next((tensor for tensor in tensors if tensor.dtype == value.dtype), None)
        dtype = f"{self._expression(same)}.dtype" if same is not None else str(value.dtype)
        device = f"{self._expression(source)}.device"
        shapes = self._shapes(written)
        runs = [run_in(size, shapes) for size in value.shape]
        shape = shape_text(
            [
                size if run is None else Size(int(size), run.text, factors=(run,))
                for size, run in zip(value.shape, runs, strict=True)
            ]
        )
        return f"torch.{function}({shape}{fill}, device={device}, dtype={dtype})"

    def _call(self, values: list[Value]) -> None:
        """A call that stays torch's."""
        first = values[0]
        text = first.text.format(*(self._expression(tensor) for tensor in first.tensors))
        if not first.path:
            name = self._name(first, first.base)
            self.lines.append(f"{name} = {text}")
        else:
            name = self._free(first.base)
            self.lines.append(f"{name} = {text}")
            for value in values:
                own = self._name(value, "_".join(map(str, (first.base, *value.path))))
                self.lines.append(f"{own} = {name}{''.join(f'[{index}]' for index in value.path)}")
        for value in values:
            self.keys[value.key] = self.names[id(value)]
            self.lines.append(f"{self.names[id(value)]} = {self.names[id(value)]}.contiguous()")

    def _name(self, value: Value, wanted: str) -> str:
        name = self._free(wanted)
        self.names[id(value)] = name
        return name

    def _free(self, wanted: str) -> str:
        name, number = wanted, 2
        while name in self.taken:
            name, number = f"{wanted}_{number}", number + 1
        self.taken.add(name)
        return name

    def _expression(self, value: Value) -> str:
        """Host text of a value in memory, as a view where its shape differs."""
        if value.op == "leaf":
            return value.text
        if id(value) in self.names:
            return self.names[id(value)]
        if value.op == "reshape":
            shape = shape_text(value.shape)
            shape = shape.removeprefix("(").removesuffix(")").removesuffix(",") if len(value.shape) else "()"
            return f"{self._expression(value.inputs[0])}.view({shape})"
        if value.op == "expand":
            return self._expression(value.inputs[0])
        raise Unreadable(f"{value.op} that no kernel stored")

    def _with_keys(self, line: str) -> str:
        for key, name in self.keys.items():
            line = line.replace(key, name)
        return line

    def _with_sizes(self, lines: list[str]) -> list[str]:
        """The lines with the sizes that they name, each before the first line that needs it."""
        result: list[str] = []
        known = set[str]()

        def need(line: str) -> None:
            for word in _words(line):
                if word not in known and word in self.graph.names.definitions:
                    known.add(word)
                    text = self._with_keys(self.graph.names.definitions[word])
                    need(text)
                    result.append(f"{word} = {text}")

        for line in lines:
            need(line)
            result.append(line)
        for leaf in self.graph.inputs:
            result = self._with_named_dimensions(leaf, result)
        return result

    def _with_named_dimensions(self, leaf: Value, lines: list[str]) -> list[str]:
        """The lines with names for an input's dimensions, where they need several one by one."""
        names = (
            AXES.get(leaf.rank, ()) if any(region.kind in _SPATIAL for region in self.plan.regions) else ()
        )
        texts = {host(size): name for size, name in zip(leaf.shape, names, strict=False)}
        pattern = re.compile("|".join(rf"(?<![.\w]){re.escape(text)}" for text in texts) or "(?!)")
        places = [index for index, line in enumerate(lines) if pattern.search(line)]
        used = {match for index in places for match in pattern.findall(lines[index])}
        if len(used) < _MANY_DIMENSIONS or any(name in self.taken for name in names):
            return lines
        self.taken |= set(names)
        named = [pattern.sub(lambda match: texts[match[0]], line) for line in lines]
        return [*named[: places[0]], f"{', '.join(names)} = {leaf.text}.shape", *named[places[0] :]]

    # --- text

    def _source(self, body: list[str]) -> str:
        tree = ast.parse(self.problem.source)
        texts = [self._with_keys(kernel.text) for kernel in self.written]
        helpers = {name: text for kernel in self.written for name, text in kernel.helpers.items()}
        kernels = "\n\n".join([*helpers.values(), *texts])
        imports = ["import torch", "import triton", "import triton.language as tl"]
        rest = _kept(tree, body)
        if "libdevice." in kernels:
            imports.append("from triton.language.extra import libdevice")
        own = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        if any("F." in line for line in body):
            imports.append("import torch.nn.functional as F")
        if any("math." in line for line in body):
            imports.append("import math")
        lines = list(dict.fromkeys([*own, *imports]))
        return "\n".join(lines) + f"\n\n\n{kernels}\n\n{rest}\n"

    def _thinking(self) -> str:
        made = _input_texts(self.problem.source)
        text = [
            f"{leaf.text}: {made[leaf.text] + ' is ' if leaf.text in made else ''}"
            f"{tuple(map(int, leaf.shape))} {str(leaf.dtype).removeprefix('torch.')}"
            for leaf in self.graph.inputs
        ]
        calls = sorted({value.base for value in self.plan.values if value.op == "call"})
        number = len(self.written)
        kernels = "one kernel" if number == 1 and not calls else f"{number} kernel{'s' * (number > 1)}"
        text.append(f"{', '.join(dict.fromkeys(self.graph.steps))}: {kernels}.")
        for kernel in self.written:
            totals = ", ".join(self.totals.get(kernel.name, ()))
            fused = f" Fuses {', '.join(kernel.fused)}." if len(kernel.fused) > 1 else ""
            text.append(f"{kernel.name}: {totals}{'.' * bool(totals)}{fused} {kernel.plan}")
        if calls:
            text.append(f"PyTorch keeps {', '.join(calls)}.")
        return "\n".join(text)


def _input_texts(source: str) -> dict[str, str]:
    """Expressions by which `get_inputs` makes the inputs, by the names that `forward` gives them."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    body = functions["get_inputs"].body
    assigned = {
        target.id: node.value
        for node in body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    last = body[-1].value if isinstance(body[-1], ast.Return) else None
    made = last.elts if isinstance(last, ast.List | ast.Tuple) else []
    names = [argument.arg for argument in _arguments(forward_of(tree))[1:]]
    texts = {
        name: ast.unparse(assigned.get(node.id, node) if isinstance(node, ast.Name) else node)
        for name, node in zip(names, made, strict=False)
    }
    return {name: text for name, text in texts.items() if len(text) <= _LONGEST_INPUT}


def _words(line: str) -> list[str]:
    """Names in a line that are no attributes."""
    return re.findall(r"(?<![.\w])[A-Za-z_]\w*", line)


class _Smaller(Exception):
    """A region was too large."""


class _Text(str):
    def __repr__(self) -> str:
        return str(self)


def _nest(result: Any) -> str:
    if isinstance(result, _Text):
        return str(result)
    if isinstance(result, tuple | list):
        inner = ", ".join(map(_nest, result)) + (
            "," if len(result) == 1 and isinstance(result, tuple) else ""
        )
        return f"({inner})" if isinstance(result, tuple) else f"[{inner}]"
    if isinstance(result, dict):
        return "{" + ", ".join(f"{key!r}: {_nest(part)}" for key, part in result.items()) + "}"
    return host(result)


def _kept(tree: ast.Module, body: list[str]) -> str:
    """The problem's own definitions that the constructor needs, and `ModelNew` with the new `forward`."""
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Model")
    items: list[ast.stmt] = [
        node for node in model.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    forward = forward_of(tree)
    used = _names_of(items)
    methods = [
        node
        for node in model.body
        if isinstance(node, ast.FunctionDef) and node.name in used and node not in items
    ]
    new = ast.FunctionDef(
        name="forward", args=forward.args, body=ast.parse("\n".join(body)).body if False else [ast.Pass()],
        decorator_list=[], lineno=0,
    )  # fmt: skip
    for argument in (*new.args.posonlyargs, *new.args.args):
        argument.annotation = None
    items += [*methods, new]
    model_text = ast.ClassDef(
        name="ModelNew",
        bases=model.bases,
        keywords=[],
        body=[_Renamed().visit(node) for node in items],
        decorator_list=[],
    )
    text = ast.unparse(ast.fix_missing_locations(model_text))
    head, _, _ = text.rpartition("        pass")
    text = head + "\n".join(f"        {line}" for line in body)
    if "def __init__" in text:
        text = _without_docstring(text)
    needed = _needed(tree, model, items, model.bases, body)
    return "\n\n\n".join([*needed, text])


def _without_docstring(text: str) -> str:
    return re.sub(
        r'(def __init__\(.*?\).*?:\n)\s+(""".*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\')\n',
        r"\1",
        text,
        count=1,
        flags=re.S,
    )


class _Renamed(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        """`Model` becomes `ModelNew`."""
        return ast.Name("ModelNew", node.ctx) if node.id == "Model" else node


def _names_of(nodes: list[ast.stmt]) -> set[str]:
    names = set[str]()
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                names.add(part.id)
            elif isinstance(part, ast.Attribute):
                names.add(part.attr)
    return names


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _needed(
    tree: ast.Module, model: ast.ClassDef, items: list[ast.stmt], bases: list[ast.expr], body: list[str]
) -> list[str]:
    """Definitions of the problem that the constructor reaches, in their order."""
    definitions: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node is not model:
            definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        definitions[part.id] = node
    statements: list[ast.stmt] = [ast.parse(line.removeprefix("return ")).body[0] for line in body]
    own = {
        argument.arg for node in items if isinstance(node, ast.FunctionDef) for argument in _arguments(node)
    }
    own |= {
        part.id
        for node in statements
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    waiting = (_names_of(items) | _names_of(statements)) - own
    waiting |= _names_of([ast.Expr(base) for base in bases])
    waiting |= _names_of(
        [
            ast.Expr(default)
            for node in items
            if isinstance(node, ast.FunctionDef)
            for default in node.args.defaults
        ]
    )
    kept: list[ast.stmt] = []
    seen = set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in definitions:
            continue
        seen.add(name)
        if definitions[name] not in kept:
            kept.append(definitions[name])
            waiting |= _names_of([definitions[name]])
    return [ast.unparse(node) for node in tree.body if node in kept]


__all__ = ["Answer", "answer"]
