"""The losses that compare two tensors value by value: torch's forms, Triton's terms, their inputs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """`@C@` is the drawn constant; the terms compute `loss` from `p` and `t`."""

    name: str
    doc: str
    forms: tuple[tuple[str, tuple[str, ...]], ...]
    """Constructor line (or empty) and lines of `forward`."""
    term: str
    wrong: tuple[str, str]
    """A text of the term and a wrong one in its place."""
    inputs: tuple[tuple[str, str], ...]
    constants: tuple[str, ...] = ("1.0",)
    other: str = "0.0"
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
LOSSES = (
    Loss(
        "mse", "Mean of squared differences.",
        (
            ("", ("return torch.mean((predictions - targets) ** 2)",)),
            ("", ("return F.mse_loss(predictions, targets)",)),
            ("self.loss = nn.MSELoss()", ("return self.loss(predictions, targets)",)),
            ("", ("diff = predictions - targets", "return (diff * diff).mean()")),
        ),
        "loss = (p - t) * (p - t)", ("(p - t) * (p - t)", "tl.abs(p - t)"), _SCALED,
    ),
    Loss(
        "l1", "Mean of absolute differences.",
        (
            ("", ("return torch.mean(torch.abs(predictions - targets))",)),
            ("", ("return F.l1_loss(predictions, targets)",)),
            ("self.loss = nn.L1Loss()", ("return self.loss(predictions, targets)",)),
        ),
        "loss = tl.abs(p - t)", ("tl.abs(p - t)", "(p - t)"), _SCALED,
    ),
    Loss(
        "smooth_l1", "Smooth L1 distance: squares for small differences, absolute values for large ones.",
        (
            ("", ("return F.smooth_l1_loss(predictions, targets, beta=@C@)",)),
            ("self.loss = nn.SmoothL1Loss(beta=@C@)", ("return self.loss(predictions, targets)",)),
        ),
        "d = tl.abs(p - t)\nloss = tl.where(d < @C@, 0.5 * d * d / @C@, d - 0.5 * @C@)",
        ("0.5 * d * d / @C@", "d * d / @C@"), _SCALED, ("1.0", "1.0", "0.5"),
    ),
    Loss(
        "huber", "Huber distance of predictions and targets.",
        (
            ("", ("return F.huber_loss(predictions, targets, delta=@C@)",)),
            ("self.loss = nn.HuberLoss(delta=@C@)", ("return self.loss(predictions, targets)",)),
        ),
        "d = tl.abs(p - t)\nloss = tl.where(d < @C@, 0.5 * d * d, @C@ * (d - 0.5 * @C@))",
        ("0.5 * d * d", "d * d"), _SCALED, ("1.0", "0.5", "0.75", "2.0"),
    ),
    Loss(
        "hinge", "Hinge distance for targets of minus one and one.",
        (
            ("", ("return torch.mean(torch.clamp(1 - predictions * targets, min=0))",)),
            ("", ("return F.relu(1.0 - predictions * targets).mean()",)),
        ),
        "loss = tl.maximum(1.0 - p * t, 0.0)", ("tl.maximum(1.0 - p * t, 0.0)", "1.0 - p * t"), _SIGNED,
    ),
    Loss(
        "squared_hinge", "Squared hinge distance for targets of minus one and one.",
        (("", ("margin = torch.clamp(1 - predictions * targets, min=0)", "return torch.mean(margin ** 2)")),),
        "m = tl.maximum(1.0 - p * t, 0.0)\nloss = m * m", ("loss = m * m", "loss = m"), _SIGNED,
    ),
    Loss(
        "bce_with_logits", "Binary cross entropy from logits.",
        (
            ("", ("return F.binary_cross_entropy_with_logits(predictions, targets)",)),
            ("self.loss = nn.BCEWithLogitsLoss()", ("return self.loss(predictions, targets)",)),
        ),
        "loss = tl.maximum(p, 0.0) - p * t + tl.log(1.0 + tl.exp(-tl.abs(p)))", ("- p * t", "- t"),
        (
            ("torch.randn(@S@) * (1.0 + 2.0 * torch.rand(()))", "torch.rand(@S@)"),
            ("3.0 * torch.randn(@S@) * torch.rand(())", "torch.randint(0, 2, (@S@,)).float()"),
        ),
    ),
    Loss(
        "kl_div", "Kullback-Leibler divergence, averaged over the batch.",
        (
            ("", ("return F.kl_div(torch.log(predictions), targets, reduction='batchmean')",)),
            ("self.loss = nn.KLDivLoss(reduction='batchmean')",
             ("return self.loss(predictions.log(), targets)",)),
        ),
        "loss = tl.where(t > 0, t * (tl.log(t) - tl.log(p)), 0.0)",
        ("tl.log(t) - tl.log(p)", "tl.log(p) - tl.log(t)"),
        (
            ("torch.softmax(torch.rand(@S@) * torch.rand(()), dim=-1)", "torch.rand(@S@).softmax(dim=-1)"),
            ("(2.0 * torch.randn(@S@)).softmax(dim=-1)", "torch.softmax(torch.randn(@S@), dim=-1)"),
        ),
        other="1.0", per_row=True,
    ),
    Loss(
        "kl_div_log", "Divergence of log-probabilities from target probabilities, averaged over the batch.",
        (
            ("", ("return F.kl_div(predictions, targets, reduction='batchmean')",)),
            ("self.loss = nn.KLDivLoss(reduction='batchmean')", ("return self.loss(predictions, targets)",)),
        ),
        "loss = tl.where(t > 0, t * (tl.log(t) - p), 0.0)", ("tl.log(t) - p", "p - tl.log(t)"),
        (("torch.log_softmax(2.0 * torch.randn(@S@), dim=-1)", "torch.softmax(torch.randn(@S@), dim=-1)"),),
        other="1.0", per_row=True,
    ),
)  # fmt: skip
