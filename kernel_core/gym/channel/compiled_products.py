"""Precision of matrix products, read from what a compiler made of a kernel. Nothing here imports torch.

A *kind* is what one product computes in: `ieee`, `tf32x3`, `tf32` or `half`; `unknown` stands for a product
that could not be read. Kinds are those of products on float32 values; on inputs in half precision, products
in half are native.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from kernel_core.records import ProductPrecision

UNKNOWN = "unknown"
_COARSEST_FIRST: tuple[ProductPrecision, ...] = ("half", "tf32", "tf32x3", "ieee")
_BY_INPUT_PRECISION = {"": "ieee", "ieee": "ieee", "tf32": "tf32", "tf32x3": "tf32x3"}
_BY_INPUT_PRECISION |= {"bf16x3": "tf32", "bf16x6": "tf32x3"}
"""Names of Triton's. Three products in bfloat16 hold 16 bits of a factor, six hold 24."""
_EXACT_ELEMENTS = ("f32", "f64")
_DOT = re.compile(r"\btt\.dot\b(?P<options>[^\n]*?) : (?P<left>tensor<[^>]*>+) \* (?P<right>tensor<[^>]*>+)")
_ANY_DOT = re.compile(r"\btt\.dot(_scaled)?\b|\bttng\.\w*mma\w*|\bttng\.warp_group_dot\b")
_INPUT_PRECISION = re.compile(r"inputPrecision = (\w+)")
_ELEMENT = re.compile(r"[x<]([a-zA-Z]\w*)[,>]")
_SHORT_FLOAT = r"(?:bf16|f16|f8E\w+)"
_NARROWED = re.compile(
    rf"\barith\.truncf\b[^\n]*f32>? to [^\n]*{_SHORT_FLOAT}\b"
    rf"|\btt\.fp_to_fp\b[^\n]*f32>? -> [^\n]*{_SHORT_FLOAT}\b"
    rf"|\barith\.mulf\b[^\n]* : (?:tensor<[\dx]*)?{_SHORT_FLOAT}\b"
    r"|\btt\.dot_scaled\b"
)
_INLINE = re.compile(r'\btt\.elementwise_inline_asm "(?P<text>(?:[^"\\]|\\.)*)"')
_MMA = re.compile(r"\b(?:mma|wmma|wgmma|tcgen05)[\w:.]*")
_PTX_NARROWED = re.compile(r"\bcvt[\w:.]*\.(?:f16|bf16|f16x2|bf16x2|e4m3x2|e5m2x2)\.f32\b")


def kinds_of_triton(ttir: str) -> set[str]:
    """Return the kinds of a kernel's products, from Triton's first language (TTIR).

    A conversion of float32 to a shorter float is `half` too: a factor that is rounded before it is multiplied
    by `tl.sum` has the precision of the shorter type.
    """
    kinds = set()
    dots = list(_DOT.finditer(ttir))
    for dot in dots:
        elements = {_element(dot["left"]), _element(dot["right"])}
        named = _INPUT_PRECISION.search(dot["options"])
        if elements <= {*_EXACT_ELEMENTS}:
            kinds.add(_BY_INPUT_PRECISION.get(named[1] if named else "", UNKNOWN))
        else:
            kinds.add("half")
    if len(_ANY_DOT.findall(ttir)) > len(dots) and "tt.dot_scaled" not in ttir:
        kinds.add(UNKNOWN)
    if _NARROWED.search(ttir):
        kinds.add("half")
    for inline in _INLINE.finditer(ttir):
        kinds |= kinds_of_ptx(inline["text"])
    return kinds


def _element(tensor: str) -> str:
    match = _ELEMENT.search(tensor)
    return match[1] if match else ""


def kinds_of_ptx(ptx: str) -> set[str]:
    """Return the kinds of the matrix instructions in PTX; a kernel without any has none.

    `mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32` names the types of result, factors and accumulator.
    """
    kinds = {"half"} if _PTX_NARROWED.search(ptx) else set()
    for name in _MMA.findall(ptx):
        parts = name.split(".")
        if "tf32" in parts or "tf32" in name.replace(":", ".").split("."):
            kinds.add("tf32")
        elif {"f64"} & {*parts}:
            kinds.add("ieee")
        elif {"f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "b1"} & {*parts}:
            kinds.add("half")
    return kinds


def lowest(kinds: Collection[str]) -> ProductPrecision | None:
    """Return the coarsest kind; None where there is none, or one that is not known."""
    if UNKNOWN in kinds:
        return None
    return next((kind for kind in _COARSEST_FIRST if kind in kinds), None)
