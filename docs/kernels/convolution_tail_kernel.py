# x: torch.randn(BATCH, CHANNELS, SIDE, SIDE) is (32, 32, 112, 112) float32
# conv2d, add, hardswish, mul: 2 kernels.
# conv2d_hardswish_kernel: M = x.shape[0] * out_height * out_width, OC = packed_weight_out.shape[-1], C = x.shape[1]. Fuses mul, hardswish, add. Implicit GEMM: each kernel offset adds a product over the input channels to a tile of outputs.
# packed_weight_kernel: n_cols = self.conv.weight.shape[:2].numel(), n_rows = self.conv.weight.shape[2:].numel(). Each program computes one block of a row.
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


CONFIGS_64_32 = [
    triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
    triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=3),
]


@triton.autotune(configs=CONFIGS_64_32, key=["M", "OC", "C"])
@triton.jit
def conv2d_hardswish_kernel(
    x_ptr, packed_weight_ptr, conv_bias_ptr, bias_ptr, out_ptr, M, OC, C, H, W, OH, OW, KH, KW, SH,
    SW, PH, PW, DH, DW, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # Implicit GEMM: each kernel offset adds a product over the input channels to a tile of outputs.
    tiles_n = tl.cdiv(OC, BLOCK_N)
    m = (tl.program_id(0) // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = (tl.program_id(0) % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    oh = m // OW % OH
    h0 = (oh * SH - PH).to(tl.int32)
    ow = m % OW
    w0 = (ow * SW - PW).to(tl.int32)
    b = m // OW // OH
    for kh in range(KH):
        ih = h0 + kh * DH
        for kw in range(KW):
            iw = w0 + kw * DW
            place = (b * C * H + ih) * W + iw
            inside = (m < M) & (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W)
            for start in range(0, C, BLOCK_K):
                k = start + tl.arange(0, BLOCK_K)
                mask = inside[:, None] & (k[None, :] < C)
                offsets = place[:, None] + (k.to(tl.int64) * H * W)[None, :]
                x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
                packed_weight_mask = (k[:, None] < C) & (n[None, :] < OC)
                packed_weight_offsets = ((kh * KW + kw) * C + k[:, None]) * OC + n[None, :]
                packed_weight = tl.load(
                    packed_weight_ptr + packed_weight_offsets, mask=packed_weight_mask, other=0.0,
                )
                acc = tl.dot(x, packed_weight, acc, input_precision="tf32x3")
    conv_bias = tl.load(conv_bias_ptr + n[None, :], mask=n[None, :] < OC, other=0.0)
    bias = tl.load(bias_ptr + n[None, :], mask=n[None, :] < OC, other=0.0)
    total = acc + conv_bias + bias
    out = total * tl.minimum(tl.maximum(total + 3.0, 0.0), 6.0) / 6.0 * 0.5
    ohow = m % (OH * OW)
    offsets = (b[:, None] * OC + n[None, :]) * OH * OW + ohow[:, None]
    tl.store(out_ptr + offsets, out, mask=(m[:, None] < M) & (n[None, :] < OC))


@triton.jit
def packed_weight_kernel(weight_ptr, out_ptr, n_cols, inner, H, inner2, BLOCK: tl.constexpr):
    # Each program computes one block of a row.
    row = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    outer = cols // inner
    offset = cols % inner
    weight = tl.load(weight_ptr + (offset * H + outer) * inner2 + row, mask=mask, other=0.0)
    tl.store(out_ptr + row * n_cols + cols, weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(filters, 1, 1))

    def forward(self, x):
        x = x.contiguous()
        packed_weight_out = torch.empty(
            (*self.conv.weight.shape[2:], self.conv.weight.shape[1], self.conv.weight.shape[0]),
            device=self.conv.weight.device, dtype=self.conv.weight.dtype,
        )
        n_cols = self.conv.weight.shape[:2].numel()
        n_rows = self.conv.weight.shape[2:].numel()
        packed_weight_kernel[(n_rows, triton.cdiv(n_cols, 1024))](
            self.conv.weight, packed_weight_out, n_cols, self.conv.weight.shape[0],
            self.conv.weight.shape[1], self.conv.weight.shape[2:].numel(), BLOCK=1024,
        )
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
            (batch, packed_weight_out.shape[-1], out_height, out_width), device=x.device,
            dtype=x.dtype,
        )
        M = batch * out_height * out_width
        OC = packed_weight_out.shape[-1]
        C = channels
        grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(OC, meta["BLOCK_N"]),)
        conv2d_hardswish_kernel[grid](
            x, packed_weight_out, self.conv.bias, self.bias, out, M, OC, C, *x.shape[2:],
            *out.shape[2:], packed_weight_out.shape[0], packed_weight_out.shape[1],
            *self.conv.stride, *self.conv.padding, *self.conv.dilation,
        )
        return out
