"""Compile every launched kernel for the target GPU, on a machine that may have none. A kernel is compiled
whole, or only until Triton's own front end has checked it.

Runs in a sandboxed child of a fork server that imported Triton without its interpreter. Triton carries its
own assembler, so the result is a real cubin.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from typing import Any

import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.errors import PTXASError
from triton.runtime.jit import create_function_from_signature

from kernel_core.gym.channel import framing
from kernel_core.gym.channel.compiled_products import kinds_of_triton
from kernel_core.gym.channel.launch_codec import STAND_IN_ADDRESS, decode_argument
from kernel_core.gym.channel.launch_limits import excess_of
from kernel_core.gym.channel.target_gpu import answer_for, target_of
from kernel_core.gym.untrusted.compile.kernel_whitelist import KernelRefused
from kernel_core.gym.untrusted.compile.rebuild_kernels import build_kernels

_MAX_MESSAGE_CHARS = 600
_COMPLAINT_OF_PTXAS = re.compile(r"ptxas.*\b(fatal|error)\s*:")


class _ExceedsGpu(KernelRefused):
    """A kernel of which a program takes more than the GPU has."""


def compile_launches(channel: socket.socket, cage: dict[str, Any]) -> None:
    """One request has the text and parts. A part has kernels, their distinct launches, and whether to compile
    them `whole`. The answer names the first failure, or for each launch the kinds of its products."""
    header = framing.receive(channel).header
    kernels: list[Any] = []
    products: list[list[str]] = []
    target = target_of(header["gpu"])
    answer_for(header["gpu"])
    try:
        for part in header["parts"]:
            kernels = build_kernels(header["source"], header["filename"], part["kernels"])
            for launch in part["launches"]:
                products.append(sorted(_compile(kernels, launch, target, whole=part["whole"])))
    except KernelRefused as refusal:
        refused = {"failed": refusal.reason, "line": refusal.line, "place": len(products)}
        framing.send(channel, {**refused, "exceeds_gpu": isinstance(refusal, _ExceedsGpu)})
    except OSError as error:
        # A full disk is a fault of the gym, not of a kernel.
        framing.send(channel, {"fault": str(error)})
    except Exception as error:
        # Too few registers, mostly: an autotuner leaves such a configuration out.
        exceeds = isinstance(error, PTXASError)
        framing.send(channel, {**_describe(error, kernels), "place": len(products), "exceeds_gpu": exceeds})
    else:
        framing.send(channel, {"compiled": len(products), "products": products})


def warm_up() -> None:
    """Compile one small launch, so that children inherit a compiler that has found all its parts.

    Triton 3.6 imports torch when it first specialises a launch: 4.5 s of each child's life without this.
    """

    def copy(source, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        offsets = tl.arange(0, BLOCK)
        tl.store(target + offsets, tl.load(source + offsets))

    tensor = {"t": [0, "float32", 0]}
    launch = {"launch": 0, "args": {"source": tensor, "target": tensor, "BLOCK": 128}, "options": {}}
    with tempfile.TemporaryDirectory() as folder:
        # A kernel in the user's own cache would warm nothing.
        os.environ["TRITON_CACHE_DIR"] = folder
        _compile([triton.jit(copy)], launch, target_of("H200"), whole=True)


def _compile(kernels: list[Any], launch: dict[str, Any], target: GPUTarget, *, whole: bool) -> set[str]:
    """Compile for a launch with these arguments, as Triton does: Triton chooses the constants. Without
    `whole` only Triton's first language is produced, which takes a fifth of the time and finds invalid
    Triton. Return the kinds of its products (`compiled_products.py`)."""
    kernel = kernels[launch["launch"]]
    backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    names_of_constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    args = {
        name: decode_argument(value, kernels, _number if name in names_of_constants else _argument)
        for name, value in launch["args"].items()
    }
    bound, specialisation, options = bind(**{**launch["options"], **args})
    _, signature, constants, attributes = kernel._pack_args(
        backend, launch["options"], bound, specialisation, options
    )
    source = ASTSource(kernel, signature, constants, attributes)
    if whole:
        compiled = triton.compile(source, target=target, options=launch["options"])
        shared_bytes, num_warps = compiled.metadata.shared, compiled.metadata.num_warps
        text = compiled.asm["ttir"]
    else:
        parsed = backend.parse_options({**launch["options"], **source.parse_options()})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions = backend.get_codegen_implementation(parsed)
        text = str(source.make_ir(target, parsed, functions, backend.get_module_map(), context))
        shared_bytes, num_warps = 0, parsed.num_warps
    excess = excess_of(shared_bytes, num_warps * target.warp_size, int(target.arch))
    if excess is not None:
        raise _ExceedsGpu(kernel.fn.__code__.co_firstlineno, excess)
    return kinds_of_triton(text)


class _Dtype(str):
    """A dtype of torch's by its name: torch itself is not imported here."""

    __slots__ = ()

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int("".join(filter(str.isdigit, self)) or 8) // 8

    @property
    def is_floating_point(self) -> bool:
        """As in torch."""
        return "float" in self


class _Tensor:
    """The properties of a tensor that Triton specialises on."""

    def __init__(self, dtype: str, num_bytes_before: int) -> None:
        self.dtype = _Dtype(dtype)
        self._address = STAND_IN_ADDRESS + num_bytes_before

    def data_ptr(self) -> int:
        """The address of the tensor."""
        return self._address


def _argument(value: Any) -> Any:
    """The stand-in for a launch's argument that is no `tl.constexpr`."""
    if isinstance(value, dict) and "t" in value:
        return _Tensor(value["t"][1], value["t"][2])
    if isinstance(value, dict) and "a" in value:
        return _argument(*value["a"]).data_ptr()
    return _number(value)


def _number(value: Any) -> Any:
    return float(value["float"]) if isinstance(value, dict) and "float" in value else value


def _describe(error: Exception, kernels: list[Any]) -> dict[str, Any]:
    """The assembler's first complaint, else the last line that means something, and the candidate's line."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    line = 0
    for raised in chain:
        node, text = getattr(raised, "node", None), getattr(raised, "src", None)
        for kernel in kernels:
            if node is not None and hasattr(node, "lineno") and kernel.src == text:
                line = kernel.fn.__code__.co_firstlineno + node.lineno - 1
    text = getattr(chain[-1], "error_message", None) or str(chain[-1]) or type(chain[-1]).__name__
    lines = [part.strip() for part in str(text).splitlines() if part.strip(" ^|~")]
    complaints = [part for part in lines if _COMPLAINT_OF_PTXAS.match(part)]
    message = (complaints[:1] or lines[-1:] or [type(chain[-1]).__name__])[0]
    return {"failed": message[:_MAX_MESSAGE_CHARS], "line": line}
