"""The fault of a candidate's outputs, which lie in the judge's own memory."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from kernel_core.gym.channel.gradients import gradient_names
from kernel_core.gym.channel.messages import Ran
from kernel_core.gym.channel.shared_arena import Slot
from kernel_core.gym.judge import kernelbench_rules
from kernel_core.gym.numerics.compare import (
    Compare,
    Spots,
    compare_values,
    each_passes,
    form_fault,
    unlike,
    value_fault,
)
from kernel_core.gym.oracle.input_families import in_words
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.gym.workers.payload import TrialPayload, changed_inputs
from kernel_core.records import Tolerance


def outputs_pass(claim: Ran, delivery: TrialPayload, reference: Reference, trial: Trial) -> bool:
    """Return True if the outputs pass with what the trial allows. Its expected outputs were kept."""
    fault = form_fault(claim.nesting, claim.leaves, trial.nesting, trial.expected)
    return fault is None and _value_fault(delivery, reference, trial, unlike) is None


def output_fault(claim: Ran, delivery: TrialPayload, reference: Reference, trial: Trial) -> str | None:
    """The fault of a trial's outputs. If its expected outputs were kept, `outputs_pass` has refused them.
    A failure by the allowance of another draw is checked again with the full allowance of this one. It is not
    checked again if it is too far off; gradients are, as terms that cancel may leave errors alone."""
    known = reference.with_values(trial)
    fault = form_fault(
        claim.nesting,
        claim.leaves,
        trial.nesting,
        trial.expected,
        gradient_names(reference.module, trial.nesting),
    )
    if fault is not None:
        return fault
    if not trial.has_values and _value_fault(delivery, reference, known, unlike) is None:
        return None
    values = _values(delivery, reference, delivery.output_slots)
    pairs = zip(values, known.expected, strict=True)
    if not reference.gradients and any(Spots.of(want).are_far(value) for value, want in pairs):
        fault = _value_fault(delivery, reference, known, compare_values)
    else:
        del known
        exact = reference.exactly(trial, functools.partial(each_passes, values))
        if trial.changes_inputs:
            exact = reference.left_exactly(exact)
        fault = _value_fault(delivery, reference, exact, compare_values)
    return fault and fault + ("" if trial.draw == "own" else f" ({in_words(trial.draw)})")


def kernelbench_fault(claim: Ran, delivery: TrialPayload, reference: Reference, trial: Trial) -> str | None:
    """The fault by KernelBench's rules."""
    values = _values(delivery, reference, delivery.output_slots)
    return kernelbench_rules.accepts(claim.nesting, claim.leaves, values, reference.with_values(trial))


def tolerances_passed(
    delivery: TrialPayload, reference: Reference, trial: Trial, decisive: Tolerance
) -> set[Tolerance]:
    """Return the tolerances that a trial's outputs pass, where they pass the `decisive` one. The caller holds
    the drawing turn.

    KernelBench draws inputs as the problem does, so other trials say nothing of `field`. With `field` as the
    decisive one, the others are not known.
    """
    passed: set[Tolerance] = {decisive}
    if decisive == "field":
        return passed
    passed.add("measured")  # it allows what `strict` allows
    values = _values(delivery, reference, delivery.output_slots)
    if not reference.has_float32_products:
        passed.add("strict")
    elif decisive != "strict":
        known = reference.with_values(trial)
        if each_passes(values, [leaf.strictly() for leaf in known.expected]):
            passed.add("strict")
    if trial.draw != "own" or all(map(kernelbench_rules.is_close, reference.as_shipped(trial), values)):
        passed.add("field")
    return passed


def _value_fault(delivery: TrialPayload, reference: Reference, trial: Trial, compare: Compare) -> str | None:
    """Outputs are compared, and inputs with what was delivered: what was changed must be what the reference
    leaves there."""
    values = _values(delivery, reference, delivery.output_slots)
    fault = value_fault(values, trial.expected, compare, gradient_names(reference.module, trial.nesting))
    if fault is not None:
        return fault
    for index in set(changed_inputs(delivery)) - reference.mutable:
        if not trial.changes_inputs:
            return f"input {index} was changed in place"
        [value] = _values(delivery, reference, [delivery.input_slots[index]])
        fault = compare(value, trial.left[index])
        if fault is not None:
            return f"{fault} (input {index}, changed in place)"
    return None


def _values(delivery: TrialPayload, reference: Reference, slots: Sequence[Slot]) -> list[torch.Tensor]:
    values = [delivery.arena.tensor(slot) for slot in slots]
    # A comparison on the GPU reads its memory once; here the candidate could change it between reads.
    return [value.clone() for value in values] if reference.device == "cpu" else values
