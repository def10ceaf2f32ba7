"""Convolutions of volumes, forward and transposed: short texts, with a helper that splits a flat index.

The settings of the layer reach a kernel as one tuple that the launch unpacks. Every text serves groups,
dilation and uneven extents.
"""

from __future__ import annotations

from kernel_core.problems.modules.convolution.gemm_kernels import BLOCKS, Skeleton, indented

SPLIT = """
@triton.jit
def split3(i, H, W):
    return i // (H * W), i // W % H, i % W
""".strip("\n")

_SIZES = """G, CI, CO, D, H, W, OD, OH, OW,
    KD, KH, KW, SD, SH, SW, PD, PH, PW, DD, DH, DW,"""
_FORWARD = [
    "d = od * SD - PD + kd * DD",
    "h = oh * SH - PH + kh * DH",
    "w = ow * SW - PW + kw * DW",
]
_INSIDE = "inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)"
_PRODUCT = [
    _INSIDE,
    "a = tl.load(w_ptr + ({weight}) * K + step % K,",
    "            mask=(o[:, None] < CO) & (c[None, :] < CI), other=0.0)",
    "b = tl.load(x_ptr + c[:, None] * (D * H * W) + ((d * H + h) * W + w)[None, :],",
    "            mask=(c[:, None] < CI) & inside[None, :], other=0.0)",
    "acc += tl.dot(a, b{precision})",
]
_ARGUMENTS = [
    "    x, conv.weight, conv.bias, y, G, CI, CO, D, H, W, OD, OH, OW,",
    "    *[value for triple in settings for value in triple],",
]
_CHANNELS = "step // K * BLOCK_C + tl.arange(0, BLOCK_C)"
_TRANSPOSED_TAP = [
    "td = rd + PD - kd * DD",
    "th = rh + PH - kh * DH",
    "tw = rw + PW - kw * DW",
    "if td % SD == 0 and th % SH == 0 and tw % SW == 0:",
]
_POSITIONS = ["d = qd + td // SD", "h = qh + th // SH", "w = qw + tw // SW"]


def volume_kernels(skeleton: Skeleton) -> list[str]:
    """The product of weights and pixels, summed over kernel positions and blocks of input channels."""
    weight = "c[None, :] * CO + o[:, None]" if skeleton.transposed else "o[:, None] * CI + c[None, :]"
    precision = ', input_precision="ieee"' if skeleton.exact else ""
    load = [line.replace("{weight}", weight).replace("{precision}", precision) for line in _PRODUCT]
    note = "  # image and group: n * G + g" if skeleton.comments else ""
    if skeleton.transposed:
        pixels = _phases(skeleton.comments)
        where, kept = "((od * OH + oh) * OW + ow)", "(od < OD) & (oh < OH) & (ow < OW)"
        body = [*_TRANSPOSED_TAP, *indented(["c = " + _CHANNELS, *_POSITIONS, *load]).split("\n")]
    else:
        pixels = [
            "p = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)",
            "od, oh, ow = split3(p, OH, OW)",
        ]
        where, kept = "p", "p < P"
        body = [*_FORWARD, "c = " + _CHANNELS, *load]
    text = f"""
@triton.jit
def {skeleton.kernel}(
    x_ptr, w_ptr, b_ptr, y_ptr, {_SIZES}
    {BLOCKS},
):
    ng = tl.program_id(2){note}
    o = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
{indented(pixels)}
    K = KD * KH * KW
    P = OD * OH * OW
    x_ptr += ng.to(tl.int64) * CI * D * H * W
    w_ptr += ng % G * CO * CI * K
    acc = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for step in range(K * tl.cdiv(CI, BLOCK_C)):
        kd, kh, kw = split3(step % K, KH, KW)
{indented(body, 2)}
    if b_ptr is not None:
        acc += tl.load(b_ptr + ng % G * CO + o, mask=o < CO, other=0.0)[:, None]
    y_ptr += ng.to(tl.int64) * CO * P
    keep = {kept}
    tl.store(y_ptr + o[:, None] * P + {where}[None, :], acc, mask=(o[:, None] < CO) & keep[None, :])
"""
    return [SPLIT, text.strip("\n")]


def _phases(comments: bool) -> list[str]:
    note = ["# The outputs of a program share a remainder modulo the stride."] if comments else []
    return [
        *note,
        "phases = SD * SH * SW",
        "rd, rh, rw = split3(tl.program_id(0) % phases, SH, SW)",
        "p = tl.program_id(0) // phases * BLOCK_P + tl.arange(0, BLOCK_P)",
        "qd, qh, qw = split3(p, tl.cdiv(OH, SH), tl.cdiv(OW, SW))",
        "od, oh, ow = qd * SD + rd, qh * SH + rh, qw * SW + rw",
    ]


def direct_volume_kernels(skeleton: Skeleton) -> list[str]:
    """A program a tile of one output volume: loops over input channels and kernel positions."""
    inside = _INSIDE
    taps = _FORWARD
    row = "o * CI + c"
    if skeleton.transposed:
        taps = ["d = od + PD - kd * DD", "h = oh + PH - kh * DH", "w = ow + PW - kw * DW"]
        taps = [*taps, "hit = (d % SD == 0) & (h % SH == 0) & (w % SW == 0)"]
        taps = [*taps, "d, h, w = d // SD, h // SH, w // SW"]
        inside = inside.replace("(d >= 0) & (d < D)", "hit & (d >= 0) & (d < D)")
        row = "(o // CO * CI + c) * CO + o % CO"
    text = f"""
@triton.jit
def {skeleton.kernel}(
    x_ptr, w_ptr, b_ptr, y_ptr, {_SIZES}
    BLOCK: tl.constexpr,
):
    no = tl.program_id(0)
    o = no % (G * CO)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    od, oh, ow = split3(p, OH, OW)
    K = KD * KH * KW
    P = OD * OH * OW
    x_ptr += (no // CO).to(tl.int64) * CI * D * H * W
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(CI):
        for tap in range(K):
            kd, kh, kw = split3(tap, KH, KW)
{indented([*taps, inside], 3)}
            x = tl.load(x_ptr + (d * H + h) * W + w, mask=inside, other=0.0)
            acc += x * tl.load(w_ptr + ({row}) * K + tap)
        x_ptr += D * H * W
    if b_ptr is not None:
        acc += tl.load(b_ptr + o)
    tl.store(y_ptr + no.to(tl.int64) * P + p, acc, mask=p < P)
"""
    return [SPLIT, text.strip("\n")]


def _shape_lines(transposed: bool, attribute: str) -> list[str]:
    names = "conv.kernel_size, conv.stride, conv.padding, conv.dilation"
    if transposed:
        extents = [
            "    (n - 1) * s - 2 * p + d * (k - 1) + e + 1",
            "    for n, k, s, p, d, e in zip(x.shape[2:], *settings, conv.output_padding)",
        ]
    else:
        extents = [
            "    (n + 2 * p - d * (k - 1) - 1) // s + 1",
            "    for n, k, s, p, d in zip(x.shape[2:], *settings)",
        ]
    return [
        "x = x.contiguous()",
        f"conv = self.{attribute}",
        "N, C, D, H, W = x.shape",
        f"settings = ({names})",
        "OD, OH, OW = [",
        *extents,
        "]",
        "G, CI, CO = conv.groups, C // conv.groups, conv.out_channels // conv.groups",
        "y = torch.empty((N, G * CO, OD, OH, OW), device=x.device, dtype=x.dtype)",
    ]


def volume_lines(skeleton: Skeleton, attribute: str) -> list[str]:
    """The body of `forward` for the product."""
    most_o, block_p, most_c = skeleton.blocks
    lines = _shape_lines(skeleton.transposed, attribute)
    tiles = f"triton.cdiv(OD * OH * OW, {block_p})"
    if skeleton.transposed:
        lines += [
            "SD, SH, SW = conv.stride",
            "Q = triton.cdiv(OD, SD) * triton.cdiv(OH, SH) * triton.cdiv(OW, SW)",
        ]
        tiles = f"SD * SH * SW * triton.cdiv(Q, {block_p})"
    return [
        *lines,
        f"BLOCK_O = max(16, min({most_o}, triton.next_power_of_2(CO)))",
        f"BLOCK_C = max(16, min({most_c}, triton.next_power_of_2(CI)))",
        f"grid = ({tiles}, triton.cdiv(CO, BLOCK_O), N * G)",
        f"{skeleton.kernel}[grid](",
        *_ARGUMENTS,
        f"    BLOCK_O=BLOCK_O, BLOCK_P={block_p}, BLOCK_C=BLOCK_C{skeleton.launch},",
        ")",
        "return y",
    ]


def direct_volume_lines(skeleton: Skeleton, attribute: str, block: int) -> list[str]:
    """The body of `forward` for the direct kernel."""
    return [
        *_shape_lines(skeleton.transposed, attribute),
        f"{skeleton.kernel}[(N * G * CO, triton.cdiv(OD * OH * OW, {block}))](",
        *_ARGUMENTS,
        f"    BLOCK={block},",
        ")",
        "return y",
    ]
