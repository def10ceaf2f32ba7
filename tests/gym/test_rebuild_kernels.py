"""Only what a Triton kernel can be is rebuilt from a candidate's text."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest
import triton.language as tl
from triton.runtime.jit import JITFunction

from kernel_core.gym.untrusted.compile.kernel_whitelist import KernelRefused
from kernel_core.gym.untrusted.compile.rebuild_kernels import build_kernels
from kernel_core.records import Evaluation, Verdict

HEAD = "import triton\nimport triton.language as tl\n\n"
GLOBALS = {"tl": {"module": "triton.language"}, "triton": {"module": "triton"}}


def _build(body: str, tmp_path: Path, **names: object) -> list[object]:
    text = HEAD + "@triton.jit\ndef kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):\n" + body
    path = tmp_path / "candidate.py"
    path.write_text(text)
    return build_kernels(text, str(path), [{"name": "kernel", "line": 4, "globals": {**GLOBALS, **names}}])


@pytest.mark.parametrize(
    "body",
    [
        "    i = tl.arange(0, BLOCK)\n    tl.store(out_ptr + i, tl.load(x_ptr + i))\n",
        "    for i in range(BLOCK):\n        tl.store(out_ptr + i, tl.math.exp(tl.load(x_ptr + i)))\n",
        "    tl.store(out_ptr, tl.zeros((BLOCK,), tl.float32).to(x_ptr.dtype.element_ty))\n",
        "    tl.store(out_ptr, triton.cdiv(BLOCK, 2))\n",
        "    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)\n    i.to(tl.int64)\n",
        "    tl.static_print(tl.maximum(1, 2, propagate_nan=tl.PropagateNan.ALL))\n",
        "    i = tl.arange(0, BLOCK)\n    tl.store(out_ptr + i, i.__lshift__(4).to(tl.int8).__rshift__(4))\n",
        "    __x = tl.load(x_ptr)\n    tl.store(out_ptr, __x)\n",
        "    if BLOCK == 'leaky_relu':\n        leaky_relu(x_ptr)\n    tl.store(out_ptr, BLOCK)\n",
    ],
)
def test_kernels_are_rebuilt(body: str, tmp_path: Path) -> None:
    [kernel] = _build(body, tmp_path)
    assert kernel.fn.__name__ == "kernel"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    import os\n", 6),
        ("    global x\n", 6),
        ("    i = 1\n    try:\n        i = 2\n    except Exception:\n        i = 3\n", 7),
        ("    f = lambda x: x\n", 6),
        ("    i = x_ptr.__class__\n", 6),
        ("    x_ptr.handle = 3\n", 6),
        ("    i = x_ptr.handle\n", 6),
        ("    open('file')\n", 6),
        ("    __import__('os')\n", 6),
        ("    __builtins__['open']\n", 6),
        ("    i = x_ptr.__lshift__.__self__\n", 6),
        ("    i = tl.__getitem__\n", 6),
        ("    tl.core.builtins.exec('1')\n", 6),
        ("    tl.inspect.currentframe()\n", 6),
        ("    triton.runtime.interpreter.interpreter_builder\n", 6),
        ("    i = tl.no_such_thing\n", 6),
        ("    i = JITFunction\n    x_ptr += 'JITFunction'\n", 6),
        ("    if BLOCK == 3:\n        compile(x_ptr)\n", 7),
        ("    match x_ptr:\n        case tl.tensor(handle=h):\n            tl.store(out_ptr, h)\n", 6),
        ("    while (i := 1):\n        tl.store(out_ptr, i)\n", 6),
        ("    def inner():\n        return 1\n", 6),
        ("    core = tl.core\n    core.knobs.os.getpid()\n", 7),
        ("    (tl.core if BLOCK else tl).knobs\n", 6),
        ("    f = tl.multiple_of\n    f.keywords\n", 7),
        ("    tl.load(x_ptr).fn\n", 6),
        ("    '{0}'.format(x_ptr)\n", 6),
        ("    a = [np for np in (1, 2)]\n    np.load(out_ptr)\n", 5),
        ("    a = [FunctionRewriter for FunctionRewriter in (1, 2)]\n    FunctionRewriter(out_ptr)\n", 5),
    ],
)
def test_host_code_is_refused_wherever_it_stands(body: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(KernelRefused) as refusal:
        _build(body, tmp_path)
    assert refusal.value.line == line


@pytest.mark.parametrize(
    "value",
    [{"module": "os"}, {"member": ["os", "system"]}, {"member": ["triton.runtime.jit", "JITFunction"]},
     {"member": ["triton.language", "core.builtins"]}, {"jit": 4}, {"unheard_of": 1}],
)  # fmt: skip
def test_globals_outside_the_language_are_refused(value: object, tmp_path: Path) -> None:
    with pytest.raises(KernelRefused):
        _build("    pass\n", tmp_path, extra=value)


def test_a_function_that_is_not_in_the_text_is_refused() -> None:
    with pytest.raises(KernelRefused, match="no function ghost"):
        build_kernels(HEAD, "candidate.py", [{"name": "ghost", "line": 1, "globals": {}}])


def test_what_is_compiled_is_the_text_that_was_checked_and_not_a_file(tmp_path: Path) -> None:
    text = HEAD + "@triton.jit\ndef kernel(x_ptr):\n    tl.store(x_ptr, 1)\n"
    path = tmp_path / "candidate.py"
    path.write_text(text.replace("1)", "2)"))
    [kernel] = build_kernels(text, str(path), [{"name": "kernel", "line": 4, "globals": GLOBALS}])
    assert kernel.fn.__code__.co_firstlineno == 5
    if isinstance(kernel, JITFunction):
        body = "def kernel(x_ptr):\n    tl.store(x_ptr, 1)"
        assert kernel.src == body
        assert ast.unparse(kernel.parse()) == body
        named = "def_file_line_number" if hasattr(kernel, "def_file_line_number") else "starting_line_number"
        assert getattr(kernel, named) == 5  # Triton 3.6 has the second
    else:
        assert 2 not in kernel.rewrite().__code__.co_consts


_DEFINITIONS = {
    "continued": "def\\\n kernel(x_ptr):\n    tl.store(x_ptr, 1)\n",
    "in a string": (
        "def kernel(x_ptr):\n    tl.store(x_ptr, 1)\n    '''\n    def kernel(x_ptr):\n    evil\n    # '''\n"
    ),
}


@pytest.mark.parametrize("definition", _DEFINITIONS.values(), ids=_DEFINITIONS)
def test_nothing_but_the_checked_tree_is_run_or_compiled(definition: str) -> None:
    text = HEAD + "NOTE = '''\ndef kernel(x_ptr):\n    evil\n'''\n" + definition
    [made] = build_kernels(text, "candidate.py", [{"name": "kernel", "line": 8, "globals": GLOBALS}])
    if isinstance(made, JITFunction):
        checked = ast.dump(ast.parse(definition))
        assert ast.dump(ast.parse(made.src)) == ast.dump(made.parse()) == checked
    else:
        rewritten = made.rewrite()
        assert rewritten.__code__.co_firstlineno == 8
        assert "evil" not in rewritten.__code__.co_names
        assert {"np", "inspect"}.isdisjoint(rewritten.__globals__)


@pytest.mark.parametrize("cookie", ["utf-7", "latin-1", "no-such-encoding"])
def test_a_file_that_is_another_text_by_the_encoding_it_names_is_refused(cookie: str) -> None:
    text = f"# coding: {cookie}\n# \u00e9+AAo-evil\n{HEAD}@triton.jit\ndef kernel(x_ptr):\n    pass\n"
    with pytest.raises(KernelRefused, match="encoding"):
        build_kernels(text, "candidate.py", [{"name": "kernel", "line": 6, "globals": GLOBALS}])


@pytest.mark.parametrize("cookie", ["utf-8", "ascii", "latin-1"])
def test_an_encoding_that_changes_nothing_may_be_named(cookie: str) -> None:
    text = f"# coding: {cookie}\n{HEAD}@triton.jit\ndef kernel(x_ptr):\n    pass\n"
    assert build_kernels(text, "candidate.py", [{"name": "kernel", "line": 5, "globals": GLOBALS}])


def test_an_annotation_from_elsewhere_is_left_out_but_a_constant_stays_one() -> None:
    text = HEAD + "def kernel(x: torch.Tensor, n: tl.int64, B: tl.constexpr):\n    pass\n"
    described = [{"name": "kernel", "line": 4, "globals": GLOBALS}]
    [made] = build_kernels(text, "candidate.py", described)
    assert made.fn.__annotations__ == {"n": tl.int64, "B": tl.constexpr}
    with pytest.raises(KernelRefused):
        build_kernels(text.replace("tl.constexpr", "torch.constexpr"), "candidate.py", described)


def test_a_kernel_may_be_named_top() -> None:
    text = HEAD + "def top(x_ptr, n):\n    tl.store(x_ptr, [i + n for i in range(2)][0])\n"
    assert build_kernels(text, "candidate.py", [{"name": "top", "line": 4, "globals": GLOBALS}])


def test_a_branch_that_is_off_may_name_what_is_defined_nowhere(judge_text: Callable[..., Evaluation]) -> None:
    problem = """
class Model(nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.rand(7, 33)]
"""
    kernel = """
@triton.jit
def shift(x_ptr, out_ptr, count, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < count) + 1
    if ACTIVATION == "leaky_relu":
        x = leaky_relu(x)
    tl.store(out_ptr + offsets, x, mask=offsets < count)

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        shift[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), ACTIVATION="GIVEN", BLOCK=64)
        return out
"""
    off, on = (judge_text(problem, kernel.replace("GIVEN", name)) for name in ("", "leaky_relu"))
    assert off.verdict is Verdict.CORRECT, off.feedback
    assert on.verdict is Verdict.NOT_COMPILED
    assert "'leaky_relu' is not defined" in on.feedback
