# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 32, 112, 112) float32
# conv2d, add, hardswish, mul: one kernel.
# conv2d_hardswish_kernel: M = x.shape[0] * out_height * out_width, OC = self.conv.weight.shape[0], C = x.shape[1]. Fuses mul, hardswish, add. Implicit GEMM: each kernel offset adds a product over the input channels to a tile of outputs.
import torch
import torch.nn as nn
import triton
import triton.language as tl


CONFIGS = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=3),
    triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=4),
]


@triton.autotune(configs=CONFIGS, key=["M", "OC", "C"])
@triton.jit
def conv2d_hardswish_kernel(
    x_ptr, weight_ptr, conv_bias_ptr, bias_ptr, out_ptr, M, OC, C, H, W, OH, OW, KH, KW, SH, SW, PH,
    PW, DH, DW, OHOW, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # Implicit GEMM: each kernel offset adds a product over the input channels to a tile of outputs.
    tiles_n = tl.cdiv(OC, BLOCK_N)
    m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    oh = m // OW % OH
    ow = m % OW
    b = m // OHOW
    for kh in range(KH):
        ih = oh * SH + kh * DH - PH
        for kw in range(KW):
            iw = ow * SW + kw * DW - PW
            inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            for start in range(0, C, BLOCK_K):
                k = start + tl.arange(0, BLOCK_K)
                mask = (k[None, :] < C) & (m[:, None] < M) & inside[:, None]
                offsets = ((b[:, None] * C + k[None, :]) * H + ih[:, None]) * W + iw[:, None]
                x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
                weight_mask = (k[:, None] < C) & (n[None, :] < OC)
                weight_offsets = ((n[None, :] * C + k[:, None]) * KH + kh) * KW + kw
                weight = tl.load(weight_ptr + weight_offsets, mask=weight_mask, other=0.0)
                acc = tl.dot(x, weight, acc, input_precision="tf32")
    conv_bias = tl.load(conv_bias_ptr + n[None, :], mask=n[None, :] < OC, other=0.0)
    bias = tl.load(bias_ptr + n[None, :], mask=n[None, :] < OC, other=0.0)
    total = acc + conv_bias + bias
    out = total * tl.minimum(tl.maximum(total + 3.0, 0.0), 6.0) / 6.0 * 0.5
    ohow = m % OHOW
    out_offsets = (b[:, None] * OC + n[None, :]) * OHOW + ohow[:, None]
    tl.store(out_ptr + out_offsets, out, mask=(m[:, None] < M) & (n[None, :] < OC))


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(filters, 1, 1))

    def forward(self, x):
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out_height = (
            (
                height + 2 * self.conv.padding[0]
                - self.conv.dilation[0] * (self.conv.weight.shape[2] - 1) - 1
            ) // self.conv.stride[0]
            + 1
        )
        out_width = (
            (
                width + 2 * self.conv.padding[1]
                - self.conv.dilation[1] * (self.conv.weight.shape[-1] - 1) - 1
            ) // self.conv.stride[1]
            + 1
        )
        out = torch.empty(
            (batch, self.conv.weight.shape[0], out_height, out_width), device=x.device,
            dtype=x.dtype,
        )
        M = batch * out_height * out_width
        OC = self.conv.weight.shape[0]
        C = channels
        grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(OC, meta["BLOCK_N"]),)
        conv2d_hardswish_kernel[grid](
            x, self.conv.weight, self.conv.bias, self.bias, out, M, OC, C, *x.shape[2:],
            *out.shape[2:], *self.conv.weight.shape[2:], *self.conv.stride, *self.conv.padding,
            *self.conv.dilation, out.shape[2:].numel(),
        )
        return out
