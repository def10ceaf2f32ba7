"""A problem's text as a module: its constructor, its inputs, its `Model`, on a device, at its precision."""

from __future__ import annotations

import contextlib
import copy
import inspect
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

from kernel_core.errors import NotAProblem, first_line
from kernel_core.gym.channel.constant_perturbation import VariedConstants
from kernel_core.gym.channel.gradients import Wanted, differentiate, is_differentiable, resolve
from kernel_core.gym.channel.host_for_gpu import take_gpu_for_host
from kernel_core.gym.channel.pytree import flatten
from kernel_core.gym.channel.seeds import CONSTRUCTION_SEED, seed_torch
from kernel_core.gym.channel.torch_ops import map_tensors, tensors_in
from kernel_core.problems.gradients import wanted_gradients
from kernel_core.records import Precision

_SEEDING = threading.RLock()


@contextlib.contextmanager
def own_seeds(device: str) -> Iterator[None]:
    """The global generators are this thread's alone, and afterwards torch's are as they were."""
    devices = [torch.cuda.current_device()] if device == "cuda" else []
    with _SEEDING, torch.random.fork_rng(devices=devices):
        yield


class _OnTheHost(TorchFunctionMode):
    """A problem that asks for a GPU means the judge's device, which is the host here."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every call of torch's, with the host in place of a GPU."""
        if function is torch.Tensor.cuda:
            return args[0]
        named = {name: _host_for(value) for name, value in (kwargs or {}).items()}
        return function(*map(_host_for, args), **named)


class DrawnOnTheHost(TorchFunctionMode):
    """A problem's own generators are the host's, so their numbers are drawn there and moved to a device."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Every call of torch's, on the host where it is given a generator of the host's."""
        kwargs = kwargs or {}
        has_own = any(
            isinstance(value, torch.Generator) and value.device.type == "cpu" for value in kwargs.values()
        )
        if not has_own or "device" in kwargs or self._device == "meta":  # a shape is all that `meta` draws
            return function(*args, **kwargs)
        tensors = tensors_in([*args, *kwargs.values()])
        if not tensors:
            return function(*args, **kwargs, device="cpu").to(self._device)
        with torch.no_grad():
            named = {name: map_tensors(value, torch.Tensor.cpu) for name, value in kwargs.items()}
            made = function(*map_tensors(args, torch.Tensor.cpu), **named)
            return tensors[0].copy_(made) if function.__name__.endswith("_") else made.to(tensors[0].device)


def _host_for(value: Any) -> Any:
    asks = isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"
    return "cpu" if asks else value


def _listed(name: str, values: Any) -> list[Any]:
    """Return what a function of the problem gives as a list: a tensor alone is one value, and a dictionary of
    arguments is one by name."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        if name != "get_init_inputs":
            raise TypeError("it gives a dictionary; give a list in the order of forward's parameters")
        return [[], values]
    return list(values)


def _shapes_in(inputs: list[Any]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors_in(inputs)]


def _filled(first: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Other numbers in a tensor's shape, over and over if there are fewer."""
    if not (first.is_floating_point() and values.numel()):
        return first
    return values.flatten().repeat(-(-first.numel() // values.numel()))[: first.numel()].view(first.shape)


class ProblemModule:
    """An executed problem. Its text is trusted, unlike a candidate's. Raises `NotAProblem` where it fails."""

    def __init__(
        self, source: str, problem_id: str, precision: Precision = "own", device: str = "cpu"
    ) -> None:
        self._id = problem_id
        self._device = device
        self._dtype: torch.dtype | None = None if precision == "own" else getattr(torch, precision)
        self._names: dict[str, Any] = {"__name__": "problem"}
        self._wanted = wanted_gradients(source)
        self._forms: list[tuple[torch.Size, torch.dtype]] | None = None
        self._shapes: list[torch.Size] | None = None
        if device != "cuda" and not torch.cuda.is_available():
            take_gpu_for_host()
        with self._blaming("{} does not execute"), self._there():
            exec(compile(source, f"<{problem_id}>", "exec", dont_inherit=True), self._names)

    @property
    def gradients(self) -> Wanted:
        """Return the tensors that a pass computes gradients of; see `gradients.py`."""
        return resolve(self._wanted, self._names["Model"], self._id) if self._wanted else ()

    def arguments(self) -> list[Any]:
        """The constructor's arguments of `Model`, by position. A dictionary, or a pair of a list and a
        dictionary as in KernelBook, is laid out in the order of its parameters."""
        values = self._call("get_init_inputs")
        match values:
            case [list() | tuple() as positional, dict() as named]:
                with self._blaming("get_init_inputs() of {} does not fit Model"):
                    bound = inspect.signature(self._names["Model"]).bind(*positional, **named)
                    last = max(map([*bound.signature.parameters].index, bound.arguments), default=-1)
                    bound.apply_defaults()
                    if bound.kwargs:
                        raise TypeError("keyword-only arguments cannot be handed to a candidate")
                    return list(bound.args[: last + 1])
        return values

    def inputs(self) -> list[Any]:
        """A draw of inputs under the seeds in force, before `Model` could see them. Where gradients are
        compared, the last input is a tuple with the gradients of the outputs, normal numbers."""
        inputs = self._call("get_inputs")
        if self._wanted:
            forms = self._differentiable_outputs(inputs)
            with torch.device(self._device):
                inputs.append(tuple(torch.randn(shape, dtype=dtype) for shape, dtype in forms))
        return inputs

    def drawn(self, seed: int) -> list[Any]:
        """A draw of inputs under a seed. Where lengths are drawn too, all draws have those of the first, and
        what selects by them: a record of a pass has sizes."""
        if self._shapes is None:
            self._shapes = _shapes_in(self._seeded(CONSTRUCTION_SEED))
        inputs = self._seeded(seed)
        if _shapes_in(inputs) == self._shapes:
            return inputs
        first = self._seeded(CONSTRUCTION_SEED)
        values = iter(tensors_in(self._seeded(seed)))  # last, as hostile numbers go on from its state
        return map_tensors(first, lambda tensor: _filled(tensor, next(values, tensor)))

    def _seeded(self, seed: int) -> list[Any]:
        seed_torch(seed, self._device)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        return self.inputs()

    def _differentiable_outputs(self, inputs: list[Any]) -> list[tuple[torch.Size, torch.dtype]]:
        """Shapes and types, by one forward pass on these inputs, which leaves the seeds in force alone."""
        if self._forms is None:
            with own_seeds(self._device), torch.no_grad(), torch.device(self._device):
                module = self._construct(self.arguments(), None)
                with self._blaming("the Model of {} fails on its own inputs"):
                    leaves = flatten(module(*copy.deepcopy(inputs)))[1]
            self._forms = [(leaf.shape, leaf.dtype) for leaf in leaves if is_differentiable(leaf)]
        return self._forms

    def construct(self, arguments: list[Any], varied: VariedConstants | None = None) -> Any:
        """`Model`, constructed under the public seed; what would begin as one number is `varied` if asked."""
        return differentiate(self._construct(arguments, varied), self.gradients)

    def _construct(self, arguments: list[Any], varied: VariedConstants | None) -> Any:
        seed_torch(CONSTRUCTION_SEED, self._device)
        with self._blaming("the Model of {} cannot be constructed"):
            # Without gradients, so that tensors that it computes of its weights can be copied.
            with self._there(), torch.no_grad(), varied or contextlib.nullcontext():
                module = self._names["Model"](*arguments)
            module = module if self._device == "cpu" else module.to(self._device)
            return module if self._dtype is None else module.to(self._dtype)

    @contextlib.contextmanager
    def _there(self) -> Iterator[None]:
        with (
            torch.device(self._device),
            _OnTheHost() if self._device == "cpu" else DrawnOnTheHost(self._device),
        ):
            yield

    def _call(self, name: str) -> list[Any]:
        with self._blaming(f"{name}() of {{}} fails"):
            with self._there():
                values = _listed(name, self._names[name]())
            return [self._place(value) for value in values]

    @contextlib.contextmanager
    def _blaming(self, fault: str) -> Iterator[None]:
        """Blame the problem for a failure, unless a GPU's memory is full."""
        try:
            yield
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            text = f"{type(error).__name__}: {first_line(error)}"
            raise NotAProblem(f"{fault.format(self._id)}: {text}") from error

    def _place(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            is_cast = value.is_floating_point() and value.element_size() > 1  # 8-bit floats are packed
            dtype = self._dtype if is_cast else None
            return value.to(device=self._device, dtype=dtype)
        if isinstance(value, list | tuple):
            return type(value)(self._place(item) for item in value)
        if isinstance(value, dict):
            return {name: self._place(item) for name, item in value.items()}
        return value
