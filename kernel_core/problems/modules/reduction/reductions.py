"""Families along one dimension: sums, extremes and their positions, log-sum-exp, softmax, running sums."""

from __future__ import annotations

import random

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.layout import dim_module, draw_layout, draw_sizes
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import dims_of

_ANY = ("torch.randn(@S@)", "torch.rand(@S@)")
_NEAR_ONE = ("0.1 * torch.rand(@S@) + 0.95", "1.0 + 0.02 * torch.randn(@S@)")
_REDUCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "sum": (
        "Adds up a tensor along one dimension.",
        ("torch.sum(x, dim=self.dim@KEEP@)", "x.sum(dim=self.dim@KEEP@)"),
    ),
    "mean": (
        "Averages a tensor over one dimension.",
        ("torch.mean(x, dim=self.dim@KEEP@)", "x.mean(dim=self.dim@KEEP@)"),
    ),
    "max": (
        "Finds the largest value along one dimension.",
        ("torch.max(x, dim=self.dim@KEEP@)[0]", "torch.max(x, dim=self.dim@KEEP@).values",
         "torch.amax(x, dim=self.dim@KEEP@)"),
    ),
    "min": (
        "Finds the smallest value along one dimension.",
        ("torch.min(x, dim=self.dim@KEEP@)[0]", "x.min(dim=self.dim@KEEP@).values",
         "torch.amin(x, dim=self.dim@KEEP@)"),
    ),
    "prod": (
        "Multiplies the values along one dimension.",
        ("torch.prod(x, dim=self.dim@KEEP@)", "x.prod(dim=self.dim@KEEP@)"),
    ),
    "sum_squares": (
        "Adds up the squares along one dimension.",
        ("torch.sum(x ** 2, dim=self.dim@KEEP@)", "(x * x).sum(dim=self.dim@KEEP@)"),
    ),
    "abs_mean": (
        "Averages the absolute values over one dimension.",
        ("torch.mean(torch.abs(x), dim=self.dim@KEEP@)", "x.abs().mean(dim=self.dim@KEEP@)"),
    ),
}  # fmt: skip
"""A sentence, and ways to write it with, at `@KEEP@`, the argument `keepdim`."""
_LONGEST = {"mean": 8192, "prod": 2048, "abs_mean": 8192}
"""The longest dimension where a longer one would leave results that hardly differ, or that overflow."""


def reduce_dim(rng: random.Random) -> Draft:
    """A sum, mean, product, largest or smallest value along any dimension of any rank."""
    names = ("sum", "sum", "mean", "mean", "max", "max", "min", "min", "prod", "sum_squares", "abs_mean")
    name = rng.choice(names)
    doc, forms = _REDUCTIONS[name]
    layout = draw_layout(rng, most_n=_LONGEST.get(name, 1_000_000))
    keep = rng.random() < 0.5
    text = rng.choice(forms).replace("@KEEP@", ", keepdim=True" if keep else "")
    inputs = {"mean": _ANY[:1], "abs_mean": _ANY[:1], "prod": _NEAR_ONE}.get(name, _ANY)
    module = dim_module(layout, doc, (f"return {text}",), rng.choice(inputs), rng)
    return module.draft((name,), draw_style(rng))


def arg_extreme(rng: random.Random) -> Draft:
    """The position of the largest or smallest value along any dimension, the first of equals."""
    name = rng.choice(("argmax", "argmin"))
    word = "largest" if name == "argmax" else "smallest"
    layout = draw_layout(rng)
    kept = ", keepdim=True" if rng.random() < 0.4 else ""
    text = rng.choice((f"torch.{name}(x, dim=self.dim{kept})", f"x.{name}(dim=self.dim{kept})"))
    doc = f"Finds the position of the {word} value along one dimension."
    module = dim_module(layout, doc, (f"return {text}",), rng.choice(_ANY), rng)
    return module.draft((name,), draw_style(rng))


def logsumexp(rng: random.Random) -> Draft:
    """The logarithm of a sum of exponentials along any dimension."""
    layout = draw_layout(rng)
    kept = ", keepdim=True" if rng.random() < 0.4 else ""
    doc = "Takes the logarithm of the sum of exponentials over one dimension."
    lines = (f"return torch.logsumexp(x, dim=self.dim{kept})",)
    module = dim_module(layout, doc, lines, rng.choice(_ANY), rng)
    return module.draft(("logsumexp",), draw_style(rng))


def softmax_row(rng: random.Random) -> Draft:
    """Softmax or log-softmax of rows up to hundreds of thousands of values."""
    name = rng.choice(("softmax", "softmax", "log_softmax"))
    sizes = draw_sizes(rng, rng.choice((2, 2, 2, 3)))
    dim = "1" if len(sizes) == 2 and rng.random() < 0.6 else "-1"
    layer = "nn.Softmax" if name == "softmax" else "nn.LogSoftmax"
    forms: list[tuple[tuple[str, ...], str]] = [
        ((), f"torch.{name}(x, dim={dim})"),
        ((), f"F.{name}(x, dim={dim})"),
        ((f"self.{name} = {layer}(dim={dim})",), f"self.{name}(x)"),
    ]
    init_lines, text = rng.choice(forms)
    return Module(
        doc="Turns each row into probabilities." if name == "softmax" else "Log-probabilities of each row.",
        init_lines=init_lines,
        forward_lines=(f"return {text}",),
        sizes=sizes,
        inputs=(f"torch.{rng.choice(('rand', 'randn'))}({dims_of(sizes)})",),
    ).draft((name,), draw_style(rng))


def softmax_dim(rng: random.Random) -> Draft:
    """Softmax or log-softmax along any dimension."""
    name = rng.choice(("softmax", "softmax", "log_softmax"))
    layout = draw_layout(rng, (2, 3, 3, 4, 4))
    doc = "Normalizes the exponentials along one dimension."
    if name == "log_softmax":
        doc = "Computes log-probabilities along one dimension."
    text = rng.choice((f"torch.{name}(x, dim=self.dim)", f"F.{name}(x, dim=self.dim)"))
    module = dim_module(layout, doc, (f"return {text}",), rng.choice(_ANY), rng)
    return module.draft((name,), draw_style(rng))


_SCANS: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "cumsum": (
        "Running sum along one dimension.",
        (("return torch.cumsum(x, dim=self.dim)",), ("return x.cumsum(dim=self.dim)",)),
    ),
    "cumprod": (
        "Running product along one dimension.",
        (("return torch.cumprod(x, dim=self.dim)",), ("return x.cumprod(dim=self.dim)",)),
    ),
    "cumsum_reverse": (
        "Running sum from the end of one dimension to its start.",
        (
            ("return torch.flip(torch.cumsum(torch.flip(x, [self.dim]), dim=self.dim), [self.dim])",),
            ("flipped = torch.flip(x, dims=(self.dim,))",
             "return torch.cumsum(flipped, dim=self.dim).flip(self.dim)"),
        ),
    ),
    "cumsum_exclusive": (
        "Sum of all earlier positions along one dimension.",
        (
            ("zeros = torch.zeros_like(x.narrow(self.dim, 0, 1))",
             "shifted = torch.cat([zeros, x.narrow(self.dim, 0, x.size(self.dim) - 1)], dim=self.dim)",
             "return torch.cumsum(shifted, dim=self.dim)"),
            ("total = torch.cumsum(x, dim=self.dim)", "first = torch.zeros_like(x.narrow(self.dim, 0, 1))",
             "return torch.cat((first, total.narrow(self.dim, 0, x.size(self.dim) - 1)), dim=self.dim)"),
        ),
    ),
    "cumsum_masked": (
        "Running sum along one dimension of the positions that a mask keeps.",
        (("return torch.cumsum(x * mask, dim=self.dim)",),
         ("kept = x * mask", "return torch.cumsum(kept, dim=self.dim)")),
    ),
}  # fmt: skip
"""A sentence, and ways to write the lines of `forward`."""


def scan(rng: random.Random) -> Draft:
    """A running sum or product along any dimension: plain, reversed, exclusive, masked."""
    name, (doc, forms) = rng.choice(tuple(_SCANS.items()))
    layout = draw_layout(rng, (2, 2, 3, 4), most_n=2048 if name == "cumprod" else 50_000)
    plain = rng.choice((f"torch.rand({layout.shape})", f"torch.randn({layout.shape})"))
    near_one = rng.choice(_NEAR_ONE).replace("@S@", layout.shape)
    kept = rng.choice((f"torch.randint(0, 2, ({layout.shape})).bool()", f"torch.rand({layout.shape}) > 0.4"))
    is_masked = name == "cumsum_masked"
    return Module(
        doc=doc,
        init_args=(rng.choice(("dim", "dim: int")),),
        init_lines=("self.dim = dim",),
        forward_args=("x", "mask") if is_masked else ("x",),
        forward_lines=rng.choice(forms),
        sizes=layout.sizes,
        inputs=(near_one if name == "cumprod" else plain, *((kept,) if is_masked else ())),
        init_inputs=(layout.init_input,),
        constants=layout.constants,
    ).draft((name,), draw_style(rng))
