"""Installed package, its licence, and the text of its modules. Nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from kernel_core.errors import ConfigError, NotFound

PERMISSIVE = {
    "Apache-2.0": r"apache(-| license,? (version )?| software license|\s)*(2(\.0)?)?( license)?",
    "MIT": r"(the )?mit( license)?",
    "BSD": r"(new |modified )?bsd(-[23]-clause| license| [23]-clause( license)?)?",
    "ISC": r"isc( license.*)?",
}
"""Licences under which text may be copied into a problem, and how metadata spells them."""
_CLASSIFIER = "License :: OSI Approved :: "
_COPYRIGHT = re.compile(r"copyright\s+(\(c\)|©|\d{4}|20\d\d)", re.IGNORECASE)
_COPYRIGHT_LINES = 3
_LEFT_OUT = re.compile(r"(^|\.)(tests?|testing|examples?|scripts|conftest|setup|__main__)(\.|$)|\.test_")


@dataclass(frozen=True)
class Package:
    """An installed package under a permissive licence."""

    name: str
    distribution: str
    version: str
    licence: str
    root: Path


@dataclass(frozen=True)
class Packages:
    """Packages to harvest, and why others cannot be read, by name."""

    readable: Sequence[Package]
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SourceModule:
    """Module of a package: its top-level definitions and imports."""

    name: str
    is_package: bool
    copyright: tuple[str, ...]
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Bound name to (module, name in it); the second is empty for a module object."""
    stars: list[str] = field(default_factory=list)
    """Modules of which everything is imported."""


def find_package(name: str) -> Package:
    """Return the installed package.

    Raises `NotFound`, and `ConfigError` for a package without a permissive licence.
    """
    spec = importlib.util.find_spec(name) if re.fullmatch(r"[A-Za-z_]\w*", name) else None
    if spec is None or not spec.submodule_search_locations:
        raise NotFound(f"no package {name} is installed here; install it, or leave it out")
    owners = metadata.packages_distributions().get(name)
    if not owners:
        raise ConfigError(f"package {name} has no distribution metadata, so its licence is unknown")
    distribution = metadata.distribution(owners[0])
    licence = permissive_licence(distribution.metadata)
    if licence is None:
        raise ConfigError(
            f"package {name} ({distribution.metadata['Name']} {distribution.version}) states no permissive "
            f"licence; accepted: {', '.join(PERMISSIVE)}"
        )
    root = Path(next(iter(spec.submodule_search_locations)))
    return Package(name, distribution.metadata["Name"], distribution.version, licence, root)


def find_packages(names: Sequence[str]) -> Packages:
    """Return the installed packages of these names. Raises as `find_package` does where none can be read."""
    readable: list[Package] = []
    refused: dict[str, ConfigError | NotFound] = {}
    for name in names:
        try:
            readable.append(find_package(name))
        except (ConfigError, NotFound) as error:
            refused[name] = error
    if not readable:
        raise next(iter(refused.values()))
    return Packages(readable, {name: str(error) for name, error in refused.items()})


def permissive_licence(about: metadata.PackageMetadata) -> str | None:
    """Return the licence in the metadata if it is permissive; every part of an expression must be."""
    stated = list(about.get_all("License-Expression") or ())
    if not stated:
        stated = [
            line.removeprefix(_CLASSIFIER)
            for line in about.get_all("Classifier") or ()
            if line.startswith(_CLASSIFIER)
        ]
    if not stated:
        stated = [text.strip().split("\n")[0] for text in about.get_all("License") or ()]
    parts = [part for text in stated for part in re.split(r"\s+(?:AND|OR)\s+|[()]", text) if part.strip()]
    names = [_permissive_name(part.strip()) for part in parts]
    known = [name for name in names if name is not None]
    return " AND ".join(dict.fromkeys(known)) if known and len(known) == len(names) else None


def _permissive_name(text: str) -> str | None:
    for name, pattern in PERMISSIVE.items():
        if re.fullmatch(pattern, text, re.IGNORECASE):
            return name
    return None


class Library:
    """Modules of one package, read on demand."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._modules: dict[str, SourceModule | None] = {}
        self.prepared: dict[tuple[str, str], tuple[ast.stmt, int, tuple[str, ...]]] = {}
        """Definitions that an extract has cleaned, by module and name."""

    def names(self) -> Iterator[str]:
        """Dotted names of the package's modules, sorted, without its tests."""
        for path in sorted(self.package.root.rglob("*.py")):
            parts = path.relative_to(self.package.root).with_suffix("").parts
            name = ".".join((self.package.name, *(part for part in parts if part != "__init__")))
            if not _LEFT_OUT.search(name.removeprefix(self.package.name)):
                yield name

    def owns(self, name: str) -> bool:
        """Return True if a dotted name is of this package."""
        return name.split(".")[0] == self.package.name

    def module(self, name: str) -> SourceModule | None:
        """Return the module of that name; None where there is none or it is not Python."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def find(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Resolved | None:
        """Resolve a name at the top level of a module, followed through imports."""
        source = self.module(module)
        if source is None or (module, name) in seen:
            return None
        seen |= {(module, name)}
        if name in source.definitions:
            return Resolved(module, name, source.definitions[name])
        if name in source.imports:
            target, attribute = source.imports[name]
            if not self.owns(target):
                return Resolved(target, attribute, None)
            return self.find(target, attribute, seen) if attribute else None
        for star in source.stars:
            if self.owns(star) and (definition := self.find(star, name, seen)):
                return definition
        return None

    def _read(self, name: str) -> SourceModule | None:
        base = self.package.root.joinpath(*name.split(".")[1:])
        for path, is_package in ((base / "__init__.py", True), (base.parent / f"{base.name}.py", False)):
            if path.is_file():
                try:
                    text = path.read_text(encoding="utf-8")
                    tree = ast.parse(text)
                except (OSError, SyntaxError, ValueError, RecursionError):
                    return None
                module = SourceModule(name, is_package, _copyright(text))
                _collect(tree.body, module)
                return module
        return None


@dataclass(frozen=True)
class Resolved:
    """A definition in the package, or (without `node`) a name of another package."""

    module: str
    name: str
    node: ast.stmt | None


def _copyright(text: str) -> tuple[str, ...]:
    lines = (line.strip("# \t\"'") for line in text.splitlines()[:40])
    return tuple(line for line in lines if _COPYRIGHT.search(line) and len(line) < 160)[:_COPYRIGHT_LINES]


def _collect(body: list[ast.stmt], module: SourceModule) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            module.definitions[node.name] = node
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            module.definitions[node.targets[0].id] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            module.definitions[node.target.id] = node
        elif isinstance(node, ast.Import):
            for alias in node.names:
                bound, target = (
                    (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
                )
                module.imports[bound] = (target, "")
        elif isinstance(node, ast.ImportFrom):
            _collect_from(node, module)
        elif isinstance(node, ast.If):
            _collect(node.orelse, module)
            _collect(node.body, module)
        elif isinstance(node, ast.Try):
            _collect(node.body, module)


def _collect_from(node: ast.ImportFrom, module: SourceModule) -> None:
    target = node.module or ""
    if node.level:
        parents = module.name.split(".")
        parents = parents[: len(parents) - node.level + module.is_package]
        target = ".".join((*parents, target) if target else parents)
    for alias in node.names:
        if alias.name == "*":
            module.stars.append(target)
        else:
            module.imports[alias.asname or alias.name] = (target, alias.name)
