"""The base model of LoRA adapters. On other base weights the adapters act as another policy, silently."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kernel_core.errors import Corrupt
from kernel_core.records import Record

_BLOCKS, _BLOCK_BYTES = 1024, 4096
"""Bytes hashed per file, in blocks: training moves nearly every weight, so a few megabytes suffice."""


class Base(Record):
    """Name, revision and weights digest of a model."""

    name: str
    """An absolute path, a URI or a Hugging Face name."""
    revision: str | None = None
    """Commit of a Hugging Face model; it pins the weights."""
    weights: str | None = None
    """The digest of a folder's weights: see `weights_digest`."""


def base_in(folder: str, name: str | None = None) -> Base:
    """Return the base with its files in a local folder; `name` where that folder is only a copy."""
    return Base(name=name or str(Path(folder).absolute()), weights=weights_digest(folder))


def weights_digest(folder: str) -> str:
    """Hex SHA-256 over names, sizes and evenly spaced blocks of a folder's safetensors files."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).glob("*.safetensors")):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for start in range(0, size, max(_BLOCK_BYTES, size // _BLOCKS)):
                file.seek(start)
                digest.update(file.read(_BLOCK_BYTES))
    return digest.hexdigest()


def check_base(adapters: str, recorded: Base, actual: Base) -> None:
    """Raise `Corrupt` where the base's weights are not those that the adapters were trained on."""
    if recorded.weights is not None and recorded.weights != actual.weights:
        raise Corrupt(
            f"the adapters in {adapters} belong to other weights than {actual.name} has now (wanted "
            f"{recorded.weights[:12]}, found {str(actual.weights)[:12]}); put the model back that they were "
            "trained on, or train on this one under another run name"
        )
