"""Elements of a tensor in another order: axes are split, exchanged and joined, with a few operators behind.

Every kernel follows from the axes of an arrangement and their order.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.graded import Grade, GradedKernel
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.indexing.arrangements import FORMS, Arrangement
from kernel_core.problems.modules.matmul.flat import FLAT_LAUNCHES, warps_option
from kernel_core.problems.modules.pointwise import Pointwise, draw_chain
from kernel_core.problems.modules.style import draw_style

_TAILS = ("relu", "sigmoid", "tanh", "silu", "gelu", "mul", "add", "sub", "square", "abs", "neg", "hardtanh")


def rearranged(rng: random.Random) -> Draft:
    """One arrangement, alone or with operators behind it."""
    arrangement = rng.choice(FORMS)(rng)
    chain = draw_chain(rng, rng.choice((0, 0, 1, 2)), _TAILS)
    style = draw_style(rng)
    returned = [*arrangement.lines, *(f"x = {one.torch.replace('{v}', 'x')}" for one in chain), "return x"]
    if not chain and rng.random() < 0.5:
        returned = [*arrangement.lines[:-1], f"return {arrangement.lines[-1].removeprefix('x = ')}"]
    setting = arrangement.setting
    module = Module(
        doc=arrangement.doc,
        init_args=(f"{setting[0]}: int",) if setting else (),
        init_lines=(f"self.{setting[0]} = {setting[0]}",) if setting else (),
        forward_args=("x",),
        forward_lines=tuple(returned),
        sizes=arrangement.sizes,
        inputs=(f"torch.randn({', '.join(size.name for size in arrangement.sizes)})",),
        init_inputs=(setting[0],) if setting else (),
        constants=((setting[0], str(setting[1])),) if setting else (),
    )
    kernels = [_kernel(module, arrangement, chain, *launch) for launch in FLAT_LAUNCHES]
    return Draft(
        family="rearranged",
        operators=(arrangement.name, *(one.operator for one in chain)),
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=(*kernels, _mistake(module, arrangement, chain)),
    )


def _kernel(
    module: Module, arrangement: Arrangement, chain: Sequence[Pointwise], grade: Grade, block: int, warps: int
) -> GradedKernel:
    axes = ", ".join(arrangement.order)
    then = f" Then {', '.join(one.operator for one in chain)} on the value." if chain else ""
    return GradedKernel(
        grade=grade,
        source=_source(module, arrangement, chain, block, warps),
        thinking=(
            f"Elements move and none meets another: axes {', '.join(name for name, _ in arrangement.axes)} "
            f"of x come in the order {axes}. A program takes {block} elements of the flat result, finds the "
            f"place on each axis by division, and reads x at {arrangement.place}.{then} "
            "Memory traffic decides: 4 bytes in and 4 out for each element."
        ),
    )


def _mistake(module: Module, arrangement: Arrangement, chain: Sequence[Pointwise]) -> GradedKernel:
    """Two axes are exchanged where the source is read."""
    moved = [one for one, (name, _) in zip(arrangement.order, arrangement.axes, strict=True) if one != name]
    exchanged = {moved[0]: moved[-1], moved[-1]: moved[0]}
    place = [(exchanged.get(name, name), length) for name, length in arrangement.axes]
    return GradedKernel(
        grade="mistake",
        fault="wrong_place",
        source=_source(module, arrangement, chain, 1024, 4, replace(arrangement, axes=tuple(place)).place),
        thinking="A program takes 1024 elements of the flat result and reads each where it was in x.",
    )


def _source(
    module: Module,
    arrangement: Arrangement,
    chain: Sequence[Pointwise],
    block: int,
    warps: int,
    place: str = "",
) -> str:
    length_of = dict(arrangement.axes)
    first, *others = arrangement.order
    divided = []
    for name in reversed(others):
        divided += [f"{name} = rest % {length_of[name]}", f"rest = rest // {length_of[name]}"]
    used = {length_of[name] for name in others} | {length for _, length in arrangement.axes[1:]}
    lengths = [one for one in dict.fromkeys(length_of.values()) if one in used and not one.isdigit()]
    kernel = [
        "@triton.jit",
        f"def {arrangement.name}_kernel(x_ptr, out_ptr, numel, {', '.join(lengths)}, BLOCK: tl.constexpr):",
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < numel",
        "    rest = offs",
        *(f"    {line}" for line in divided[:-1]),
        f"    {first} = rest // {length_of[others[0]]}",
        f"    x = tl.load(x_ptr + {place or arrangement.place}, mask=mask, other=0.0)",
        *(f"    x = {one.triton.replace('{v}', 'x')}" for one in chain),
        "    tl.store(out_ptr + offs, x, mask=mask)",
    ]
    more = warps_option(warps)
    host = [
        "x = x.contiguous()",
        *arrangement.host,
        f"out = torch.empty({arrangement.shape}, device=x.device, dtype=x.dtype)",
        f"grid = (triton.cdiv(out.numel(), {block}),)",
        f"{arrangement.name}_kernel[grid](x, out, out.numel(), {', '.join(lengths)}, BLOCK={block}{more})",
        "return out",
    ]
    return kernel_source(module, ["\n".join(kernel)], host)
