"""Losses of two tensors value by value, or of whole rows: cross entropy, cosine, triplet margin, hinge."""

from __future__ import annotations

import random
from dataclasses import dataclass

from kernel_core.problems.modules.draft import Draft, Module
from kernel_core.problems.modules.reduction.layout import draw_sizes
from kernel_core.problems.modules.style import draw_style
from kernel_core.problems.program import Size, dims_of, draw_cpu_size


@dataclass(frozen=True)
class _Loss:
    """A loss of predictions and targets value by value; `@C@` is the drawn constant."""

    name: str
    doc: str
    forms: tuple[tuple[str, tuple[str, ...]], ...]
    """Constructor line (or empty) and lines of `forward`."""
    inputs: tuple[tuple[str, str], ...]
    constants: tuple[str, ...] = ("1.0",)
    per_row: bool = False
    """Divided by the batch size, not by the number of elements."""


_SCALED = (
    ("torch.rand(@S@) * torch.rand(())", "torch.rand(@S@)"),
    ("torch.randn(@S@) * (1.0 + torch.rand(()))", "torch.randn(@S@)"),
    ("torch.randn(@S@)", "torch.randn(@S@) + torch.rand(())"),
)
_SIGNED = (
    ("torch.randn(@S@) * (1.0 + torch.rand(()))", "torch.randint(0, 2, (@S@,)).float() * 2 - 1"),
    ("torch.randn(@S@) * (0.5 + torch.rand(()))", "torch.sign(torch.randn(@S@))"),
)
_LOSSES = (
    _Loss(
        "mse", "Mean of squared differences.",
        (
            ("", ("return torch.mean((predictions - targets) ** 2)",)),
            ("", ("return F.mse_loss(predictions, targets)",)),
            ("self.loss = nn.MSELoss()", ("return self.loss(predictions, targets)",)),
            ("", ("diff = predictions - targets", "return (diff * diff).mean()")),
        ),
        _SCALED,
    ),
    _Loss(
        "l1", "Mean of absolute differences.",
        (
            ("", ("return torch.mean(torch.abs(predictions - targets))",)),
            ("", ("return F.l1_loss(predictions, targets)",)),
            ("self.loss = nn.L1Loss()", ("return self.loss(predictions, targets)",)),
        ),
        _SCALED,
    ),
    _Loss(
        "smooth_l1", "Smooth L1 distance: squares for small differences, absolute values for large ones.",
        (
            ("", ("return F.smooth_l1_loss(predictions, targets, beta=@C@)",)),
            ("self.loss = nn.SmoothL1Loss(beta=@C@)", ("return self.loss(predictions, targets)",)),
        ),
        _SCALED, ("1.0", "1.0", "0.5"),
    ),
    _Loss(
        "huber", "Huber distance of predictions and targets.",
        (
            ("", ("return F.huber_loss(predictions, targets, delta=@C@)",)),
            ("self.loss = nn.HuberLoss(delta=@C@)", ("return self.loss(predictions, targets)",)),
        ),
        _SCALED, ("1.0", "0.5", "0.75", "2.0"),
    ),
    _Loss(
        "hinge", "Hinge distance for targets of minus one and one.",
        (
            ("", ("return torch.mean(torch.clamp(1 - predictions * targets, min=0))",)),
            ("", ("return F.relu(1.0 - predictions * targets).mean()",)),
        ),
        _SIGNED,
    ),
    _Loss(
        "squared_hinge", "Squared hinge distance for targets of minus one and one.",
        (("", ("margin = torch.clamp(1 - predictions * targets, min=0)", "return torch.mean(margin ** 2)")),),
        _SIGNED,
    ),
    _Loss(
        "bce_with_logits", "Binary cross entropy from logits.",
        (
            ("", ("return F.binary_cross_entropy_with_logits(predictions, targets)",)),
            ("self.loss = nn.BCEWithLogitsLoss()", ("return self.loss(predictions, targets)",)),
        ),
        (
            ("torch.randn(@S@) * (1.0 + 2.0 * torch.rand(()))", "torch.rand(@S@)"),
            ("3.0 * torch.randn(@S@) * torch.rand(())", "torch.randint(0, 2, (@S@,)).float()"),
        ),
    ),
    _Loss(
        "kl_div", "Kullback-Leibler divergence, averaged over the batch.",
        (
            ("", ("return F.kl_div(torch.log(predictions), targets, reduction='batchmean')",)),
            ("self.loss = nn.KLDivLoss(reduction='batchmean')",
             ("return self.loss(predictions.log(), targets)",)),
        ),
        (
            ("torch.softmax(torch.rand(@S@) * torch.rand(()), dim=-1)", "torch.rand(@S@).softmax(dim=-1)"),
            ("(2.0 * torch.randn(@S@)).softmax(dim=-1)", "torch.softmax(torch.randn(@S@), dim=-1)"),
        ),
        per_row=True,
    ),
    _Loss(
        "kl_div_log", "Divergence of log-probabilities from target probabilities, averaged over the batch.",
        (
            ("", ("return F.kl_div(predictions, targets, reduction='batchmean')",)),
            ("self.loss = nn.KLDivLoss(reduction='batchmean')", ("return self.loss(predictions, targets)",)),
        ),
        (("torch.log_softmax(2.0 * torch.randn(@S@), dim=-1)", "torch.softmax(torch.randn(@S@), dim=-1)"),),
        per_row=True,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class _Targets:
    """The targets' shape, and their name in `forward`."""

    shape: str = "@S@"
    torch: str = "targets"


_BROADCAST = (
    _Targets("@LAST@"),
    _Targets("@LAST@"),
    _Targets("@FIRST@, 1"),
    _Targets("@FIRST@", "targets.unsqueeze(1)"),
    _Targets("@FIRST@", "targets[:, None]"),
)
_WITH_BROADCAST = ("mse", "l1", "hinge", "squared_hinge")
_SQUARES = (2500, 3000, 4096, 5000, 6144, 8000)


def pair_loss(rng: random.Random) -> Draft:
    """A loss that compares predictions with targets value by value; targets may be broadcast."""
    loss = rng.choice(_LOSSES)
    constant = rng.choice(loss.constants)
    targets, forms = _Targets(), loss.forms
    if loss.name in _WITH_BROADCAST and rng.random() < 0.6:
        targets = rng.choice(_BROADCAST)
        forms = tuple(form for form in forms if not form[0] and "_loss(" not in form[1][0])
    sizes = _draw_shape(rng, loss, targets)
    names = [size.name for size in sizes]
    shapes = {"@S@": ", ".join(names), "@FIRST@": names[0], "@LAST@": names[-1]}
    layer, forward = rng.choice(forms)
    predicted, expected = rng.choice(loss.inputs)
    expected = expected.replace("@S@", targets.shape)
    for marker, text in shapes.items():
        predicted, expected = predicted.replace(marker, text), expected.replace(marker, text)
    return Module(
        doc=loss.doc,
        init_lines=(layer.replace("@C@", constant),) if layer else (),
        forward_args=("predictions", "targets"),
        forward_lines=tuple(
            line.replace("@C@", constant).replace("targets", targets.torch) for line in forward
        ),
        sizes=tuple(dict.fromkeys(sizes)),
        inputs=(predicted, expected),
    ).draft((loss.name,), draw_style(rng))


def _draw_shape(rng: random.Random, loss: _Loss, targets: _Targets) -> tuple[Size, ...]:
    """A size a dimension; one size is both where targets by column fit rows and columns alike."""
    if targets.shape == "@LAST@" and rng.random() < 0.4:
        return (Size("batch_size", rng.choice(_SQUARES), draw_cpu_size(rng, 35, 50)),) * 2
    only_rows = loss.per_row or targets.shape != "@S@"
    return draw_sizes(rng, 2 if only_rows else rng.choice((2, 2, 3, 4)), 64_000_000)


def row_loss(rng: random.Random) -> Draft:
    """A loss of rows, averaged over the batch."""
    draw = rng.choice((_cross_entropy, _cross_entropy, _cosine, _triplet, _triplet, _hinge, _hinge))
    module = draw(rng)
    return module.draft((draw.__name__.removeprefix("_"),), draw_style(rng))


def _cross_entropy(rng: random.Random) -> Module:
    batch, classes = rng.choice(
        ((4096, 5000), (8192, 2048), (16384, 1000), (20000, 4000), (65536, 300), (1024, 32000), (2048, 50257))
    )
    layer, line = rng.choice(
        (
            ("", "return F.cross_entropy(predictions, targets)"),
            ("", "return torch.nn.functional.cross_entropy(predictions, targets)"),
            ("self.loss = nn.CrossEntropyLoss()", "return self.loss(predictions, targets)"),
            ("", "return F.nll_loss(F.log_softmax(predictions, dim=1), targets)"),
        )
    )
    logits = rng.choice(("torch.randn(@S@)", "torch.rand(@S@)", "torch.randn(@S@) * (1.0 + torch.rand(()))"))
    return Module(
        doc="Cross entropy of logits and class indices.",
        init_lines=(layer,) if layer else (),
        forward_args=("predictions", "targets"),
        forward_lines=(line,),
        sizes=(Size("batch_size", batch, 5), Size("num_classes", classes, 300)),
        inputs=(
            logits.replace("@S@", "batch_size, num_classes"),
            "torch.randint(0, num_classes, (batch_size,))",
        ),
    )


def _cosine(rng: random.Random) -> Module:
    layer, lines = rng.choice(
        (
            ("", ("return torch.mean(1 - F.cosine_similarity(predictions, targets, dim=1))",)),
            ("", ("similarity = F.cosine_similarity(predictions, targets, dim=1)",
                  "return 1.0 - similarity.mean()")),
            ("self.cos = nn.CosineSimilarity(dim=1)",
             ("return (1 - self.cos(predictions, targets)).mean()",)),
        )
    )  # fmt: skip
    sizes = draw_sizes(rng, 2, 48_000_000)
    shape = dims_of(sizes)
    return Module(
        doc="One minus the cosine of two batches of vectors, averaged.",
        init_lines=(layer,) if layer else (),
        forward_args=("predictions", "targets"),
        forward_lines=lines,
        sizes=sizes,
        inputs=(f"torch.randn({shape}) + torch.rand(())", f"torch.randn({shape}) + 2.0 * torch.rand(())"),
    )


def _triplet(rng: random.Random) -> Module:
    margin = rng.choice(("1.0", "1.0", "0.5", "2.0"))
    layer, line = rng.choice(
        (
            ("self.loss_fn = nn.TripletMarginLoss(margin=margin)",
             "return self.loss_fn(anchor, positive, negative)"),
            ("self.margin = margin",
             "return F.triplet_margin_loss(anchor, positive, negative, margin=self.margin)"),
        )
    )  # fmt: skip
    sizes = draw_sizes(rng, 2, 32_000_000)
    drawn = f"torch.rand({dims_of(sizes)})"
    return Module(
        doc="Triplet margin distance of anchors, positives and negatives.",
        init_args=("margin: float = 1.0",),
        init_lines=(layer,),
        forward_args=("anchor", "positive", "negative"),
        forward_lines=(line,),
        sizes=sizes,
        inputs=(f"{drawn} * torch.rand(())", f"{drawn} * (1.0 + torch.rand(()))", drawn),
        init_inputs=(margin,),
    )


def _hinge(rng: random.Random) -> Module:
    by_row = rng.random() < 0.4
    rows, cols = draw_sizes(rng, 2, 64_000_000)
    targets = "targets.unsqueeze(1)" if by_row else "targets"
    count = rows.name if by_row else cols.name
    return Module(
        doc=f"Hinge distance with one sign {'a row' if by_row else 'a column'}.",
        forward_args=("predictions", "targets"),
        forward_lines=(f"return torch.mean(torch.clamp(1 - predictions * {targets}, min=0))",),
        sizes=(rows, cols),
        inputs=(
            f"torch.randn({rows.name}, {cols.name}) * (1.0 + torch.rand(()))",
            f"torch.randint(0, 2, ({count},)).float() * 2 - 1",
        ),
    )
