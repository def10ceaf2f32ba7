"""Forms of the compiler's code that differ between releases of torch."""

from __future__ import annotations

import pytest

from kernel_core.compiler_teacher.capture import Captured, Origin
from kernel_core.compiler_teacher.host_text import Host
from kernel_core.compiler_teacher.inductor_code import InductorCode, read_code
from kernel_core.compiler_teacher.origins import inputs_of
from kernel_core.compiler_teacher.refusal import CannotTeach
from kernel_core.problems.source import parse_problem

_PROBLEM = """# cpu: N=5
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


N = 64


def get_inputs():
    return [torch.randn(N, 3)]


def get_init_inputs():
    return []
"""
_CALL = """def call(args):
    {read}
    raw = empty_strided_cpu((s0, 3), (3, 1), torch.float32)
    streamNone = get_raw_stream(None)
    return (raw, )
"""


@pytest.mark.parametrize(
    "read",
    ["arg0_1_size = arg0_1.size()\n    s0 = arg0_1_size[0]", "s0 = s77"],
    ids=["torch 2.11", "torch 2.15"],
)
def test_sizes_are_read_from_inputs(read: str) -> None:
    code = read_code(_CALL.format(read=read))
    found = Captured(
        code="",
        origins=(
            Origin(source="L['x'].size()[0]", shape=None, strides=(), dtype="", value=64, cpu_value=5),
            Origin(source="L['x']", shape=(64, 3), strides=(3, 1), dtype="torch.float32"),
        ),
        arguments=("x",),
    )
    host = Host(
        code=code, inputs=inputs_of(found, parse_problem(_PROBLEM, id="t/x", suite="t"), ["s77", "arg0_1"])
    )
    host.run()
    size = host.sizes["s0"]
    assert eval(size, {}, dict(host.inputs.values)) == 64
    assert host.lines[-1] == "return h0"


def test_a_kernel_with_a_helper_function_is_left_out() -> None:
    kernel = "@triton.jit\ndef helper(a):\n    return a\n\n@heuristics.reduction()\ndef k(x):\n    pass\n"
    with pytest.raises(CannotTeach, match="helper function"):
        read_code(f"k = async_compile.triton('k', {kernel!r})\n")


def test_code_without_kernels_has_statements() -> None:
    assert isinstance(read_code("def call(args):\n    return (args, )\n"), InductorCode)
