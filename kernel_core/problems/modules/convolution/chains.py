"""Families of chains: torch's convolution, then elementwise operators, norms, reductions or pools."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from kernel_core.problems.graded import GradedKernel
from kernel_core.problems.modules.convolution.chain_draw import Chain, draw_chain
from kernel_core.problems.modules.convolution.geometry import Geometry, Wish, draw_geometry
from kernel_core.problems.modules.convolution.tail import functions_of, host_lines, segments
from kernel_core.problems.modules.convolution.tail_kernels import Launch, Segment
from kernel_core.problems.modules.convolution.tail_ops import Kind, Op
from kernel_core.problems.modules.convolution.tail_values import effect
from kernel_core.problems.modules.draft import Draft, Module, draft_sizes, kernel_source, reference_source
from kernel_core.problems.modules.style import draw_style, with_named_steps

_TUNED = Launch(flat=2048, row=4096, pixels=512, options=", num_warps=8")
_SMALL = Launch(flat=256, row=512, pixels=128)


def conv_elementwise(rng: random.Random) -> Draft:
    """Activations, constants and parameters for each channel."""
    return _chain(rng, "conv_elementwise")


def conv_norm(rng: random.Random) -> Draft:
    """A normalisation among other operators."""
    return _chain(rng, "conv_norm")


def conv_reduce(rng: random.Random) -> Draft:
    """Reductions or a softmax over channels, depth, space or a sample."""
    return _chain(rng, "conv_reduce")


def conv_pool(rng: random.Random) -> Draft:
    """Pools among other operators."""
    return _chain(rng, "conv_pool")


def _chain(rng: random.Random, family: str) -> Draft:
    rank = rng.choice((2, 2, 3))
    geometry = draw_geometry(rng, Wish(rank=rank, transposed=rng.random() < 0.4, plain=True))
    chain = draw_chain(rng, family, rank)
    ops = chain.ops
    geometry = _with_known_width(geometry, {op.kind for op in ops})
    geometry = _divisible(geometry, ops)
    if chain.front is not None and {op.kind for op in ops} & {"second", "layer_norm"}:
        chain = replace(chain, front=None)  # the output's width would not follow from the problem's sizes
    front = None
    if chain.front is not None:
        front = Segment(f"input_{chain.front.detail}_pool_kernel", (), chain.front, ())
        geometry = _pooled_before(geometry, chain.front)
    module, attribute = _module(geometry, chain, rng)
    style = draw_style(rng)
    fused = segments(ops, fuse=True)
    kept = any(op.kind == "keep" for op in ops)

    def source(fuse: bool, launch: Launch) -> str:
        parts = fused if fuse or kept else segments(ops, fuse)
        functions = functions_of([*([front] if front else []), *parts], rank)
        return kernel_source(module, functions, host_lines(parts, rank, attribute, launch, front))

    thinking = _thinking([part.kind for part in fused], chain)
    wrong, fault = _mistake(ops, source(True, Launch()))
    kernels = (
        GradedKernel(grade="naive", source=source(False, _SMALL), thinking=_NAIVE),
        GradedKernel(grade="fused", source=source(True, Launch()), thinking=thinking),
        GradedKernel(grade="tuned", source=source(True, _TUNED), thinking=thinking),
        GradedKernel(grade="mistake", fault=fault, source=wrong, thinking=thinking),
    )
    operator = f"conv_transpose{rank}d" if geometry.transposed else f"conv{rank}d"
    return Draft(
        family=family,
        operators=(
            *([chain.front.operator] if chain.front else []),
            operator,
            *(op.operator for op in ops if op.operator),
        ),
        reference=reference_source(module, style),
        sizes=draft_sizes(module, style),
        kernels=kernels,
    )


def _with_known_width(geometry: Geometry, kinds: set[Kind]) -> Geometry:
    """An output width that the problem's text can state, where a norm or a second input needs it."""
    if "second" in kinds and "layer_norm" not in kinds and geometry.transposed and min(geometry.stride) > 1:
        return _doubled(geometry)
    return _same_width(geometry) if kinds & {"second", "layer_norm"} else geometry


def _same_width(geometry: Geometry) -> Geometry:
    """The convolution with the input's width as its output's, which the norm's constructor needs."""
    rank = geometry.rank
    return replace(
        geometry, kernel=(3,) * rank, stride=(1,) * rank, padding=(1,) * rank, output_padding=(0,) * rank
    )


def _doubled(geometry: Geometry) -> Geometry:
    """A transposed convolution with an output twice as wide as its input."""
    rank = geometry.rank
    return replace(
        geometry, kernel=(3,) * rank, stride=(2,) * rank, padding=(1,) * rank, output_padding=(1,) * rank
    )


def _pooled_before(geometry: Geometry, pool: Op) -> Geometry:
    """The input as much larger on the CPU as the pool makes it smaller."""
    spatial = tuple(
        replace(size, cpu=size.cpu * extent + 1)
        for size, extent in zip(geometry.spatial, pool.window, strict=True)
    )
    return replace(geometry, spatial=spatial)


def _divisible(geometry: Geometry, ops: Sequence[Op]) -> Geometry:
    groups = max((int(op.settings[0][1]) for op in ops if op.kind == "group_norm"), default=0)
    small = replace(geometry.out_channels, cpu=3 * groups) if groups else geometry.out_channels
    return replace(geometry, out_channels=small)


def _module(geometry: Geometry, chain: Chain, rng: random.Random) -> tuple[Module, str]:
    rank = geometry.rank
    attribute = "conv_transpose" if geometry.transposed else "conv"
    attribute = rng.choice((attribute, attribute, f"{attribute}{rank}d", f"{attribute}{rank}d", "layer"))
    values = [
        ("kernel_size", geometry.kernel, 0),
        ("stride", geometry.stride, 1),
        ("padding", geometry.padding, 0),
    ]
    if geometry.transposed:
        values.append(("output_padding", geometry.output_padding, 0))
    given = [
        (name, str(value if len(set(value)) > 1 else value[0]))
        for name, value, default in values
        if name == "kernel_size" or set(value) != {default}
    ]
    in_order = [name for name, _ in given] == [name for name, _, _ in values][: len(given)]
    keyword = "" if in_order and rng.random() < 0.3 else "{0}="
    options = "".join(f", {keyword.format(name)}{name}" for name, _ in given[1:])
    options += ", bias=False" if rng.random() < 0.3 else ""
    form = "ConvTranspose" if geometry.transposed else "Conv"
    layer = f"self.{attribute} = nn.{form}{rank}d(in_channels, out_channels, kernel_size{options})"
    settings = [*given, *[pair for op in chain.all_ops for pair in op.settings]]
    if any(op.kind == "layer_norm" for op in chain.ops):
        settings.append(("norm_size", "width"))
    arguments = [name for name, _ in given] + [name for op in chain.all_ops for name in op.init_args]
    x = ", ".join(size.name for size in (geometry.batch, geometry.in_channels, *geometry.spatial))
    second = tuple(op.attribute for op in chain.ops if op.kind == "second")
    factor = " * 2" if geometry.transposed and geometry.stride[0] == 2 else ""
    outputs = ", ".join(f"{size.name}{factor}" for size in geometry.spatial)
    random_call = f"torch.{rng.choice(('rand', 'randn'))}"
    steps = [line for op in chain.ops for line in op.torch]
    first = chain.front.torch if chain.front else ()
    front_lines = chain.front.init_lines if chain.front else ()
    return (
        Module(
            doc=_doc(geometry, chain, rng),
            init_args=("in_channels", "out_channels", *arguments),
            init_lines=(*front_lines, layer, *[line for op in chain.ops for line in op.init_lines]),
            forward_args=("x", *second),
            forward_lines=with_named_steps((*first, f"x = self.{attribute}(x)", *steps, "return x"), rng),
            sizes=(geometry.batch, geometry.in_channels, geometry.out_channels, *geometry.spatial),
            inputs=(
                f"{random_call}({x})",
                *[f"{random_call}(batch_size, out_channels, {outputs})" for _ in second],
            ),
            init_inputs=("in_channels", "out_channels", *arguments),
            constants=tuple(settings),
        ),
        attribute,
    )


def _doc(geometry: Geometry, chain: Chain, rng: random.Random) -> str:
    names = [op.operator.replace("_", " ") for op in chain.ops if op.operator]
    first = f"{'Transposed ' if geometry.transposed else ''}{geometry.rank}D convolution"
    if chain.front is not None:
        first = f"{chain.front.detail.capitalize()} pool, {first[0].lower()}{first[1:]}"
    return rng.choice(
        (
            f"{first} followed by {', '.join(names)}.",
            f"{first}, then {len(names)} further operations.",
            f"A block: {first.lower()} > {' > '.join(names)}.",
        )
    )


def _mistake(ops: Sequence[Op], source: str) -> tuple[str, str]:
    """The fused kernel with one fault that shows in its result."""
    kinds = {op.kind for op in ops}
    if kinds & {"group_norm", "instance_norm", "batch_norm", "layer_norm"} and "tl.rsqrt(" in source:
        return source.replace("tl.rsqrt(", "(", 1), "missing_root"
    for extreme, other in (("maximum", "minimum"), ("minimum", "maximum")):
        step = f"best = tl.{extreme}(best, v)"
        if step in source:
            return source.replace(step, f"best = tl.{other}(best, v)", 1), "opposite_extreme"
    if "for c in range(C)" in source:
        return source.replace("for c in range(C)", "for c in range(1, C)", 1), "skipped_channel"
    if "for r in range(R)" in source:
        return source.replace("for r in range(R)", "for r in range(1, R)", 1), "skipped_slice"
    if "v = v - mean" in source:
        return source.replace("v = v - mean", "v = v + mean", 1), "added_mean"
    if "v = total / (K" in source:
        return source.replace("v = total / (K", "v = total / (2 * K", 1), "wrong_divisor"
    if "v = tl.sum(total)" in source:
        return source.replace("v = tl.sum(total)", "v = tl.max(total)", 1), "maximum_for_sum"
    if "v = tl.exp(v - best) / total" in source and "softmax_space" in kinds:
        return source.replace("v = tl.exp(v - best) / total", "v = tl.exp(v - best)", 1), "missing_sum"
    for extreme in ("max", "min"):
        if f"v = tl.{extreme}(best)" in source:
            return source.replace(f"v = tl.{extreme}(best)", "v = tl.sum(best)", 1), "sum_of_extremes"
    functions = [op.value for op in ops]
    places = [position for position, op in enumerate(ops) if op.tile]
    most = max(places, key=lambda position: effect(functions, position))
    line = next(line for line in ops[most].tile).replace("{mask}", "")
    return source.replace(f"    {line}\n", "", 1), "dropped_operation"


_NAIVE = (
    "The convolution stays with torch: its library has the best algorithm. Elementwise steps and "
    "reductions behind it are kernels of their own, so that each is simple."
)
_PARTS = {
    "flat": "Everything behind it is elementwise, so one kernel reads the result once and writes once",
    "group_norm": "A program owns a sample and group: it sums once, then normalises what is still in cache",
    "instance_norm": "A program owns a plane: it sums once, then normalises what is still in cache",
    "batch_norm": "Statistics of each plane are joined by channel inside the normalising kernel",
    "layer_norm": "Whole rows of the last axis fit a tile, so the norm reads once",
    "reduce_channels": "A program walks over the channels of a tile of pixels, so loads stay coalesced",
    "reduce_depth": "A program walks over the depth of a tile of pixels",
    "softmax": "The softmax walks over the channels of a tile of pixels twice, with a running maximum",
    "softmax_space": "A program owns a plane and walks over it twice, with a running maximum",
    "center_space": "A program owns a plane: one loop for its mean, one for the results",
    "reduce_space": "All pixels of a plane give one value, so a program reads a plane",
    "reduce_sample": "All axes but the batch go, so the result has one value a sample: a program reads one",
    "pool": "The pool reads its window and applies what comes before on load",
}


def _thinking(kinds: Sequence[str], chain: Chain) -> str:
    parts = [_PARTS[kind] for kind in dict.fromkeys(kinds)]
    start = "Torch's convolution is the best one; memory traffic behind it is what fusion saves. "
    if chain.front is not None:
        start = "The pool comes first, in a kernel of its own; the convolution stays with torch. "
    end = " Elementwise steps ride along." if len(chain.ops) > len(kinds) and kinds != ["flat"] else ""
    kept = next((op.attribute for op in chain.ops if op.kind == "keep"), "")
    end += f" `{kept}` stays in registers until it is used." if kept else ""
    return start + ". ".join(parts[:2]) + "." + end
