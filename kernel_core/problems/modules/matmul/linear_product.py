"""The product of a linear layer in a kernel of its own, with the steps behind it in its epilogue."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_core.problems.graded import Grade
from kernel_core.problems.modules.matmul.gemm import (
    TF32,
    Operands,
    Product,
    Tile,
    product_kernel,
    product_launch,
)
from kernel_core.problems.modules.matmul.linear import Linear
from kernel_core.problems.modules.matmul.steps import (
    Loads,
    Step,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
)
from kernel_core.problems.modules.matmul.wording import listed

EPILOGUE = Loads(
    vector="tl.load({name}_ptr + rn, mask=rn < N, other=0.0)[None, :]",
    full="tl.load({name}_ptr + rm[:, None] * N + rn[None, :], mask=mask, other=0.0)",
    row="tl.load({name}_ptr + rm, mask=rm < M, other=0.0)[:, None]",
)
_NAMES = ("linear_kernel", "linear_kernel", "gemm_kernel", "product_kernel")
PLAIN = Tile(64, 128, 32, 4, 3)
_BANDS = (
    Tile(128, 128, 32, 8, 3, grouped=True),
    Tile(64, 128, 32, 4, 4, grouped=True),
    Tile(64, 64, 32, 4, 4, grouped=True),
)
"""From the largest tile down; at most 98,304 bytes of shared memory, where an H100 has 232,448."""
_PROCESSORS = 132
"""An H100's multiprocessors: fewer programs than that leave some of them idle."""


@dataclass(frozen=True)
class OwnProduct:
    """The function, the host's lines from `x` to the finished rows, and reasons in a sentence or two."""

    function: str
    host: tuple[str, ...]
    thinking: str


def own_products(
    linear: Linear, steps: Sequence[Step], rng: random.Random, out: str = "h"
) -> tuple[OwnProduct, OwnProduct]:
    """The product with plain tiles, and with tiles in bands that fit the problem's sizes; TF32 both.

    Where `out` is not the result, a kernel for the rows follows, which takes them as `x`.
    """
    name = rng.choice(_NAMES)
    made = []
    for tile in (PLAIN, tuned_tile(linear, rng)):
        one = linear_product(name, tile, steps, bias=bool(linear.bias))
        following = () if out == "out" else (f"x = {out}",)
        host = (
            *product_setup(linear.weight),
            *linear_launch(one, "x", linear.weight, linear.bias, steps, out),
            *following,
        )
        made.append(OwnProduct(product_kernel(one), host, product_reason(steps, tile, rng)))
    return made[0], made[1]


def with_grades(plain: OwnProduct, tuned: OwnProduct) -> tuple[tuple[Grade, OwnProduct], ...]:
    """Both products with the grades of the kernels that they stand in."""
    return (("fused", plain), ("tuned", tuned))


def tuned_tile(linear: Linear, rng: random.Random) -> Tile:
    """The largest tile of which there are enough for all processors, at times tuned at the first call."""
    rows, _, columns = (size.gpu for size in linear.sizes[:3])
    fitting = [
        tile for tile in _BANDS if math.ceil(rows / tile.m) * math.ceil(columns / tile.n) >= _PROCESSORS
    ]
    return replace((*fitting, _BANDS[-1])[0], autotuned=rng.random() < 0.15)


def linear_product(
    name: str, tile: Tile, steps: Sequence[Step], *, bias: bool, second: Sequence[Step] | None = None
) -> Product:
    """The kernel with the bias and a chain on its accumulator.

    Where a second chain is given, two layers share the kernel, and the flag `FIRST` chooses the chain.
    """
    chain = tile_lines(steps, EPILOGUE)
    if second is not None:
        chain = ["if FIRST:", *(f"    {line}" for line in chain)]
        chain += ["else:"] * bool(second) + [f"    {line}" for line in tile_lines(second, EPILOGUE)]
    every = [*steps, *(second or ())]
    first = "x = acc + tl.load(b_ptr + rn, mask=rn < N, other=0.0)[None, :]" if bias else "x = acc"
    return Product(
        name,
        TF32,
        tile,
        a="a",
        b="w",
        dense=True,
        pointers=(*(["b_ptr"] if bias else []), *pointers(every)),
        scalars=tuple(scalar_names(every)),
        flags=() if second is None else ("FIRST",),
        epilogue=(first, *chain),
        result="x",
    )


def pair_product(
    linear: Linear, last: str, between: Sequence[Step], after: Sequence[Step], out: str, tile: Tile
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """One kernel and the host's lines for two layers; `last` is the second layer's attribute."""
    one = linear_product("linear_kernel", tile, between, bias=True, second=after)
    every = [*between, *after]
    first = linear_launch(one, "x", linear.weight, linear.bias, every, "h", ("FIRST=True",))
    second = linear_launch(one, "h", f"{last}.weight", f"{last}.bias", every, out, ("FIRST=False",))
    host = (*product_setup(linear.weight), *first, f"N, K = {last}.weight.shape", *second)
    return (product_kernel(one),), host


def product_setup(weight: str) -> tuple[str, ...]:
    """The host's lines that name M, K and N."""
    return ("x = x.contiguous()", "M, K = x.shape", f"N = {weight}.shape[0]")


def linear_launch(
    one: Product,
    inputs: str,
    weight: str,
    bias: str,
    steps: Sequence[Step],
    out: str,
    flags: Sequence[str] = (),
) -> list[str]:
    """The host's lines that allocate the output and launch."""
    return [
        f"{out} = torch.empty((M, N), device=x.device, dtype=x.dtype)",
        *product_launch(
            one,
            Operands(inputs, weight),
            tensors=[*([bias] if bias else []), *tensors(steps)],
            scalars=scalar_values(steps),
            out=out,
            flags=flags,
        ),
    ]


def product_reason(steps: Sequence[Step], tile: Tile, rng: random.Random) -> str:
    """Why the product is not left to torch, and how its tiles lie."""
    begin = rng.choice(
        (
            "The product takes most of the time, and TF32 tensor cores do it several times faster than "
            "float32.",
            "Almost all the work is the product, so it is a tiled kernel with TF32 tensor cores.",
        )
    )
    words = [step.said for step in steps if step.operator]
    fused = f" The accumulator takes {listed(words)} before it is stored." if words else ""
    shape = (
        " Tile sizes are tuned at the first call." if tile.autotuned else f" Tiles are {tile.m} by {tile.n}."
    )
    order = " Bands of eight tile rows keep the weight in the L2 cache." if tile.grouped else ""
    return begin + fused + shape + order
