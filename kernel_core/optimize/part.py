"""A part: a submodule's call as a problem in KernelBench's format, with the contract of its kernels.

Whole numbers become arguments of the constructor, so that a judge can make the problem smaller. A dimension
of an input that no weight or attribute has is free: kernels may take it at other sizes. The written problem
is compared with the submodule on the recorded inputs before it is used.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from kernel_core.errors import first_line
from kernel_core.generator.index import letters
from kernel_core.generator.sizes import Size
from kernel_core.harvest.problem_text import tail_of
from kernel_core.optimize.dispatch import template_of
from kernel_core.optimize.tape import Tape, Unwritable
from kernel_core.optimize.target import Target
from kernel_core.problems.load import parse_problem
from kernel_core.records import Problem, Record

SUITE = "optimize"
MOST_OPERATIONS = 200
"""Limit of the lines of one problem: the generator's work grows with their square."""
_LEAST_SIZE = 16
"""Smaller attributes and weight dimensions count groups, kernels or strides, and stay literals."""
_MOST_RATIO = 8
_CLOSE = {torch.float32: 1e-4, torch.float64: 1e-6}


class Contract(Record):
    """Calls that a part's kernels take; every other call runs the original."""

    inputs: tuple[str, ...]
    shapes: tuple[tuple[int | str, ...], ...]
    """By input; a name is a free dimension, of at most its size in `free`."""
    dtypes: tuple[str, ...]
    free: dict[str, int]
    arguments: tuple[int, ...]
    """Sizes that construct the kernels' module."""
    weights: dict[str, str]
    """Attribute of the kernels' module to the path in the submodule."""
    weight_dtypes: dict[str, str]
    call: Any
    """Nest of arguments, with the numbers of tensors (`dispatch.template_of`)."""
    result: Any
    """Nest of outputs."""


class Part(Record):
    """Submodules that compute the same at the same shapes, as one problem."""

    problem: Problem
    contract: Contract
    paths: tuple[str, ...]
    """Every place in the module; equal parts are one problem."""
    kind: str
    predicted_ms: float
    gain_ms: float
    """Upper bound at one place, by the profile."""


class Call(NamedTuple):
    """Arguments and result of a submodule in the example call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


def recorded_calls(target: Target, paths: Sequence[str]) -> dict[str, list[Call]]:
    """Return the calls of each submodule while the target's example call runs once."""
    calls: dict[str, list[Call]] = {path: [] for path in paths}

    def record(path: str) -> Any:
        def hook(_: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
            calls[path].append(Call(args, kwargs, result))

        return hook

    handles = [
        target.module.get_submodule(path).register_forward_hook(record(path), with_kwargs=True)
        for path in paths
    ]
    try:
        target.call()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def write_part(module: nn.Module, calls: Sequence[Call]) -> tuple[str, Contract]:
    """Return a submodule's call as a problem's text, with its contract. Raises Unwritable."""
    if len(calls) != 1:
        raise Unwritable(f"the example call runs it {len(calls)} times")
    result = calls[0].result
    try:
        writer = _Writer(module, *calls[0])
        text = writer.text()
        _compare(text, writer, module, result)
        return text, writer.contract
    except Unwritable:
        raise
    except Exception as error:  # another program's code may raise anything
        raise Unwritable(f"{type(error).__name__}: {first_line(error)}"[:200]) from error


def problem_of(text: str, kind: str) -> Problem:
    """Return the text as a problem, named by the submodule's class and the text's hash."""
    problem = parse_problem(text, id=f"{SUITE}/{kind}", suite=SUITE, family=f"optimize_{kind.lower()}")
    name = f"{kind}_{problem.sha256[:8]}"
    return problem.model_copy(update={"id": f"{SUITE}/{name}", "name": name})


class _Writer:
    """Text of one problem."""

    def __init__(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        names = _argument_names(module, args, kwargs)
        tensors: list[tuple[str, torch.Tensor]] = []
        call = template_of((args, kwargs), tensors, names)
        for name, tensor in tensors:
            while name in self.tensors:
                name += "_"
            self.tensors[name] = tensor
        if not self.tensors:
            raise Unwritable("it takes no tensor")
        self.paths = _weights_of(module)
        flat = {f"self.{_flat(path)}": tensor for path, tensor in self.paths.items()}
        tape, outputs = _run(module, self.tensors, flat, args, kwargs)
        self.results: list[tuple[str, torch.Tensor]] = []
        template = template_of(outputs, self.results)
        self.returns = [tape.text_of(tensor) for _, tensor in self.results]
        self.lines = tape.lines
        if not self.lines or len(self.lines) > MOST_OPERATIONS:
            raise Unwritable(f"it has {len(self.lines)} operations; 1 to {MOST_OPERATIONS} are written")
        self.used = {path: t for path, t in self.paths.items() if f"self.{_flat(path)}" in tape.used}
        body = "\n".join([*self.lines, *self.returns])
        sized = _size_attributes(module)
        self.attributes = {f: v for f, v in sized.items() if f"self.{f}" in body}
        self.sizes = _Sizes(self.tensors, self.used, self.attributes)
        self.init = [f"        self.{_flat(path)} = {self._weight(t)}" for path, t in self.used.items()]
        for flat, value in self.attributes.items():
            parts = [self.sizes.text(n).lower() if n >= _LEAST_SIZE else repr(n) for n in _whole(value)]
            self.init.append(
                f"        self.{flat} = {_tuple(parts) if isinstance(value, tuple) else parts[0]}"
            )
        words = {word for line in self.init for word in _words(line)}
        constants = self.sizes.constants()
        self.given = [name for name in constants if name.lower() in words]
        self.contract = Contract(
            arguments=tuple(constants[name] for name in self.given),
            inputs=tuple(self.tensors),
            shapes=tuple(self.sizes.pattern(tensor) for tensor in self.tensors.values()),
            dtypes=tuple(str(tensor.dtype) for tensor in self.tensors.values()),
            free={name: value for value, name in self.sizes.free.items()},
            weights={_flat(path): path for path in self.used},
            weight_dtypes={_flat(path): str(tensor.dtype) for path, tensor in self.used.items()},
            call=call,
            result=template,
        )

    def text(self) -> str:
        """Return the problem's module."""
        returns = ", ".join(self.returns)
        inputs = [self._drawn(tensor) for tensor in self.tensors.values()]
        return "\n".join(
            [
                "import torch",
                "import torch.nn as nn",
                "import torch.nn.functional as F",
                "\n\nclass Model(nn.Module):",
                f"    def __init__(self{''.join(f', {name.lower()}' for name in self.given)}):",
                "        super().__init__()",
                *self.init,
                f"\n    def forward(self, {', '.join(self.tensors)}):",
                *(f"        {line}" for line in self.lines),
                f"        return {returns}\n\n",
                tail_of(self.sizes.constants(), inputs, self.given),
            ]
        )

    def _weight(self, tensor: torch.Tensor) -> str:
        """Return the constructor's text of a weight, scaled so that signals keep their size."""
        shape = _tuple([self.sizes.text(size).lower() for size in tensor.shape])
        dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
        if not tensor.is_floating_point():
            return f"nn.Buffer({_integers(tensor, shape)})"
        is_positive = bool((tensor >= 0).all())
        drawn = f"torch.randn({shape}{dtype})"
        if tensor.dim() > 1:
            drawn += f" / {math.prod(tensor.shape[1:])} ** 0.5"
        elif is_positive and not isinstance(tensor, nn.Parameter):
            drawn = f"0.5 + torch.rand({shape}{dtype})"
        else:
            centre = 1 if round(float(tensor.detach().float().mean())) == 1 else 0
            drawn = f"{centre} + 0.1 * {drawn}"
        return f"nn.{'Parameter' if isinstance(tensor, nn.Parameter) else 'Buffer'}({drawn})"

    def _drawn(self, tensor: torch.Tensor) -> str:
        shape = _tuple([self.sizes.text(size) for size in tensor.shape])
        if tensor.is_floating_point():
            dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
            return f"torch.randn({shape}{dtype})"
        return _integers(tensor, shape)


class _Sizes:
    """Names of sizes: free dimensions of inputs, and widths that weights or attributes share."""

    def __init__(
        self,
        inputs: dict[str, torch.Tensor],
        weights: dict[str, torch.Tensor],
        attributes: dict[str, int | tuple[int, ...]],
    ) -> None:
        shared = {size for tensor in weights.values() for size in tensor.shape if size >= _LEAST_SIZE}
        shared |= {n for value in attributes.values() for n in _whole(value) if n >= _LEAST_SIZE}
        self.free: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._derived: dict[int, str] = {}
        widths: list[int] = []
        for tensor in inputs.values():
            for size, letter in zip(tensor.shape, letters(tensor.dim()), strict=True):
                if size in shared:
                    widths.append(size)
                elif size > 1 and size not in self.free:
                    self.free[size] = self._name(size, letter.upper())
        for size in dict.fromkeys([*reversed(widths), *sorted(shared)]):
            self._derive(size)

    def _name(self, size: int, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names.values():
            number += 1
            name = f"{wanted}{number}"
        self._names[size] = name
        return name

    def _derive(self, size: int) -> None:
        """Name a width, or write it as a small multiple or part of one that has a name."""
        for base in self._names:
            if base in self.free or base == size:
                continue
            if size % base == 0 and size // base <= _MOST_RATIO:
                self._derived[size] = f"{size // base} * {self._names[base]}"
                return
            if base % size == 0 and base // size <= _MOST_RATIO:
                self._derived[size] = f"{self._names[base]} // {base // size}"
                return
        self._name(size, "WIDTH")

    def text(self, size: int) -> str:
        """Return a size as text over the constants' names."""
        return self._names.get(size) or self._derived.get(size) or repr(int(size))

    def pattern(self, tensor: torch.Tensor) -> tuple[int | str, ...]:
        """Return a shape with the names of its free dimensions."""
        return tuple(self.free.get(size, int(size)) for size in tensor.shape)

    def constants(self) -> dict[str, int]:
        """Return each named size."""
        return {name: size for size, name in self._names.items()}


def _run(
    module: nn.Module,
    inputs: dict[str, torch.Tensor],
    weights: dict[str, torch.Tensor],
    args: Any,
    kwargs: Any,
) -> tuple[Tape, Any]:
    """Run a submodule on fake tensors under a tape; return the tape and the outputs."""
    with FakeTensorMode(allow_non_fake_inputs=True) as fake, torch.no_grad():
        fakes = {name: fake.from_tensor(tensor) for name, tensor in inputs.items()}
        by_id = {id(tensor): fakes[name] for name, tensor in inputs.items()}

        def as_fake(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return by_id[id(value)]
            if isinstance(value, tuple | list):
                return type(value)(map(as_fake, value))
            return {key: as_fake(part) for key, part in value.items()} if isinstance(value, dict) else value

        tape = Tape(fakes, weights)
        with _named_sizes(module), tape:
            return tape, module.forward(*as_fake(args), **as_fake(kwargs))


@contextmanager
def _named_sizes(module: nn.Module) -> Iterator[None]:
    """Give whole-number attributes their text while the block lasts."""
    changed: list[tuple[nn.Module, str, Any]] = []
    try:
        for path, part in module.named_modules():
            for key, value in list(vars(part).items()):
                if _is_size(key, value):
                    text = f"self.{_flat(f'{path}.{key}' if path else key)}"
                    changed.append((part, key, value))
                    vars(part)[key] = (
                        tuple(Size(n, f"{text}[{k}]") if n >= _LEAST_SIZE else n for k, n in enumerate(value))
                        if isinstance(value, tuple)
                        else Size(value, text)
                    )
        yield
    finally:
        for part, key, value in changed:
            vars(part)[key] = value


def _is_size(key: str, value: Any) -> bool:
    if key.startswith("_") or key == "training":
        return False
    numbers = value if type(value) is tuple and value else (value,)
    return all(type(n) is int for n in numbers) and max(numbers) >= _LEAST_SIZE


def _size_attributes(module: nn.Module) -> dict[str, int | tuple[int, ...]]:
    return {
        _flat(f"{path}.{key}" if path else key): value
        for path, part in module.named_modules()
        for key, value in vars(part).items()
        if _is_size(key, value)
    }


def _weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters, buffers and tensors that are plain attributes, by path."""
    weights: dict[str, torch.Tensor] = {}
    for path, part in module.named_modules():
        for key, value in {**vars(part), **part._buffers, **part._parameters}.items():
            if isinstance(value, torch.Tensor):
                weights[f"{path}.{key}" if path else key] = value
    return weights


def _argument_names(module: nn.Module, args: Any, kwargs: Any) -> dict[int, str]:
    """Return the parameter names of tensors in a call, by the tensors' ids."""
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {}
    names: dict[int, str] = {}

    def visit(value: Any, name: str) -> None:
        if isinstance(value, torch.Tensor):
            names.setdefault(id(value), name)
        elif isinstance(value, tuple | list):
            for index, part in enumerate(value):
                visit(part, f"{name}_{index}" if len(value) > 1 else name)
        elif isinstance(value, dict):
            for key, part in value.items():
                visit(part, str(key))

    for name, value in bound.items():
        visit(value, name)
    return names


def _compare(text: str, writer: _Writer, module: nn.Module, result: Any) -> None:
    """Raise Unwritable unless the text gives the submodule's outputs on the recorded inputs."""
    written = types.ModuleType("problem")
    exec(compile(text, "<problem>", "exec"), written.__dict__)
    expected: list[tuple[str, torch.Tensor]] = []
    template_of(result, expected)
    with torch.no_grad():
        model = written.Model(*written.get_init_inputs())
        for name, path in writer.contract.weights.items():
            bind_weight(model, name, _weights_of(module)[path])
        outputs = model(*writer.tensors.values())
    given = list(outputs) if isinstance(outputs, tuple) else [outputs]
    for output, (_, tensor) in zip(given, expected, strict=True):
        close = _CLOSE.get(tensor.dtype, 1e-2)
        if output.dtype != tensor.dtype or not torch.allclose(output, tensor, close, close, equal_nan=True):
            raise Unwritable("the written problem gives other outputs than the submodule")


def bind_weight(model: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Set a weight of a written module to a tensor of the original."""
    owner = model._parameters if isinstance(tensor, nn.Parameter) else model._buffers
    owner[name] = tensor  # type: ignore[index]


def _flat(path: str) -> str:
    return path.replace(".", "_")


def _whole(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _words(line: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in line).split()


def _integers(tensor: torch.Tensor, shape: str) -> str:
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) < 0.9"
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={tensor.dtype})"
