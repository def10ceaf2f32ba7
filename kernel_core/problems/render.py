"""Text from a program: the reference, and kernels of each grade that share one skeleton."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_core.problems.program import Argument, Program


def reference_source(program: Program) -> str:
    """The problem's module in KernelBench's format, at its GPU sizes."""
    forward = [*program.opening.torch, *(line for step in program.steps for line in step.torch)]
    sizes = "\n".join(f"{size.name} = {size.gpu}" for size in program.sizes)
    inputs = [argument for argument in program.arguments if not argument.parameter]
    drawn = ", ".join(argument.drawn(argument.dims) for argument in inputs)
    return (
        f"{_imports(forward)}\n\n"
        f"class Model(nn.Module):\n{_constructor(program)}{_forward(program, forward, program.v)}\n\n"
        f"{sizes}\n\n\n"
        f"def get_inputs():\n    return [{drawn}]\n\n\n"
        f"def get_init_inputs():\n    return [{', '.join(_constructor_sizes(program))}]\n"
    )


def fused_source(
    program: Program, *, tuned: bool = False, opening_tile: tuple[str, ...] | None = None
) -> str:
    """One launch for everything; tuned: with a better block and number of warps."""
    frame = program.frame
    tile = opening_tile if opening_tile is not None else program.opening.tile
    body = [*frame.prologue, *tile, *(line for step in program.steps for line in step.tile), frame.store]
    block = frame.blocks[2 if tuned else 1]
    launch = [f"out = {frame.allocation}", *_launch(program, block, frame.tuned_warps if tuned else 4)]
    return _module(program, _pointers(program), body, [*frame.setup, *launch, "return out"])


def naive_source(program: Program) -> str:
    """One launch an operation: the same kernel, told by `OP` which step it is to do.

    Between launches the tile lies in `out`, or in `tmp` where the result is smaller than the tile.
    """
    frame, v = program.frame, program.v
    scratch = "" if program.reduced_at is None else "tmp"
    held = scratch or "out"
    is_input = not program.opening.torch
    body = list(frame.prologue)
    if is_input:
        body += program.opening.tile
    else:
        body += _guarded(0, program.opening.tile)
        body += ["else:", f"    {v} = tl.load({held}_ptr + i, mask=mask, other=0.0)"]
    first = 0 if is_input else 1
    whole = program.steps[: program.reduced_at]
    for position, step in enumerate(whole):
        body += _guarded(position + first, step.tile)
    launches = len(whole) + first
    if program.reduced_at is None:
        body.append(frame.store)
    else:
        last = [line for step in program.steps[program.reduced_at :] for line in step.tile]
        body += _guarded(launches, (*last, frame.store))
        body += ["else:", f"    tl.store(tmp_ptr + i, {v}, mask=mask)"]
        launches += 1
    forward = [*frame.setup, f"out = {frame.allocation}"]
    if scratch:
        forward.append(f"{scratch} = {frame.scratch}")
    loop = _launch(program, frame.blocks[0], op="op", held=scratch)
    if is_input:
        loop.append(f"{v} = {held}")
    forward += [f"for op in range({launches}):", *(f"    {line}" for line in loop), "return out"]
    return _module(program, _pointers(program, scratch=bool(scratch)), body, forward, op=True)


def lazy_source(program: Program) -> str | None:
    """PyTorch for all but the last operation, and one launch for that; None where there is only one."""
    frame, v, is_input = program.frame, program.v, not program.opening.torch
    last = len(program.steps) - 1 if program.reduced_at is None else program.reduced_at
    first_own = next((s for s in range(last, -1, -1) if program.steps[s].torch), 0)
    if is_input and first_own == 0:
        return None
    before = [*program.opening.torch, *(line for step in program.steps[:first_own] for line in step.torch)]
    loaded = program.opening.tile if is_input else (f"{v} = tl.load(tmp_ptr + i, mask=mask, other=0.0)",)
    own = [line for step in program.steps[first_own:] for line in step.tile]
    launch = _launch(program, frame.blocks[1], held="" if is_input else v)
    forward = [*frame.setup, f"out = {frame.allocation}", *before, *launch, "return out"]
    body = [*frame.prologue, *loaded, *own, frame.store]
    return _module(program, _pointers(program, scratch=not is_input), body, forward)


def launches_of_naive(program: Program) -> int:
    """Number of launches in `naive_source`."""
    steps = len(program.steps) if program.reduced_at is None else program.reduced_at + 1
    return steps + bool(program.opening.torch)


def _guarded(op: int, lines: tuple[str, ...]) -> list[str]:
    return [f"if OP == {op}:", *(f"    {line}" for line in lines)]


def _pointers(program: Program, scratch: bool = False) -> list[str]:
    return [f"{argument.name}_ptr" for argument in program.arguments] + ["tmp_ptr"] * scratch + ["out_ptr"]


def _launch(program: Program, block: int, warps: int = 4, *, op: str = "", held: str = "") -> list[str]:
    """The launch; `held` is what `forward` calls the tensor that the kernel calls `tmp`."""
    frame = program.frame
    names = [argument.in_forward for argument in program.arguments]
    names += [held] * bool(held) + ["out", *frame.scalars]
    words = [f"OP={op}"] if op else []
    words += [f"{name}={value.format(block=block)}" for name, value in frame.constexprs]
    words += [f"num_warps={warps}"] if warps != 4 else []
    return [f"kernel[{frame.grid.format(block=block)}]({', '.join(names + words)})"]


def _module(
    program: Program, pointers: list[str], body: list[str], forward: list[str], op: bool = False
) -> str:
    constexprs = ["OP"] * op + [name for name, _ in program.frame.constexprs]
    signature = pointers + list(program.frame.scalars) + [f"{name}: tl.constexpr" for name in constexprs]
    lines = "\n".join(f"    {line}" for line in body)
    return (
        f"{kernel_imports(forward)}\n\n@triton.jit\ndef kernel({', '.join(signature)}):\n{lines}\n\n\n"
        f"class ModelNew(nn.Module):\n{_constructor(program)}{_forward(program, forward, '')}"
    )


def kernel_imports(forward: Sequence[str]) -> str:
    """Imports of a module that has a kernel beside these lines of PyTorch."""
    return _imports(forward, "triton", "triton.language as tl")


def _imports(forward: Sequence[str], *more: str) -> str:
    functional = ["torch.nn.functional as F"] * any("F." in line for line in forward)
    return "".join(f"import {name}\n" for name in ("torch", "torch.nn as nn", *functional, *more))


def _constructor_sizes(program: Program) -> list[str]:
    """Sizes that the constructor takes, each once, in the order of the parameters."""
    return list(dict.fromkeys(dim for argument in _parameters(program) for dim in argument.dims))


def _parameters(program: Program) -> list[Argument]:
    return [argument for argument in program.arguments if argument.parameter]


def _constructor(program: Program) -> str:
    parameters = _parameters(program)
    if not parameters:
        return ""
    names = {size: size.lower() for size in _constructor_sizes(program)}
    lines = [
        f"        self.{weight.name} = nn.Parameter({weight.drawn(tuple(names[dim] for dim in weight.dims))})"
        for weight in parameters
    ]
    head = f"    def __init__(self, {', '.join(names.values())}):\n        super().__init__()\n"
    return head + "\n".join(lines) + "\n\n"


def _forward(program: Program, lines: list[str], returned: str) -> str:
    inputs = [argument.name for argument in program.arguments if not argument.parameter]
    body = [*lines, f"return {returned}"] if returned else lines
    text = "\n".join(f"        {line}" for line in body)
    return f"    def forward(self, {', '.join(inputs)}):\n{text}\n"
