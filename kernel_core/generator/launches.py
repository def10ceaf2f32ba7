"""Host code of an answer: allocations, launches and calls of torch, with the sizes that they name."""

from __future__ import annotations

import re
from typing import Any

from kernel_core.generator.fuse import Plan, Region
from kernel_core.generator.index import AXES
from kernel_core.generator.ir import CHEAP, Value, is_channels_last, memory_format, stored
from kernel_core.generator.names import canonical, take_name
from kernel_core.generator.read import Graph, Unreadable
from kernel_core.generator.schedules.written import Written
from kernel_core.generator.shapes import order_text, run_in, shape_text, starred
from kernel_core.generator.sizes import Size, host, is_named

_SPATIAL, _MANY_DIMENSIONS = ("conv", "window"), 2
"""Regions that need dimensions of an image one by one; so many get names together."""
WHY_COPIED = "# Hopper's TF32 products read both operands along K."
"""Comment of copies with K contiguous."""


class Launches:
    """Lines of `forward` for a plan whose kernels are written."""

    def __init__(self, graph: Graph, plan: Plan, outputs: list[Value]) -> None:
        """`outputs` are what `forward` returns, which may be views of the plan's."""
        self.graph, self.plan, self.outputs = graph, plan, outputs
        self.names: dict[int, str] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        """Shapes of tensors that the host allocates in another shape than their value's."""
        self.taken = graph.names.taken
        self.written: list[Written] = []
        self.lines: list[str] = []
        self.keys: dict[str, str] = {}
        self.totals: dict[str, list[str]] = {}
        """Sizes of each launch, by the name of its kernel."""
        self.assigned: dict[str, str] = {}
        """Host texts of the totals of the last launch by name."""
        self.copies: dict[str, str] = {}
        """Names of copies with their axes in another order, by the texts that make them."""

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
            own += [
                self._base(argument)
                for argument in written.tensors.values()
                if argument not in written.outputs
            ]
            return own or self._calls_named_by(written)
        return [self._base(tensor) for tensor in item[0].tensors]

    def _calls_named_by(self, written: Written) -> list[Value]:
        """Results of calls whose sizes a launch without other tensors names."""
        shapes = [host(size) for output in written.outputs for size in output.shape]
        text = " ".join([*shapes, *map(canonical, written.sizes.values())])
        return [value for value in self.plan.values if value.op == "call" and value.key in text]

    def _base(self, value: Value) -> Value:
        while value.op == "transposed" or (value.op in CHEAP and id(value) not in self.plan.materialised):
            value = value.inputs[0]
        return value

    def _launch(self, written: Written) -> None:
        self._copy([value for value in written.tensors.values() if value.op == "transposed"])
        for value in written.outputs:
            made = self._allocated(value, written)
            wanted = "out" if value in self.plan.outputs else f"{value.origin[1].strip('_') or 'x'}_out"
            self.lines.append(f"{self._name(value, wanted)} = {made}")
        numbers = self._numbers(written)
        own = self._totals(written, numbers)

        def renamed(text: str) -> str:
            return re.sub(r"(?<![.\w])[A-Za-z_]\w*", lambda match: own.get(match[0], match[0]), text)

        tensors = [self._memory(value) for value in written.tensors.values()]
        given = [own.get(name, numbers[name]) for name in written.numbers]
        grid = renamed(written.grid)
        if grid.startswith("lambda"):
            self.lines.append(f"grid = {grid}")
            grid = "grid"
        constants = [f"{name}={renamed(text)}" for name, text in written.constants.items()]
        constants += [f"num_warps={written.warps}"] if written.warps != 4 else []
        ranks = {name: len(shape) for name, shape in self._shapes(written)}
        arguments = [*tensors, *starred(given, ranks, self.graph.names.lengths), *constants]
        self.lines.append(f"{written.name}[{grid}]({', '.join(arguments)})")

    def _shapes(self, written: Written) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of a launch's tensors that the host has, those that are read first."""
        known = sorted(written.tensors.values(), key=lambda tensor: tensor in written.outputs)
        return [
            self._name_and_shape(tensor)
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
                if other != argument:
                    text = re.sub(rf"(?<![\w.]){re.escape(numbers[other])}(?![\w.\[])", its, text)
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
        if start is not None and not is_named(start.inputs[0]) and start.inputs[0] == 0:
            function = "zeros"
        elif start is not None:
            function, fill = "full", f", {host(start.inputs[0])}"
        tensors = [argument for argument in written.tensors.values() if argument not in written.outputs]
        returned = [output for output in self.outputs if stored(output) is value]
        shape_of = value if value in returned or not returned else returned[0]
        for tensor in tensors:
            if tensor.dtype == value.dtype and host(tensor.shape) == host(shape_of.shape):
                self.shapes[id(value)] = shape_of.shape
                text = f"{self._expression(tensor)}{fill}{_order_beside(tensor, value)}"
                return f"torch.{function}_like({text})"
        later = {host(other.shape): other.shape for other in self.plan.values if stored(other) is value}
        for tensor in tensors:
            if tensor.dtype == value.dtype and host(tensor.shape) in later:
                self.shapes[id(value)] = tensor.shape
                return f"torch.{function}_like({self._expression(tensor)}{fill})"
        source = next(iter(tensors), None) or next(iter(self.graph.inputs), None)
        if source is None:
            raise Unreadable("a kernel without a tensor that says its device")
        same = next((tensor for tensor in tensors if tensor.dtype == value.dtype), None)
        dtype = f"{self._memory(same)}.dtype" if same is not None else str(value.dtype)
        device = f"{self._memory(source)}.device"
        shapes = self._shapes(written)
        runs = [run_in(size, shapes) for size in shape_of.shape]
        self.shapes[id(value)] = shape_of.shape
        shape = shape_text(
            [
                size if run is None else Size(int(size), run.text, factors=(run,))
                for size, run in zip(shape_of.shape, runs, strict=True)
            ]
        )
        like = shape.removesuffix(".shape")
        order = _order_beside(None, value)
        if any(
            self._memory(tensor) == like and tensor.dtype == value.dtype and not is_channels_last(tensor)
            for tensor in tensors
        ):
            return f"torch.{function}_like({like}{fill}{order})"
        return f"torch.{function}({shape}{fill}, device={device}, dtype={dtype}{order})"

    def _copy(self, values: list[Value]) -> None:
        """Copies of tensors with their axes in another order; one of each for all launches that read it."""
        made: list[str] = []
        for value in values:
            text = f"{self._expression(value.inputs[0])}.{order_text(value.order)}.contiguous()"
            if text not in self.copies:
                self.copies[text] = self._name(value, value.origin[1])
                made.append(f"{self.copies[text]} = {text}")
            self.names[id(value)] = self.copies[text]
        self.lines += [WHY_COPIED, *made] if made else []

    def _call(self, values: list[Value]) -> None:
        """A call that stays torch's."""
        first = values[0]
        text = first.text.format(*(self._expression(tensor) for tensor in first.tensors))
        if not first.path:
            name = self._name(first, first.base)
            self.keys[first.key] = name
            order = _order_beside(None, first).removeprefix(", ")
            self.lines.append(f"{name} = {text}.contiguous({order})")
        else:
            name = self._free(first.base)
            self.lines.append(f"{name} = {text}")
            for value in values:
                own = self._name(value, "_".join(map(str, (first.base, *value.path))))
                self.keys[value.key] = own
                self.lines.append(
                    f"{own} = {name}{''.join(f'[{index}]' for index in value.path)}.contiguous()"
                )

    def _name(self, value: Value, wanted: str) -> str:
        name = self._free(wanted)
        self.names[id(value)] = name
        return name

    def _free(self, wanted: str) -> str:
        return take_name(wanted, self.taken, "_")

    def _memory(self, value: Value) -> str:
        """Host name of the tensor whose memory has a value, in any shape."""
        return self._name_and_shape(value)[0]

    def _expression(self, value: Value) -> str:
        """Host text of a value in memory, as a view where the tensor has another shape."""
        while value.op == "expand" and id(value) not in self.names:
            value = value.inputs[0]
        name, shape = self._name_and_shape(value)
        if host(shape) == host(value.shape):
            return name
        text = shape_text(value.shape)
        text = text.removeprefix("(").removesuffix(")").removesuffix(",") if len(value.shape) else "()"
        return f"{name}.view({text})"

    def _name_and_shape(self, value: Value) -> tuple[str, tuple[int, ...]]:
        if value.op == "leaf":
            return value.text, value.shape
        if id(value) in self.names:
            return self.names[id(value)], self.shapes.get(id(value), value.shape)
        if value.op in ("reshape", "expand"):
            return self._name_and_shape(value.inputs[0])
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
        texts = {host(size): name for size, name in zip(leaf.shape, names, strict=False) if is_named(size)}
        pattern = re.compile("|".join(rf"(?<![.\w]){re.escape(text)}" for text in texts) or "(?!)")
        places = [index for index, line in enumerate(lines) if pattern.search(line)]
        used = {match for index in places for match in pattern.findall(lines[index])}
        if len(used) < _MANY_DIMENSIONS or any(name in self.taken for name in names):
            return lines
        self.taken |= set(names)
        named = [pattern.sub(lambda match: texts[match[0]], line) for line in lines]
        return [*named[: places[0]], f"{', '.join(names)} = {leaf.text}.shape", *named[places[0] :]]


def _order_beside(tensor: Value | None, value: Value) -> str:
    """Host argument for the order of a value's axes, where a tensor, or torch by default, has another."""
    if is_channels_last(value) == (tensor is not None and is_channels_last(tensor)):
        return ""
    return f", {memory_format(value.rank, is_channels_last(value))}"


def _words(line: str) -> list[str]:
    """Names in a line that are no attributes."""
    return re.findall(r"(?<![.\w])[A-Za-z_]\w*", line)
