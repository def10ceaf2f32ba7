"""Layers and functions of torch that a kernel can take the place of, with the kernel's text.

`@K` is the Triton function, `@F` the function of the host that launches it, `@C` the class of the layer. The
class inherits from torch's, so it has the same constructor, parameters and attributes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.convolution.gemm_kernels import Skeleton, gemm_kernel
from kernel_core.problems.modules.convolution.host import gemm_lines
from kernel_core.problems.modules.pointwise import ACTIVATIONS, pointwise


@dataclass(frozen=True)
class Part:
    """One operator that becomes a kernel."""

    name: str
    """Torch's name of the function, such as `gelu`."""
    layer: str
    """Torch's class without `nn.`; empty where there is none."""
    text: str
    """The Triton function, and the host function `@F` or else the class `@C`."""
    says: str
    """A phrase for the reasoning: what a program does."""

    @property
    def has_function(self) -> bool:
        """Whether the host has a function for it."""
        return "@F" in self.text

    def written(self, as_layer: bool) -> str:
        """The text, with a class that calls the host function if it is asked for as a layer."""
        if not (as_layer and self.has_function):
            return self.text
        return f"{self.text}\n\nclass @C(nn.{self.layer}):\n    def forward(self, x):\n        return @F(x)\n"


_EACH = """\
@triton.jit
def @K(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, @E, mask=mask)


def @F(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    count = x.numel()
    @K[(triton.cdiv(count, 1024),)](x, y, count, BLOCK=1024)
    return y
"""
_SUM = """\
@triton.jit
def @K(x_ptr, other_ptr, y_ptr, count, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
    other = tl.load(other_ptr + i, mask=mask, other=0.0)
    tl.store(y_ptr + i, x + other, mask=mask)


def @F(x, other):
    x, other = torch.broadcast_tensors(x, other)
    x, other = x.contiguous(), other.contiguous()
    y = torch.empty_like(x)
    count = x.numel()
    @K[(triton.cdiv(count, 1024),)](x, other, y, count, BLOCK=1024)
    return y
"""
_SOFTMAX = """\
@triton.jit
def @K(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    y_ptr += row * n
    offs = tl.arange(0, BLOCK)
    m = float("-inf")
    s = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n, other=float("-inf"))
        new_m = tl.maximum(m, tl.max(x, axis=0))
        s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)
        m = new_m
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n, other=float("-inf"))
        tl.store(y_ptr + start + offs, tl.exp(x - m) / s, mask=start + offs < n)


def @F(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    @K[(x.numel() // n,)](x, y, n, BLOCK=min(4096, triton.next_power_of_2(n)))
    return y
"""
_NORMALIZED = """\
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(x_ptr + start + offs, mask=start + offs < n, other=0.0)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n, other=0.0)
        d = tl.where(start + offs < n, x - mean, 0.0)
        squares += d * d
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        mask = start + offs < n
"""
"""Mean and deviation of what a program owns, and the head of the loop that stores."""
_LAYER_NORM = """\
@triton.jit
def @K(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * n
    y_ptr += row * n
    offs = tl.arange(0, BLOCK)
@S        y = (tl.load(x_ptr + start + offs, mask=mask, other=0.0) - mean) * scale
        if w_ptr is not None:
            y = y * tl.load(w_ptr + start + offs, mask=mask, other=0.0)
        if b_ptr is not None:
            y = y + tl.load(b_ptr + start + offs, mask=mask, other=0.0)
        tl.store(y_ptr + start + offs, y, mask=mask)


class @C(nn.LayerNorm):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        block = min(4096, triton.next_power_of_2(n))
        @K[(x.numel() // n,)](x, self.weight, self.bias, y, n, self.eps, BLOCK=block)
        return y
""".replace("@S", _NORMALIZED)
_GROUP_NORM = """\
@triton.jit
def @K(x_ptr, w_ptr, b_ptr, y_ptr, C, G, S, eps, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    n = C // G * S
    x_ptr += group.to(tl.int64) * n
    y_ptr += group.to(tl.int64) * n
    first = group % G * (C // G)
    offs = tl.arange(0, BLOCK)
@S        c = first + (start + offs) // S
        y = (tl.load(x_ptr + start + offs, mask=mask, other=0.0) - mean) * scale
        if w_ptr is not None:
            y = y * tl.load(w_ptr + c, mask=mask, other=0.0) + tl.load(b_ptr + c, mask=mask, other=0.0)
        tl.store(y_ptr + start + offs, y, mask=mask)


class @C(nn.GroupNorm):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        N, C = x.shape[:2]
        S = x.numel() // (N * C)
        G = self.num_groups
        @K[(N * G,)](x, self.weight, self.bias, y, C, G, S, self.eps, BLOCK=1024)
        return y
""".replace("@S", _NORMALIZED)
_PLANE_MEAN = """\
@triton.jit
def @K(x_ptr, y_ptr, S, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    x_ptr += plane.to(tl.int64) * S
    offs = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, S, BLOCK):
        total += tl.load(x_ptr + start + offs, mask=start + offs < S, other=0.0)
    tl.store(y_ptr + plane, tl.sum(total, axis=0) / S)


class @C(nn.AdaptiveAvgPool2d):
    def forward(self, x):
        x = x.contiguous()
        S = x.shape[-2] * x.shape[-1]
        y = torch.empty(x.shape[:-2] + (1, 1), device=x.device, dtype=x.dtype)
        @K[(y.numel(),)](x, y, S, BLOCK=1024)
        return y
"""
_LINEAR = """\
@triton.jit
def @K(
    x_ptr, w_ptr, b_ptr, y_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    rows = m.to(tl.int64)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        kk = start + k
        inside = kk < K
        x = tl.load(x_ptr + rows * K + kk[None, :], mask=(m[:, None] < M) & inside[None, :], other=0.0)
        w = tl.load(w_ptr + n[None, :] * K + kk[:, None], mask=(n[None, :] < N) & inside[:, None], other=0.0)
        acc += tl.dot(x, w)
    if b_ptr is not None:
        acc += tl.load(b_ptr + n, mask=n < N, other=0.0)[None, :]
    tl.store(y_ptr + rows * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


class @C(nn.Linear):
    def forward(self, x):
        x = x.contiguous()
        N, K = self.weight.shape
        M = x.numel() // K
        y = torch.empty(x.shape[:-1] + (N,), device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
        @K[grid](x, self.weight, self.bias, y, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
        return y
"""
_CONV = Skeleton(rank=2, transposed=False, kernel="@K", comments=False, blocks=(64, 64, 32))


def _activation(name: str) -> Part:
    one = pointwise(name, random.Random(0))  # none of them has a constant
    layer = one.layer.removeprefix("nn.").removesuffix("()") if one.layer.endswith("()") else ""
    return Part(
        name=name,
        layer=layer,
        text=_EACH.replace("@E", one.triton.format(v="x")),
        says="a program loads a block of values once, computes in registers and stores",
    )


def _convolution() -> Part:
    lines = [line.replace("conv.", "self.") for line in gemm_lines(_CONV, "self") if "self.self" not in line]
    forward = "".join(f"        {line}\n" for line in lines)
    return Part(
        name="conv2d",
        layer="Conv2d",
        text=f"{gemm_kernel(_CONV).strip()}\n\n\nclass @C(nn.Conv2d):\n    def forward(self, x):\n{forward}",
        says="a program owns a tile of output channels and pixels and adds up products over the taps",
    )


_WITH_SETTINGS = ("swish", "leaky_relu", "hardtanh", "gelu_tanh", "softplus", "elu")
"""Activations with numbers, and one that torch has no name for."""
PARTS: tuple[Part, ...] = (
    *(_activation(name) for name in ACTIVATIONS if name not in _WITH_SETTINGS),
    Part("add", "", _SUM, "a program loads a block of both summands and stores their sum"),
    Part(
        "softmax",
        "",
        _SOFTMAX,
        "a program owns a row and walks over it in blocks, twice: maximum and sum together, then the result",
    ),
    Part(
        "layer_norm",
        "LayerNorm",
        _LAYER_NORM,
        "a program owns a row and finds mean and variance from what is in cache",
    ),
    Part(
        "group_norm",
        "GroupNorm",
        _GROUP_NORM,
        "a program owns a group of one sample; its values lie side by side",
    ),
    Part(
        "adaptive_avg_pool2d",
        "AdaptiveAvgPool2d",
        _PLANE_MEAN,
        "a program reads one plane and stores its mean",
    ),
    Part(
        "linear",
        "Linear",
        _LINEAR,
        "a program owns a tile of the output and walks along the inner size",
    ),
    _convolution(),
)
