"""The answers without work that a problem accepts.

A problem with an output that hardly depends on its inputs pays for nothing. The answers are zeros, one
constant, a copy of the input, the outputs for other inputs, and half of the work. Each of these is compared
with the reference's output under each family of inputs, as the judge compares it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.pytree import describe_leaf, flatten
from kernel_core.gym.channel.seeds import derive_seed
from kernel_core.gym.numerics.compare import compare_outputs
from kernel_core.gym.oracle.input_families import DRAWS, Draw
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.small_sizes import with_small_sizes
from kernel_core.gym.oracle.trial import Trial
from kernel_core.records import Constant, Problem, Record


class DrawAudit(Record):
    """One problem under one family of inputs."""

    draw: Draw
    usable: bool
    """The reference ran and gave finite numbers only."""
    accepted: tuple[str, ...] = ()
    """Cheats that would pass."""


class ProblemAudit(Record):
    """One problem under every family of inputs."""

    problem_id: str
    draws: tuple[DrawAudit, ...]

    @property
    def never_refused(self) -> tuple[str, ...]:
        """Cheats that no usable family of inputs stops: the problem cannot tell them from work."""
        usable = [set(draw.accepted) for draw in self.draws if draw.usable]
        return tuple(sorted(set.intersection(*usable))) if usable else ()


def audit_problem(
    problem: Problem, sizes: dict[str, Constant] | None = None, draws: Sequence[Draw] = DRAWS
) -> ProblemAudit:
    """Try every cheat under families of inputs. Raises `NotAProblem` when the reference never runs."""
    problem = with_small_sizes(problem) if sizes is None else problem
    reference = Reference(problem, problem.cpu_constants if sizes is None else sizes)
    return ProblemAudit(problem_id=problem.id, draws=tuple(_audit_draw(reference, 0, draw) for draw in draws))


def _audit_draw(reference: Reference, seed: int, draw: Draw) -> DrawAudit:
    try:
        trial = reference.trial(derive_seed(seed, "audit", draw), draw)
        other = reference.trial(derive_seed(seed, "audit other", draw), draw)
    except NotAProblem:
        if draw == "own":
            raise
        return DrawAudit(draw=draw, usable=False)
    if not trial.is_usual and draw != "own":
        return DrawAudit(draw=draw, usable=False)
    accepted = tuple(name for name, cheat in CHEATS.items() if _passes(cheat(trial, other), trial))
    return DrawAudit(draw=draw, usable=True, accepted=accepted)


def _passes(values: list[torch.Tensor] | None, trial: Trial) -> bool:
    if values is None:
        return False
    leaves = [describe_leaf(value) for value in values]
    return compare_outputs(trial.nesting, leaves, values, trial.nesting, trial.expected) is None


def _own(trial: Trial) -> list[torch.Tensor]:
    """The right answer, in the types of the reference's outputs."""
    return [leaf.value.to(getattr(torch, leaf.dtype)) for leaf in trial.expected]


def _zeros(trial: Trial, _: Trial) -> list[torch.Tensor]:
    return [torch.zeros_like(value) for value in _own(trial)]


def _constant(_: Trial, other: Trial) -> list[torch.Tensor]:
    """The mean of what came out for other inputs."""
    return [
        torch.full_like(value, value.double().nanmean().item() if value.numel() else 0)
        for value in _own(other)
    ]


def _stale(_: Trial, other: Trial) -> list[torch.Tensor]:
    return _own(other)


def _input(trial: Trial, _: Trial) -> list[torch.Tensor] | None:
    """Each output is the first input of its form; None where there is none."""
    _, leaves = flatten(trial.inputs)
    given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    copies = []
    for value in _own(trial):
        alike = next(
            (tensor for tensor in given if tensor.shape == value.shape and tensor.dtype == value.dtype), None
        )
        if alike is None:
            return None
        copies.append(alike)
    return copies


def _half(trial: Trial, _: Trial) -> list[torch.Tensor]:
    """Right in the first half of every output, zero in the second."""
    halves = []
    for value in _own(trial):
        kept = value.clone().reshape(-1)
        kept[kept.numel() // 2 :] = 0
        halves.append(kept.reshape(value.shape))
    return halves


CHEATS: dict[str, Callable[[Trial, Trial], list[torch.Tensor] | None]] = {
    "zeros": _zeros,
    "constant": _constant,
    "input": _input,
    "stale": _stale,
    "half": _half,
}
"""The answers by name, from the audited trial and one with other inputs of the same family."""
