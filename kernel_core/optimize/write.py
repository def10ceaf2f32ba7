"""Writes a submodule's call as a problem in KernelBench's format, with the contract of its kernels.

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
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from kernel_core.errors import first_line
from kernel_core.generator.sizes import Size
from kernel_core.harvest.problem_text import tail_of
from kernel_core.optimize.dispatch import template_of
from kernel_core.optimize.part import Contract, RecordedCall
from kernel_core.optimize.sizes import LEAST_SIZE, Sizes, whole_numbers
from kernel_core.optimize.tape import Tape, Unwritable

MOST_OPERATIONS = 200
"""Limit of the lines of one problem: the generator's work grows with their square."""
_CLOSE = {torch.float32: 1e-4, torch.float64: 1e-6}


def write_part(module: nn.Module, calls: Sequence[RecordedCall]) -> tuple[str, Contract]:
    """Return a submodule's call as a problem's text, with its contract. Raises Unwritable."""
    if len(calls) != 1:
        raise Unwritable(f"the example call runs it {len(calls)} times")
    result = calls[0].result
    try:
        writer = _ProblemWriter(module, *calls[0])
        text = writer.text()
        _compare(text, writer, module, result)
        return text, writer.contract
    except Unwritable:
        raise
    except Exception as error:  # another program's code may raise anything
        raise Unwritable(f"{type(error).__name__}: {first_line(error)}"[:200]) from error


class _ProblemWriter:
    """Text of one problem."""

    def __init__(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        arguments = _argument_names(module, args, kwargs)
        tensors: list[tuple[str, torch.Tensor]] = []
        call = template_of((args, kwargs), tensors, arguments)
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
        words = {word for line in self.lines for word in _words(line)}
        self.attributes = {name: v for name, v in _size_attributes(module).items() if name in words}
        self.sizes = Sizes(self.tensors, self.used, self.attributes)
        self.init = [f"        self.{_flat(path)} = {self._weight(t)}" for path, t in self.used.items()]
        for name, value in self.attributes.items():
            parts = [self.sizes.text(n).lower() if n >= LEAST_SIZE else repr(n) for n in whole_numbers(value)]
            self.init.append(
                f"        self.{name} = {_tuple(parts) if isinstance(value, tuple) else parts[0]}"
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
                        tuple(Size(n, f"{text}[{k}]") if n >= LEAST_SIZE else n for k, n in enumerate(value))
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
    return all(type(n) is int for n in numbers) and max(numbers) >= LEAST_SIZE


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


def _compare(text: str, writer: _ProblemWriter, module: nn.Module, result: Any) -> None:
    """Raise Unwritable unless the text gives the submodule's outputs on the recorded inputs."""
    written = types.ModuleType("problem")
    exec(compile(text, "<problem>", "exec"), written.__dict__)
    expected: list[tuple[str, torch.Tensor]] = []
    template_of(result, expected)
    weights = _weights_of(module)
    with torch.no_grad():
        with torch.device("meta"):
            model = written.Model(*written.get_init_inputs())
        for name, path in writer.contract.weights.items():
            setattr(model, name, weights[path])
        outputs = model(*writer.tensors.values())
    given = list(outputs) if isinstance(outputs, tuple) else [outputs]
    for output, (_, tensor) in zip(given, expected, strict=True):
        close = _CLOSE.get(tensor.dtype, 1e-2)
        if output.dtype != tensor.dtype or not torch.allclose(output, tensor, close, close, equal_nan=True):
            raise Unwritable("the written problem gives other outputs than the submodule")


def _flat(path: str) -> str:
    return path.replace(".", "_")


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _words(line: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in line).split()


def _integers(tensor: torch.Tensor, shape: str) -> str:
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) < 0.9"
    low, high = (int(tensor.min()), int(tensor.max())) if tensor.numel() else (0, 0)
    return f"torch.randint({low}, {high + 1}, {shape}, dtype={tensor.dtype})"
