# weight: torch.randn(PARAMETERS) is (67108864,) float32
# grad: torch.randn(PARAMETERS) is (67108864,) float32
# average: torch.randn(PARAMETERS) is (67108864,) float32
# square: torch.rand(PARAMETERS) is (67108864,) float32
# step: torch.full((1,), 10.0) is (1,) float32
# mul, lerp, add, rpow, rsub, div, sqrt, sub: one kernel.
# lerp_rpow_sqrt_kernel: n_elements = average.numel(). Fuses lerp, add, mul, sub, true_divide, power, sqrt. Each program computes one block of elements.
import torch
import torch.nn as nn
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def lerp_rpow_sqrt_kernel(
    average_ptr, grad_ptr, square_ptr, weight_ptr, step_ptr, out_ptr, out2_ptr, out3_ptr,
    n_elements, one_minus_rate_decay, rate, BLOCK: tl.constexpr,
):
    # Each program computes one block of elements.
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n_elements
    average = tl.load(average_ptr + i, mask=mask, other=0.0)
    grad = tl.load(grad_ptr + i, mask=mask, other=0.0)
    out = average + 0.1 * (grad - average)
    tl.store(out_ptr + i, out, mask=mask)
    square = tl.load(square_ptr + i, mask=mask, other=0.0)
    out2 = square * 0.999 + grad * grad * 0.001
    tl.store(out2_ptr + i, out2, mask=mask)
    weight = tl.load(weight_ptr + i, mask=mask, other=0.0)
    step = tl.load(step_ptr)
    total = tl.sqrt(out2 / (1 - libdevice.pow(0.999, step))) + 1e-08
    quotient = rate * out / (1 - libdevice.pow(0.9, step)) / total
    out3 = weight * one_minus_rate_decay - quotient
    tl.store(out3_ptr + i, out3, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, rate, decay):
        super().__init__()
        self.rate, self.decay = rate, decay

    def forward(self, weight, grad, average, square, step):
        weight = weight.contiguous()
        grad = grad.contiguous()
        average = average.contiguous()
        square = square.contiguous()
        step = step.contiguous()
        out = torch.empty_like(average)
        out_2 = torch.empty_like(square)
        out_3 = torch.empty_like(weight)
        n_elements = average.numel()
        lerp_rpow_sqrt_kernel[(triton.cdiv(n_elements, 1024),)](
            average, grad, square, weight, step, out, out_2, out_3, n_elements,
            1 - self.rate * self.decay, self.rate, BLOCK=1024,
        )
        return (out_3, out, out_2)
