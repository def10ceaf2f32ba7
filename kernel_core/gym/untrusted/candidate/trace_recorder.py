"""Record what a candidate's forward pass does, as a list of operators and kernel launches.

The record is a claim: it is made inside the candidate's process. The judge believes only what the same
list produces when it is replayed elsewhere, on inputs that the candidate never saw (`replay.py`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from kernel_core.gym.channel.cuda_params import arguments_in
from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.kernel_description import JitFunction, LaunchedKernels
from kernel_core.gym.channel.launch_codec import encode_argument, options_in, sizes_of
from kernel_core.gym.channel.operator_products import may_use_tf32
from kernel_core.gym.channel.poison import Poison
from kernel_core.gym.channel.tf32_flags import tf32_flags
from kernel_core.gym.channel.torch_ops import (
    do_inside,
    is_torchs_own,
    leaves_unwritten,
    only_looks_anew,
    sizes_by_values,
    storages_in,
    tensors_in,
)
from kernel_core.gym.channel.trace_codec import NotEncodable, bytes_of, encode
from kernel_core.gym.untrusted.candidate.known_memory import KnownMemory
from kernel_core.gym.untrusted.candidate.unread_operators import without_unread

MAX_OPERATIONS = 20_000
_HOST_READS = ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal")
_NO_WORK = ("aten::record_stream",)
"""Only tells the allocator about uses of memory."""


class Recorder(LightDispatchMode):
    """While active, appends to `operations`; storages are numbered in the order they are met.

    `before_work` is called before each operator or launch that keeps the device busy, `step_aside` before a
    compilation, which keeps it waiting.
    """

    def __init__(
        self,
        on_launch: Callable[[dict[str, Any]], None],
        before_work: Callable[[], None] = lambda: None,
        step_aside: Callable[[], None] = lambda: None,
        poison: Poison | None = None,
    ) -> None:
        super().__init__()
        self.on_launch = on_launch
        self.before_work = before_work
        self._step_aside = step_aside
        self.is_launching = False
        self._on_storages: Callable[[list[Any]], None] = lambda storages: None
        self._on_arguments: Callable[[Iterable[Any]], None] = lambda values: None
        self.kernels = LaunchedKernels()
        self._paused = False
        self._poison = poison or Poison()
        self.begin([])

    def watch_storages(self, watch: Callable[[list[Any]], None]) -> None:
        """Call `watch` with all storages that are known, before each launch."""
        self._on_storages = watch

    def watch_arguments(self, watch: Callable[[Iterable[Any]], None]) -> None:
        """Call `watch` with what a kernel is given, in the order of its parameters, before each launch."""
        self._on_arguments = watch

    def begin(self, inputs: list[torch.Tensor]) -> None:
        """Forget the last pass; `inputs` are what the next one is given."""
        self.operations: list[dict[str, Any]] = []
        self._graph: list[Callable[[], Any]] | None = None
        self.constants: list[tuple[int, torch.Tensor]] = []
        self.reads_data = False
        self._memory = KnownMemory()
        self._poison.begin()
        self.inputs = [self._memory.view(tensor)[0] for tensor in inputs]

    # Operators of torch ---------------------------------------------------------------------------

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._paused:
            return function(*args, **kwargs)
        self._refuse_more()
        name = function._schema.name
        self.reads_data |= name in _HOST_READS or sizes_by_values(function, args)
        if name in _HOST_READS or name in _NO_WORK:
            return function(*args, **kwargs)
        if not is_torchs_own(function):
            with self:
                return do_inside(function, args, kwargs)
        self.before_work()
        if leaves_unwritten(function):
            return self._allocate(function, args, kwargs)
        if self._graph is not None:
            result = function(*args, **kwargs)
            self._graph.append(lambda: self._record_operator(function, args, kwargs)(result))
            return result
        finish = self._record_operator(function, args, kwargs)
        result = function(*args, **kwargs)
        finish(result)
        return result

    def _refuse_more(self) -> None:
        if len(self.operations) >= MAX_OPERATIONS:
            raise RuntimeError(f"more than {MAX_OPERATIONS} operators and launches in one forward pass")

    def _record_operator(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Callable[[Any], None]:
        """Record what goes in; the result is to be given to what this gives."""
        name = function._schema.name
        record: dict[str, Any] = {"op": name, "overload": function._overloadname}
        if may_use_tf32(function):
            record["tf32"] = list(tf32_flags())
        try:
            record["args"] = encode(list(args), self._tensor)["l"]
            record["kwargs"] = {key: encode(value, self._tensor) for key, value in kwargs.items()}
        except NotEncodable as error:
            record |= {"op": f"{name} of {error}", "args": [], "kwargs": {}}  # none of torch's

        def finish(result: Any) -> None:
            made = any(tensor.untyped_storage() not in self._memory for tensor in tensors_in(result))
            if made or function._schema.is_mutable:
                record["outputs"] = [self._memory.view(tensor) for tensor in tensors_in(result)]
                self._memory.follow(record)
                self.operations.append(record)

        return finish

    def _allocate(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Fresh memory is poisoned, and so is what is added to memory that was there: what a kernel leaves
        unwritten must show."""
        known = {
            storage._cdata: (storage, storage.data_ptr(), storage.nbytes())
            for storage in storages_in([args, kwargs])
        }
        result = function(*args, **kwargs)
        fresh = [] if only_looks_anew(function) else storages_in(result)
        fresh = [storage for storage in fresh if storage._cdata not in known]
        grown = [sized for sized in known.values() if sized[0].nbytes() > sized[2]]
        if self._graph is None:
            for storage, start in (
                *((entry, 0) for entry in fresh),
                *((entry, size) for entry, _, size in grown),
            ):
                self._poison.fill(bytes_of(storage), start)
        for storage in fresh:
            self._now_or_in_graph(functools.partial(self._record_allocation, storage))
        for storage, address, size in grown:
            self._now_or_in_graph(functools.partial(self._record_growth, storage, address, size))
        self._now_or_in_graph(lambda: self._memory.note_types(tensors_in(result)))
        return result

    def _record_allocation(self, storage: torch.UntypedStorage) -> None:
        self.operations.append(
            {"alloc": self._memory.number(storage), "bytes": storage.nbytes(), "device": storage.device.type}
        )

    def _record_growth(self, storage: torch.UntypedStorage, address: int, size: int) -> None:
        """Memory that was made larger is other memory, which begins with what was in the first."""
        old = self._memory.forget(address, is_gone=size > 0)
        if old is None:
            return
        self._record_allocation(storage)
        if size:
            views = [[number, "uint8", 0, [size], [1]] for number in (self._memory.number(storage), old)]
            args = [{"t": view} for view in views]
            self.operations.append(
                {"op": "aten::copy_", "overload": "", "args": args, "kwargs": {}, "outputs": views[:1]}
            )

    # Launches of the candidate's kernels ----------------------------------------------------------

    def launch(self, function: JitFunction, args: Any, grid: Any, kwargs: Any, run: Any) -> Any:
        """Record a launch, then let `run(grid)` do it."""
        if self._paused:
            return run(grid)
        names = function.arg_names
        bound = dict(zip(names, args, strict=False)) | {k: v for k, v in kwargs.items() if k in names}
        self._on_arguments(bound[name] for name in names if name in bound)

        def recording_grid(values: Any) -> tuple[int, ...]:
            sizes = sizes_of(grid, values)
            self.before_work()
            self._now_or_in_graph(lambda: self._record_launch(function, bound, sizes, options_in(kwargs)))
            return sizes

        self._paused = self.is_launching = True
        try:
            return run(recording_grid)
        finally:
            self._paused = self.is_launching = False

    def step_aside(self) -> None:
        """Let others use the device until the next work, unless a graph captures the launches."""
        if self._graph is None:
            self._step_aside()

    def _record_launch(
        self, function: JitFunction, bound: dict[str, Any], grid: tuple[int, ...], options: Any
    ) -> None:
        for parameter in inspect.signature(function.fn).parameters.values():
            if parameter.name not in bound and parameter.default is not parameter.empty:
                bound[parameter.name] = parameter.default
        index = self.kernels.number(function)
        values = {name: self._launch_argument(value) for name, value in bound.items()}
        self._on_storages(self._memory.alive)
        launch = {"launch": index, "grid": list(grid), "args": values, "options": options}
        self._append_launch(self._memory.with_reach(launch))

    def _append_launch(self, record: dict[str, Any]) -> None:
        self._refuse_more()
        self.operations.append(record)
        self.on_launch(record)

    # Launches of CUDA C++ ---------------------------------------------------------------------------

    def meet(self, values: list[Any]) -> None:
        """Native code is about to be given these: what it may read is kept as it is now."""
        tensors = tensors_in(values)
        if self._paused or not tensors:
            return
        self.before_work()
        self._now_or_in_graph(lambda: [self._tensor(tensor) for tensor in tensors])

    def launch_native(
        self, kernel: dict[str, Any], grid: list[int], options: dict[str, int], parameters: bytes
    ) -> None:
        """Record a launch that is about to happen; `kernel` describes it, as the claim of that name."""
        if self._paused:
            return
        self.before_work()
        self._now_or_in_graph(lambda: self._record_native(kernel, grid, options, parameters))

    def _now_or_in_graph(self, record: Callable[[], Any]) -> None:
        if self._graph is not None:
            self._graph.append(record)
        else:
            record()

    def _record_native(
        self, kernel: dict[str, Any], grid: list[int], options: dict[str, int], parameters: bytes
    ) -> None:
        index = self.kernels.number_of_native(kernel)
        arguments = arguments_in(parameters, self._memory.spans)
        self._append_launch({"launch": index, "grid": grid, "args": arguments, "options": options})

    def _launch_argument(self, value: Any) -> Any:
        return self._memory.address(value) or encode_argument(
            value, self.kernels.number, lambda other: encode(other, self._tensor)
        )

    # Operations outside the pass ------------------------------------------------------------------

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing: an autotuner tries configurations."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def begin_graph(self) -> None:
        """From now on a CUDA graph captures the launches; none of them runs yet."""
        self._graph = []

    def end_graph(self) -> list[Callable[[], None]]:
        """The graph's work at each replay, for `replay_graph`."""
        graph, self._graph = self._graph or [], None
        return graph

    def replay_graph(self, graph: list[Callable[[], None]]) -> None:
        """The work of a graph, once more."""
        self.before_work()
        with self.paused():
            for record in graph:
                record()

    # Storages -------------------------------------------------------------------------------------

    def _tensor(self, tensor: torch.Tensor) -> list[Any]:
        if tensor.layout is not torch.strided:
            raise NotEncodable(f"a tensor of layout {tensor.layout}")
        if tensor.untyped_storage() not in self._memory:
            paused, self._paused = self._paused, True
            raw, pointing = self._memory.without_addresses(tensor)
            self.constants.append((self._memory.number(tensor.untyped_storage()), raw))
            self.operations += pointing
            self._paused = paused
        return self._memory.view(tensor)

    def outputs(self, leaves: list[Any]) -> list[Any]:
        """The candidate's outputs as views of storages (anything but a tensor as itself). The pass is over:
        what nothing read is left out."""
        encoded = [encode(leaf, self._tensor) for leaf in leaves]
        kept = [*self.inputs, *(number for number, _ in self.constants)]
        self.operations = without_unread(self.operations, encoded, kept)
        return encoded
