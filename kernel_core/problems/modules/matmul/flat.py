"""The flat kernel: one program a block of elements of a tensor of any rank, with 64-bit offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.matmul.steps import (
    Loads,
    Step,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
)

WIDEST_LINE = 96
FLAT_LAUNCHES: tuple[tuple[Grade, int, int], ...] = (
    *(("naive", 256, 4), ("fused", 1024, 4), ("tuned", 2048, 8)),
)
"""Grade, elements of a block, and warps of an elementwise kernel."""


@dataclass(frozen=True)
class Layout:
    """Where a vector's value lies for a flat offset, and the sizes that this takes."""

    index: str = ""
    """Triton's expression over `offs` and the names of `sizes`."""
    sizes: tuple[tuple[str, str], ...] = ()
    """Kernel argument and the host's expression."""


COLUMNS = Layout("offs % cols", (("cols", "x.shape[-1]"),))
"""A value for each entry of the last dimension."""


def call(name: str, arguments: Sequence[str], *, indent: int = 0, head: str = "", tail: str = "") -> str:
    """`name(arguments)` between `head` and `tail`, on as many lines as it takes."""
    space = " " * indent
    line = f"{space}{head}{name}({', '.join(arguments)}){tail}"
    if len(line) <= WIDEST_LINE:
        return line
    settings = [one for one in arguments if "=" in one or "constexpr" in one]
    rows = _rows([one for one in arguments if one not in settings], WIDEST_LINE - indent - 4)
    rows += _rows(settings, WIDEST_LINE - indent - 4)
    body = "".join(f"\n{space}    {row}" for row in rows)
    return f"{space}{head}{name}({body}\n{space}){tail}"


def _rows(arguments: Sequence[str], width: int) -> list[str]:
    rows: list[str] = []
    for one in arguments:
        if rows and len(rows[-1]) + len(one) + 2 <= width:
            rows[-1] += f" {one},"
        else:
            rows.append(f"{one},")
    return rows


def function(name: str, arguments: Sequence[str], body: Sequence[str]) -> str:
    """A Triton function; lines of `body` are indented once here."""
    lines = "\n".join(f"    {line}" for line in body)
    return f"@triton.jit\n{call(name, arguments, head='def ', tail=':')}\n{lines}\n"


def flat_kernel(name: str, steps: Sequence[Step], layout: Layout = COLUMNS) -> str:
    """The kernel that loads `x`, does the steps and stores the result."""
    loads = Loads(
        vector=f"tl.load({{name}}_ptr + {layout.index}, mask=mask, other=0.0)",
        full="tl.load({name}_ptr + offs, mask=mask, other=0.0)",
        row="tl.load({name}_ptr + offs // cols, mask=mask, other=0.0)",
    )
    sizes = [one for one, _ in layout.sizes] if _has_vectors(steps) else []
    arguments = ["x_ptr", *pointers(steps), "out_ptr", *scalar_names(steps), "n", *sizes]
    return function(
        name,
        [*arguments, "BLOCK: tl.constexpr"],
        [
            "offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            "mask = offs < n",
            "x = tl.load(x_ptr + offs, mask=mask, other=0.0)",
            *tile_lines(steps, loads),
            "tl.store(out_ptr + offs, x, mask=mask)",
        ],
    )


def flat_launch(
    name: str,
    steps: Sequence[Step],
    block: int,
    *,
    warps: int = 4,
    layout: Layout = COLUMNS,
    result: str = "out",
) -> list[str]:
    """The host's lines from the contiguous `x` to `out`."""
    sizes = [text for _, text in layout.sizes] if _has_vectors(steps) else []
    options = [f"BLOCK={block}", *([f"num_warps={warps}"] if warps != 4 else [])]
    arguments = ["x", *tensors(steps), result, *scalar_values(steps), "n", *sizes, *options]
    return [
        f"{result} = torch.empty_like(x)",
        "n = x.numel()",
        f"grid = (triton.cdiv(n, {block}),)",
        *call(f"{name}[grid]", arguments).split("\n"),
    ]


def warps_option(warps: int) -> str:
    """The last argument of a launch, where it differs from Triton's default of four warps."""
    return f", num_warps={warps}" if warps != 4 else ""


def _has_vectors(steps: Sequence[Step]) -> bool:
    return any(step.vectors or step.rows for step in steps)
