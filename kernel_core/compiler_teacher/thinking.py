"""A plan that a compiled kernel follows, in the words of the generator's plans."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernel_core.compiler_teacher.inductor_code import CompiledKernel
from kernel_core.compiler_teacher.kernel_text import WrittenKernel

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SAID = {
    "mm": "matrix products", "addmm": "matrix products", "bmm": "batched products",
    "baddbmm": "batched products", "conv": "the convolution",
}  # fmt: skip


def thinking_of(kernels: Sequence[tuple[CompiledKernel, WrittenKernel]], lines: Sequence[str]) -> str:
    """What is left to torch, what each kernel fuses, and what one program of it owns."""
    host = "\n".join(lines)
    left = sorted(
        {said for word, said in _SAID.items() if re.search(rf"torch\.(nn\.functional\.)?{word}", host)}
    )
    said = []
    if left:
        said.append(f"Torch does {' and '.join(left)} best; what stands around is bound by memory traffic.")
    if len(kernels) == 1:
        said.append(
            f"One kernel does {_work(kernels[0][1])}, so nothing between these steps is written to memory."
        )
    else:
        count = _NUMBERS[len(kernels)] if len(kernels) < len(_NUMBERS) else str(len(kernels))
        said.append(f"There are {count} kernels, each a run of steps that shares its indices.")
    for compiled, written in kernels:
        name = "It" if len(kernels) == 1 else f"`{written.name}`"
        said.append(_sentence(name, compiled, written))
    if any("BLOCK_COLS" in written.blocks and "for " in written.text for _, written in kernels):
        said.append("Masks close the last block, so any length fits.")
    return " ".join(said)


def _work(written: WrittenKernel) -> str:
    words = written.name.removesuffix("_kernel").split("_")
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _sentence(name: str, compiled: CompiledKernel, written: WrittenKernel) -> str:
    loads, loops = written.text.count("tl.load("), written.text.count("for ")
    if compiled.heuristic == "pointwise":
        index = (
            "by division and remainder of its flat offset"
            if "//" in written.text or "%" in written.text
            else ""
        )
        where = f" and finds what it broadcasts or moves {index}" if index and loads > 1 else ""
        where = where or (f" and finds its source {index}" if index else "")
        if len(written.axes) == 2:
            return f"{name} moves tiles of 32 by 32, so reads and writes are both side by side."
        return f"{name} is elementwise: a program owns {written.blocks['BLOCK']} outputs{where}."
    rows = written.blocks.get("BLOCK_ROWS", 1)
    owner = "one row" if rows == 1 else f"{rows} rows"
    kinds = [
        word
        for word, mark in (("sum", "tl.sum("), ("maximum", "tl.max("), ("minimum", "tl.min("))
        if mark in written.text
    ]
    what = f"the {' and the '.join(kinds)}" if kinds else "the reduction"
    if not loops:
        return f"{name} reduces: a program holds {owner} in registers, reads it once and takes {what} there."
    passes = _NUMBERS[loops] if loops < len(_NUMBERS) else str(loops)
    layout = (
        "side by side in memory"
        if compiled.is_inner
        else "apart in memory, so neighbouring rows are read together"
    )
    again = "" if loops == 1 else "; the later passes find the row in the cache"
    return (
        f"{name} reduces: a program owns {owner} and walks along it in blocks of "
        f"{written.blocks.get('BLOCK_COLS', 1)}, {passes} pass{'' if loops == 1 else 'es'} for "
        f"{what}{again}. What is reduced lies {layout}."
    )
