"""Profile of a module: measured and predicted time of each submodule, and the least time of fused regions.

A region is a set of operators that one kernel could compute: neighbours in the data flow with no product or
convolution between them. Its floor is one launch that reads the region's inputs once and writes its outputs
once. A product's floor is its own predicted time. Predicted times are those of docs/judge/prediction.md, for
eager mode. The gain of a submodule is its predicted time minus its floors: an upper bound, not a promise.
"""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.gpu_specs import GPUS
from kernel_core.gym.channel.torch_ops import formula_of
from kernel_core.gym.channel.work import Work, operator_work
from kernel_core.gym.prediction.roofline import launch_time_ms
from kernel_core.optimize.target import Target
from kernel_core.records import Record

_CALLS = 3
"""Timed calls of the whole module, after one that warms up."""
_WIDTH = 30
"""Characters of a kind in the table."""


class ProfileRow(Record):
    """One submodule, or one fused region. Times are of one call of the whole module."""

    path: str
    """Dotted name in the module; empty for the whole."""
    kind: str
    """Class of the submodule, or the operators of a region."""
    is_region: bool = False
    measured_ms: float | None = None
    """Median on the device of the profile; regions are not measured."""
    predicted_ms: float
    """Eager mode on the predicted GPU."""
    floor_ms: float
    """Least time with the library's products and one launch a region."""
    bytes_moved: int
    launches: int
    operators: int

    @property
    def gain_ms(self) -> float:
        """Upper bound of the time that fused kernels save."""
        return max(0.0, self.predicted_ms - self.floor_ms)

    @property
    def times_floor(self) -> float:
        """Distance from the roofline: predicted time over the least time."""
        return self.predicted_ms / self.floor_ms if self.floor_ms else 1.0


class Profile(Record):
    """Rows of all submodules and regions, the largest gain first."""

    target: str
    device: str
    gpu: str
    rows: tuple[ProfileRow, ...]

    @property
    def whole(self) -> ProfileRow:
        """The row of the whole module."""
        return next(row for row in self.rows if not row.path and not row.is_region)

    def table(self, most: int = 20) -> list[dict[str, object]]:
        """Return the rows with a gain for a table; equal ones of numbered submodules are one row."""
        groups: defaultdict[tuple[str, str, float], list[ProfileRow]] = defaultdict(list)
        for row in self.rows:
            place = re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", row.path) or "(whole)"
            groups[place, f"region: {row.kind}" if row.is_region else row.kind, row.predicted_ms].append(row)
        shares = [(key, rows, self._share(rows)) for key, rows in groups.items()]
        return [
            {
                "submodule": place,
                "what": kind if len(kind) <= _WIDTH else f"{kind[: _WIDTH - 1]}…",
                "places": len(rows),
                f"{self.device} ms": None if rows[0].is_region else f"{_mean(rows):.3g}",
                "predicted ms": f"{predicted_ms:.3g}",
                "MB": f"{rows[0].bytes_moved / 1e6:.3g}",
                "times floor": f"{rows[0].times_floor:.3g}",
                "gain, all places": f"{share:.1%}",
            }
            for (place, kind, predicted_ms), rows, share in sorted(shares, key=lambda group: -group[2])[:most]
            if share > 0
        ]

    def _share(self, rows: Sequence[ProfileRow]) -> float:
        return sum(row.gain_ms for row in rows) / (self.whole.predicted_ms or 1.0)


def _mean(rows: Sequence[ProfileRow]) -> float:
    return statistics.fmean(row.measured_ms or 0.0 for row in rows)


@dataclass(frozen=True)
class _Operation:
    """One launch of eager mode, with the tensors that it reads and writes."""

    work: Work
    path: str
    """The innermost submodule that ran it."""
    is_product: bool
    level: int
    """Number of products on the longest way to it: a region stays on one level."""
    reads: tuple[int, ...]
    writes: tuple[int, ...]


def profile(target: Target, device: str, gpu: str = "H200") -> Profile:
    """Return the profile of a target, measured on `device` and predicted for `gpu`."""
    measured = _measure(target, device)
    recorder = _count(target)
    rows = [
        _row(path, type(module).__name__, _within(recorder.operations, path), recorder, gpu, measured[path])
        for path, module in target.module.named_modules()
        if path in measured
    ]
    for region in _regions(recorder.operations):
        if len(region) > 1:
            kind = ", ".join(dict.fromkeys(part.work.name.partition("::")[2] for part in region))
            rows.append(_row(_common_path(region), kind, region, recorder, gpu, None, is_region=True))
    rows.sort(key=lambda row: (-row.gain_ms, row.path.count("."), row.path))
    return Profile(target=target.name, device=device, gpu=gpu, rows=tuple(rows))


def _row(
    path: str,
    kind: str,
    operations: Sequence[_Operation],
    recorder: _OperationRecorder,
    gpu: str,
    measured_ms: float | None,
    is_region: bool = False,
) -> ProfileRow:
    spec = GPUS[gpu]
    floor_ms = sum(launch_time_ms(part.work, spec) for part in operations if part.is_product)
    for region in _regions(operations):
        moved = recorder.bytes_across(region)
        fastest_ms = sum(launch_time_ms(part.work, spec) for part in region)
        floor_ms += min(fastest_ms, spec.launch_ms + 1e3 * moved / spec.dram_bytes_per_s)
    return ProfileRow(
        path=path,
        kind=kind,
        is_region=is_region,
        measured_ms=measured_ms,
        predicted_ms=sum(launch_time_ms(part.work, spec) for part in operations),
        floor_ms=floor_ms,
        bytes_moved=sum(part.work.bytes_distinct for part in operations),
        launches=len(operations),
        operators=len({part.work.name for part in operations}),
    )


def _within(operations: Sequence[_Operation], path: str) -> list[_Operation]:
    return [part for part in operations if not path or f"{part.path}.".startswith(f"{path}.")]


def _common_path(region: Sequence[_Operation]) -> str:
    paths = [part.path.split(".") if part.path else [] for part in region]
    shared = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)


def _regions(operations: Sequence[_Operation]) -> list[list[_Operation]]:
    """Return the connected sets of operators on one level, without products, in the order of their first."""
    root = list(range(len(operations)))

    def find(index: int) -> int:
        while root[index] != index:
            index = root[index]
        return index

    maker: dict[int, int] = {}
    for index, operation in enumerate(operations):
        if operation.is_product:
            continue
        for tensor in operation.reads:
            earlier = maker.get(tensor)
            if earlier is not None and operations[earlier].level == operation.level:
                first, second = sorted((find(earlier), find(index)))
                root[second] = first
        maker |= dict.fromkeys(operation.writes, index)
    groups: defaultdict[int, list[_Operation]] = defaultdict(list)
    for index, operation in enumerate(operations):
        if not operation.is_product:
            groups[find(index)].append(operation)
    return list(groups.values())


class _OperationRecorder(LightDispatchMode):
    """Records each launch of eager mode with its data flow; storages stand for tensors, so views are free."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[_Operation] = []
        self.stack: list[str] = [""]
        self._levels: dict[int, int] = {}
        self._kept: dict[int, tuple[Any, int]] = {}
        """Storages, which keep their numbers while they live, with their bytes."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        work = operator_work(function, args, kwargs or {}, result)
        if work is not None:
            reads = self._storages((args, kwargs))
            writes = self._storages(result) or reads[:1]
            is_product = formula_of(function) is not None
            level = max((self._levels.get(tensor, 0) for tensor in reads), default=0)
            self.operations.append(_Operation(work, self.stack[-1], is_product, level, reads, writes))
            self._levels |= dict.fromkeys(writes, level + is_product)
        return result

    def bytes_across(self, region: Sequence[_Operation]) -> int:
        """Return the bytes that a region reads from outside and writes for the outside."""
        made = {tensor for part in region for tensor in part.writes}
        needed = {tensor for part in region for tensor in part.reads}
        inside = {id(part) for part in region}
        used = {tensor for part in self.operations if id(part) not in inside for tensor in part.reads}
        outputs = {tensor for tensor in made if tensor in used or tensor not in needed}
        return sum(self._kept[tensor][1] for tensor in (*(needed - made), *outputs))

    def _storages(self, nest: Any) -> tuple[int, ...]:
        numbers = []
        for tensor in tree_leaves(nest):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                number = storage._cdata
                self._kept[number] = (storage, storage.nbytes())
                numbers.append(number)
        return tuple(dict.fromkeys(numbers))


def _count(target: Target) -> _OperationRecorder:
    """Record one call on fake tensors: no data, no memory, and the shapes of the real call."""
    recorder = _OperationRecorder()
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.no_grad():

        def as_fake(leaf: Any) -> Any:
            return fake.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf

        args, kwargs = tree_map(as_fake, (target.args, target.kwargs))
        with _hooked(target.module, recorder.stack.append, lambda path: recorder.stack.pop()), recorder:
            target.module(*args, **kwargs)
    return recorder


def _measure(target: Target, device: str) -> dict[str, float]:
    """Return the median time of each submodule in milliseconds, children included, by path."""
    spent: defaultdict[str, list[float]] = defaultdict(list)
    begun: list[float] = []

    def now() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def leave(path: str) -> None:
        spent[path][-1] += 1e3 * (now() - begun.pop())

    target.call()
    paths = [path for path, _ in target.module.named_modules()]
    with _hooked(target.module, lambda path: begun.append(now()), leave):
        for _ in range(_CALLS):
            for path in paths:
                spent[path].append(0.0)
            target.call()
    return {path: statistics.median(times) for path, times in spent.items() if any(times)}


@contextmanager
def _hooked(module: nn.Module, enter: Any, leave: Any) -> Iterator[None]:
    """Call `enter(path)` and `leave(path)` around each submodule's forward."""
    handles = []
    for path, part in module.named_modules():
        handles += [
            part.register_forward_pre_hook(lambda *_, path=path: enter(path) and None),
            part.register_forward_hook(lambda *_, path=path: leave(path) and None, always_call=True),
        ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
