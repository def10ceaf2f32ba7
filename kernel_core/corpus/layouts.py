"""Published columns to `Exemplar`, one function a layout. Text is read, never run.

Columns that hold Python's `repr` (Sakana's profiles and linter output) are not looked at at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from kernel_core.corpus.extension_form import as_model_new
from kernel_core.corpus.kernelbench_form import NotAdaptable, in_kernelbench_form
from kernel_core.corpus.normalise import NotPython, fingerprint, kernel_hash
from kernel_core.corpus.refusal import RowRefused
from kernel_core.corpus.registry import Source
from kernel_core.records import Exemplar, sha256_text

OWN_LAYOUT = "exemplar"
MAX_REFERENCE_CHARS = 50_000
MAX_KERNEL_CHARS = 100_000
MAX_BELIEVED_SPEEDUP = 10.0
"""Claims beyond it come from exploits of the harness of their time more often than from kernels."""

_VERIFIED = ("verified", "verified_speedup", "predicted_speedup", "verified_by")


def to_exemplar(values: Mapping[str, Any], layout: str, source: Source) -> tuple[Exemplar, tuple[str, ...]]:
    """The exemplar in a row, and notes on what was changed or not believed.

    Raises `RowRefused` when the row holds no usable pair of reference and kernel.
    """
    fields, notes = LAYOUTS[layout](values, source)
    _refuse_unusable(fields)
    try:
        identity = fingerprint(fields["reference_code"])
    except NotPython as error:
        raise RowRefused("the reference is not Python", str(error)[:120]) from error
    fields["reference_hash"] = identity.reference_hash
    fields["kernel_hash"] = kernel_hash(fields["kernel_code"], fields["language"])
    fields["id"] = f"{fields['source']}/{fields['row_key']}"
    try:
        return Exemplar(**fields), notes
    except ValidationError as error:
        first = error.errors()[0]
        raise RowRefused("a value out of bounds", f"{first['loc'][0]}: {first['msg'].lower()}") from error


def _kernelbook(values: Mapping[str, Any], source: Source) -> tuple[dict[str, Any], tuple[str, ...]]:
    entry = _text(values, "entry_point")
    reference, kernel = _text(values, "python_code"), _text(values, "triton_code")
    notes: tuple[str, ...] = ()
    try:
        reference, kernel = in_kernelbench_form(reference, kernel, entry)
        entry = "Model"
    except NotAdaptable as error:
        notes = (f"kept as published, not in KernelBench's form: {error}",)
    origin = f"{values['repo_name']} ({values['repo_link']}, {', '.join(values['licenses'] or ())})"
    fields = {
        **_origin(source, str(values["uuid"])),
        "attribution": f"{source.attribution}; from {origin}",
        "language": "inductor_triton",
        "entry_point": entry,
        "reference_code": reference,
        "kernel_code": kernel,
    }
    return fields, notes


def _sakana(values: Mapping[str, Any], source: Source) -> tuple[dict[str, Any], tuple[str, ...]]:
    notes: list[str] = []
    claimed: bool | None = values["Correct"]
    if claimed and (values["Error"] or not _is_number(values["Max_Diff"])):
        claimed = None  # said to be correct, yet failed or never compared
        notes.append("claim of correctness not believed: an error, or no difference on record")
    speedup: float | None = values["CUDA_Speedup_Native"]
    if speedup is not None and not (_is_number(speedup) and 0 < speedup <= MAX_BELIEVED_SPEEDUP):
        speedup = None
        notes.append(f"claim of speed not believed: beyond {MAX_BELIEVED_SPEEDUP:g}×, or no positive number")
    level, task = values["Level_ID"], values["Task_ID"]
    # The kernel's name repeats within a task; only the table's own index tells its rows apart.
    key = f"{level}/{task}/{values['Kernel_Name']}/{values['__index_level_0__']}"
    code = _text(values, "CUDA_Code")
    functional, name = values["PyTorch_Code_Functional"] or "", f"kernel_{sha256_text(code)[:16]}"
    try:
        code = as_model_new(functional, code, name)
    except NotAdaptable as error:
        notes.append(f"kept as published, not a ModelNew: {error}")
    fields = {
        **_origin(source, key),
        "attribution": source.attribution,
        "language": "cuda_cpp",
        "task_level": level,
        "task_id": task,
        "reference_code": _text(values, "PyTorch_Code_Module"),
        "kernel_code": code,
        "claimed_correct": claimed,
        "claimed_speedup": speedup,
    }
    return fields, tuple(notes)


def _own(values: Mapping[str, Any], source: Source) -> tuple[dict[str, Any], tuple[str, ...]]:
    # A verdict of another judge is only a claim here, kept in the columns of claims.
    believed = {name: value for name, value in values.items() if name not in _VERIFIED}
    fields = {name: value for name, value in believed.items() if value is not None}
    if not _is_number(fields.get("claimed_speedup")):
        fields["claimed_speedup"] = None
    fields.setdefault("source", source.name)
    fields.setdefault("source_revision", source.revision)
    for name in ("row_key", "licence", "language"):
        _text(values, name)
    fields["reference_code"] = _text(values, "reference_code")
    fields["kernel_code"] = _text(values, "kernel_code")
    return fields, ()


_Layout = Callable[[Mapping[str, Any], Source], tuple[dict[str, Any], tuple[str, ...]]]
LAYOUTS: dict[str, _Layout] = {"kernelbook": _kernelbook, "sakana": _sakana, OWN_LAYOUT: _own}


def _origin(source: Source, row_key: str) -> dict[str, Any]:
    return {
        "source": source.name,
        "source_revision": source.revision,
        "row_key": row_key,
        "licence": source.licence,
    }


def _text(values: Mapping[str, Any], column: str) -> str:
    text = values[column]
    if text is None or not text.strip():
        raise RowRefused("empty field", column)
    return str(text)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _refuse_unusable(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if not isinstance(value, str):
            continue
        if "\x00" in value:
            raise RowRefused("NUL byte", name)
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:  # JSON can spell half a surrogate pair
            raise RowRefused("broken Unicode", name) from error
    for name, limit in (("reference_code", MAX_REFERENCE_CHARS), ("kernel_code", MAX_KERNEL_CHARS)):
        if len(fields[name]) > limit:
            raise RowRefused("too long", f"{name} has {len(fields[name])} characters, {limit} are taken")
