"""Places at which a convolution reads its input: offsets of the weight, strides, padding and dilation."""

from __future__ import annotations

from itertools import accumulate

from kernel_core.generator.index import Group, Index, image_letters, is_zero
from kernel_core.generator.ir import Value
from kernel_core.generator.kernel import Kernel
from kernel_core.generator.sizes import is_one


def taps_of(anchor: Value) -> list[Group]:
    """Loops over the offsets of the weight, one an axis of space."""
    letters = image_letters(anchor.rank)[2:]
    sizes = anchor.kernel
    depths = accumulate(0 if is_one(size) else 1 for size in sizes)
    return [
        Group(f"k{letter.lower()}", (size,), (f"K{letter}",), depth=depth)
        for letter, size, depth in zip(letters, sizes, depths, strict=True)
    ]


def name_geometry(kernel: Kernel, anchor: Value) -> None:
    """Make arguments of all sizes of space, in an order that every convolution has."""
    letters = image_letters(anchor.rank)[2:]
    x = anchor.inputs[0]
    kernel.keeps_order = True
    if anchor.is_tiled:
        kernel.size(x.shape[1], "C")
    for kind, sizes in (("", x.shape[2:]), ("O", anchor.shape[2:]), ("K", anchor.kernel)):
        for letter, size in zip(letters, sizes, strict=True):
            kernel.size(size, f"{kind}{letter}")
    for kind, numbers in (("S", anchor.stride), ("P", anchor.padding), ("D", anchor.dilation)):
        for letter, number in zip(letters, numbers, strict=True):
            kernel.size(number, f"{kind}{letter}")


def numbers_of(kernel: Kernel, anchor: Value, axis: int, letter: str) -> tuple[str, str, str]:
    """Arguments of stride, padding and dilation along one axis of space."""
    stride, padding, dilation = (
        kernel.size(numbers[axis], f"{kind}{letter}")
        for kind, numbers in (("S", anchor.stride), ("P", anchor.padding), ("D", anchor.dilation))
    )
    return stride, padding, dilation


def first_position(kernel: Kernel, anchor: Value, axis: int, place: Index, letter: str, view: str) -> str:
    """Name of the position under the weight's first offset; an axis has less than 2**31 of them."""
    stride, padding, _ = numbers_of(kernel, anchor, axis, letter)
    at = kernel.index(place)[0].removesuffix(view)
    if anchor.transposed:
        text = at if padding == "0" else f"{at} + {padding}"
    else:
        text = (at if stride == "1" else f"{at} * {stride}") + ("" if padding == "0" else f" - {padding}")
    if is_zero(place):
        return f"({text})"
    name = f"{letter.lower()}0"
    return kernel.remember((name, id(anchor)), 0, lambda: kernel.named(name, f"({text}).to(tl.int32)", 0))


def position(
    kernel: Kernel, anchor: Value, axis: int, place: Index, tap: Group, letter: str, view: str
) -> tuple[str, list[str]]:
    """Name of the input's position along one axis, and the conditions under which it is inside."""
    stride, padding, dilation = numbers_of(kernel, anchor, axis, letter)
    size = kernel.size(anchor.inputs[0].shape[2 + axis], letter)
    first = first_position(kernel, anchor, axis, place, letter, view)
    step = "" if is_zero(tap.digit(0)) else tap.name + ("" if dilation == "1" else f" * {dilation}")

    def line(name: str, text: str) -> str:
        return kernel.remember((name, id(anchor)), tap.depth, lambda: kernel.named(name, text, tap.depth))

    if not anchor.transposed:
        name = line(f"i{letter.lower()}", f"{first} + {step}") if step else first
        return name, [f"{name} >= 0", f"{name} < {size}"] if padding != "0" else []
    text = f"{first} - {step}" if step else first
    if stride == "1":
        name = line(f"i{letter.lower()}", text)
        return name, [f"{name} >= 0", f"{name} < {size}"]
    full = line(f"t{letter.lower()}", text)
    name = line(f"i{letter.lower()}", f"{full} // {stride}")
    return name, [f"{full} >= 0", f"{full} % {stride} == 0", f"{name} < {size}"]
