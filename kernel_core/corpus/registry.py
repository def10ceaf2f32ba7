"""Registry of corpus sources and their revisions: `data/sources.toml`, names and file paths."""

from __future__ import annotations

import difflib
import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kernel_core.data_folder import DATA
from kernel_core.errors import CallerError, ConfigError, NotFound, SourceUnavailable
from kernel_core.harvest.packages import find_package
from kernel_core.records import Record

SOURCES_FILE = DATA / "sources.toml"

ColumnType = Literal["string", "int", "float", "bool", "list of string"]
_COMMIT = re.compile(r"[0-9a-f]{40}")
_FILE_SUFFIXES = (".parquet", ".jsonl")
_PROBLEMS = "problems:"
_PACKAGE = "package:"


class Source(Record):
    """One source, its place and its terms."""

    name: str
    kind: Literal["hub", "file", "generator", "problems", "package"]
    revision: str = ""
    """A commit of a hub repository, the SHA-256 of a file or of a folder's files, a package's version; empty
    while not fixed."""
    repository: str = ""
    """A repository of the hub, the path of a file or folder, or a package's import name."""
    suite: Literal["generated", "modules", "graphs"] = "generated"
    """Suite of problems that a generator draws."""
    files: str | None = None
    """Pattern of the files to read, for a repository that holds the same rows more than once."""
    splits: tuple[str, ...] = ()
    layout: str = ""
    """The layout of the published columns; empty for a file, which shows its layout by its columns."""
    licence: str = ""
    attribution: str = ""

    @property
    def is_answered(self) -> bool:
        """True if it has problems alone, which the generator answers."""
        return self.kind in ("problems", "package")


class Registry(Record):
    """Everything `sources.toml` says."""

    sources: dict[str, Source]
    layouts: dict[str, dict[str, ColumnType]]


def read_registry(path: Path = SOURCES_FILE) -> Registry:
    """The registry in a TOML file. Raises `NotFound` or `ConfigError`."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFound(f"no source list {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    layouts = table.pop("layouts", {})
    if table.pop("schema", None) != 1:
        raise ConfigError(f"{path}: schema is not 1, the only one this version reads")
    try:
        sources = {name: Source(name=name, **entry) for name, entry in table.items()}
        return Registry(sources=sources, layouts=layouts)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {where}: {first['msg'].lower()}") from error
    except TypeError as error:
        raise ConfigError(f"{path}: every source is a table of settings: {error}") from error


def find_source(spec: str, registry: Registry) -> Source:
    """The source behind `NAME[@REVISION]`, `problems:FOLDER`, `package:NAME` or a Parquet or JSONL file.

    A file's revision is its SHA-256. Raises `NotFound` for anything else, naming the nearest known source.
    """
    if spec.startswith(_PROBLEMS):
        return _problems_source(Path(spec.removeprefix(_PROBLEMS)))
    if spec.startswith(_PACKAGE):
        return _package_source(spec.removeprefix(_PACKAGE))
    if spec.endswith(_FILE_SUFFIXES):
        return _file_source(Path(spec))
    name, _, revision = spec.partition("@")
    if name not in registry.sources:
        near = difflib.get_close_matches(name, registry.sources, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise NotFound(
            f"no corpus source {name!r}: {hint}known: {', '.join(registry.sources)}, problems:FOLDER, "
            "package:NAME, or a path of a .parquet or .jsonl file"
        )
    source = registry.sources[name]
    if source.kind == "file":
        file_source = _file_source(Path(source.repository))
        return source.model_copy(update={"revision": file_source.revision})
    return source.model_copy(update={"revision": revision}) if revision else source


def pinned(source: Source, resolved: Mapping[str, str]) -> Source:
    """The source at a commit. `resolved` holds what a branch or tag was found to mean before.

    Raises `CallerError` for a hub source without any revision: which rows it gives would change unseen.
    """
    if source.kind != "hub" or _COMMIT.fullmatch(source.revision):
        return source
    if not source.revision:
        raise CallerError(
            f"source {source.name} ({source.repository}) is not pinned to a commit; choose one on its page "
            f"and pass {source.name}@COMMIT, or {source.name}@main to record whatever main is now"
        )
    key = f"{source.repository}@{source.revision}"
    commit = resolved.get(key) or _commit_behind(source)
    return source.model_copy(update={"revision": commit})


def is_moving(source: Source) -> bool:
    """True if the revision is a branch or tag, so that it may later resolve to another commit."""
    return source.kind == "hub" and bool(source.revision) and not _COMMIT.fullmatch(source.revision)


def _commit_behind(source: Source) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        commit = HfApi().dataset_info(source.repository, revision=source.revision, timeout=30).sha
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise NotFound(
            f"source {source.name}: the hub has no {source.repository} at {source.revision!r}"
        ) from error
    except Exception as error:  # the hub client's transport, and so its errors, differ by version
        raise unavailable(source, error) from error
    if commit is None:
        raise unavailable(source, ValueError("the hub gave no commit"))
    return str(commit)


def unavailable(source: Source, error: Exception) -> SourceUnavailable:
    """The error for a source that cannot be reached."""
    reason = (str(error).strip().splitlines() or [""])[0][:200]
    return SourceUnavailable(
        f"source {source.name} ({source.repository}) could not be reached: {type(error).__name__}: {reason}; "
        "go online, or give a local copy's path (.parquet or .jsonl), then run the same command again"
    )


def _file_source(path: Path) -> Source:
    if not path.is_file():
        raise NotFound(f"no corpus file {path}")
    with path.open("rb") as file:
        revision = hashlib.file_digest(file, "sha256").hexdigest()
    return Source(name=path.name, kind="file", repository=str(path), revision=revision)


def _problems_source(folder: Path) -> Source:
    files = sorted(folder.glob("*.py"))
    if not files:
        raise NotFound(
            f"{_PROBLEMS}{folder}: no problem files (*.py) there; `dojo harvest` writes such a folder"
        )
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return Source(
        name=f"problems-{folder.resolve().name}",
        kind="problems",
        repository=str(folder),
        revision=digest.hexdigest(),
        licence="Apache-2.0",
        attribution="kernels by the generator; the modules by their own authors",
    )


def _package_source(name: str) -> Source:
    package = find_package(name)
    return Source(
        name=f"package-{name}",
        kind="package",
        repository=name,
        revision=f"{package.distribution} {package.version}",
        licence=package.licence,
        attribution="kernels by the generator; the modules by the package's authors",
    )
