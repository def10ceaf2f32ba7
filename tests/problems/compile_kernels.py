"""Compile kernels for sm_90 without a GPU; a script, because the interpreter's switch is per process.

Reads a JSON list of `{"reference": text, "kernel": text}` from stdin, runs each `ModelNew.forward` on
shapes alone (meta tensors, at the reference's own sizes), compiles what it would launch, and prints the
sizes of the cubins as JSON.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import torch  # noqa: E402
import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

TYPES = {torch.float32: "*fp32", torch.int64: "*i64", torch.float16: "*fp16"}


def module_of(source, folder, name):
    path = Path(folder) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Recorder:
    """Stands where the kernel stood and keeps what it was launched with."""

    def __init__(self, kernel):
        self.kernel = kernel
        self.calls = []

    def __getitem__(self, grid):
        def launch(*args, **kwargs):
            self.calls.append((args, kwargs))

        return launch


def compiled(kernel, args, kwargs):
    options = {name: kwargs[name] for name in ("num_warps",) if name in kwargs}
    constants = {name: value for name, value in kwargs.items() if name not in options}
    signature = {
        name: TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        for name, value in zip(kernel.arg_names, args, strict=False)
    }
    signature.update(dict.fromkeys(constants, "constexpr"))
    source = ASTSource(kernel, signature, constexprs=constants)
    return len(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["cubin"])


def main():
    sizes = []
    with tempfile.TemporaryDirectory() as folder:
        for number, problem in enumerate(json.load(sys.stdin)):
            reference = module_of(problem["reference"], folder, f"reference_{number}")
            module = module_of(problem["kernel"], folder, f"kernel_{number}")
            recorder = module.kernel = Recorder(module.kernel)
            with torch.device("meta"), torch.no_grad():
                module.ModelNew(*reference.get_init_inputs())(*reference.get_inputs())
            args, kwargs = recorder.calls[-1]
            sizes.append(compiled(recorder.kernel, args, kwargs))
    print(json.dumps(sizes))


main()
