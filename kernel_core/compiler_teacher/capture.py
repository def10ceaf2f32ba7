"""Inductor's Triton code for a problem, on a machine without a GPU.

The module is called twice: with the sizes for a CPU, then with its own. Dynamo makes each size that differs
an argument, and leaves the others as numbers. Nothing is compiled beyond the text of the code.
"""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import torch

from kernel_core.problems.source import resize
from kernel_core.records import Problem, Record

_FILE = "problem.py"
_ARCHITECTURE = 90
"""Compute capability times ten of the GPU that the code is meant for."""
_INDUCTOR = {
    "cpu_backend": "triton",
    "compile_threads": 1,
    "force_disable_caches": True,
    "inplace_buffers": False,
    "allow_buffer_reuse": False,
    "size_asserts": False,
    "graph_partition": False,
    "benchmark_harness": False,
    "comprehensive_padding": False,
    "layout_optimization": False,
    "assert_indirect_indexing": False,
    "split_reductions": False,
}
_DYNAMO = {
    "force_parameter_static_shapes": False,
    "force_nn_module_property_static_shapes": False,
    "allow_unspec_int_on_nn_module": True,
    "specialize_float": True,
}


class Origin(Record):
    """Where an input of the compiled graph comes from."""

    source: str
    """As dynamo names it: `L['x'].size()[0]`, `L['self']._modules['fc']._parameters['weight']`."""
    shape: tuple[int, ...] | None = None
    """A tensor's shape at the problem's own sizes; None: the input is a whole number."""
    strides: tuple[int, ...] = ()
    dtype: str = ""
    value: int = 0
    """A whole number at the problem's own sizes."""
    cpu_value: int = 0
    """The same at the sizes for a CPU."""


class Captured(Record):
    """Inductor's module for a problem and the origins of its inputs, in order."""

    code: str
    origins: tuple[Origin, ...]
    arguments: tuple[str, ...]
    """Names of `forward`'s arguments."""


class CannotCapture(Exception):
    """The compiler gave no single piece of code; its text is a short reason for a table."""


class _Stop(BaseException):
    """Ends a compilation once its code is known."""


def capture(problem: Problem) -> Captured:
    """The code for the problem's module in training mode, as the judge calls it.

    It changes settings of torch for good, so it belongs in a process of its own. Raises `CannotCapture`.
    """
    codes: list[str] = []
    graphs: list[list[str]] = []
    own: tuple[Any, ...] = ()

    def backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        graphs.append(
            [node.meta["grapharg"].source.name for node in graph.graph.find_nodes(op="placeholder")]
        )
        if not own:
            return graph.forward
        from torch._inductor.compile_fx import compile_fx

        compiled_graph: Any = compile_fx(graph, examples)
        return cast(Callable[..., Any], compiled_graph)

    module = ModuleType("problem")
    sys.modules["problem"] = module
    _run(problem.source, module.__dict__)
    sizes = {name: value for name, value in vars(module).items() if _is_size(value)}
    small_namespace: dict[str, Any] = {"__name__": "problem"}
    _run(resize(problem, problem.cpu_constants).source, small_namespace)
    vars(module).update({name: small_namespace[name] for name in sizes})
    small = _sized(module)
    prepare(codes)
    compiled = torch.compile(module.Model.forward, backend=backend, fullgraph=True)
    _call(compiled, small)
    vars(module).update(sizes)
    own = _sized(module)
    with contextlib.suppress(_Stop):
        _call(compiled, own)
    if len(codes) != 1:
        raise CannotCapture(
            "the sizes for a CPU and the own ones give one graph" if not codes else "several graphs"
        )
    arguments = tuple(inspect.signature(module.Model.forward).parameters)
    values = [[_value(source, arguments, sized) for source in graphs[-1]] for sized in (own, small)]
    return Captured(
        code=codes[0],
        origins=tuple(_origin(*found) for found in zip(graphs[-1], *values, strict=True)),
        arguments=arguments[1:],
    )


def prepare(codes: list[str]) -> None:
    """Settings under which Inductor writes code for a GPU that is not there, and leaves it in `codes`."""
    import torch._dynamo.config
    import torch._inductor.config
    import torch.fx.experimental._config
    from torch._inductor import lowering
    from torch._inductor.graph import GraphLowering

    _pretend_a_gpu()
    for settings, values in ((torch._inductor.config, _INDUCTOR), (torch._dynamo.config, _DYNAMO)):
        for name, value in values.items():
            setattr(settings, name, value)
    torch.fx.experimental._config.use_duck_shape = False  # equal sizes may differ elsewhere
    # Inductor's own lowering of a convolution makes numbers of all its channels.
    convolution = torch.ops.aten.convolution.default
    lowering.lowerings[convolution] = lowering.fallback_handler(convolution, add_to_fallback_set=False)
    torch.nn.LayerNorm.forward = _layer_norm  # type: ignore[method-assign]
    torch.nn.RMSNorm.forward = _rms_norm  # type: ignore[method-assign]
    lowering.use_two_step_variance = lambda *given, **named: True  # two passes instead of Welford's

    def keep(code: str) -> None:
        codes.append(code)
        raise _Stop

    GraphLowering.save_output_code = staticmethod(keep)


def _layer_norm(self: torch.nn.LayerNorm, input: torch.Tensor) -> torch.Tensor:
    """The layer's forward with the shape of the input; its own numbers would stay numbers in the code."""
    shape = input.shape[-len(self.normalized_shape) :]
    return torch.nn.functional.layer_norm(input, shape, self.weight, self.bias, self.eps)


def _rms_norm(self: torch.nn.RMSNorm, x: torch.Tensor) -> torch.Tensor:
    """As `_layer_norm`."""
    shape = x.shape[-len(self.normalized_shape) :]
    return torch.nn.functional.rms_norm(x, shape, self.weight, self.eps)


def _pretend_a_gpu() -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class Driver:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", _ARCHITECTURE, 32)

        def get_current_device(self) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_current_stream(self, *given: object) -> int:
            return 0

    driver.set_active(Driver())


def _run(source: str, namespace: dict[str, Any]) -> None:
    # Without a source file, torch 2.11 wraps `forward` and no longer names its arguments.
    linecache.cache[_FILE] = (len(source), None, source.splitlines(keepends=True), _FILE)
    exec(compile(source, _FILE, "exec"), namespace)


def _is_size(value: object) -> bool:
    return isinstance(value, int | float | str | tuple | list | dict) and not isinstance(value, type)


def _sized(module: ModuleType) -> tuple[Any, ...]:
    """The module and its inputs at the sizes that hold now."""
    torch.manual_seed(0)
    model = module.Model(*module.get_init_inputs())
    for part in model.modules():
        if getattr(part, "track_running_stats", False):  # statistics of the batch serve in training
            part.running_mean = part.running_var = part.num_batches_tracked = None
            part.track_running_stats = False
    return (model, *module.get_inputs())


def _call(compiled: Callable[..., Any], sized: tuple[Any, ...]) -> None:
    math = torch.nn.attention.SDPBackend.MATH
    with torch.no_grad(), torch.nn.attention.sdpa_kernel(math):
        try:
            compiled(*sized)
        except Exception as error:
            cause: BaseException | None = error
            while cause is not None:
                if isinstance(cause, _Stop):
                    return
                cause = cause.__cause__ or cause.__context__
            raise CannotCapture(_reason(error)) from error


def _reason(error: Exception) -> str:
    first = re.sub(r"\s+", " ", str(error).strip())
    return f"{type(error).__name__}: {first[:80]}"


def _value(source: str, arguments: tuple[str, ...], sized: tuple[Any, ...]) -> Any:
    return eval(source, {"L": dict(zip(arguments, sized, strict=False))})


def _origin(source: str, own: Any, small: Any) -> Origin:
    if isinstance(own, torch.Tensor):
        shape, strides = tuple(own.shape), tuple(own.stride())
        return Origin(source=source, shape=shape, strides=strides, dtype=str(own.dtype))
    return Origin(source=source, value=int(own), cpu_value=int(small))
