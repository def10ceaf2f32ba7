"""Build a candidate's CUDA C++, in a sandbox without a GPU: a library for its process, an image for the
replay.

The image is the device compiler's output, before any host compiler ran. The replay needs nothing else, so no
host code of a candidate runs there.
"""

from __future__ import annotations

import concurrent.futures
import os
import re
import socket
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import torch

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.compiled_products import UNKNOWN, kinds_of_ptx

_LAUNCHES = (Path(__file__).parent / "launches.cpp").read_text()
_WRAPPED = ("cudaLaunchKernel", "__cudaLaunchKernel")
_TORCH = Path(torch.__file__).parent
_STANDARD = "-std=c++20"
_CPP_HEADERS = "#include <torch/extension.h>\n"
_CUDA_HEADERS = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
_ERROR = re.compile(r"(?P<file>cpp|cuda)_sources[(:](?P<line>\d+)[^:]*?: (?:fatal )?error[^:]*: (?P<text>.*)")
_OPTION = re.compile(
    r"-O(\d|s|fast)?|-[gvw]|--?lineinfo|-std=[\w+]+|-[DU]\w+(=[\w.+-]*)?|-f[a-z\d-]+|-m[\w=-]+|-W[a-z\d-]*"
    r"|--?use_fast_math|--expt-[\w-]+|--extra-device-vectorization|-arch=sm_\w+|-gencode=arch=\w+,code=\w+"
    r"|--?(fmad|ftz|prec-div|prec-sqrt|maxrregcount)=\w+|-Xptxas(=[\w=-]+)?|--ptxas-options=[\w=-]+"
)
"""No option may start a program or name a file: what else ran before the device code is made could put other
code in its place."""
_MAX_MESSAGE_CHARS = 600
_NICENESS = 10
"""Candidates that are timed come first."""


class _Refused(Exception):
    """A compiler refused the text; `line` counts from the start of `part`, which is `cpp` or `cuda`."""

    def __init__(self, reason: str, part: str = "", line: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.part, self.line = reason, part, line


def build(channel: socket.socket, cage: dict[str, Any]) -> None:
    """One request has the sources and the GPU's architecture. The answer's blob is library and image."""
    header = framing.receive(channel).header
    os.nice(_NICENESS)
    try:
        library, image = _build(Path.cwd(), header)
    except _Refused as refused:
        framing.send(channel, {"failed": refused.reason, "part": refused.part, "line": refused.line})
    except OSError as error:
        # A full disk is a fault of the gym, not of a candidate.
        framing.send(channel, {"fault": str(error)})
    else:
        sizes = {"library_bytes": len(library), "image_bytes": len(image)}
        framing.send(channel, sizes | {"products": _products(Path.cwd())}, library + image)


def _products(folder: Path) -> list[str]:
    """Return the kinds of products in the device code, from the PTX that nvcc kept."""
    if not _has(folder, "cuda"):
        return []
    texts = [file.read_text(errors="replace") for file in folder.glob("cuda*.ptx")]
    return sorted(set().union(*map(kinds_of_ptx, texts))) if texts else [UNKNOWN]


def _build(folder: Path, header: dict[str, Any]) -> tuple[bytes, bytes]:
    cuda_home = Path(header["cuda_home"])
    jobs = compiler_calls(folder, header, cuda_home)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for _ in pool.map(_run, jobs):
            pass
    objects = [str(folder / f"{name}.o") for name in ("main", "launches", "cuda") if _has(folder, name)]
    wraps = [f"-Wl,--wrap={symbol}" for symbol in _WRAPPED]
    libraries = ("c10", "torch_cpu", "torch", "torch_python", "c10_cuda", "torch_cuda")
    places = [f"-L{_TORCH / 'lib'}", f"-L{cuda_home / 'lib64'}", f"-L{cuda_home / 'lib'}"]
    target = folder / "extension.so"
    _run(
        ["g++", "-shared", *objects, *wraps, *places]
        + [f"-l{name}" for name in libraries]
        + ["-lcudart", "-ldl", "-o", str(target)]
    )
    image = folder / "cuda.fatbin"
    return target.read_bytes(), image.read_bytes() if image.exists() else b""


def _has(folder: Path, name: str) -> bool:
    return (folder / f"{name}.o").exists()


def compiler_calls(folder: Path, header: dict[str, Any], cuda_home: Path) -> list[list[str]]:
    """The compilers' calls, which need not wait for each other; what they read lies in `folder` then."""
    sources, architecture = header["sources"], header["architecture"]
    for option in (*sources["cflags"], *sources["cuda_cflags"]):
        if not _OPTION.fullmatch(option):
            raise _Refused(f"the compiler option {option} is not allowed")
    implicit = bool(sources["implicit_headers"])
    bindings = _bindings(sources["functions"])
    cpp = "\n".join(sources["cpp"])
    (folder / "main.cpp").write_text(
        f'{_CPP_HEADERS if implicit else ""}#line 1 "cpp_sources"\n{cpp}\n{bindings}'
    )
    (folder / "launches.cpp").write_text(_LAUNCHES)
    torch_headers = (_TORCH / "include", _TORCH / "include" / "torch" / "csrc" / "api" / "include")
    places = (*torch_headers, sysconfig.get_paths()["include"], cuda_home / "include")
    headers = [part for place in places for part in ("-isystem", str(place))]
    names = [f"-DTORCH_EXTENSION_NAME={header['name']}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    host = ["g++", "-c", "-fPIC", _STANDARD, *headers, *names]
    jobs = [
        [*host, "-O2", *sources["cflags"], "main.cpp", "-o", "main.o"],
        [*host, "-O1", "launches.cpp", "-o", "launches.o"],
    ]
    if sources["cuda"]:
        cuda = "\n".join(sources["cuda"])
        (folder / "cuda.cu").write_text(
            f'{_CUDA_HEADERS if implicit else ""}#line 1 "cuda_sources"\n{cuda}\n'
        )
        code = f"-gencode=arch=compute_{architecture},code=sm_{architecture}"
        device = [str(cuda_home / "bin" / "nvcc"), "-c", "--keep", code, _STANDARD, *headers, *names]
        device += ["-Xcompiler", "-fPIC", "--expt-relaxed-constexpr", *sources["cuda_cflags"]]
        jobs.append([*device, "cuda.cu", "-o", "cuda.o"])
    return jobs


def _bindings(functions: list[str] | None) -> str:
    """Python's view of the functions; None where the sources have their own."""
    if functions is None:
        return ""
    lines = "".join(f'm.def("{name}", torch::wrap_pybind_function({name}));' for name in functions)
    return f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{{lines}}}\n"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    output = f"{done.stderr}\n{done.stdout}"
    error = _ERROR.search(output)
    if error is not None:
        raise _Refused(error["text"][:_MAX_MESSAGE_CHARS], error["file"], int(error["line"]))
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "undefined" in line] or lines[-1:]
    reason = telling[0] if telling else f"{Path(command[0]).name} ended with {done.returncode}"
    raise _Refused(reason[-_MAX_MESSAGE_CHARS:])
