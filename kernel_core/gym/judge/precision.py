"""The precision in which a candidate's products compute, from what was compiled and recorded of it."""

from __future__ import annotations

from kernel_core.gym.channel.compiled_products import lowest
from kernel_core.gym.channel.operator_products import half_in_launches, kinds_of_operators
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.verdict.case import Case

_FINDINGS = {
    "tf32": ("tf32", "products of float32 values compute in TF32"),
    "half": ("half_products", "products of float32 values compute in half precision"),
}


def note_precision(case: Case, reference: Reference) -> None:
    """Set the case's lowest precision over its Triton kernels, its CUDA C++ and torch's operators.

    Kernels are read as they were compiled for the judge, operators with the recorded switches, under which
    the replay runs them too. To a problem in half precision its products are native, and count as `ieee`.
    Float32 products without any of the tensor cores' kinds are `ieee`.
    """
    kinds = set(case.products)
    for recorded in case.recorded:
        kinds |= kinds_of_operators(recorded.trace) | half_in_launches(recorded.trace)
    if reference.is_in_half:
        case.product_precision = "ieee" if kinds else None
    elif kinds:
        case.product_precision = lowest(kinds)
    else:
        case.product_precision = "ieee" if reference.has_float32_products else None
    finding = _FINDINGS.get(case.product_precision or "")
    if finding is not None and reference.has_float32_products:
        case.note(*finding)
