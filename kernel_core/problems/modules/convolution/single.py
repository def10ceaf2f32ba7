"""Families of single convolutions: forward and transposed, over one to three axes."""

from __future__ import annotations

import random
from dataclasses import replace

from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.modules.convolution.direct_kernels import direct_kernel, direct_lines
from kernel_core.problems.modules.convolution.gemm_kernels import Skeleton, gemm_kernel, taps
from kernel_core.problems.modules.convolution.geometry import Geometry, Wish, draw_geometry
from kernel_core.problems.modules.convolution.host import gemm_lines
from kernel_core.problems.modules.convolution.layers import layer_module
from kernel_core.problems.modules.convolution.volume_kernels import (
    direct_volume_kernels,
    direct_volume_lines,
    volume_kernels,
    volume_lines,
)
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.style import draw_style


def conv1d(rng: random.Random) -> Draft:
    """A convolution over a sequence."""
    return _single(rng, "conv1d", Wish(rank=1))


def conv2d(rng: random.Random) -> Draft:
    """A convolution over images."""
    return _single(rng, "conv2d", Wish(rank=2))


def conv3d(rng: random.Random) -> Draft:
    """A convolution over volumes."""
    return _single(rng, "conv3d", Wish(rank=3))


def conv_transpose1d(rng: random.Random) -> Draft:
    """A transposed convolution over a sequence."""
    return _single(rng, "conv_transpose1d", Wish(rank=1, transposed=True))


def conv_transpose2d(rng: random.Random) -> Draft:
    """A transposed convolution over images."""
    return _single(rng, "conv_transpose2d", Wish(rank=2, transposed=True))


def conv_transpose3d(rng: random.Random) -> Draft:
    """A transposed convolution over volumes."""
    return _single(rng, "conv_transpose3d", Wish(rank=3, transposed=True))


def _single(rng: random.Random, operator: str, wish: Wish) -> Draft:
    geometry = draw_geometry(rng, replace(wish, simple=rng.random() < 0.35))
    style = draw_style(rng)
    module, attribute = layer_module(geometry, style, rng)
    skeleton = Skeleton(
        rank=wish.rank,
        transposed=wish.transposed,
        kernel=rng.choice((f"{operator}_kernel", f"{operator}_gemm_kernel", f"{operator}_forward_kernel")),
        comments=rng.random() < 0.6,
        exact=rng.random() < 0.5,
    )
    if wish.rank < 3 and rng.random() < 0.5:
        tuned = replace(skeleton, autotune=True)
    else:
        tuned = replace(skeleton, blocks=(128, 128, 32), launch=", num_warps=8, num_stages=3")
    gemm = _gemm(module, attribute, skeleton)
    return Draft(
        family=operator,
        operators=(operator,),
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=(
            GradedKernel(
                grade="naive",
                source=_direct(module, attribute, skeleton),
                thinking=_DIRECT,
            ),
            GradedKernel(grade="fused", source=gemm, thinking=_thinking(geometry, rng)),
            GradedKernel(
                grade="tuned", source=_gemm(module, attribute, tuned), thinking=_thinking(geometry, rng)
            ),
            _mistake(gemm, geometry),
        ),
    )


def _direct(module: Module, attribute: str, skeleton: Skeleton) -> str:
    if skeleton.rank == 3:
        lines = direct_volume_lines(skeleton, attribute, 1024)
        return kernel_source(module, direct_volume_kernels(skeleton), lines)
    return kernel_source(module, [direct_kernel(skeleton)], direct_lines(skeleton, attribute, 1024))


def _gemm(module: Module, attribute: str, skeleton: Skeleton) -> str:
    if skeleton.rank == 3:
        return kernel_source(module, volume_kernels(skeleton), volume_lines(skeleton, attribute))
    return kernel_source(module, [gemm_kernel(skeleton)], gemm_lines(skeleton, attribute))


def _mistake(source: str, geometry: Geometry) -> GradedKernel:
    padded = next((one for one, p in zip("LHWD", _by_letter(geometry), strict=True) if p), "")
    if geometry.rank == 2 and padded and not geometry.transposed:
        fault, wrong = "no_padding", source.replace(f" - P{padded} + ", " + ")
    elif geometry.rank == 3:
        fault, wrong = "flipped_kernel", source.replace("* K + step % K,", "* K + K - 1 - step % K,")
    else:
        count = taps(geometry.rank)
        fault, wrong = (
            "flipped_kernel",
            source.replace(f"* ({count}) + tap,", f"* ({count}) + {count} - 1 - tap,"),
        )
    return GradedKernel(grade="mistake", fault=fault, source=wrong, thinking=_thinking(geometry, None))


def _by_letter(geometry: Geometry) -> tuple[int, int, int, int]:
    padding = geometry.padding
    if geometry.rank == 1:
        return (padding[0], 0, 0, 0)
    return (0, padding[-2], padding[-1], padding[0] if geometry.rank == 3 else 0)


_DIRECT = (
    "Each program computes a tile of one output plane. It loops over the group's input channels and the "
    "kernel positions, with one scalar weight each; pixels outside the input count as zero."
)


def _thinking(geometry: Geometry, rng: random.Random | None) -> str:
    count = "a" if rng is None or rng.random() < 0.5 else "one"
    text = (
        f"The convolution is a matrix product: {count} tile holds output channels by output pixels of "
        "one image, summed over kernel positions and blocks of input channels with tl.dot. "
    )
    if geometry.transposed:
        return text + (
            "Each output gathers the inputs that reach it; outputs with one remainder modulo the stride "
            "share a program, so positions that miss are skipped. Masks cover the borders."
        )
    text += "Weights are read in torch's layout, and masks stand for the padding."
    return text + (" The groups are a program axis." if geometry.groups > 1 else "")
