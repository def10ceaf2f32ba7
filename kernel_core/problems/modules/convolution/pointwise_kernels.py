"""Convolutions of extent one, and depthwise-separable ones: a product over channels at each pixel."""

from __future__ import annotations

from kernel_core.problems.modules.convolution.gemm_kernels import BLOCKS
from kernel_core.problems.modules.convolution.host import output_line, settings, shape_lines

RANK = 2


def pointwise_kernel(name: str, exact: bool) -> str:
    """A product of the weights with one image; its pixels are the columns."""
    return f"""
@triton.jit
def {name}(x_ptr, w_ptr, b_ptr, y_ptr, C, CO, P, {BLOCKS}):
    n = tl.program_id(2).to(tl.int64)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    x_ptr += n * C * P
    acc = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for c0 in range(0, C, BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        w = tl.load(w_ptr + o[:, None] * C + c[None, :],
                    mask=(o[:, None] < CO) & (c[None, :] < C), other=0.0)
        x = tl.load(x_ptr + c[:, None] * P + p[None, :],
                    mask=(c[:, None] < C) & (p[None, :] < P), other=0.0)
        acc += tl.dot(w, x{_precision(exact)})
    if b_ptr is not None:
        acc += tl.load(b_ptr + o, mask=o < CO, other=0.0)[:, None]
    y_ptr += n * CO * P
    tl.store(y_ptr + o[:, None] * P + p[None, :], acc, mask=(o[:, None] < CO) & (p[None, :] < P))
""".strip("\n")


def pointwise_lines(
    name: str, attribute: str, blocks: tuple[int, int, int], launch: str = "", result: str = "y"
) -> list[str]:
    """The body of `forward` for an input `x` of shape (N, C, H, W)."""
    most_o, block_p, most_c = blocks
    return [
        "x = x.contiguous()",
        f"conv = self.{attribute}",
        "N, C, H, W = x.shape",
        "CO = conv.out_channels",
        f"{result} = torch.empty((N, CO, H, W), device=x.device, dtype=x.dtype)",
        f"BLOCK_O = max(16, min({most_o}, triton.next_power_of_2(CO)))",
        f"BLOCK_C = max(16, min({most_c}, triton.next_power_of_2(C)))",
        f"grid = (triton.cdiv(H * W, {block_p}), triton.cdiv(CO, BLOCK_O), N)",
        f"{name}[grid](",
        f"    x, conv.weight, conv.bias, {result}, C, CO, H * W,",
        f"    BLOCK_O=BLOCK_O, BLOCK_P={block_p}, BLOCK_C=BLOCK_C{launch},",
        ")",
        f"return {result}",
    ]


def separable_kernel(name: str, exact: bool) -> str:
    """Depthwise values of a block of channels stay in registers and enter the product at once."""
    return f"""
@triton.jit
def {name}(
    x_ptr, dw_ptr, db_ptr, pw_ptr, pb_ptr, y_ptr, C, CO, H, W, OH, OW,
    KH: tl.constexpr, KW: tl.constexpr,
    SH: tl.constexpr, SW: tl.constexpr,
    PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr,
    {BLOCKS},
):
    n = tl.program_id(2).to(tl.int64)
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    oh = p // OW
    ow = p % OW
    x_ptr += n * C * H * W
    acc = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for c0 in range(0, C, BLOCK_C):
        c = c0 + tl.arange(0, BLOCK_C)
        mid = tl.zeros((BLOCK_C, BLOCK_P), dtype=tl.float32)
        for tap in range(KH * KW):
            ih = oh * SH - PH + tap // KW * DH
            iw = ow * SW - PW + tap % KW * DW
            inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            w = tl.load(dw_ptr + c * (KH * KW) + tap, mask=c < C, other=0.0)
            x = tl.load(x_ptr + c[:, None] * (H * W) + (ih * W + iw)[None, :],
                        mask=(c[:, None] < C) & inside[None, :], other=0.0)
            mid += w[:, None] * x
        if db_ptr is not None:
            mid += tl.load(db_ptr + c, mask=c < C, other=0.0)[:, None]
        w = tl.load(pw_ptr + o[:, None] * C + c[None, :],
                    mask=(o[:, None] < CO) & (c[None, :] < C), other=0.0)
        acc += tl.dot(w, mid{_precision(exact)})
    if pb_ptr is not None:
        acc += tl.load(pb_ptr + o, mask=o < CO, other=0.0)[:, None]
    y_ptr += n * CO * OH * OW
    tl.store(y_ptr + o[:, None] * (OH * OW) + p[None, :], acc,
             mask=(o[:, None] < CO) & (p[None, :] < OH * OW))
""".strip("\n")


def separable_lines(
    name: str, attributes: tuple[str, str], blocks: tuple[int, int, int], launch: str = ""
) -> list[str]:
    """The body of `forward`: one launch for both layers."""
    most_o, block_p, block_c = blocks
    depthwise, pointwise = attributes
    shapes = shape_lines(RANK, False, depthwise)
    output = output_line(RANK).replace("conv.out_channels", "CO")
    return [
        *shapes,
        f"CO = self.{pointwise}.out_channels",
        output,
        f"BLOCK_O = max(16, min({most_o}, triton.next_power_of_2(CO)))",
        f"grid = (triton.cdiv(OH * OW, {block_p}), triton.cdiv(CO, BLOCK_O), N)",
        f"{name}[grid](",
        f"    x, conv.weight, conv.bias, self.{pointwise}.weight, self.{pointwise}.bias, y,",
        f"    C, CO, H, W, OH, OW, {settings(RANK)},",
        f"    BLOCK_O=BLOCK_O, BLOCK_P={block_p}, BLOCK_C={block_c}{launch},",
        ")",
        "return y",
    ]


def _precision(exact: bool) -> str:
    return ', input_precision="ieee"' if exact else ""
