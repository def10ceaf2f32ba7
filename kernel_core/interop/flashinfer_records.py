"""The JSON records of flashinfer-bench 0.1: definition, workload, solution, trace.

Fields that are not used here are kept as they came, so a record that is read and written again is the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernel_core.errors import Corrupt, NotFound


class Foreign(BaseModel):
    """A record of another project: frozen, unknown fields kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    def as_json(self) -> dict[str, Any]:
        """Return the fields that were given, as JSON values."""
        values: dict[str, Any] = self.model_dump(mode="json", exclude_unset=True)
        return values


class Axis(Foreign):
    """A dimension: `const` with a value, or `var` with a value by workload."""

    type: Literal["const", "var"]
    value: int | None = None


class TensorSpec(Foreign):
    """An input or output: names of axes, None for a scalar, and the type of its elements."""

    shape: list[str] | None
    dtype: str


class Definition(Foreign):
    """A computation: axes, inputs, outputs, and `reference`, a module with a function `run`."""

    name: str
    op_type: str
    axes: dict[str, Axis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: str


class InputSpec(Foreign):
    """The origin of an input: random, a scalar's value, or a file of tensors."""

    type: Literal["random", "scalar", "safetensors"]
    value: bool | int | float | None = None


class Workload(Foreign):
    """Values of the `var` axes, and the inputs."""

    axes: dict[str, int]
    inputs: dict[str, InputSpec]
    uuid: str


class SourceFile(Foreign):
    """A file of a solution."""

    path: str
    content: str


class BuildSpec(Foreign):
    """The language and the entry point, `FILE::FUNCTION`, of a solution."""

    language: str
    target_hardware: list[str] = Field(default_factory=list)
    entry_point: str
    destination_passing_style: bool = True


class Solution(Foreign):
    """An implementation of a definition."""

    name: str
    definition: str
    author: str
    spec: BuildSpec
    sources: list[SourceFile]


class Trace(Foreign):
    """A solution's evaluation on a workload; without both, a workload alone."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: dict[str, Any] | None = None


ForeignT = TypeVar("ForeignT", bound=Foreign)


def read_record(kind: type[ForeignT], file: Path) -> ForeignT:
    """Read a record from a JSON file. Raises `NotFound` or `Corrupt`."""
    return _parse(kind, _text(file), str(file))


def read_records(kind: type[ForeignT], file: Path) -> list[ForeignT]:
    """Records from a file of JSON lines. Raises `NotFound` or `Corrupt`."""
    lines = enumerate(_text(file).splitlines(), start=1)
    return [_parse(kind, line, f"{file}, line {number}") for number, line in lines if line.strip()]


def write_record(record: Foreign, file: Path) -> None:
    """Write a record as a JSON file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record.as_json(), indent=2))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise NotFound(f"cannot read {file}: {error.strerror}") from error


def _parse(kind: type[ForeignT], text: str, where: str) -> ForeignT:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise Corrupt(f"{where} is no {kind.__name__} of flashinfer-bench: {key}: {first['msg']}") from error
