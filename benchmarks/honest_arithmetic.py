"""Claim: no arithmetic is refused for being another honest one than the reference's.

The problem's own module stands in for a candidate. It runs in float32; every result that is not exact strays
by up to two units in its last place, as approximate functions on a GPU may. It runs three ways: as it is;
with the factors of products cut to TF32's bits, where the judge allows for TF32; and in each half precision,
with factors and outputs rounded to it. Each of our problems is tried under six families of inputs and two
seeds.

    python benchmarks/honest_arithmetic.py --write
    python benchmarks/honest_arithmetic.py --device cuda --write
"""

from __future__ import annotations

import argparse
import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from machine import describe_machine
from rich.progress import track

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.dispatch_mode import LightDispatchMode
from kernel_core.gym.channel.pytree import flatten
from kernel_core.gym.channel.torch_ops import gives_view, map_tensors, tensors_in
from kernel_core.gym.numerics.compare import compare_values, value_fault
from kernel_core.gym.numerics.error_model import ShortenedProducts, truncated
from kernel_core.gym.numerics.random_rounding import HALF_PRECISION, signed_noise
from kernel_core.gym.oracle.input_families import Draw
from kernel_core.gym.oracle.reference import Reference
from kernel_core.gym.oracle.trial import Trial
from kernel_core.problems.load import load_file
from kernel_core.records import Constant, Problem

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
FOLDERS = (ROOT / "data" / "problems", ROOT / "tests" / "exploits" / "problems")
DRAWS: tuple[Draw, ...] = ("own", "far_negative", "mixed", "turned", "normal", "positive")
Products = Literal["float32", "TF32", "float16", "bfloat16"]
PRODUCTS: tuple[Products, ...] = ("float32", "TF32", "float16", "bfloat16")
HALVES: tuple[Products, ...] = ("float16", "bfloat16")
SEEDS = (1, 2)
ULPS = 2


@dataclass(frozen=True)
class Compared:
    """One imitation's outputs, and what was said of them."""

    problem: str
    draw: str
    products: Products
    at_first: str | None
    """What is wrong by the allowance by size."""
    in_the_end: str | None
    """What is wrong when all is looked into."""


def main() -> None:
    """Compare all; print the summary and what was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--times", type=int, default=8, help="so many times the sizes of a CPU, on one")
    parser.add_argument("--write", action="store_true", help="write the page to docs/results")
    arguments = parser.parse_args()
    files = [file for folder in FOLDERS for file in sorted(folder.glob("*.py"))]
    compared: list[Compared] = []
    for file in track(files, "problems"):
        compared += _compare_problem(load_file(file), arguments.device, arguments.times)
    page = _page(compared, len(files), arguments)
    print(page)
    if arguments.write:
        (RESULTS / f"honest_arithmetic_{arguments.device}.md").write_text(page)


def _compare_problem(problem: Problem, device: str, times: int) -> Iterator[Compared]:
    sizes = _sizes(problem, times) if device == "cpu" else {}
    for products in PRODUCTS:
        precision = products if products in HALVES else problem.precision
        at_precision = problem.model_copy(update={"precision": precision})
        reference = Reference(at_precision, sizes, device, tf32=products == "TF32")
        for draw in DRAWS:
            try:
                for seed in SEEDS if reference.is_safe_with(draw) else ():
                    yield from _compare(reference, seed, draw, products)
            except NotAProblem:
                continue  # it does not take such inputs


def _sizes(problem: Problem, times: int) -> dict[str, Constant]:
    """Those of a CPU, grown, but not beyond the problem's own."""
    grown: dict[str, Constant] = {}
    for name, size in problem.cpu_constants.items():
        own = problem.constants[name]
        grown[name] = min(own, times * size) if type(size) is int and type(own) is int else size
    return grown


def _compare(reference: Reference, seed: int, draw: Draw, products: Products) -> Iterator[Compared]:
    trial = reference.trial(seed, draw)
    if not trial.is_usual:
        return
    leaves = _imitate(reference, trial, seed, products)
    first = last = value_fault(leaves, trial.expected, compare_values)
    if first is not None:
        looked = reference.exactly(trial)
        last = value_fault(leaves, looked.expected, compare_values)
    yield Compared(reference.problem.id, draw, products, first, last)


def _imitate(reference: Reference, trial: Trial, seed: int, products: Products) -> list[Any]:
    """Outputs as an honest kernel's may be."""
    generator = torch.Generator(reference.device).manual_seed(seed)
    module, inputs = reference.module, map_tensors(list(trial.inputs), torch.Tensor.clone)
    mode: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if products == "TF32":
        mode = ShortenedProducts(truncated)
    elif products in HALVES:
        dtype = getattr(torch, products)
        mode = ShortenedProducts(lambda value: value.to(dtype).float())
        module, inputs = copy.deepcopy(module).float(), map_tensors(inputs, _single)
    torch.manual_seed(seed)
    with torch.no_grad(), _Strays(generator), mode:
        _, leaves = flatten(module(*inputs))
    return [
        leaf.to(getattr(torch, one.dtype)) if leaf.is_floating_point() else leaf
        for leaf, one in zip(leaves, trial.expected, strict=True)
    ]


class _Strays(LightDispatchMode):
    """While active, results in float32 stray that float64's on the same arguments are not."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function._schema.is_mutable or gives_view(function):
            return result
        try:
            exact = function(*map_tensors(tuple(args), _double), **(kwargs or {}))
        except (RuntimeError, TypeError):
            return result
        for made, true in zip(tensors_in(result), tensors_in(exact), strict=True):
            if made.dtype == torch.float32 and true.dtype == torch.float64 and made.shape == true.shape:
                noise = signed_noise(made, self._generator).double()
                strayed = (made.double() * (1 + ULPS * 2.0**-23 * noise)).float()
                made.copy_(torch.where(made.double() == true, made, strayed))
        return result


def _single(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype in HALF_PRECISION else value


def _double(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.dtype == torch.float32 else value


def _page(compared: list[Compared], num_problems: int, arguments: argparse.Namespace) -> str:
    device = " --device cuda" if arguments.device == "cuda" else ""
    refused = [one for one in compared if one.in_the_end is not None]
    saved = [one for one in compared if one.at_first is not None and one.in_the_end is None]
    sizes = "their own" if arguments.device == "cuda" else f"up to {arguments.times} times a CPU's"
    lines = [
        "# Other honest arithmetic",
        "",
        f"    python benchmarks/honest_arithmetic.py{device} --write",
        "",
        f"Machine: {describe_machine()}.",
        "",
        f"Of {len(compared)} comparisons over {num_problems} problems at {sizes} sizes, {len(refused)} were "
        "refused. "
        f"{len(saved)} would have been by what is allowed by size alone, "
        f"{sum(one.products == 'TF32' for one in saved)} of them with TF32 products and "
        f"{sum(one.products in HALVES for one in saved)} in half precision.",
        "",
    ]
    if refused:
        lines += ["| problem | inputs | products | |", "|---|---|---|---|"]
        lines += [f"| {one.problem} | {one.draw} | {one.products} | {one.in_the_end} |" for one in refused]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
