"""CUDA C++ in a candidate's process: `load_inline` has the judge build it, and each launch is recorded."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym.channel.failures import NvccError
from kernel_core.gym.untrusted.candidate.trace_recorder import Recorder

_WATCHER = ctypes.CFUNCTYPE(
    None, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_ubyte), ctypes.c_ulong
)
_NAME = "torch.utils.cpp_extension"
_MAX_NAME_CHARS = 200
BuiltLibrary = tuple[str, bytes]
"""The build's name, and the library."""
Build = Callable[[dict[str, Any]], BuiltLibrary]


class Extensions:
    """Takes the place of torch's own way to build CUDA C++, and watches what was built."""

    def __init__(self, recorder: Recorder, build: Build | None, source: str, noted: list[str]) -> None:
        """`build` asks for a library, or raises `NvccError`; None where there is no GPU. `noted` are the
        telling events of this process; what is done here is none."""
        self._recorder, self._build, self._source, self._noted = recorder, build, source, noted
        self._watches: list[tuple[Any, Any]] = []
        """The setter of each library's callback, and the callback, which must stay alive."""
        # Stands for torch's module, which takes most of a second to import.
        module: Any = types.ModuleType(_NAME)
        module.load_inline, module.load, module.__getattr__ = self._load_inline, _refuse_files, _of_torch
        sys.modules[_NAME] = module
        utils: Any = torch.utils
        utils.cpp_extension = module

    @contextlib.contextmanager
    def unwatched(self) -> Iterator[None]:
        """Launches cost nothing more than they do elsewhere."""
        for watch, _ in self._watches:
            watch(None)
        try:
            yield
        finally:
            for watch, callback in self._watches:
                watch(ctypes.cast(callback, ctypes.c_void_p))

    def _load_inline(
        self,
        name: str,
        cpp_sources: str | Sequence[str],
        cuda_sources: str | Sequence[str] | None = None,
        functions: str | Sequence[str] | dict[str, str] | None = None,
        extra_cflags: Sequence[str] | None = None,
        extra_cuda_cflags: Sequence[str] | None = None,
        no_implicit_headers: bool = False,
        **_: Any,
    ) -> Any:
        """Stands for torch's function. The judge decides the folder, the libraries to link and the
        verbosity."""
        if self._build is None:
            raise NvccError("CUDA C++ runs on a GPU only; judge it with gym.device=cuda", 0)
        sources = {
            "cpp": _texts(cpp_sources),
            "cuda": _texts(cuda_sources),
            "functions": None if functions is None else _texts(functions),
            "cflags": _texts(extra_cflags),
            "cuda_cflags": _texts(extra_cuda_cflags),
            "implicit_headers": not no_implicit_headers,
        }
        built, library = self._build(sources)
        module = _open_module(built, library)
        for key, value in list(vars(module).items()):
            if isinstance(value, types.BuiltinFunctionType):
                setattr(module, key, self._introduced(value))
        if sources["cuda"]:
            before = len(self._noted)
            self._watch(built)
            del self._noted[before:]
        return module

    def _introduced(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function; the recorder meets the tensors that it is given first, as they are."""

        @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            self._recorder.meet([*args, *kwargs.values()])
            return function(*args, **kwargs)

        return call

    def _watch(self, built: str) -> None:
        demangle = getattr(ctypes.CDLL("libstdc++.so.6"), "__cxa_demangle")
        demangle.restype = ctypes.c_void_p

        @functools.cache
        def describe(symbol: bytes) -> dict[str, Any]:
            name = _readable(symbol, demangle)
            place = {"name": name[:_MAX_NAME_CHARS], "line": _line_of(name, self._source), "globals": {}}
            return place | {"extension": built, "symbol": symbol.decode()}

        def tell(symbol: bytes, sizes: Any, parameters: Any, num_bytes: int) -> None:
            kernel = describe(symbol)
            grid, block, shared = list(sizes[0:3]), sizes[3:6], sizes[6]
            options = dict(zip(("block_x", "block_y", "block_z"), block, strict=True)) | {"shared": shared}
            self._recorder.launch_native(kernel, grid, options, bytes(parameters[:num_bytes]))

        callback = _WATCHER(tell)
        watch = ctypes.CDLL(str(_path_of(built))).dojo_watch
        watch.argtypes = [ctypes.c_void_p]
        watch(ctypes.cast(callback, ctypes.c_void_p))
        self._watches.append((watch, callback))


def _of_torch(name: str) -> Any:
    """Other members of torch's own module: its compiler needs some of them."""
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_torchs_own(), name)


@functools.cache
def _torchs_own() -> Any:
    spec = importlib.machinery.PathFinder.find_spec(_NAME, torch.utils.__path__)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _texts(given: str | Sequence[str] | dict[str, str] | None) -> list[str]:
    return [given] if isinstance(given, str) else [str(part) for part in given or ()]


def _path_of(built: str) -> Path:
    return Path.cwd() / f"{built}.so"


def _open_module(built: str, library: bytes) -> Any:
    path = _path_of(built)
    path.write_bytes(library)
    loader = importlib.machinery.ExtensionFileLoader(built, str(path))
    spec = importlib.util.spec_from_loader(built, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _refuse_files(*_: Any, **__: Any) -> Any:
    raise NvccError("extensions are built from text only; use torch.utils.cpp_extension.load_inline", 0)


def _readable(symbol: bytes, demangle: Any) -> str:
    """The kernel's own name, without namespaces, types of parameters or of templates."""
    status = ctypes.c_int()
    address = demangle(symbol, None, None, ctypes.byref(status))  # a few bytes, never freed
    text = ctypes.string_at(address).decode() if address else symbol.decode()
    match = re.search(r"(\w+)\s*(?:<.*>)?\(", text)
    return match[1] if match else text


def _line_of(name: str, source: str) -> int:
    """The line of a kernel's definition."""
    match = re.search(rf"__global__[^;{{}}]*?\b{re.escape(name)}\s*\(", source)
    return source.count("\n", 0, match.end()) + 1 if match else 0
