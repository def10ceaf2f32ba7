"""The work of a sandboxed process: laid out in shared memory, described in a header."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.pytree import Fingerprint, fingerprint, is_same
from kernel_core.gym.channel.shared_arena import DTYPES, Slot, arena_kind, lay_out, like_these, slots_to_json
from kernel_core.gym.channel.trace_codec import NotEncodable, encode
from kernel_core.gym.oracle.problem_module import own_seeds
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial


@dataclass(frozen=True, slots=True)
class TrialPayload:
    """One trial for a child: an arena with inputs and poisoned output slots."""

    arena: Any
    header: dict[str, Any]
    input_slots: list[Slot]
    output_slots: list[Slot]
    fingerprints: list[Fingerprint]
    """Fingerprints of the inputs, as they were laid out last."""
    is_lent: bool
    """The arena belongs to another owner, which will use it again."""

    def close(self) -> None:
        """Give the arena back."""
        if not self.is_lent:
            self.arena.close()


def deliver(reference: Reference, trial: Trial, arena: Any = None) -> TrialPayload:
    """Lay a trial's inputs and poisoned outputs out in memory that will be shared: an arena that is large
    enough, or else a new one."""
    tensors: list[torch.Tensor] = []
    # The copy is made there too, so that two large draws never exist at once.
    with contextlib.nullcontext() if trial.inputs else own_seeds(reference.device):
        described = pack(reference.inputs_of(trial), tensors)
        outputs = [(leaf.shape, DTYPES[leaf.dtype]) for leaf in trial.expected]
        forms = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
        slots, num_bytes = lay_out([*forms, *outputs])
        is_lent = arena is not None and arena.num_bytes >= num_bytes
        if not is_lent:
            arena = arena_kind(reference.device).create(num_bytes)
        inputs, outs = like_these(slots[: len(forms)], tensors), slots[len(forms) :]
        for tensor, slot in zip(tensors, inputs, strict=True):
            arena.tensor(slot).copy_(tensor)
        tensors.clear()
        arena.poison(outs)
        fingerprints = [_fingerprint(arena, slot) for slot in inputs]
        settle_device(reference.device)
    header: dict[str, Any] = {
        "arena_bytes": arena.num_bytes,
        "inputs": described,
        "tensors": slots_to_json(inputs),
        "outputs": slots_to_json(outs),
    }
    return TrialPayload(arena, header, inputs, outs, fingerprints, is_lent)


def refill(delivery: TrialPayload, draw: Callable[[], Sequence[Any]], device: str) -> None:
    """Lay inputs of the same forms over those that were delivered: others, or the same once more."""
    tensors: list[torch.Tensor] = []
    with own_seeds(device):
        pack(draw(), tensors)
        for tensor, slot in zip(tensors, delivery.input_slots, strict=True):
            delivery.arena.tensor(slot).copy_(tensor)
        delivery.fingerprints[:] = [_fingerprint(delivery.arena, slot) for slot in delivery.input_slots]
        settle_device(device)


def changed_inputs(delivery: TrialPayload) -> list[int]:
    """The positions among the input tensors where bytes differ from those delivered."""
    known = enumerate(zip(delivery.fingerprints, delivery.input_slots, strict=True))
    return [
        index for index, (before, slot) in known if not is_same(before, _fingerprint(delivery.arena, slot))
    ]


def _fingerprint(arena: Any, slot: Slot) -> Fingerprint:
    """Elements are read in the order of memory: a copy in another order would need room."""
    return fingerprint(arena.tensor(replace(slot, strides=None)))


def gave(delivery: TrialPayload, outputs: Sequence[Fingerprint]) -> bool:
    """Return True if the outputs that lie there are, bit for bit, these."""
    now = [fingerprint(delivery.arena.tensor(slot)) for slot in delivery.output_slots]
    return all(is_same(before, other) for before, other in zip(outputs, now, strict=True))


def settle_device(device: str) -> None:
    """Wait until what was queued for a GPU is done, before another process looks at its memory."""
    if device == "cuda":
        torch.cuda.synchronize()


def load_header(
    reference: Reference, source: str, poison: int, configuration: int = 0, copy_state: bool = True
) -> tuple[dict[str, Any], Any]:
    """The first message to a runner: the candidate's text, constructor arguments, weights and the seed of
    poison. In the interpreter it also has the number of an autotuner's configuration."""
    tensors: list[torch.Tensor] = []
    names = sorted(reference.state) if copy_state else []
    described = pack([*reference.arguments, *(reference.state[name] for name in names)], tensors)
    slots, num_bytes = lay_out([(tuple(tensor.shape), tensor.dtype) for tensor in tensors])
    arena = arena_kind(reference.device).create(num_bytes)
    for tensor, slot in zip(tensors, slots, strict=True):
        arena.tensor(slot).copy_(tensor)
    settle_device(reference.device)
    header = {
        "source": source,
        "poison": poison,
        "configuration": configuration,
        "arguments": described,
        "tensors": slots_to_json(slots),
        "state": names,
        "constants": reference.constants,
        "arena_bytes": num_bytes,
        "precision": reference.problem.precision,
        "gradients": reference.gradients,
        "returns_nothing": reference.returns_nothing,
    }
    return header, arena


def pack(values: Sequence[Any], tensors: list[torch.Tensor]) -> list[Any]:
    """Arguments as JSON; tensors are moved to a list and stand as their positions there."""

    def position(tensor: torch.Tensor) -> list[Any]:
        tensors.append(tensor.detach())
        return [len(tensors) - 1]

    try:
        return [encode(value, position) for value in values]
    except NotEncodable as error:
        raise NotAProblem(
            f"an argument{str(error).removeprefix('a value')} cannot be handed to a candidate; "
            "problems may use tensors, numbers, strings, dtypes, classes of torch.nn, lists and tuples"
        ) from error
