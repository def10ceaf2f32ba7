"""Only what a Triton kernel can be is rebuilt from a candidate's text."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_core.gym.kernels import KernelRefused, build_kernels

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
        ("    tl.core.builtins.exec('1')\n", 6),
        ("    tl.inspect.currentframe()\n", 6),
        ("    triton.runtime.interpreter.interpreter_builder\n", 6),
        ("    i = tl.no_such_thing\n", 6),
        ("    i = undefined\n", 6),
        ("    if BLOCK == 3:\n        undefined(x_ptr)\n", 7),
        ("    match x_ptr:\n        case tl.tensor(handle=h):\n            tl.store(out_ptr, h)\n", 6),
        ("    while (i := 1):\n        tl.store(out_ptr, i)\n", 6),
        ("    def inner():\n        return 1\n", 6),
        ("    core = tl.core\n    core.knobs.os.getpid()\n", 7),
        ("    (tl.core if BLOCK else tl).knobs\n", 6),
        ("    f = tl.multiple_of\n    f.keywords\n", 7),
        ("    tl.load(x_ptr).fn\n", 6),
        ("    '{0}'.format(x_ptr)\n", 6),
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
