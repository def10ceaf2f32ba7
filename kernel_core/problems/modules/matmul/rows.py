"""Row kernels behind a linear layer: one program walks along one row in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_core.problems.modules.matmul.flat import call, function
from kernel_core.problems.modules.matmul.steps import (
    Loads,
    Step,
    pointers,
    scalar_names,
    scalar_values,
    tensors,
    tile_lines,
)

ROW = Loads(
    vector="tl.load({name}_ptr + cols, mask=mask, other=0.0)",
    full="tl.load({name}_ptr + row * N + cols, mask=mask, other=0.0)",
    row="tl.load({name}_ptr + row)",
)


@dataclass(frozen=True)
class RowOperator:
    """One operator over the last dimension; lines are over `x` and the names `row`, `cols`, `mask`, `N`."""

    name: str
    start: tuple[str, ...]
    """Lines before the first pass."""
    passes: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    """For each pass the lines in the loop, and those behind it."""
    store: str = ""
    """What is stored for each element in a last pass; empty where one value a row is stored."""
    wrong: tuple[str, str] = ("", "")
    """A piece of text and its plausible wrong version."""
    fault: str = "wrong_reduction"


_MAX = (
    "x = tl.where(mask, x, float('-inf'))",
    "new_m = tl.maximum(m, tl.max(x, axis=0))",
    "s = s * tl.exp(m - new_m) + tl.sum(tl.exp(x - new_m), axis=0)",
    "m = new_m",
)
_MOMENTS = (
    (
        ("acc += tl.where(mask, x, 0.0)",),
        ("mean = tl.sum(acc, axis=0) / N", "acc = tl.zeros((BLOCK,), dtype=tl.float32)"),
    ),
    (
        ("diff = tl.where(mask, x - mean, 0.0)", "acc += diff * diff"),
        ("rstd = tl.rsqrt(tl.sum(acc, axis=0) / N + eps)",),
    ),
)
_ZEROS = "acc = tl.zeros((BLOCK,), dtype=tl.float32)"
_ONLINE = ("m = float('-inf')", "s = 0.0")

ROW_OPERATORS: dict[str, RowOperator] = {
    "sum": RowOperator(
        "sum", (_ZEROS,), ((("acc += tl.where(mask, x, 0.0)",), ("x = tl.sum(acc, axis=0)",)),),
        wrong=("x = tl.sum(acc, axis=0)", "x = tl.max(acc, axis=0)"),
    ),
    "mean": RowOperator(
        "mean", (_ZEROS,), ((("acc += tl.where(mask, x, 0.0)",), ("x = tl.sum(acc, axis=0) / N",)),),
        wrong=("x = tl.sum(acc, axis=0) / N", "x = tl.sum(acc, axis=0)"),
    ),
    "max": RowOperator(
        "max", ("acc = tl.full((BLOCK,), float('-inf'), dtype=tl.float32)",),
        ((("acc = tl.maximum(acc, tl.where(mask, x, float('-inf')))",), ("x = tl.max(acc, axis=0)",)),),
        wrong=("x = tl.max(acc, axis=0)", "x = tl.sum(acc, axis=0)"),
    ),
    "min": RowOperator(
        "min", ("acc = tl.full((BLOCK,), float('inf'), dtype=tl.float32)",),
        ((("acc = tl.minimum(acc, tl.where(mask, x, float('inf')))",), ("x = tl.min(acc, axis=0)",)),),
        wrong=("x = tl.min(acc, axis=0)", "x = tl.sum(acc, axis=0)"),
    ),
    "logsumexp": RowOperator(
        "logsumexp", _ONLINE, ((_MAX, ("x = m + tl.log(s)",)),), wrong=("m + tl.log(s)", "tl.log(s)"),
    ),
    "softmax": RowOperator(
        "softmax", _ONLINE, ((_MAX, ()),), "tl.exp(x - m) / s", ("tl.exp(x - m) / s", "tl.exp(x - m)"),
    ),
    "log_softmax": RowOperator(
        "log_softmax", _ONLINE, ((_MAX, ()),), "x - m - tl.log(s)", ("x - m - tl.log(s)", "x - m"),
    ),
    "sub_mean": RowOperator(
        "sub_mean", (_ZEROS,),
        ((("acc += tl.where(mask, x, 0.0)",), ("mean = tl.sum(acc, axis=0) / N",)),), "x - mean",
        wrong=("mean = tl.sum(acc, axis=0) / N", "mean = tl.sum(acc, axis=0)"),
    ),
    "layer_norm": RowOperator(
        "layer_norm", (_ZEROS,), _MOMENTS, "(x - mean) * rstd",
        ("(x - mean) * rstd", "(x - mean) * rstd * rstd"),
    ),
}  # fmt: skip


def row_kernel(
    name: str,
    operator: RowOperator,
    before: Sequence[Step],
    after: Sequence[Step],
    *,
    affine: Step | None = None,
    eps: bool = False,
    kept: str = "",
    wrong: bool = False,
) -> str:
    """The kernel that reads the product's rows; `affine` are weight and bias of a norm.

    `kept` names the layer's input where it is added to the one value of each row.
    """
    behind = [*([affine] if affine else []), *after]
    arguments = ["x_ptr", *pointers([*before, *behind]), *([f"{kept}_ptr"] if kept else []), "out_ptr"]
    arguments += [*scalar_names([*before, *behind]), "N", *(["K"] if kept else [])]
    arguments += [*(["eps"] if eps else []), "BLOCK: tl.constexpr"]
    load = [
        "cols = start + tl.arange(0, BLOCK)",
        "mask = cols < N",
        "x = tl.load(x_ptr + row * N + cols, mask=mask, other=0.0)",
        *tile_lines(before, ROW),
    ]
    body = ["row = tl.program_id(0).to(tl.int64)", *operator.start]
    for inner, behind_loop in operator.passes:
        body += [
            "for start in range(0, N, BLOCK):",
            *(f"    {line}" for line in (*load, *inner)),
            *behind_loop,
        ]
    if operator.store:
        last = [*load, f"x = {operator.store}", *tile_lines(behind, ROW)]
        last.append("tl.store(out_ptr + row * N + cols, x, mask=mask)")
        body += ["for start in range(0, N, BLOCK):", *(f"    {line}" for line in last)]
    elif kept:
        body += [*tile_lines(behind, ROW), "for start in range(0, K, BLOCK):"]
        body += [
            "    cols = start + tl.arange(0, BLOCK)",
            "    mask = cols < K",
            f"    {kept} = tl.load({kept}_ptr + row * K + cols, mask=mask, other=0.0)",
            f"    tl.store(out_ptr + row * K + cols, x + {kept}, mask=mask)",
        ]
    else:
        body += [*tile_lines(behind, ROW), "tl.store(out_ptr + row, x)"]
    text = function(name, arguments, body)
    text = text.replace(*operator.wrong) if wrong else text
    return text.replace("'", '"')


def row_launch(
    name: str,
    steps: Sequence[Step],
    shape: str,
    block: int,
    *,
    warps: int = 4,
    norm: Sequence[str] = (),
    eps: str = "",
    points: int = 0,
    kept: str = "",
) -> list[str]:
    """The host's lines from the product `x` to `out`; `norm` stands behind the first `points` tensors."""
    found = tensors(steps)
    ordered = [*found[:points], *norm, *found[points:], *([kept] if kept else [])]
    options = [f"BLOCK={block}", *([f"num_warps={warps}"] if warps != 4 else [])]
    arguments = ["x", *ordered, "out", *scalar_values(steps), "N"]
    arguments += [*([f"{kept}.shape[1]"] if kept else []), *([eps] if eps else []), *options]
    if kept:
        made = f"out = torch.empty_like({kept})"
    elif shape:
        made = f"out = torch.empty({shape}, device=x.device, dtype=x.dtype)"
    else:
        made = "out = torch.empty_like(x)"
    return ["M, N = x.shape", made, *call(f"{name}[(M,)]", arguments).split("\n")]
