"""A user's module with example inputs, loaded from a file or a package.

A target is `FILE.py`, `FILE.py:ATTRIBUTE` or `PACKAGE.MODULE:ATTRIBUTE`. A file without an attribute follows
KernelBench's convention: `Model`, `get_inputs` and, if needed, `get_init_inputs`. An attribute is a function
without arguments that returns `(module, inputs)`. The inputs are a tensor, a tuple of arguments, or a dict of
keyword arguments. The target's code runs in this process, unlike a candidate's.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from kernel_core.errors import ConfigError, NotFound, first_line

FORMS = "FILE.py, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION"
_WANTED = (
    "a target gives an nn.Module and example inputs: (module, inputs) of a function, or KernelBench's names"
)


@dataclass
class Target:
    """A module in evaluation mode with the arguments of one call."""

    name: str
    """Short word for folders and tables."""
    module: nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self) -> Any:
        """Return the outputs of the example call."""
        with torch.no_grad():
            return self.module(*self.args, **self.kwargs)


def target_name(target: str) -> str:
    """Return a short word for a target: `models/block.py:build` gives `block-build`."""
    path, _, attribute = target.rpartition(":") if ":" in target else (target, "", "")
    words = [Path(path).stem if path.endswith(".py") else path.rpartition(".")[2], attribute]
    return re.sub(r"[^A-Za-z0-9]+", "-", "-".join(word for word in words if word)).strip("-") or "target"


def load_target(target: str, device: str = "cpu", seed: int = 0) -> Target:
    """Load a target onto a device; the same seed gives the same weights and inputs.

    Raises `NotFound` for a file, package or attribute that is not there, and `ConfigError` for what is no
    module with inputs.
    """
    path, separator, attribute = target.rpartition(":")
    if not separator:
        path, attribute = target, ""
    is_file = path.endswith(".py")
    if not is_file and not attribute:
        raise ConfigError(f"{target!r} names no module: give {FORMS}")
    loaded = _load_file(Path(path)) if is_file else _load_package(path)
    torch.manual_seed(seed)
    with _explained(target):
        module, inputs = _by_function(loaded, attribute, target) if attribute else _by_names(loaded, target)
    if not isinstance(module, nn.Module):
        raise ConfigError(f"{target} gives {type(module).__name__} in place of an nn.Module; {_WANTED}")
    args, kwargs = ((), dict(inputs)) if isinstance(inputs, dict) else (_as_tuple(inputs, target), {})

    def to_device(leaf: Any) -> Any:
        return leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf

    made = Target(
        target_name(target), module.to(device).eval(), tree_map(to_device, args), tree_map(to_device, kwargs)
    )
    with _explained(f"{target}: the module's call with its example inputs"):
        made.call()
    return made


@functools.lru_cache(maxsize=1)
def loaded(target: str, device: str) -> Target:
    """Return a target that this process loads once, for all stages of a run."""
    return load_target(target, device)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise NotFound(f"no file {path}; a target is {FORMS}")
    spec = importlib.util.spec_from_file_location(f"dojo_target_{path.stem}", path)
    assert spec is not None and spec.loader is not None, "a path that ends in .py has a loader"
    loaded = importlib.util.module_from_spec(spec)
    # Last, so that a file beside the target hides no module of a package.
    sys.path.append(str(path.parent.resolve()))
    sys.modules[spec.name] = loaded
    with _explained(str(path)):
        spec.loader.exec_module(loaded)
    return loaded


def _load_package(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise NotFound(f"no module {error.name!r} is installed; a target is {FORMS}") from error
    except Exception as error:
        raise ConfigError(f"importing {name} failed: {type(error).__name__}: {first_line(error)}") from error


def _by_function(loaded: ModuleType, attribute: str, target: str) -> tuple[Any, Any]:
    value = getattr(loaded, attribute, None)
    if value is None:
        raise NotFound(f"{target}: {loaded.__name__} has no {attribute!r}; {_WANTED}")
    if isinstance(value, type) and issubclass(value, nn.Module):
        raise ConfigError(f"{target} is a class; write a function that returns (module, inputs), and name it")
    made = value() if callable(value) and not isinstance(value, nn.Module) else value
    if not (isinstance(made, tuple | list) and len(made) == 2):
        raise ConfigError(f"{target} gives {type(made).__name__} in place of (module, inputs); {_WANTED}")
    return made[0], made[1]


def _by_names(loaded: ModuleType, target: str) -> tuple[Any, Any]:
    missing = [name for name in ("Model", "get_inputs") if not hasattr(loaded, name)]
    if missing:
        raise ConfigError(
            f"{target} has no {' and no '.join(missing)}; name a function with {target}:FUNCTION; {_WANTED}"
        )
    given = loaded.get_init_inputs() if hasattr(loaded, "get_init_inputs") else []
    module = loaded.Model(**given) if isinstance(given, dict) else loaded.Model(*given)
    return module, loaded.get_inputs()


def _as_tuple(inputs: Any, target: str) -> tuple[Any, ...]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    if isinstance(inputs, tuple | list):
        return tuple(inputs)
    raise ConfigError(
        f"{target} gives inputs of type {type(inputs).__name__}; give a tensor, a tuple or a dict"
    )


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Turn an error of the target's own code into a message in one line."""
    try:
        yield
    except (ConfigError, NotFound):
        raise
    except Exception as error:
        raise ConfigError(f"{doing} failed: {type(error).__name__}: {first_line(error)}") from error
