"""Problems that ask for gradients: `# backward: inputs, parameters`.

A pass of such a problem goes forward and backward, in the judge and in the candidate's process alike. Its
last input is a tuple with the gradient of each floating-point or complex output. Its outputs are those of
the forward pass, and the gradients. All else of the judge treats these as any inputs and outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.pytree import flatten
from kernel_core.gym.channel.torch_ops import map_tensors, tensors_in

_NO_GRAPH = (
    "no output depends on an input or a parameter through autograd; launch kernels in forward and backward "
    "of a torch.autograd.Function, and call its apply"
)
_engine: Any = torch.autograd.Variable._execution_engine

Wanted = tuple[str | int, ...]
"""`inputs`, `parameters`, and positions of inputs."""


def resolve(words: Sequence[str], kind: Any, problem_id: str) -> Wanted:
    """Return a problem's words, with positions for the names of inputs of `kind`, its `Model`. Raises
    `NotAProblem`."""
    _, *names = inspect.signature(kind.forward).parameters
    if unknown := [word for word in words if word not in ("inputs", "parameters", *names)]:
        known = ", ".join(["inputs", "parameters", *names])
        raise NotAProblem(f"{problem_id} asks for the gradient of {unknown[0]!r}; there is: {known}")
    return tuple(names.index(word) if word in names else word for word in words)


def is_differentiable(value: Any) -> bool:
    """Return True if the value is a tensor of complex numbers, or of floating-point numbers of more than 8
    bits."""
    is_tensor = isinstance(value, torch.Tensor) and value.element_size() > 1
    return is_tensor and (value.is_floating_point() or value.is_complex())


def differentiate(model: Any, wanted: Sequence[str | int]) -> Any:
    """The same model; its calls go forward and backward if any gradients are `wanted`. Its class is changed
    rather than the model wrapped, so that its parameters keep their names."""
    if wanted:
        kind = type(model)
        model.__class__ = type(kind.__name__, (Differentiated, kind), {"_dojo_gradients": tuple(wanted)})
    return model


def gradient_names(model: Any, nesting: Any) -> list[str]:
    """Names of the gradients, which are the last outputs of the reference; none where it has no gradients.
    Inputs are counted among those with gradients."""
    if not isinstance(model, Differentiated):
        return []
    of_parameters = [f"the gradient of {name}" for name, _ in model.parameters_with_gradients()]
    num_inputs = len(nesting[1]) - len(of_parameters)
    return [*(f"the gradient of input {number}" for number in range(num_inputs)), *of_parameters]


class Differentiated:
    """A model that is given the gradients of its outputs as a last argument."""

    _dojo_gradients: Wanted = ()

    def __call__(self, *given: Any) -> list[Any]:
        """The outputs, and the gradients of inputs and then of parameters, in their order."""
        *inputs, upstream = given
        forward: Callable[..., Any] = super().__call__  # type: ignore[misc]
        # One thread for all devices: what a pass does is recorded in the thread that began it.
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            leaves = [
                map_tensors(value, _as_leaf) if {"inputs", place} & {*self._dojo_gradients} else value
                for place, value in enumerate(inputs)
            ]
            output = forward(*leaves)
            wanted = [tensor for tensor in tensors_in(leaves) if tensor.requires_grad]
            wanted += [parameter for _, parameter in self.parameters_with_gradients()]
            gradients = _gradients(flatten(output)[1], upstream, wanted)
        return [_detached(output), gradients]

    def parameters_with_gradients(self) -> list[tuple[str, torch.nn.Parameter]]:
        """By name, in the order of names."""
        if "parameters" not in self._dojo_gradients or not isinstance(self, torch.nn.Module):
            return []
        return sorted(
            (name, parameter) for name, parameter in self.named_parameters() if parameter.requires_grad
        )


def _detached(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _detached(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_detached(part) for part in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


def _as_leaf(value: torch.Tensor) -> torch.Tensor:
    return value.detach().requires_grad_() if is_differentiable(value) else value


def _gradients(
    outputs: Sequence[Any], upstream: Sequence[torch.Tensor], wanted: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Zeros stand for a gradient that there is not: of what no output depends on."""
    roots = [output for output in outputs if is_differentiable(output)]
    if not any(root.requires_grad for root in roots):
        raise RuntimeError(_NO_GRAPH)
    pairs = [
        (root, above)
        for root, above in zip(roots, upstream, strict=False)
        if root.requires_grad and root.shape == above.shape
    ]
    gradients: Sequence[Any] = [None] * len(wanted)
    if pairs and wanted:
        given, above = ([pair[side] for pair in pairs] for side in (0, 1))
        # `torch.autograd.grad` calls this, but would leave the modes in which a candidate runs.
        gradients = _engine.run_backward(tuple(given), tuple(above), False, False, tuple(wanted), True, False)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient.detach()
        for tensor, gradient in zip(wanted, gradients, strict=True)
    ]
