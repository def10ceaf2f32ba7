"""Hooks that tell a recorder of launches, compilations, autotuning and CUDA graphs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton.testing
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from kernel_core.gym.channel.kernel_description import JitFunction
from kernel_core.gym.channel.launch_codec import options_in
from kernel_core.gym.untrusted.candidate.trace_recorder import Recorder
from kernel_core.gym.untrusted.compile.launcher_stubs import make_launcher
from kernel_core.gym.untrusted.interpreter.memory_meter import Meter
from kernel_core.gym.untrusted.interpreter.meter_hooks import install as install_meter

_COMPILERS = 8
"""Threads in which the configurations of an autotuner are compiled."""
_MOST_TUNING_MS = {"warmup": 5, "rep": 25}
"""The longest that one configuration is tried. Triton's own 25 and 100 kept a device busy for seconds."""
_UNCOMPILED = types.SimpleNamespace(
    n_regs=32,
    n_spills=0,
    metadata=types.SimpleNamespace(shared=1024, num_warps=4),
    _init_handles=lambda: None,
)


def leave_as_written() -> None:
    """`wrap_triton` and `torch.compile` give back what they are given. A wrapped kernel is an operator of a
    higher order, for which a recorder has no rule. A compiler of host code takes half a minute on a CPU; on
    a GPU it would compile the recorder with it, and launch kernels past it. A class of tensors takes one as
    `as_subclass` does: torch's constructor refuses a tensor that comes out of a recorder."""

    def as_it_is(model: Any = None, **_: Any) -> Any:
        return (lambda function: function) if model is None else model

    made = torch.Tensor.__new__

    def as_subclass(kind: Any, *args: Any, **named: Any) -> Any:
        if kind is not torch.Tensor and len(args) == 1 and isinstance(args[0], torch.Tensor):
            return args[0].as_subclass(kind)
        return made(kind, *args, **named)

    torch.Tensor.__new__ = as_subclass  # type: ignore[assignment]
    torch.library.wrap_triton = lambda kernel: kernel
    torch.compile = as_it_is
    torch.nn.Module.compile = lambda *_, **__: None  # type: ignore[method-assign]


def install(recorder: Recorder, configuration: int = 0) -> None:
    """Route every launch through the recorder; where Triton interprets, check that memory is in bounds, and
    take the configuration of this place of those that an autotuner has."""
    leave_as_written()
    if triton.knobs.runtime.interpret:
        meter = Meter(counting=False)
        install_meter(meter)
        recorder.watch_storages(meter.begin)
        _route(InterpretedFunction, recorder)
        _try_one_configuration(configuration)
    else:
        _route(JITFunction, recorder)
        _tell_of_compilations(recorder)
        _leave_out_tuning(recorder)
        _follow_graphs(recorder)


def _route(kind: Any, recorder: Recorder) -> None:
    original = kind.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            if kind is InterpretedFunction:
                return WarmedUp(self, kwargs)
            return WarmedUp(self, kwargs, original(self, *args, grid=grid, warmup=True, **kwargs))
        hooks, self.pre_run_hooks = self.pre_run_hooks, []
        try:
            for hook in hooks:
                hook(*args, **kwargs)  # before the launch, so that its work is recorded
            return recorder.launch(
                self, args, grid, kwargs, lambda g: original(self, *args, grid=g, warmup=warmup, **kwargs)
            )
        finally:
            self.pre_run_hooks = hooks

    kind.run = run


class WarmedUp:
    """The result of a warm-up call. Its launches are the function's own, so they are recorded. Its other
    attributes are those of the compiled kernel, or plausible ones where nothing compiles."""

    def __init__(self, function: JitFunction, given: dict[str, Any], compiled: Any = _UNCOMPILED) -> None:
        self._function, self._compiled = function, compiled
        options = options_in(given)
        self._options = {name: options[name] for name in options.keys() - set(function.arg_names)}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self._function.run, grid=grid, warmup=False, **self._options)


def _tell_of_compilations(recorder: Recorder) -> None:
    kind: Any = JITFunction
    compile_kernel = kind._do_compile

    def compile_and_tell(self: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.is_launching:
            recorder.step_aside()
        kernel = compile_kernel(self, *args, **kwargs)
        make_launcher(kernel)
        return kernel

    kind._do_compile = compile_and_tell


def _leave_out_tuning(recorder: Recorder) -> None:
    """Configurations are tried unrecorded; all are compiled before the first one needs the device."""
    run, bench, seen = Autotuner.run, Autotuner._bench, set()

    def run_compiled(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self not in seen and len(self.configs) > 1:
            seen.add(self)
            recorder.step_aside()
            with recorder.paused():
                _compile_side_by_side(self, args, kwargs)
        return run(self, *args, **kwargs)

    Autotuner.run, Autotuner._bench = run_compiled, _unrecorded(bench, recorder)
    for name in ("do_bench", "do_bench_cudagraph"):
        setattr(triton.testing, name, _unrecorded(getattr(triton.testing, name), recorder))


def _compile_side_by_side(tuned: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Compile all configurations; the autotuner leaves out those that do not compile."""
    with (
        ThreadPoolExecutor(_COMPILERS) as threads,
        triton.AsyncCompileMode(threads, ignore_errors=True) as compiled,
    ):
        for config in tuned.configs:
            with contextlib.suppress(Exception):
                tuned.fn.run(*args, **{**kwargs, **config.all_kwargs(), "warmup": True})
    for future in compiled.future_kernels.values():
        make_launcher(future.kernel)


def _unrecorded(timed: Any, recorder: Recorder) -> Any:
    """Host code that times kernels launches each thousands of times. These launches are not recorded, they go
    on for a short while only, and after each kernel other candidates may use the device."""
    parameters = inspect.signature(timed)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        given.arguments |= {
            name: min(given.arguments[name], most)
            for name, most in _MOST_TUNING_MS.items()
            if name in given.arguments
        }
        recorder.before_work()
        with recorder.paused():
            result = timed(*given.args, **given.kwargs)
        recorder.step_aside()
        return result

    return call


def begin_with(number: int) -> None:
    """Let autotuners begin with the configuration at this place."""
    kind: Any = Autotuner
    prune = kind.prune_configs

    def begin_with_it(self: Any, kwargs: Any) -> list[Any]:
        configurations = prune(self, kwargs)
        place = number % len(configurations)
        return [*configurations[place:], *configurations[:place]]

    kind.prune_configs = begin_with_it


def _try_one_configuration(number: int) -> None:
    """One configuration is tried once and then taken, because all take as long in the interpreter. The trial
    uses the real tensors. So a kernel that adds to its output must declare tensors to clear or restore, as on
    a GPU. The trial is recorded. It counts as preparation, like all other work of a first pass only."""
    kind: Any = Autotuner
    bench, tuned = kind._bench, dict[Any, Any]()
    begin_with(number)

    def bench_once(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tuned.get(self) is self.nargs:
            return [1.0, 1.0, 1.0]
        tuned[self] = self.nargs
        return bench(self, *args, **kwargs)

    def call_once(call: Callable[[], None], quantiles: Any) -> list[float]:
        call()
        return [0.0, 0.0, 0.0]

    kind._bench = bench_once
    kind.do_bench = property(lambda self: call_once)


def _follow_graphs(recorder: Recorder) -> None:
    """Record a CUDA graph's captured work at each replay of the graph, because torch does not see it."""
    kind: Any = torch.cuda.CUDAGraph
    graphs: dict[Any, list[Callable[[], None]]] = {}
    begin, end, replay = kind.capture_begin, kind.capture_end, kind.replay

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder.begin_graph()
        return begin(self, *args, **kwargs)

    def capture_end(self: Any) -> Any:
        graphs[self] = recorder.end_graph()
        return end(self)

    def replay_and_record(self: Any) -> Any:
        recorder.replay_graph(graphs.get(self, []))
        return replay(self)

    kind.capture_begin, kind.capture_end, kind.replay = capture_begin, capture_end, replay_and_record
