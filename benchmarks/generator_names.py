"""Claim: the generator answers most operators and modules of torch's own tests.

    pip install expecttest
    python benchmarks/generator_names.py [--modules] [--judge] [--samples N] [--missing] [--out FILE]

Works without a GPU. Torch tests operators (`op_db`) and modules (`module_db`) on sample inputs. Each sample
becomes a problem of the same shapes and ranges: float32, or int64 where there is no float32. A name counts if
all its samples are right (`--judge`), or are written with nothing left to PyTorch.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

from kernel_core.errors import NotAProblem
from kernel_core.generator.coverage import cover
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem

NOT_KERNELS = re.compile(
    r"linalg\.|fft\.|sparse\.|torch\.ops\.aten\._|signal\.windows|rand|normal|bernoulli|multinomial|empty|"
    r"new_empty|stft|istft|cauchy|exponential|geometric|log_normal|uniform|svd|cholesky|lu|qr|pinverse|geqrf|"
    r"ormqr|triangular_solve|polar|view_as_|complex|jiterator"
)
"""Beginnings of names without a kernel of their own: random, linear algebra, complex numbers, sparse."""
TEXT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layer}

    def forward(self, {names}):
        return {expression}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


class Unwritable(Exception):
    """A sample with an argument that has no text."""


class Texts:
    """Texts of a sample's arguments; tensors become inputs."""

    def __init__(self) -> None:
        self.inputs: list[str] = []

    def of(self, given: Any) -> str:
        """The argument as Python writes it."""
        if isinstance(given, torch.Tensor):
            if len(self.inputs) == 6:
                raise Unwritable("more than six tensors")
            self.inputs.append(drawn(given))
            return "abcdef"[len(self.inputs) - 1]
        if isinstance(given, tuple | list):
            inner = ", ".join(map(self.of, given))
            return f"[{inner}]" if isinstance(given, list) else f"({inner}{',' * (len(given) == 1)})"
        if isinstance(given, float) and given in (float("inf"), float("-inf")):
            return f'float("{given}")'
        if given is None or isinstance(given, bool | int | float | str | torch.dtype | slice):
            return repr(given)
        if given is Ellipsis:
            return "..."
        raise Unwritable(type(given).__name__)


def drawn(tensor: torch.Tensor) -> str:
    """Text of a random tensor with the shape, type and range of another."""
    shape = tuple(tensor.shape)
    if tensor.numel() == 0 or tensor.dtype.is_complex or tensor.layout is not torch.strided:
        raise Unwritable("an empty, complex or sparse tensor")
    if tensor.dtype is torch.bool:
        return f"torch.rand({shape}) > 0.5"
    low, high = tensor.min().item(), tensor.max().item()
    if not tensor.dtype.is_floating_point:
        return f"torch.randint({low}, {high + 1}, {shape}, dtype={tensor.dtype})"
    if tensor.dtype is not torch.float32 or not (torch.isfinite(tensor).all()):
        raise Unwritable("infinite values or another type")
    return f"torch.rand({shape}) * {high - low or 1.0!r} + {low!r}"


def operator_problems(info: Any, most: int) -> list[Problem]:
    """Problems of an operator's first samples that have a text."""
    dtypes = info.supported_dtypes("cpu")
    dtype = torch.float32 if torch.float32 in dtypes else torch.int64
    problems = list[Problem]()
    if dtype not in dtypes:
        return problems
    last = info.name.rsplit(".", 1)[-1]
    for sample in info.sample_inputs("cpu", dtype):
        texts = Texts()
        try:
            arguments = [texts.of(value) for value in (sample.input, *sample.args)]
            named = [f"{key}={texts.of(value)}" for key, value in sample.kwargs.items()]
        except Unwritable:
            continue
        module = "F" if info.name.startswith("nn.functional.") else "torch.special" if (
            info.name.startswith("special.")
        ) else "torch.masked" if info.name.startswith("masked.") else "torch"  # fmt: skip
        owner = {"F": torch.nn.functional, "torch.special": torch.special, "torch": torch}.get(module)
        attribute = getattr(torch.Tensor, last, None)
        if not callable(attribute) and attribute is not None:
            call = f"{arguments[0]}.{last}"
        elif owner is None or inspect.isroutine(getattr(owner, last, None)):
            call = f"{module}.{last}({', '.join([*arguments, *named])})"
        else:
            call = f"{arguments[0]}.{last}({', '.join([*arguments[1:], *named])})"
        problems += made(info.name, len(problems), "pass", call, texts)
        if len(problems) == most:
            break
    return problems


def module_problems(info: Any, most: int) -> list[Problem]:
    """Problems of a module's first samples that have a text."""
    problems = list[Problem]()
    samples = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
    )
    for sample in samples:
        texts = Texts()
        try:
            built, given = sample.constructor_input, sample.forward_input
            layer = [texts.of(value) for value in built.args]
            layer += [f"{key}={texts.of(value)}" for key, value in built.kwargs.items()]
            if texts.inputs or given is None:
                continue
            call = [texts.of(value) for value in given.args]
            call += [f"{key}={texts.of(value)}" for key, value in given.kwargs.items()]
        except Unwritable:
            continue
        text = f"self.layer = nn.{info.module_cls.__name__}({', '.join(layer)})"
        problems += made(info.name, len(problems), text, f"self.layer({', '.join(call)})", texts)
        if len(problems) == most:
            break
    return problems


def made(name: str, number: int, layer: str, expression: str, texts: Texts) -> list[Problem]:
    """A problem, or none where its text is no problem."""
    source = TEXT.format(
        layer=f"        {layer}",
        names=", ".join("abcdef"[: len(texts.inputs)]),
        expression=expression,
        inputs=", ".join(texts.inputs),
    )
    try:
        return [parse_problem(source, id=f"{name}:{number}", suite="torch")]
    except NotAProblem:
        return []


def main() -> None:
    """Names by outcome, and with `--missing` those that are not right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--modules", action="store_true")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    infos = [info for info in (module_db if arguments.modules else op_db) if not NOT_KERNELS.match(info.name)]
    problems_of = module_problems if arguments.modules else operator_problems
    problems = {problem.id: problem for info in infos for problem in problems_of(info, arguments.samples)}
    rows = cover(list(problems.values()), "cpu", "tf32x3", arguments.judge)
    wanted = "correct" if arguments.judge else "written"
    outcomes: dict[str, str] = {info.name: "no sample with a text" for info in infos}
    for row in rows:
        name, fault = row["problem"].rsplit(":", 1)[0], ""
        if row["outcome"] != wanted:
            fault = row["outcome"].split(":")[0]
        elif row["reasons"]:
            fault = "stays with PyTorch"
        before = outcomes[name]
        outcomes[name] = before if before not in (wanted, "no sample with a text") else fault or wanted
    print(describe_machine())
    print(
        f"{len(outcomes)} names: "
        + ", ".join(f"{n} {k}" for k, n in Counter(outcomes.values()).most_common())
    )
    if arguments.missing:
        for outcome in sorted(set(outcomes.values()) - {wanted}):
            print(f"{outcome}: {' '.join(sorted(name for name, its in outcomes.items() if its == outcome))}")
    if arguments.out is not None:
        arguments.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
