"""Compile every launched kernel for the target GPU, on a machine that may have none.

Runs in a caged child of a zygote that imported Triton without its interpreter. Triton carries its own
assembler, so a cubin really comes out.
"""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernel_core.gym import wire
from kernel_core.gym.kernels import KernelRefused, build_kernels
from kernel_core.gym.target import answer_for, target_of

_TYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "i1",
}
_MAX_MESSAGE_CHARS = 600


def compile_launches(channel: socket.socket, cage: dict[str, Any]) -> None:
    """One request: the text, its kernels and distinct launches; the answer names the first failure."""
    header = wire.receive(channel).header
    path = Path.cwd() / header["filename"]
    path.write_text(header["source"])
    kernels: list[Any] = []
    answer_for(header["gpu"])
    try:
        kernels = build_kernels(header["source"], str(path), header["kernels"])
        for launch in header["launches"]:
            _compile(kernels, launch, target_of(header["gpu"]))
    except KernelRefused as refusal:
        wire.send(channel, {"failed": refusal.reason, "line": refusal.line})
    except OSError as error:
        # Files and processes are ours: a full disk is no fault of a kernel's.
        wire.send(channel, {"fault": str(error)})
    except Exception as error:
        wire.send(channel, _describe(error, kernels))
    else:
        wire.send(channel, {"compiled": len(header["launches"])})


def warm_up() -> None:
    """Compile one small kernel, so that children inherit a compiler that has found all its parts."""

    def copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.arange(0, BLOCK)
        tl.store(target + offsets, tl.load(source + offsets))

    signature = {"source": "*fp32", "target": "*fp32", "BLOCK": "constexpr"}
    source = ASTSource(triton.jit(copy), signature, {"BLOCK": 128})
    with tempfile.TemporaryDirectory() as folder:
        # A kernel that lies compiled in the user's own cache would warm nothing.
        os.environ["TRITON_CACHE_DIR"] = folder
        triton.compile(source, target=target_of("H200"), options={"num_warps": 4})


def _compile(kernels: list[Any], launch: dict[str, Any], target: GPUTarget) -> None:
    kernel = kernels[launch["launch"]]
    constant_names = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    signature, constants = {}, {}
    for parameter in kernel.params:
        name = parameter.name
        value = launch["args"].get(name, parameter.default)
        if name in constant_names or value is None:
            signature[name], constants[name] = "constexpr", _constant(value, kernels)
        else:
            signature[name] = argument_type(value)
    source = ASTSource(kernel, signature, constants)
    triton.compile(source, target=target, options=launch["options"])


def argument_type(value: Any) -> str:
    """Triton's name for the type of a launch argument, without specialisation on its value."""
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
    if isinstance(value, float) or (isinstance(value, dict) and "float" in value):
        return "fp32"
    if isinstance(value, dict) and "t" in value:
        return "*" + _TYPES[value["t"][1]]
    raise TypeError(f"a launch argument of this kind is not supported: {str(value)[:80]}")


def _constant(value: Any, kernels: list[Any]) -> Any:
    if isinstance(value, dict):
        if "tl" in value:
            return getattr(tl, value["tl"])
        if "jit" in value:
            return kernels[value["jit"]]
        if "float" in value:
            return float(value["float"])
        if "l" in value:
            return tuple(_constant(item, kernels) for item in value["l"])
    return value


def _describe(error: Exception, kernels: list[Any]) -> dict[str, Any]:
    """The last line that means something, and the candidate's own line number."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    line = 0
    for one in chain:
        node, text = getattr(one, "node", None), getattr(one, "src", None)
        for kernel in kernels:
            if node is not None and hasattr(node, "lineno") and kernel.src == text:
                line = kernel.fn.__code__.co_firstlineno + node.lineno - 1
    text = getattr(chain[-1], "error_message", None) or str(chain[-1]) or type(chain[-1]).__name__
    lines = [part.strip() for part in str(text).splitlines() if part.strip(" ^|~")]
    message = lines[-1] if lines else type(chain[-1]).__name__
    return {"failed": message[:_MAX_MESSAGE_CHARS], "line": line}
