"""A run's files: content addresses, atomic writes, append-only logs, manifest last; any fsspec URI.

A folder is complete when its `manifest.json` exists, because that is written last. A reader
checks every file against the checksum in the manifest, so half-written or damaged content is `Corrupt`
and never silently used. A killed writer leaves only temporary names behind, which are never read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import fsspec
from pydantic import ValidationError

from kernel_core.errors import Corrupt, NotFound, StoreFault
from kernel_core.records import Record

MANIFEST = "manifest.json"
_PART_BYTES = 1 << 24


class Manifest(Record):
    """Contents of a sealed folder: each file's SHA-256, and metadata of its maker."""

    kind: str
    files: dict[str, str]
    meta: dict[str, Any]


def digest_of(value: Any) -> str:
    """Hex SHA-256 of a JSON-able value in canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """Files under one root, which is a local folder or any URI that fsspec can open."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = str(root).rstrip("/")
        # Other processes write too: what a remote file system remembers of a folder is soon wrong.
        self._fs, self._base = fsspec.core.url_to_fs(self.root, use_listings_cache=False)
        self.is_local = "file" in _protocols(self._fs)

    def __repr__(self) -> str:
        return f"Store({self.root!r})"

    def child(self, name: str) -> Store:
        """The store rooted at a folder of this one."""
        return Store(f"{self.root}/{name}")

    def path(self, name: str = "") -> str:
        """The full path or URI of a file, for a person or a library that opens files itself."""
        return f"{self.root}/{name}" if name else self.root

    def exists(self, name: str = "") -> bool:
        """True if the file or folder exists."""
        with self._store_errors(f"look for {self.path(name)}"):
            return bool(self._fs.exists(self._full(name)))

    def names(self, folder: str = "") -> list[str]:
        """Names directly under a folder, sorted, temporary ones left out."""
        full = self._full(folder)
        with self._store_errors(f"list {self.path(folder)}"):
            entries = self._fs.ls(full, detail=False) if self._fs.isdir(full) else []
        names = (entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries)
        return sorted(name for name in names if not name.startswith(".tmp-"))

    def write(self, name: str, data: bytes) -> str:
        """Write a file so that it is there whole or not at all; gives its SHA-256.

        Raises `StoreFault` when the disk is full or the folder cannot be written.
        """
        return self.write_stream(name, (data,))

    def write_stream(self, name: str, parts: Iterable[bytes | memoryview]) -> str:
        """`write` for a file that is made part by part and never whole in memory."""
        full = self._full(name)
        folder, _, leaf = full.rpartition("/")
        partial = f"{folder}/.tmp-{uuid.uuid4().hex[:8]}-{leaf}"
        digest = hashlib.sha256()
        with self._store_errors(f"write {self.path(name)}"):
            try:
                self._fs.makedirs(folder, exist_ok=True)
                with self._fs.open(partial, "wb") as file:
                    for part in parts:
                        file.write(part)
                        digest.update(part)
                    file.flush()
                    if self.is_local:
                        os.fsync(file.fileno())
                self._fs.mv(partial, full)
            except OSError:
                self._discard(partial)
                raise
        return digest.hexdigest()

    def read(self, name: str, sha256: str | None = None) -> bytes:
        """The file's bytes, checked against `sha256` where one is given."""
        with self._store_errors(f"read {self.path(name)}"):
            try:
                with self._fs.open(self._full(name), "rb") as file:
                    data: bytes = file.read()
            except FileNotFoundError as error:
                raise NotFound(f"no file {self.path(name)}") from error
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise Corrupt(
                f"{self.path(name)} does not match its checksum ({sha256[:12]}…); "
                "remove it and run the stage that made it again"
            )
        return data

    def write_json(self, name: str, value: Any) -> str:
        """Write a JSON file atomically; gives its SHA-256."""
        return self.write(name, json.dumps(value, indent=2, default=str).encode() + b"\n")

    def read_json(self, name: str) -> Any:
        """Read a JSON file; broken JSON is `Corrupt`."""
        try:
            return json.loads(self.read(name))
        except ValueError as error:
            raise Corrupt(f"{self.path(name)} is not valid JSON: {error}; remove it and run again") from error

    def append_line(self, name: str, record: dict[str, Any]) -> None:
        """Append one JSON line to a log and flush it to disk."""
        line = json.dumps(record, default=str).encode() + b"\n"
        full = self._full(name)
        with self._store_errors(f"append to {self.path(name)}"):
            self._fs.makedirs(full.rpartition("/")[0], exist_ok=True)
            if self.is_local:
                with open(full, "ab") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            else:
                before = self._fs.cat_file(full) if self._fs.exists(full) else b""
                self._fs.pipe_file(full, before + line)

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """The records of a log; a last line cut off by a kill is left out."""
        if not self.exists(name):
            return
        for line in self.read(name).split(b"\n"):
            try:
                record = json.loads(line)
            except ValueError:
                continue
            yield record

    def put(self, data: bytes) -> str:
        """Keep bytes under their own hash (`objects/ab/…`); gives the reference."""
        sha = hashlib.sha256(data).hexdigest()
        name = f"objects/{sha[:2]}/{sha}"
        if not self.exists(name):
            self.write(name, data)
        return sha

    def get(self, sha: str) -> bytes:
        """The bytes behind a reference, verified."""
        return self.read(f"objects/{sha[:2]}/{sha}", sha256=sha)

    def seal(self, kind: str, files: dict[str, str], meta: dict[str, Any]) -> Manifest:
        """Write the manifest of this folder, last: from now on it is complete.

        `files` maps each file's name to its SHA-256, as `write` gave it.
        """
        manifest = Manifest(kind=kind, files=files, meta=meta)
        self.write_json(MANIFEST, manifest.model_dump())
        return manifest

    def sealed(self) -> bool:
        """True if this folder has its manifest."""
        return self.exists(MANIFEST)

    def open_sealed(self, kind: str, verify: bool = True) -> Manifest:
        """The manifest of a complete folder, every file checked against it.

        Raises `NotFound` without a manifest and `Corrupt` on the wrong kind or a checksum that differs.
        """
        if not self.sealed():
            raise NotFound(f"no complete {kind} in {self.root}; run the stage that makes it")
        try:
            manifest = Manifest.model_validate(self.read_json(MANIFEST))
        except ValidationError as error:
            raise Corrupt(
                f"{self.path(MANIFEST)} is not a manifest; remove the folder and run again"
            ) from error
        if manifest.kind != kind:
            raise Corrupt(f"{self.root} holds a {manifest.kind}, but a {kind} was wanted")
        if verify:
            for name, sha in manifest.files.items():
                if not self.exists(name):
                    raise Corrupt(
                        f"{self.path(name)} is missing from a complete {kind}; remove {self.root}, run again"
                    )
                self.read(name, sha256=sha)
        return manifest

    def copy_sealed(self, target: Store) -> None:
        """Copy a sealed folder part by part, its manifest last; a damaged file is `Corrupt`."""
        manifest = self.read_json(MANIFEST)
        for name, sha in manifest["files"].items():
            with self._store_errors(f"read {self.path(name)}"), self._fs.open(self._full(name), "rb") as file:
                copied = target.write_stream(name, iter(partial(file.read, _PART_BYTES), b""))
            if copied != sha:
                raise Corrupt(f"{self.path(name)} does not match its checksum ({sha[:12]}…)")
        target.write_json(MANIFEST, manifest)

    def remove(self, name: str = "") -> None:
        """Remove a file or a whole folder if it is there."""
        full = self._full(name)
        if self._fs.exists(full):
            self._fs.rm(full, recursive=True)

    @contextlib.contextmanager
    def _store_errors(self, doing: str) -> Iterator[None]:
        """Raise errors of the storage as `StoreFault`; a remote storage raises errors of its own library."""
        try:
            yield
        except NotFound:
            raise
        except Exception as error:
            if self.is_local and not isinstance(error, OSError):
                raise
            raise StoreFault(
                f"could not {doing}: {error}; free space, give access or wait, then run it again"
            ) from error

    def _full(self, name: str) -> str:
        return f"{self._base}/{name}" if name else str(self._base)

    def _discard(self, full: str) -> None:
        try:
            if self._fs.exists(full):
                self._fs.rm(full)
        except OSError:
            return


def _protocols(filesystem: Any) -> tuple[str, ...]:
    protocol = filesystem.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
