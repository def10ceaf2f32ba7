"""Forms in which each operator of the table is called, read from `call_table.py`.

A pointwise operator needs no line: its inputs are its parameters, and a domain where its results are finite
and differ is found by trying.
"""

from __future__ import annotations

import functools
import random
import re
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from kernel_core.generator.draw.call_table import TABLE
from kernel_core.generator.operators import BUILDERS, pointwise
from kernel_core.generator.operators.pointwise import Entry

FILLS = {
    "pos": "torch.rand({}) + 0.5",
    "above": "torch.rand({}) * 4 + 3",
    "rand": "torch.rand({})",
    "near": "torch.rand({}) * 0.4 + 0.8",
    "normal": "torch.randn({})",
    "wide": "torch.randn({}) * 5",
    "nans": "torch.randn({}).sqrt()",
    "infs": "torch.randn({}) / torch.randint(0, 2, {tuple})",
    "rare": "torch.rand({}) > 0.95",
    "often": "torch.rand({}) < 0.95",
    "grid": "torch.rand({}) * 2 - 1",
    "whole": "torch.randint(0, 3, {tuple})",
    "seven": "torch.randint(0, 7, {tuple})",
    "bool": "torch.rand({}) > 0.5",
    "sign": "torch.randint(0, 2, {tuple}) * 2.0 - 1.0",
    "order": "torch.rand({}).argsort({at})",
    "prob": "torch.softmax(torch.randn({}), dim=-1)",
    "logp": "torch.log_softmax(torch.randn({}), dim=-1)",
}
"""Expressions that fill an input."""
_DOMAINS = ("randn", FILLS["rand"], "torch.rand({}) + 1.0", "torch.rand({}) * 1.8 - 0.9")
"""Tried in order for a pointwise operator."""


@dataclass(frozen=True)
class Given:
    """One input of a form."""

    name: str
    shape: str
    """Kinds of sizes; `*` for any, `=x` as another's, `~x` broadcast with it, `@q` with another axis."""
    fill: str = ""


@dataclass(frozen=True)
class Form:
    """One way to call an operator."""

    operator: str
    family: str
    inputs: tuple[Given, ...]
    arguments: str
    result: str = ""
    """Part of the result that is taken, such as `[0]`."""

    @property
    def varies(self) -> bool:
        """True where a draw chooses an axis, a size to resize to, or axes that broadcast: it weighs more."""
        drawn = re.search("@(dim|long|pair|order|before|resize)", self.arguments)
        return drawn is not None or any(given.shape[0] == "~" for given in self.inputs)


def _given(text: str) -> Given:
    match = re.fullmatch(r"([a-z])(\*|\([^)]*\)|[=~][a-z]|@\w?)(?::(.+))?", text)
    assert match is not None, text
    return Given(match[1], match[2].strip("()"), match[3] or "")


@functools.cache
def forms() -> dict[str, tuple[Form, ...]]:
    """Forms by the name of torch that they call; names that the table of operators lacks are left out."""
    known: dict[str, list[Form]] = {}
    family = ""
    for line in filter(None, TABLE.strip().splitlines()):
        if line.startswith("# "):
            family = line[2:]
            continue
        names, inputs, calls = (part.strip() for part in line.split(" | ", 2))
        for name in names.split():
            for call in calls.split(" ; "):
                arguments, _, result = call.partition(" => ")
                form = Form(
                    name, family, tuple(map(_given, inputs.split())), arguments.strip(), result.strip()
                )
                if name in BUILDERS or name in pointwise() or spellings(name):
                    known.setdefault(name, []).append(form)
    for name, entry in pointwise().items():
        if name not in known and spellings(name):
            known[name] = [*_pointwise_forms(name, entry)]
    return {name: tuple(listed) for name, listed in known.items()}


def _pointwise_forms(name: str, entry: Entry) -> list[Form]:
    """Calls with tensors for what is required, and with numbers for some options."""
    required = entry.required
    letters = "xyzu"[: len(required)]
    fill = "whole" if entry.kind == "whole" else domain_of(name, len(required))
    inputs = tuple(
        Given(letter, "*" if at == 0 else "~x", "bool" if parameter == "condition" else fill)
        for at, (letter, parameter) in enumerate(zip(letters, required, strict=True))
    )
    tensors = ", ".join(letters)
    family = "comparison" if entry.kind == "bool" else "bits" if entry.kind == "whole" else "pointwise"
    if name == "threshold":
        return [
            Form(name, family, inputs[:1], f"x, {first}, {second}")
            for first, second in ((0.5, 0.0), (0.1, 2.0))
        ]
    made = [Form(name, family, inputs, tensors)]
    if len(required) == 2 and entry.kind == "bool":
        made.append(Form(name, family, inputs[:1], "x, @f"))
    for option, value in entry.defaults.items():
        made.append(Form(name, family, inputs, f"{tensors}, {option}={_varied(option, value)}"))
    return made


def _varied(option: str, value: float) -> str:
    """An option's value beside its default."""
    if option == "min_val":
        return "-2.0"
    if option == "max_val":
        return "2.0"
    return "10" if option == "threshold" else "@f"


@functools.cache
def domain_of(name: str, count: int) -> str:
    """A filling for which an operator's results are finite and differ."""
    function = eval(spellings(name)[0], {"torch": torch, "F": F})
    for domain in _DOMAINS:
        torch.manual_seed(0)
        made = domain.replace("{}", "(64,)") if "(" in domain else f"torch.{domain}(64)"
        try:
            result = function(*(eval(made, {"torch": torch}) for _ in range(count)))
        except (RuntimeError, TypeError):
            continue
        if result.dtype is torch.bool or (bool(result.isfinite().all()) and result.abs().max() < 1e4):
            return domain
    return "randn"


@functools.cache
def spellings(name: str) -> tuple[str, ...]:
    """Torch's functions of a name: `torch.relu`, `F.relu`, `torch.special.…`, `torch.linalg.…`."""
    modules = {"torch": torch, "F": F, "torch.special": torch.special, "torch.linalg": torch.linalg}
    if name in ("dropout", "prelu", "batch_norm", "instance_norm", "group_norm", "layer_norm", "threshold"):
        return (f"F.{name}",)
    if name in (
        "adaptive_avg_pool1d",
        "avg_pool1d",
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "channel_shuffle",
    ):
        return (f"F.{name}",)
    if "loss" in name or name.startswith(("binary_cross_entropy", "kl_div", "embedding")):
        return (f"F.{name}",)
    if name == "norm":
        return ("torch.norm", "torch.linalg.norm")
    if name == "diagonal":
        return ("torch.diagonal",)
    return tuple(
        f"{text}.{name}" for text, module in modules.items() if callable(getattr(module, name, None))
    )


@functools.cache
def tails() -> tuple[str, ...]:
    """Unary operators with finite results for all moderate numbers, for chains."""
    smooth = []
    for name, entry in pointwise().items():
        unary = len(entry.required) == 1 and entry.kind in ("float", "same") and spellings(name)
        if unary and name not in _STEEP and domain_of(name, 1) == "randn" and _is_smooth(name):
            smooth.append(name)
    return (*smooth, "gelu")


_STEEP = frozenset(
    {"exp", "exp2", "expm1", "sinh", "cosh", "tan", "i0", "i1", "erfcx", "frac", "lgamma", "gammaln"}
)


def _is_smooth(name: str) -> bool:
    """True where results stay finite and moderate far out, and are not of few values."""
    function = eval(spellings(name)[0], {"torch": torch, "F": F})
    result = function(torch.linspace(-30, 30, 601))
    return bool(result.isfinite().all()) and result.abs().max() < 1e4 and result.unique().numel() > 60


_RESIZES = (
    "scale_factor=2", "scale_factor=2.0", "scale_factor=3", "scale_factor=1.5", "scale_factor=0.5",
    "scale_factor=0.5", "size={}", "size={}", "size={}",
)  # fmt: skip
_SIZES = (5, 7, 12, 14, 16, 20, 24, 28, 32, 40, 56, 64, 96, 128)


def resolved(text: str, rank: int, at: int, rng: random.Random) -> str:
    """Arguments with the drawn axis, as a number from the front or the end, and with drawn numbers."""
    axes = list(range(rank))

    def drawn(match: re.Match[str]) -> str:
        match match[1]:
            case "dim" | "long":
                return str(at - rank if rng.random() < 0.4 else at)
            case "dims":
                pair = sorted(rng.sample(axes, min(2, rank)))
                return str(tuple(pair)) if rng.random() < 0.7 else str([axis - rank for axis in pair])
            case "pair":
                return ", ".join(str(axis - rng.choice((0, 0, rank))) for axis in rng.sample(axes, 2))
            case "order":
                order = axes
                while order == axes:
                    order = rng.sample(axes, rank)
                return str(tuple(order))
            case None:
                return "..., " if at and at == rank - 1 and rng.random() < 0.4 else ":, " * at
            case "resize":
                sizes = tuple(rng.choice(_SIZES) for _ in range(rank - 2))
                return rng.choice(_RESIZES).format(sizes if len(sizes) > 1 else sizes[0])
            case "bool":
                return rng.choice(("True", "False"))
            case "f":
                return rng.choice(("0.5", "2.0", "0.1", "1.5", "0.25", "0.3"))
            case _:
                return str(rng.randint(1, 3))

    return re.sub(r"@(dims|dim|long|pair|order|resize|bool|f|k)|@before ", drawn, text)
