"""CUDA C++ as an archive of evolved kernels has it: few designs a task, and many small changes of each."""

from __future__ import annotations

import itertools
import random

_LOADS = (
    "    float v = x[i];\n",
    "    float v = __ldg(&x[i]);\n    v = isfinite(v) ? v : 0.0f;\n",
    "    const float4 quad = reinterpret_cast<const float4*>(x)[i];\n"
    "    float v = quad.x + quad.y;\n    v += quad.z;\n    v += quad.w;\n",
    "    __shared__ float tile[{b}];\n    tile[threadIdx.x] = x[i];\n    __syncthreads();\n"
    "    float v = tile[threadIdx.x];\n",
)
_LOOPS = (
    "    const int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i >= n) return;\n{load}{work}{store}",
    "    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {{\n"
    "{load}{work}{store}    }}\n",
    "    const int lane = threadIdx.x % 32;\n"
    "    const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;\n"
    "    for (int i = warp * 32 + lane; i < n; i += 32 * gridDim.x) {{\n{load}{work}{store}    }}\n",
)
_REDUCTIONS = (
    "    v = v * {c}f;\n",
    "    #pragma unroll\n    for (int offset = 16; offset > 0; offset /= 2) {{\n"
    "        v += __shfl_down_sync(0xffffffff, v, offset);\n    }}\n",
    "    __shared__ float sums[{b}];\n    sums[threadIdx.x] = v;\n    __syncthreads();\n"
    "    for (int half = blockDim.x / 2; half > 0; half >>= 1) {{\n"
    "        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];\n"
    "        __syncthreads();\n    }}\n    v = sums[0];\n",
    "    float mean = 0.0f, spread = 0.0f;\n    for (int k = 0; k < {k}; ++k) {{\n"
    "        const float delta = v - mean;\n        mean += delta / (k + 1);\n"
    "        spread += delta * (v - mean);\n    }}\n    v = (v - mean) * rsqrtf(spread + {c}f);\n",
)
_STORES = (
    "    y[i] = v;\n",
    "    atomicAdd(&y[i % rows], v);\n    __threadfence();\n",
    "    if (threadIdx.x % 2 == 0) {{\n        y[i] = fmaxf(v, 0.0f);\n    }} else {{\n"
    "        y[i] = fminf(v, {c}f);\n    }}\n",
)
_HOSTS = (
    "    auto y = torch::empty_like(x);\n    const int threads = {b};\n"
    "    const int blocks = (x.numel() + threads - 1) / threads;\n"
    "    work<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), x.size(0));\n"
    "    return y;\n",
    '    TORCH_CHECK(x.is_cuda(), "x is not on a GPU");\n'
    '    TORCH_CHECK(x.is_contiguous(), "x is not contiguous");\n'
    "    auto y = torch::zeros_like(x);\n    cudaStream_t stream = at::cuda::getCurrentCUDAStream();\n"
    "    dim3 grid((x.numel() + {b} - 1) / {b});\n"
    "    work<<<grid, {b}, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), x.size(0));\n"
    "    return y;\n",
)
_DESIGNS = tuple(itertools.product(_LOADS, _LOOPS, _REDUCTIONS, _STORES, _HOSTS))
_DESIGNS_PER_TASK = 25


def cuda_variants(task: int, number: int) -> tuple[int, str, str]:
    """A task's kernel of that number: its design, what was changed in it (empty for the first), its code."""
    designs = random.Random(f"designs {task}").sample(range(len(_DESIGNS)), _DESIGNS_PER_TASK)
    design = designs[number % _DESIGNS_PER_TASK]
    change = ("", "remarks", "constants")[min(number // _DESIGNS_PER_TASK, 1) * (1 + number % 2)]
    tuned = random.Random(f"tuned {task} {number if change == 'constants' else design}")
    load, loop, reduction, store, host = _DESIGNS[design]
    constants = {
        "b": tuned.choice((64, 128, 256, 512)),
        "c": f"{tuned.uniform(0.1, 4):.2f}",
        "k": tuned.randint(4, 64),
    }
    body = loop.format(
        load=load.format(**constants), work=reduction.format(**constants), store=store.format(**constants)
    )
    remark = f"// variant {number}: tuned by hand\n" if change == "remarks" else ""
    code = (
        f"#include <torch/extension.h>\n#include <cuda_runtime.h>\n\n{remark}"
        "__global__ void work(const float* __restrict__ x, float* __restrict__ y, int n, int rows) {\n"
        f"{body}}}\n\ntorch::Tensor forward(torch::Tensor x) {{\n{host.format(**constants)}}}\n\n"
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n    m.def("forward", &forward, "task kernel");\n}\n'
    )
    return design, change, code
