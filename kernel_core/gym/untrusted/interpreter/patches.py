"""Make Triton's interpreter quick and complete enough to judge with. Done once, before any fork.

Quick: the interpreter patches `triton.language` anew for every call of a device function, which is half its
time. Here it is patched once, and types are computed once (`type_cache.py`).

Complete: the interpreter lacks `libdevice` functions, and `libdevice.py` gives them bodies. Conditions stay
conditions. Kernels may close over constants and call the language by any name. An autotuner takes its first
configuration, because timings of an interpreter say nothing about a GPU. Programs of a grid run in an order
that kernels cannot rely on.
"""

from __future__ import annotations

import functools
import inspect
import math
from types import FunctionType
from typing import Any, NoReturn

import numpy as np
import triton.language as tl
import triton.language.extra.cuda as cuda
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner

from kernel_core.gym.untrusted.interpreter.bfloat16 import compute_bfloat16
from kernel_core.gym.untrusted.interpreter.compiled_semantics import mean_as_compiled
from kernel_core.gym.untrusted.interpreter.float8 import round_float8
from kernel_core.gym.untrusted.interpreter.libdevice import install_libdevice
from kernel_core.gym.untrusted.interpreter.loop_turns import count_turns
from kernel_core.gym.untrusted.interpreter.numpy_arithmetic import compute_as_a_gpu
from kernel_core.gym.untrusted.interpreter.tree_reduce import combine_in_pairs
from kernel_core.gym.untrusted.interpreter.type_cache import make_types_quick
from kernel_core.gym.untrusted.interpreter.typed_arguments import type_arguments

_GOLDEN = (5**0.5 - 1) / 2
_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
)
"""Python's names of what two values give."""


class _Permanent:
    """Replaces the interpreter's patch scope: no patch is undone after a launch."""

    def restore(self) -> None:
        """Keep the patches."""


def prepare_interpreter() -> None:
    """Patch this process for good; its children inherit it."""

    def visible() -> None:
        """A function that sees both modules the interpreter patches, as a kernel would."""

    scope: dict[str, Any] = {"tl": tl, "core": tl.core}
    interpreter._patch_lang(FunctionType(visible.__code__, scope))
    _name_what_was_patched()
    permanent = _Permanent()
    interpreter._patch_lang = lambda function: permanent
    make_types_quick()
    _spread_conditions()
    _leave_blocks_to_blocks()
    _give_constants_to_constant_functions()
    _take_flags()
    _wait_for_no_launch()
    # NumPy from 2.4 on refuses what Triton before 3.7 does here: int() of an array of one dimension.
    tl.core.tensor.__index__ = lambda self: int(self.handle.data.squeeze())
    interpreter.InterpreterBuilder.create_inline_asm = _refuse_assembly
    install_libdevice()
    _repair_rewriter()
    combine_in_pairs()
    mean_as_compiled()
    count_turns()
    _mix_programs()
    compute_as_a_gpu()
    compute_bfloat16()
    round_float8()
    type_arguments()
    Autotuner.do_bench = property(lambda self: lambda call, quantiles: [0.0, 0.0, 0.0])


def _refuse_assembly(*_: Any) -> NoReturn:
    raise NotImplementedError("inline assembly runs on a GPU only; judge it with gym.device=cuda")


def _spread_conditions() -> None:
    """A comparison of numbers stays a condition where it is spread over a block, and the other way round: the
    interpreter makes it a number of their type, which no load takes for a mask."""
    builder: Any = interpreter.InterpreterBuilder
    splat = builder.create_splat

    def create_splat(self: Any, kind: Any, value: Any) -> Any:
        return splat(self, kind, interpreter.TensorHandle(value.data, kind.scalar))

    def create_unsplat(self: Any, block: Any) -> Any:
        return interpreter.TensorHandle(block.data.reshape(-1)[:1], block.dtype.scalar)

    builder.create_splat, builder.create_unsplat = create_splat, create_unsplat


def _name_what_was_patched() -> None:
    """Name the patched functions, because a kernel's `exp = tl.exp` is recognised by name. The interpreter
    patches with nameless functions."""
    for module in (tl, tl.core, tl.math, tl.standard):
        for name, member in vars(module).items():
            if isinstance(member, FunctionType) and member.__name__ == "<lambda>":
                member.__name__, member.__module__ = name, module.__name__


def _leave_blocks_to_blocks() -> None:
    """The result of a module's constant and a block has the block's type, as where a block comes first. The
    interpreter makes a constant of it, which cannot be used further."""

    def left(operate: Any) -> Any:
        def operate_on_constants(self: Any, other: Any) -> Any:
            return NotImplemented if isinstance(other, tl.tensor) else operate(self, other)

        return operate_on_constants

    for name in _BINARY:
        for method in (f"__{name}__", f"__r{name}__"):
            if method in vars(tl.constexpr):
                setattr(tl.constexpr, method, left(getattr(tl.constexpr, method)))


def _give_constants_to_constant_functions() -> None:
    """A function marked `@tl.constexpr` gets its arguments as `tl.constexpr`, with a `value`, as the compiler
    calls it."""

    def call(self: Any, *values: Any, **named: Any) -> Any:
        given = {name: _constant(value) for name, value in named.items()}
        return self.value(*map(_constant, values), **given)

    constant: Any = tl.constexpr
    constant.__call__ = call


def _take_flags() -> None:
    """A launch's flag is one bit, and a loop's `tl.condition` is true or false. Triton 3.6 fails at the first
    and takes the second for true."""
    convert = interpreter._implicit_cvt

    def implicit_cvt(argument: Any) -> Any:
        if not isinstance(argument, bool):
            return convert(argument)
        return tl.tensor(interpreter.TensorHandle(np.array([argument]), tl.int1), tl.int1)

    interpreter._implicit_cvt = implicit_cvt
    if hasattr(tl, "condition"):  # versions before have none
        tl.condition.__bool__ = lambda self: bool(self.condition)


class _ConstantType(tl.constexpr):
    """A type as an argument. The compiler gives it plain, or as a constant, by where it comes from."""

    def __getattr__(self, name: str) -> Any:
        if name == "value":
            raise AttributeError(name)
        return getattr(self.value, name)


def _constant(value: Any) -> Any:
    if isinstance(value, tl.tensor):
        return value
    return _ConstantType(value) if isinstance(value, tl.dtype) else tl.constexpr(value)


def _mix_programs() -> None:
    """Begin with the last program of a grid, and go on by a step that meets all, but no two neighbours in
    turn: a GPU promises no order, and what needs a neighbour's result would not show in the natural one."""
    builder: Any = interpreter.InterpreterBuilder
    place = builder.set_grid_idx

    def set_grid_idx(self: Any, *index: int) -> None:
        count = math.prod(self.grid_dim)
        step = next(s for s in range(max(1, round(count * _GOLDEN)), count + 1) if math.gcd(s, count) == 1)
        number = count - 1 - int(np.ravel_multi_index(index, self.grid_dim)) * step % count
        place(self, *(int(index) for index in np.unravel_index(number, self.grid_dim)))

    builder.set_grid_idx = set_grid_idx


def _wait_for_no_launch() -> None:
    """Launches come one after the other here, so a dependent launch has nothing to wait for."""
    for name in ("gdc_wait", "gdc_launch_dependents"):
        plain = getattr(cuda, name, None)  # versions before have none
        if plain is not None:
            setattr(cuda, name, functools.wraps(plain)(lambda *_, **__: None))


def _repair_rewriter() -> None:
    """Let rewritten kernels keep their annotations (`T.constexpr` too) and what they close over,
    and copies of kernels have other names."""
    original = interpreter.FunctionRewriter._compile_and_exec

    def compile_and_exec(self: Any, tree: Any) -> Any:
        function, names = self.fn, self.fn.__globals__
        if function.__closure__:
            names = {**names, **inspect.getclosurevars(function).nonlocals}
        name = function.__code__.co_name  # in the text; a copy may have another
        self.fn = FunctionType(function.__code__, names, name, function.__defaults__, function.__closure__)
        rewritten = original(self, tree)
        rewritten.__annotations__ = dict(function.__annotations__)
        return rewritten

    interpreter.FunctionRewriter._compile_and_exec = compile_and_exec
