"""Lines of `forward` that launch a convolution's kernel: shapes from the layer, output, grid."""

from __future__ import annotations

from kernel_core.problems.modules.convolution.gemm_kernels import Skeleton, axes
from kernel_core.problems.modules.convolution.geometry import LETTERS


def shape_lines(rank: int, transposed: bool, attribute: str) -> list[str]:
    """Names for the sizes of the input, the kernel and the output."""
    comma = "," if rank == 1 else ""
    lines = [
        "x = x.contiguous()",
        f"conv = self.{attribute}",
        f"N, C, {axes(rank, '@')} = x.shape",
        f"{axes(rank, 'K@')}{comma} = conv.kernel_size",
        f"{axes(rank, 'S@')}{comma} = conv.stride",
        f"{axes(rank, 'P@')}{comma} = conv.padding",
        f"{axes(rank, 'D@')}{comma} = conv.dilation",
    ]
    for position, one in enumerate(LETTERS[rank]):
        text = (
            f"O{one} = ({one} - 1) * S{one} - 2 * P{one} + D{one} * (K{one} - 1)"
            f" + conv.output_padding[{position}] + 1"
            if transposed
            else f"O{one} = ({one} + 2 * P{one} - D{one} * (K{one} - 1) - 1) // S{one} + 1"
        )
        lines.append(text)
    return lines


def output_line(rank: int) -> str:
    """The allocation of the result."""
    return f"y = torch.empty((N, conv.out_channels, {axes(rank, 'O@')}), device=x.device, dtype=x.dtype)"


def settings(rank: int, names: str = "KSPD") -> str:
    """Kernel size, stride, padding and dilation as arguments, in the kernel's order."""
    return ", ".join(axes(rank, f"{name}@") for name in names)


def gemm_lines(skeleton: Skeleton, attribute: str) -> list[str]:
    """The whole body of `forward` for the matrix-product kernel."""
    rank = skeleton.rank
    most_o, block_p, most_c = skeleton.blocks
    block_p_text = 'meta["BLOCK_P"]' if skeleton.autotune else str(block_p)
    block_o_text = 'meta["BLOCK_O"]' if skeleton.autotune else "BLOCK_O"
    tiles = f"triton.cdiv({axes(rank, 'O@', ' * ')}, {block_p_text})"
    if skeleton.transposed:
        per_phase = axes(rank, "triton.cdiv(O@, S@)", " * ")
        strides = axes(rank, "S@", " * ")
        tiles = f"{strides} * triton.cdiv(Q, {block_p_text})"
    lines = [
        *shape_lines(rank, skeleton.transposed, attribute),
        "G = conv.groups",
        "CI, CO = C // G, conv.out_channels // G",
        output_line(rank),
    ]
    if skeleton.transposed:
        lines.append(f"Q = {per_phase}")
    grid = f"({tiles}, triton.cdiv(CO, {block_o_text}), N * G)"
    blocks = ""
    if not skeleton.autotune:
        lines += [
            f"BLOCK_O = max(16, min({most_o}, triton.next_power_of_2(CO)))",
            f"BLOCK_C = max(16, min({most_c}, triton.next_power_of_2(CI)))",
        ]
        blocks = f", BLOCK_O=BLOCK_O, BLOCK_P={block_p}, BLOCK_C=BLOCK_C"
    return [
        *lines,
        f"grid = {'lambda meta: ' if skeleton.autotune else ''}{grid}",
        f"{skeleton.kernel}[grid](",
        f"    x, conv.weight, conv.bias, y, G, CI, CO, {axes(rank, '@')}, {axes(rank, 'O@')},",
        f"    {settings(rank)}{blocks}{skeleton.launch},",
        ")",
        "return y",
    ]
