"""What kernels commonly say, interpreted as in a runner, beside torch's answer; prints what differs.

Run in a process of its own, which has Triton's interpreter: `TRITON_INTERPRET=1 python idioms.py FOLDER`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
import triton

from kernel_core.gym.untrusted.interpreter.memory_meter import Meter
from kernel_core.gym.untrusted.interpreter.meter_hooks import install
from kernel_core.gym.untrusted.interpreter.patches import prepare_interpreter

N, BLOCK = 50, 64
HEAD = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def larger(a, b):
    return tl.maximum(a, b)

@triton.jit
def larger_by_branch(a, b):
    if b > a:
        a = b
    return a

@triton.jit
def follow(factor, term, later_factor, later_term):
    return factor * later_factor, later_factor * term + later_term

@triton.jit
def minus(a, b):
    return a - b

@triton.jit
def zero_of(dtype):
    kind = dtype.value
    return 0.0 if kind.is_floating() else 1.0

@triton.jit
def counted(n):
    k = 0
    while tl.condition(k < n):
        k += 1
    return k

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, N, s, flag, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    m = i < N
    x = tl.load(x_ptr + i, mask=m, other=0.0)
    y = tl.load(y_ptr + i, mask=m, other=0.0)
"""
# What a kernel computes of x, y, the places i below N, the mask m, a number s and a flag that is set; and the
# same in torch.
IDIOMS = {
    # Numbers as conditions, spread over a block or not.
    "tl.load(x_ptr + i, mask=m & (N > 1), other=0.0)": "x",
    "tl.load(x_ptr + i, mask=(N > 1) & m, other=0.0)": "x",
    "x + tl.load(y_ptr + N - 1, mask=N > 1, other=0.0)": "x + y[-1]",
    "tl.where(m & (s < 1), x, y)": "x",
    "tl.where((N > 1) and (s < 1), x, y)": "x",
    "tl.where(s > 0.9, x, y)": "y",
    "x if N > 3 else y": "x",
    "tl.load(x_ptr + i, mask=m & flag, other=0.0)": "x",
    "x * flag if flag else y": "x",
    "x + counted(N)": "x + 50",
    # Blocks as conditions. What is right of `and` alone is true outside of the tensors too.
    "tl.load(x_ptr + i, mask=m and i >= 0, other=0.0)": "x",
    "tl.load(x_ptr + i, mask=not (i >= N) and i >= 0, other=0.0)": "x",
    "x + tl.where(i < 0 or x > 0, 1.0, 0.0)": "x + (x > 0)",
    # Conditions as numbers.
    "x * m.to(tl.float32) + (x > y)": "x + (x > y)",
    "x + tl.sum((x > 0).to(tl.int32), axis=0)": "x + (x > 0).sum()",
    "x * tl.where(x > 0, 1, 0)": "x.relu()",
    # Methods of numbers, and rows without numbers.
    "x + s.to(tl.float32) * N.to(tl.float32)": "x + 0.5 * 50",
    "x + zero_of(x.dtype)": "x",
    "x + tl.argmax(tl.where(i > 99, x, float('nan')), axis=0)": "x",
    "x + tl.argmin(tl.where(i > 99, x, float('nan')), axis=0, tie_break_left=False) * 0": "x",
    # Casts.
    "x.to(tl.float16).to(tl.float32)": "x.half().float()",
    "x.to(tl.bfloat16).to(tl.float32)": "x.bfloat16().float()",
    "x.to(tl.float64).to(tl.bfloat16).to(tl.float32)": "x.bfloat16().float()",
    "x.to(tl.float16).to(tl.bfloat16).to(tl.float32)": "x.half().bfloat16().float()",
    "x.to(tl.bfloat16).to(tl.int32).to(tl.float32)": "x.bfloat16().int().float()",
    "(100 * i + 1).to(tl.bfloat16).to(tl.float32)": "(100 * i + 1).bfloat16().float()",
    "x.to(tl.float8e4nv).to(tl.float32)": "x.to(torch.float8_e4m3fn).float()",
    "(300 * x).to(tl.float8e4nv).to(tl.float32)": (
        "(300 * x).clamp(-448, 448).to(torch.float8_e4m3fn).float()"
    ),
    "(x / 500).to(tl.float8e4nv).to(tl.float16).to(tl.float32)": "(x / 500).to(torch.float8_e4m3fn).float()",
    "x.to(tl.bfloat16).to(tl.float8e5).to(tl.bfloat16).to(tl.float32)": (
        "x.bfloat16().to(torch.float8_e5m2).float()"
    ),
    "x.to(tl.float16).to(tl.float8e5).to(tl.float32)": "x.half().to(torch.float8_e5m2).float()",
    "(x > 0).to(tl.bfloat16).to(tl.float32)": "(x > 0).float()",
    "x.to(tl.int32).to(tl.float32)": "x.int().float()",
    "(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF).to(tl.float32, bitcast=True)": "x.abs()",
    # Half precision.
    "(x.to(tl.float16) * y.to(tl.float16)).to(tl.float32)": "(x.half() * y.half()).float()",
    "(x.to(tl.bfloat16) + y.to(tl.bfloat16)).to(tl.float32)": "(x.bfloat16() + y.bfloat16()).float()",
    "(x.to(tl.bfloat16) * s).to(tl.float32)": "(x.bfloat16() * s).float()",
    "tl.maximum(x.to(tl.bfloat16), 0.0).to(tl.float32)": "x.bfloat16().relu().float()",
    # Arithmetic in which NumPy and a GPU differ.
    "(~i.to(tl.uint8)).to(tl.float32)": "255.0 - i",
    "((x > 0) + (y > 0)).to(tl.float32)": "((x > 0) ^ (y > 0)).float()",
    "tl.maximum(tl.where(x > 0, x, float('nan')), 0.0)": "x.relu()",
    "tl.minimum(tl.where(x > 0, x, float('nan')), 0.0)": "x * 0",
    "tl.clamp(tl.where(x > 0, x, float('nan')), s, 0.7)": "x.clamp(0.5, 0.7)",
    "tl.umulhi(-i, i + 1).to(tl.float32)": "i.float()",
    # Functions.
    "tl.sigmoid(x) + tl.erf(y) + tl.exp2(x) + tl.log2(tl.abs(y) + 1)": (
        "x.sigmoid() + y.erf() + x.exp2() + (y.abs() + 1).log2()"
    ),
    "libdevice.tanh(x) + libdevice.pow(tl.abs(y), s)": "x.tanh() + y.abs() ** 0.5",
    "libdevice.log1p(tl.exp(x))": "torch.nn.functional.softplus(x)",
    "tl.extra.cuda.libdevice.tanh(x)": "x.tanh()",
    "libdevice.round(4 * y)": "torch.sign(y) * ((4 * y).abs() + 0.5).floor()",
    "libdevice.erfinv(tl.clamp(x, -0.9, 0.9)) + libdevice.normcdf(y)": (
        "x.clamp(-0.9, 0.9).erfinv() + torch.special.ndtr(y)"
    ),
    "libdevice.tgamma(x + 3) + libdevice.saturatef(y)": "(x + 3).lgamma().exp() + y.clamp(0, 1)",
    "libdevice.tgamma(x * 0 - 1.5)": "x * 0 + 2.3632718",
    "libdevice.fma(x, y, x) + libdevice.fdim(x, y)": "x * y + x + (x - y).clamp(min=0)",
    "(libdevice.popc(i) + libdevice.clz(i) + libdevice.ffs(i)).to(tl.float32)": (
        "torch.tensor([f'{n:032b}'.count('1') + (f'{n:032b}' + '1').index('1') + (n & -n).bit_length()"
        " for n in i.tolist()]).float()"
    ),
    "libdevice.int_as_float(libdevice.float_as_int(x) | 0) + libdevice.signbit(x)": "x + x.signbit()",
    "libdevice.float2int_rn(3 * x).to(tl.float32)": "(3 * x).round()",
    "tl.where(libdevice.isnan(x), 0.0, tl.clamp(x, -s, s))": "x.clamp(-0.5, 0.5)",
    "tl.fma(x, y, x) + tl.div_rn(x, tl.abs(y) + 1)": "x * y + x + x / (y.abs() + 1)",
    "(i % 7 + i // 7 + (i & 3) + (i << 1) + (i ^ 5)).to(tl.float32)": (
        "(i % 7 + i // 7 + (i & 3) + (i << 1) + (i ^ 5)).float()"
    ),
    # Reductions, scans and moves.
    "x - tl.max(tl.where(m, x, -float('inf')), axis=0)": "x - x.max()",
    "x * 0 + tl.argmax(tl.where(m, x, -1e9), axis=0)": "x * 0 + x.argmax()",
    "tl.softmax(tl.where(m, x, -float('inf')))": "x.softmax(0)",
    "tl.cumsum(x, axis=0)": "x.cumsum(0)",
    "tl.cumprod(tl.where(m, x, 1.0), axis=0)": "x.cumprod(0)",
    # Functions of the kernel's own, put together in pairs.
    "tl.associative_scan((tl.where(m, y, 1.0), x), 0, follow)[1]": "follow(y, x)",
    "x * 0 + tl.reduce((tl.where(m, y, 1.0), x), 0, follow)[1]": "x * 0 + follow(y, x)[-1]",
    "tl.associative_scan(x, 0, larger, reverse=True)": "x.flip(0).relu().cummax(0).values.flip(0)",
    "tl.associative_scan(x.reshape([8, 8]), 0, larger).reshape([BLOCK])": (
        "square(x).cummax(0).values.flatten()[:N]"
    ),
    "tl.associative_scan(x.reshape([8, 8]), 1, larger).reshape([BLOCK])": (
        "square(x).cummax(1).values.flatten()[:N]"
    ),
    "(x.reshape([8, 8]) - tl.reduce(x.reshape([8, 8]), 1, larger, keep_dims=True)).reshape([BLOCK])": (
        "(square(x) - square(x).amax(1, keepdim=True)).flatten()[:N]"
    ),
    "(x.reshape([8, 8]) - tl.reduce(x.reshape([8, 8]), 0, larger)).reshape([BLOCK])": (
        "(square(x) - square(x).amax(0)).flatten()[:N]"
    ),
    "x - tl.reduce(x.reshape([8, 8]), None, larger)": "x - x.max()",
    "x - tl.reduce(x, 0, larger_by_branch)": "x - x.max()",
    "x + tl.reduce(tl.where(i < 4, i + 1.0, 0.0), 0, minus)": "x",
    "x + tl.argmax(tl.where(m, i // 25, -1), 0)": "x + 25",
    "x + tl.argmax(tl.where(m, i // 25, -1), 0, tie_break_left=False)": "x + 49",
    "x + tl.argmin(tl.where(m, i // 25, 2), 0, tie_break_left=False)": "x + 24",
    "tl.sort(tl.where(m, x, float('inf')))": "x.sort().values",
    "tl.gather(x, tl.where(m, N - 1 - i, 0), 0)": "x.flip(0)",
    "x * 0 + tl.sum(tl.interleave(x, y))": "x * 0 + x.sum() + y.sum()",
    "x * 0 + tl.sum(tl.histogram(tl.where(m, i % 4, 3), 4))": "x * 0 + 64",
    "x * 0 + tl.sum(tl.histogram(i, 4))": "x * 0 + 4",
    "tl.sum(tl.where((i[:, None] == i[None, :]) & m[None, :], x[None, :], 0.0), axis=1)": "x",
    "tl.trans(tl.reshape(tl.trans(tl.reshape(x, [8, 8])), [8, 8])).reshape([BLOCK])": "x",
}


def follow(factors: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
    """From step to step: what was before times a factor, and a term."""
    found = [terms[0]]
    for factor, term in zip(factors[1:], terms[1:], strict=True):
        found.append(factor * found[-1] + term)
    return torch.stack(found)


def square(x: torch.Tensor) -> torch.Tensor:
    """As a kernel's block of rows and columns."""
    return torch.nn.functional.pad(x, (0, BLOCK - N)).view(8, 8)


def main() -> None:
    """One line for each that differs, and one at the end."""
    folder = Path(sys.argv[1])
    prepare_interpreter()
    meter = Meter()
    install(meter)
    torch.manual_seed(0)
    x, y, i = torch.randn(N), torch.randn(N), torch.arange(N)
    for number, (idiom, answer) in enumerate(IDIOMS.items()):
        file = folder / f"idiom_{number}.py"
        file.write_text(f"{HEAD}    r = {idiom}\n    tl.store(out_ptr + i, r, mask=m)\n")
        specification = importlib.util.spec_from_file_location(file.stem, file)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        out = torch.full((N,), float("nan"))
        meter.begin([tensor.untyped_storage() for tensor in (x, y, out)])
        try:
            specification.loader.exec_module(module)
            module.kernel[(1,)](x, y, out, N, 0.5, True, BLOCK=BLOCK)
        except Exception as error:
            print(f"{idiom}: {type(error).__name__}: {error}")
            continue
        known = {"torch": torch, "x": x, "y": y, "i": i, "s": 0.5, "N": N}
        wanted = eval(answer, known | {"follow": follow, "square": square})
        if not torch.allclose(out, wanted, rtol=1e-5, atol=1e-5):
            print(f"{idiom}: differs by {(out - wanted).abs().max()}")
    print(f"{len(IDIOMS)} idioms, Triton {triton.__version__}")


if __name__ == "__main__":
    main()
