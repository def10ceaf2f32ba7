"""Answers a problem: reads its module, plans the kernels, and writes `ModelNew` in KernelBench's format."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils._pytree import tree_flatten

from kernel_core.generator.calls import nest_text
from kernel_core.generator.fuse import Plan, Region
from kernel_core.generator.ir import CHEAP, Value, make, walk
from kernel_core.generator.launches import WHY_COPIED, Launches
from kernel_core.generator.library_calls import NO_CALLS, LibraryCalls
from kernel_core.generator.module import input_texts, kept
from kernel_core.generator.names import take_name
from kernel_core.generator.product_work import own_share
from kernel_core.generator.read import Graph, Unreadable, read
from kernel_core.generator.rewrite import rewritten
from kernel_core.generator.schedules import (
    attention,
    conv,
    flat,
    gemm,
    partial,
    row,
    scan,
    scatter,
    select,
    window,
)
from kernel_core.generator.schedules.written import Context, Written
from kernel_core.generator.sizes import host
from kernel_core.generator.text import NAME
from kernel_core.generator.values import Unfusable
from kernel_core.records import Problem

SCHEDULES: dict[str, Callable[[Context], Written]] = {
    "flat": flat.write, "reduce": row.write, "dot": gemm.write, "attention": attention.write,
    "conv": conv.write, "window": window.write,
    "scan": scan.write, "partial": partial.write, "scatter": scatter.write, "select": select.write,
}  # fmt: skip


@dataclass
class Answer:
    """A module with kernels for a problem."""

    source: str
    thinking: str
    """The plan: what becomes a kernel, what fuses, how the work is split."""
    kernels: int
    steps: str
    """Calls of torch's in their order."""
    reasons: list[str] = field(default_factory=list)
    """Calls that stay torch's, and why."""
    kinds: frozenset[str] = frozenset()
    """Schedules of the kernels."""
    own_share: float = 1.0
    """Share of the kernels' bytes, beside the work of matrix products that stay torch's."""


def answer(
    problem: Problem, precision: str = "tf32x3", on_meta: bool = False, library: LibraryCalls = NO_CALLS,
    for_speed: bool = False,
) -> Answer:  # fmt: skip
    """Return kernels for a problem; calls of `library` stay torch's.

    `for_speed` adds kernels that only change the order of axes in memory. Raises Unreadable where the module
    cannot be read or has nothing to write.
    """
    graph = read(problem, on_meta, library)
    try:
        return Writer(problem, graph, precision, for_speed).answer()
    except Unreadable:
        raise
    except Exception as error:  # a form that no schedule was written for; others go on
        raise Unreadable(f"no kernel text: {type(error).__name__}: {error}") from error


_PLAIN = {
    *("add", "sub", "rsub", "mul", "div", "truediv", "rtruediv", "true_divide", "neg", "to", "float", "type"),
    *("permute", "transpose", "T", "mT", "t", "unsqueeze", "squeeze", "expand", "getitem", "contiguous"),
    *("flatten", "narrow", "select", "chunk", "split", "stack", "zeros", "ones", "full", "arange"),
    *("zeros_like", "ones_like", "full_like", "bias"),
}
"""Calls that name a kernel only if it has no other."""
_HOST = ("reshape", "cast", "expand", "leaf", "call")
_MOVES = {*CHEAP, "leaf", "call", "transposed", "scatter"}
_MASKS = {
    *("where", "eq", "ne", "lt", "le", "gt", "ge"),
    *("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not"),
}
"""Pointwise operators that choose among values."""


class Writer(Launches):
    """Host code and kernels of one graph."""

    def __init__(self, problem: Problem, graph: Graph, precision: str, for_speed: bool = False) -> None:
        self.problem, self.graph, self.precision = problem, graph, precision
        self.leaves = tuple(leaf for leaf in tree_flatten(graph.outputs)[0] if isinstance(leaf, Value))
        if not self.leaves:
            raise Unreadable("forward returns no tensor")
        self.outputs = rewritten(self.leaves, for_speed)
        self.plan = Plan(self.outputs)
        self.has_calls = any(value.op == "call" for value in self.plan.values)
        if not self.plan.regions and not self.has_calls:  # views alone: kernels copy them
            self.outputs = [make("copy", (view,), view.shape, view.dtype) for view in self.outputs]
            self.plan = Plan(self.outputs)
        self.final = dict(zip(map(id, self.leaves), self.outputs, strict=True))
        super().__init__(graph, self.plan, self.outputs)
        self.kernel_names: set[str] = set()
        self.calls: dict[int, list[tuple[int, str]]] = {}
        """Calls of torch's by the id of their region."""

    def answer(self) -> Answer:
        """The text of the whole module."""
        body = self.body()
        tensors = {id(value): value for kernel in self.written for value in kernel.tensors.values()}
        return Answer(
            self._source(body), self.plan_text(input_texts(self.problem.source)),
            len({kernel.name for kernel in self.written}), ", ".join(dict.fromkeys(self.graph.steps)),
            self.graph.reasons, self.kinds, own_share([*tensors.values()], self.plan.values),
        )  # fmt: skip

    def body(self) -> list[str]:
        """Host lines; regions that cannot be written are made smaller until they can."""
        ready = self._write_regions()
        for leaf in self.graph.inputs:
            if self._is_used(leaf):
                self.lines.append(f"{leaf.text} = {leaf.text}.contiguous()")
        self._host_lines(ready)
        self.lines += self._result_lines()
        if not self.written or (self.has_calls and not self.computes):
            raise Unreadable("; ".join(["nothing to write a kernel for", *self.graph.reasons]))
        return self._with_sizes([self._with_keys(line) for line in self.lines])

    @property
    def computes(self) -> bool:
        """True if a kernel computes with elements of tensors; moving, masking and converting them is less."""
        has_elements = set[int]()
        for value in walk(self.leaves):
            if value.op in ("leaf", "call") or any(id(tensor) in has_elements for tensor in value.tensors):
                has_elements.add(id(value))
                is_work = value.entry.name not in _MASKS if value.op == "point" else value.op not in _MOVES
                if is_work:
                    return True
        return False

    @property
    def kinds(self) -> frozenset[str]:
        """Schedules of the regions."""
        return frozenset(region.kind for region in self.plan.regions)

    def _result_lines(self) -> list[str]:
        return [f"return {self.result_text(self.graph.outputs)}"]

    def result_text(self, result: Any) -> str:
        """Host text of a nest of values and numbers."""
        return nest_text(
            result,
            lambda leaf: self._expression(self.final[id(leaf)]) if isinstance(leaf, Value) else host(leaf),
        )

    def _is_used(self, leaf: Value) -> bool:
        """True if a kernel reads an input, or `forward` returns it; torch's calls take any layout."""
        return (
            any(leaf in value.tensors for value in self.plan.values if value.op != "call")
            or leaf in self.outputs
        )

    # --- kernels

    def _write_regions(self) -> dict[int, Written]:
        while True:
            try:
                self.written, self.kernel_names = [], set()
                by_text: dict[str, Written] = {}
                self.calls = {id(region): self._calls_in(region) for region in self.plan.regions}
                ready = {}
                for region in self.plan.regions:
                    written = self._shared(self._write(region), by_text)
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

    def _shared(self, written: Written, by_text: dict[str, Written]) -> Written:
        """Return the launch with the name of an earlier kernel that differs in names at most."""
        first = by_text.setdefault(_without_names(written), written)
        if first is written:
            return written
        self.kernel_names.discard(written.name)
        return replace(written, name=first.name, text=first.text)

    def _kernel_name(self, region: Region) -> str:
        """Name of the calls that a kernel computes; with its step where it has one of several of a call."""
        words: dict[str, None] = {}
        for call in self.calls[id(region)]:
            is_shared = sum(call in calls for calls in self.calls.values()) > 1
            words.setdefault(f"{call[1]}_{_step_of(region)}" if is_shared else call[1])
        named = [word for word in words if word not in _PLAIN] or list(words) or [region.anchor.op]
        return take_name("_".join(named[:3]) + "_kernel", self.kernel_names, "_")

    def _calls_in(self, region: Region) -> list[tuple[int, str]]:
        """Calls of torch's that a kernel computes, in their order."""
        inside, waiting = dict(region.core), list(region.core.values())
        while waiting:
            for tensor in waiting.pop().tensors:
                is_inlined = tensor.op in CHEAP and id(tensor) not in self.plan.materialised
                if is_inlined and id(tensor) not in inside:
                    inside[id(tensor)] = tensor
                    waiting.append(tensor)
        made = [value for value in self.plan.values if id(value) in inside and value.op not in _HOST]
        return list(dict.fromkeys(value.origin for value in made if value.origin[1]))

    def _short(self, value: Value) -> str:
        """Name of a tensor in a kernel: that of the module's attribute, or of the call that makes it."""
        if value.op != "leaf":
            return value.origin[1].strip("_") or "x"
        parts = _parts(value.text)
        others = [leaf for leaf in self.plan.values if leaf.op == "leaf" and leaf is not value]
        is_shared = any(_parts(other.text)[-1] == parts[-1] for other in others)
        return "_".join(parts[-2:] if is_shared or parts[-1].isdigit() else parts[-1:])

    # --- text

    def _source(self, body: list[str]) -> str:
        imports, rest = kept(self.problem.source, body)
        return module_text(imports, self.kernels_text(), rest)

    def kernels_text(self) -> str:
        """The kernels with the functions that they call."""
        texts = dict.fromkeys(self._with_keys(kernel.text) for kernel in self.written)
        helpers = {name: text for kernel in self.written for name, text in kernel.helpers.items()}
        return "\n\n".join([*helpers.values(), *texts])

    def plan_text(self, made: Mapping[str, str]) -> str:
        """The plan; `made` has expressions of inputs by their names."""
        text = [
            f"{leaf.text}: {made[leaf.text] + ' is ' if leaf.text in made else ''}"
            f"{tuple(map(int, leaf.shape))} {str(leaf.dtype).removeprefix('torch.')}"
            for leaf in self.graph.inputs
        ]
        calls = sorted({value.base for value in self.plan.values if value.op == "call"})
        kernels_by_name = {kernel.name: kernel for kernel in self.written}
        number = len(kernels_by_name)
        kernels = "one kernel" if number == 1 and not calls else f"{number} kernel{'s' * (number > 1)}"
        text.append(f"{', '.join(dict.fromkeys(self.graph.steps))}: {kernels}.")
        reason = WHY_COPIED.removeprefix("# ")
        copies = self._with_keys(", ".join(f"{name} = {made}" for made, name in self.copies.items()))
        text += [f"{copies}: {reason}"] if copies else []
        for kernel in kernels_by_name.values():
            totals = ", ".join(dict.fromkeys(map(self._with_keys, self.totals.get(kernel.name, ()))))
            fused = f" Fuses {', '.join(kernel.fused)}." if len(kernel.fused) > 1 else ""
            text.append(f"{kernel.name}: {totals}{'.' * bool(totals)}{fused} {kernel.plan}")
        if calls:
            text.append(f"PyTorch keeps {', '.join(calls)}.")
        return "\n".join(text)


_MODULES = {"F": "import torch.nn.functional as F", "math": "import math"}


def module_text(imports: Sequence[str], kernels: str, rest: str) -> str:
    """An answer's text: the problem's imports with those that are missing, the kernels, and the rest."""
    lines = [*imports, "import torch", "import triton", "import triton.language as tl"]
    if "libdevice." in kernels:
        lines.append("from triton.language.extra import libdevice")
    bound = {
        alias.asname or alias.name
        for node in ast.parse("\n".join(lines)).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    lines += [
        line
        for name, line in _MODULES.items()
        if name not in bound and re.search(rf"(?<![.\w]){name}\.", rest)
    ]
    return "\n".join(dict.fromkeys(lines)) + f"\n\n\n{kernels}\n\n{rest}\n"


def _step_of(region: Region) -> str:
    """Word for the part of a call that a kernel computes."""
    anchor = region.anchor
    if anchor.op == "reduce":
        return {"amax": "max", "amin": "min"}.get(anchor.kind, str(anchor.kind))
    return {"flat": "apply"}.get(region.kind, region.kind)


def _parts(text: str) -> list[str]:
    """Words of a host expression of a tensor, such as `fc` and `weight`."""
    return [part for part in re.split(r"[.\[\]]+", text) if part and part != "self"]


def _without_names(written: Written) -> str:
    """Text of a kernel with numbers for the names that it binds, in lines of any length."""
    text = ast.unparse(ast.parse(written.text))
    bound = {written.name, *written.tensors, *written.numbers}
    bound.update(re.findall(r"^ +(?:for )?(\w+)(?: [+*]?= | in )", text, re.MULTILINE))
    order: dict[str, int] = {}
    return NAME.sub(
        lambda match: f"_{order.setdefault(match[0], len(order))}" if match[0] in bound else match[0],
        text,
    )


class _Smaller(Exception):
    """A region was too large."""
