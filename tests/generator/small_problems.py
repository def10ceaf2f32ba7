"""Problems of one expression at ragged sizes."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernel_core.generator.operators import pointwise

TEXT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, {names}):
        return {expression}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


GLOBAL_SIZES = """
import torch
import torch.nn as nn

channels = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels * 2, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(2, channels, 7, 9)]


def get_init_inputs():
    return []
"""
"""The constructor reads a name that answers give to a size."""


def problem(expression: str, *inputs: str, layers: str = "pass") -> str:
    """A problem that computes an expression of `a`, `b`, `c`."""
    names = ", ".join("abcdef"[: len(inputs)])
    return TEXT.format(
        layers=f"        {layers}", names=names, expression=expression, inputs=", ".join(inputs)
    )


def spelled(name: str) -> str | None:
    """Torch's public function of a name of the table."""
    for text, module in (("torch", torch), ("F", F), ("torch.special", torch.special)):
        if callable(getattr(module, name, None)):
            return f"{text}.{name}"
    return None


def of_table() -> dict[str, str]:
    """A problem for each name of the pointwise table that torch has too, by name."""
    drawn = "torch.rand(3, 37) * 0.8 + 0.1"
    whole = "torch.randint(1, 6, (3, 37))"
    problems = {}
    for name, entry in pointwise().items():
        function = spelled(name)
        if function is None:
            continue
        required = entry.required
        if name == "threshold":
            problems[name] = problem("F.threshold(a, 0.5, 2.0)", drawn)
            continue
        if name in ("acosh", "arccosh"):
            problems[name] = problem(f"{function}(a)", f"{drawn} + 1")
            continue
        inputs = [
            f"{drawn} > 0.5" if one == "condition" else whole if entry.kind == "whole" else drawn
            for one in required
        ]
        arguments = ", ".join("abcdef"[: len(required)])
        problems[name] = problem(f"{function}({arguments})", *inputs)
    return problems


ROWS = "torch.randn(5, 77)"
IMAGE = "torch.randn(2, 6, 9, 11)"
INDEX = "torch.randint(0, 5, (8,))"
NUMBER = problem(
    "a.sum(), a.amax(), a.mean(), a.argmin(), a.prod(), a.logsumexp(0), (a > 0).all(), b.sum()",
    "torch.randn(())",
    "torch.rand(()) > 0.5",
)
ASSIGNS = problem("self.changed(a)", ROWS).replace(
    "    def forward",
    """    def changed(self, x):
        y = x * 2
        y[:, 2:7] = 0.5
        y[1, ::3] = x[0, ::3]
        y[:, -1] += 1
        return y

    def forward""",
)
INHERITS = problem("a * 2 + 1", ROWS).replace("class Model", "class Base").replace(
    "def get_inputs", "class Model(Base):\n    pass\n\n\ndef get_inputs"
)  # fmt: skip
BY_SCHEDULE = {
    "inherited_forward": INHERITS,
    "assignment_to_parts": ASSIGNS,
    "clamp_max": problem("torch.clamp_max(a, 0.3)", ROWS),
    "extreme_of_indices": problem("torch.where(a > 0, torch.arange(77, device=a.device), 99).amin(1)", ROWS),
    "index_add": problem("a.index_add(0, b, c)", ROWS, INDEX, "torch.randn(8, 77)"),
    "scatter_add": problem(
        "torch.scatter_add(a, 1, b, c)", ROWS, "torch.randint(0, 77, (5, 7))", "torch.randn(5, 7)"
    ),
    "indices_of_two_axes": problem("a[b, c]", ROWS, INDEX, "torch.randint(0, 77, (8,))"),
    "sort": problem("torch.sort(a, dim=-1, descending=True)", "torch.randn(5, 19)"),
    "topk": problem("torch.topk(a, 4, dim=1)", "torch.randn(5, 19)"),
    "topk_of_the_smallest": problem("torch.topk(a, 3, dim=0, largest=False)", "torch.randn(19, 5)"),
    "topk_of_infinities_and_ties": problem(
        "torch.topk(a.masked_fill(a < 1, float('-inf')).round(), 7).values", "torch.randn(300, 19)"
    ),
    "topk_of_half_of_a_row": problem("torch.topk(a, 38)", ROWS),
    "long_logsumexp": problem("torch.logsumexp(a * 2, dim=1)", "torch.randn(3, 9001)"),
    "long_softmax_behind_infinities": problem(
        "torch.softmax(a.masked_fill(torch.arange(9001, device=a.device) < 5000, float('-inf')), -1)",
        "torch.randn(2, 9001)",
    ),
    "long_norm_far_from_zero": problem("F.layer_norm(a, (9001,))", "torch.randn(3, 9001) + 100"),
    "variance_of_long_columns": problem("torch.var_mean(a, dim=1)", "torch.randn(2, 131, 67) - 5"),
    "moments_beside_a_softmax": problem("a.softmax(1) * a.std(1, keepdim=True)", "torch.randn(2, 9001)"),
    "softmax_of_long_columns": problem("torch.softmax(a, dim=1)", "torch.randn(2, 131, 67)"),
    "long_cross_entropy": problem(
        "F.cross_entropy(a, b)", "torch.randn(3, 9001)", "torch.randint(0, 9001, (3,))"
    ),
    "largest_of_long_columns": problem("a.max(dim=1), a.min(dim=1).indices", "torch.randn(2, 131, 67)"),
    "cumsum_of_a_middle_dimension": problem("torch.cumsum(a, dim=1)", "torch.randn(3, 70, 9)"),
    "exponentials_beside_maxima": problem("(a - b).exp().sum(-1) + a.amax(-1) + b.amax(-1)", ROWS, ROWS),
    "logsumexp": problem("torch.logsumexp(a, dim=(1, 2))", "torch.randn(3, 70, 9)"),
    "halves": problem("torch.cat(a.chunk(2, dim=-1)[::-1], dim=-1)", "torch.randn(5, 76)"),
    "mean_of_rows": problem("F.huber_loss(a, b)", ROWS, ROWS),
    "convolution_with_literal_geometry": problem(
        "F.conv2d(a, b, stride=(2, 1), padding=(0, 1), dilation=2)", IMAGE, "torch.randn(4, 6, 2, 3)"
    ),
    "median": problem("torch.median(a, dim=1)", "torch.randn(5, 19)"),
    "quantile": problem("torch.quantile(a, 0.3, dim=1)", "torch.randn(5, 19)"),
    "cummax": problem("torch.cummax(a, dim=1)", ROWS),
    "bucketize": problem("torch.bucketize(a, b)", ROWS, "torch.sort(torch.randn(12))[0]"),
    "pool_with_last_window": problem("F.max_pool2d(a, 3, 2, ceil_mode=True)", IMAGE),
    "pool_without_padding": problem(
        "F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False)", IMAGE
    ),
    "pool_of_cubes": problem("F.lp_pool2d(a, 3.0, 3)", "torch.rand(2, 6, 9, 11)"),
    "pool_of_signed_numbers": problem("F.lp_pool2d(a, 1.0, 3)", IMAGE),
    "pool_with_indices": problem("F.max_pool2d(a, 3, 2, 1, return_indices=True)", IMAGE),
    "decomposed_unfold": problem("F.unfold(a, 3, padding=1)", IMAGE),
    "decomposed_bilinear": problem("F.interpolate(a, scale_factor=2, mode='bilinear')", IMAGE),
    "bilinear_with_corners": problem("F.interpolate(a, (5, 17), mode='bilinear', align_corners=True)", IMAGE),
    "linear_interpolation": problem("F.interpolate(a, size=7, mode='linear')", "torch.randn(2, 3, 11)"),
    "decomposed_grid_sample": problem("F.grid_sample(a, b)", IMAGE, "torch.rand(2, 4, 5, 2) * 2 - 1"),
    "decomposed_adaptive_pool": problem("F.adaptive_avg_pool2d(a, (4, 5))", IMAGE),
    "decomposed_adaptive_layer": problem(
        "self.pool(a)", IMAGE, layers="self.pool = nn.AdaptiveAvgPool2d((4, 5))"
    ),
    "adaptive_pool_of_two_sizes": problem("F.adaptive_max_pool2d(a, (4, 5))", IMAGE),
    "view_alone": problem("a.reshape(7, 55)", ROWS),
    "two_views": problem("(a.unsqueeze(0), a.t()[None])", ROWS),
    "joined_with_one_element": problem("torch.cat([a, b], dim=1)", "torch.randn(1, 9)", "torch.randn(1, 1)"),
    "diagonals": problem("a.diagonal(2) + torch.diag(b, -1).sum(0)[:5]", ROWS, "torch.randn(5)"),
    "windows": problem("a.unfold(1, 5, 3)", ROWS),
    "checked_values": problem("F.gaussian_nll_loss(a, b, c.abs() + 0.1, full=True)", ROWS, ROWS, ROWS),
    "literal_tensor": problem("torch.where(a > 0, a, torch.tensor(-2.0, device=a.device))", ROWS),
    "decomposed_tensordot": problem("torch.tensordot(a, b, dims=([1], [1]))", ROWS, ROWS),
    "softmax": problem("torch.softmax(a, dim=-1) * 2", ROWS),
    "softmax_of_columns": problem("F.softmax(a, dim=1)", IMAGE),
    "long_softmax": problem("torch.log_softmax(a + 1, dim=-1)", "torch.randn(2, 9001)"),
    "long_columns": problem("a.sum(dim=1), a.argmax(dim=1)", "torch.randn(2, 131, 67)"),
    "mean_of_all": problem("((a - b) ** 2).mean()", "torch.randn(300, 301)", "torch.randn(300, 301)"),
    "variance": problem("a.var(dim=(0, 2)), a.std(-1, keepdim=True)", "torch.randn(3, 5, 7)"),
    "extremes": problem("a.max(dim=1)[0], a.min(dim=-1).indices, a.amax((1, 2))", "torch.randn(3, 5, 7)"),
    "truths": problem("(a > 2).any(dim=1), (a > -9).all()", "torch.randn(3, 50)"),
    "product": problem("a.prod(dim=-1)", ROWS),
    "reductions_of_a_number": NUMBER,
    "reductions_along_an_axis_of_one": problem("a[None].amax(0), a[:, None].sum((1,), keepdim=True)", ROWS),
    "layer_norm": problem("F.gelu(self.norm(a)) + a", ROWS, layers="self.norm = nn.LayerNorm(77)"),
    "group_norm": problem("F.silu(self.norm(a))", IMAGE, layers="self.norm = nn.GroupNorm(3, 6)"),
    "batch_norm": problem("torch.relu(self.norm(a))", IMAGE, layers="self.norm = nn.BatchNorm2d(6)"),
    "instance_norm": problem("self.norm(a)", IMAGE, layers="self.norm = nn.InstanceNorm2d(6, affine=True)"),
    "rms_norm": problem("F.rms_norm(a, (77,))", ROWS),
    "cross_entropy": problem("F.cross_entropy(a, b)", ROWS, "torch.randint(0, 77, (5,))"),
    "linear": problem("torch.relu(self.fc(a)) * 0.5", ROWS, layers="self.fc = nn.Linear(77, 35)"),
    "cells": problem(
        "self.lstm(a, (b, b * 2)), self.gru(a, b), self.rnn(b)",
        ROWS,
        "torch.randn(5, 8)",
        layers="self.lstm, self.gru = nn.LSTMCell(77, 8), nn.GRUCell(77, 8, bias=False)\n"
        "        self.rnn = nn.RNNCell(8, 9, nonlinearity='relu')",
    ),
    "cells_without_a_state": problem(
        "self.lstm(a), self.gru(a), torch.ones(3, 5) @ a",
        ROWS,
        layers="self.lstm, self.gru = nn.LSTMCell(77, 8), nn.GRUCell(77, 8)",
    ),
    "product_with_a_column": problem("torch.relu(a @ b)", "torch.randn(21, 70)", "torch.randn(70, 1)"),
    "product_of_a_turned_matrix": problem("a.t() @ b + 1", "torch.randn(70, 21)", "torch.randn(70, 1)"),
    "product_with_a_row": problem("a.exp() @ b", "torch.randn(1, 70)", "torch.randn(70, 81)"),
    "linear_of_a_row": problem(
        "F.gelu(self.fc(a))", "torch.randn(1, 77)", layers="self.fc = nn.Linear(77, 35)"
    ),
    "batched_products_with_columns": problem(
        "a @ b / 3", "torch.randn(3, 33, 180)", "torch.randn(2, 1, 180, 1)"
    ),
    "long_product_with_a_row": problem("a @ b", "torch.randn(1, 40001)", "torch.randn(40001, 3)"),
    "long_product": problem("a @ b * 2", "torch.rand(19, 20001)", "torch.rand(20001, 35)"),
    "batched_product": problem(
        "torch.bmm(a, b.transpose(1, 2)) / 3", "torch.randn(3, 33, 18)", "torch.randn(3, 20, 18)"
    ),
    "broadcast_product": problem("a @ b", "torch.randn(2, 3, 17, 18)", "torch.randn(18, 19)"),
    "addmm": problem(
        "torch.addmm(a, b, c, beta=0.5)", "torch.randn(19)", "torch.randn(17, 18)", "torch.randn(18, 19)"
    ),
    "einsum": problem("torch.einsum('bik,bkj->bij', a, b)", "torch.randn(2, 5, 7)", "torch.randn(2, 7, 9)"),
    "einsum_rows": problem("torch.einsum('ij,ij->i', a, b)", "torch.randn(7, 8)", "torch.randn(7, 8)"),
    "sizes_of_the_module": GLOBAL_SIZES,
    "attention": problem(
        "F.scaled_dot_product_attention(a, b, c, is_causal=True)", *["torch.randn(2, 2, 19, 16)"] * 3
    ),
    "causal_attention_with_more_keys": problem(
        "F.scaled_dot_product_attention(a, b, c, is_causal=True)",
        "torch.randn(2, 70, 16)",
        *["torch.randn(2, 133, 16)"] * 2,
    ),
    "attention_with_a_mask": problem(
        "F.scaled_dot_product_attention(a, b, c, attn_mask=d)",
        "torch.randn(2, 2, 70, 8)",
        "torch.randn(2, 2, 133, 8)",
        "torch.randn(2, 2, 133, 24)",
        "(torch.arange(133)[None, :] > torch.arange(70)[:, None])",
    ),
    "attention_written_out": problem(
        "(torch.softmax(a @ b.transpose(-2, -1) / 4 + c, dim=-1) @ d).transpose(1, 2)",
        *["torch.randn(2, 2, 35, 16)"] * 2,
        "torch.randn(2, 1, 35, 35)",
        "torch.randn(2, 2, 35, 16)",
    ),
    "attention_of_one_head": problem("torch.softmax(a @ b.t(), -1) @ b", *["torch.randn(19, 16)"] * 2),
    "attention_with_grouped_heads": problem(
        "F.scaled_dot_product_attention(a, b, c, enable_gqa=True)",
        "torch.randn(2, 4, 19, 16)",
        *["torch.randn(2, 2, 21, 16)"] * 2,
    ),
    "scores_that_are_returned": problem(
        "torch.softmax(a @ b.t(), -1), torch.softmax(a @ b.t(), -1) @ b", *["torch.randn(19, 16)"] * 2
    ),
    "convolution": problem(
        "F.relu(self.conv(a))", IMAGE, layers="self.conv = nn.Conv2d(6, 20, 3, stride=2, padding=1)"
    ),
    "dilated": problem(
        "self.conv(a)", "torch.randn(2, 4, 30)", layers="self.conv = nn.Conv1d(4, 18, 3, dilation=2)"
    ),
    "convolution_of_many_channels": problem(
        "self.conv(a * 2)", "torch.randn(2, 19, 9, 11)", layers="self.conv = nn.Conv2d(19, 35, 3, padding=1)"
    ),
    "convolution_of_cubes": problem(
        "self.conv(a)",
        "torch.randn(2, 9, 5, 6, 7)",
        layers="self.conv = nn.Conv3d(9, 5, (2, 1, 3), stride=(1, 2, 1), padding=(1, 0, 1), dilation=2)",
    ),
    "convolution_to_one_channel": problem("self.conv(a)", IMAGE, layers="self.conv = nn.Conv2d(6, 1, 3)"),
    "convolution_of_one_channel": problem(
        "self.conv(a)", "torch.randn(2, 1, 9, 11)", layers="self.conv = nn.Conv2d(1, 18, (3, 1), padding=1)"
    ),
    "convolution_of_points": problem("self.conv(a)", IMAGE, layers="self.conv = nn.Conv2d(6, 20, 1)"),
    "groups_of_many_channels": problem(
        "self.conv(a)", "torch.randn(2, 18, 9, 11)", layers="self.conv = nn.Conv2d(18, 34, 3, groups=2)"
    ),
    "transposed_groups": problem(
        "self.conv(a)",
        "torch.randn(2, 6, 9, 11)",
        layers="self.conv = nn.ConvTranspose2d(6, 34, (3, 2), stride=(1, 2), groups=2)",
    ),
    "transposed_from_one_channel": problem(
        "self.conv(a)",
        "torch.randn(2, 1, 9, 11)",
        layers="self.conv = nn.ConvTranspose2d(1, 18, 3, stride=2)",
    ),
    "groups": problem("self.conv(a)", IMAGE, layers="self.conv = nn.Conv2d(6, 12, 3, groups=3, padding=1)"),
    "depthwise": problem(
        "self.conv(a)", IMAGE, layers="self.conv = nn.Conv2d(6, 6, (3, 5), groups=6, padding=(1, 2))"
    ),
    "transposed": problem(
        "self.conv(a)",
        IMAGE,
        layers="self.conv = nn.ConvTranspose2d(6, 18, 3, stride=2, padding=1, output_padding=1)",
    ),
    "max_pool": problem("F.max_pool2d(a, 3, stride=2, padding=1)", IMAGE),
    "avg_pool": problem("F.avg_pool2d(a, (2, 3)).abs()", IMAGE),
    "global_pool": problem("F.adaptive_avg_pool2d(a, 1).flatten(1)", IMAGE),
    "cumsum": problem("torch.cumsum(a, dim=1) + 1", ROWS),
    "cumprod_of_columns": problem("torch.cumprod(a, dim=0)", ROWS),
    "long_cumsum": problem("torch.cumsum(a, dim=1)", "torch.randn(2, 9001)"),
    "logcumsumexp": problem("torch.logcumsumexp(a, dim=1)", ROWS),
    "permuted": problem("a.permute(0, 2, 3, 1).contiguous() + 1", IMAGE),
    "flipped": problem("torch.flip(a, [1]) + torch.roll(a, 2, 1)", ROWS),
    "joined": problem("torch.cat([a, b * 2], dim=1)", ROWS, "torch.randn(5, 13)"),
    "padded": problem("F.pad(a, (1, 2, 0, 3), value=0.5)", IMAGE),
    "reflected": problem("F.pad(a, (2, 1), mode='reflect')", "torch.randn(2, 3, 9)"),
    "parts": problem("a[:, 3:40:2] * a[:, :19]", ROWS),
    "chunks": problem("torch.sigmoid(a.chunk(2, dim=1)[0]) * a.chunk(2, dim=1)[1]", "torch.randn(5, 78)"),
    "shuffled": problem("F.pixel_shuffle(a, 2)", "torch.randn(2, 8, 3, 5)"),
    "repeated": problem("a.repeat(2, 3)", "torch.randn(5, 7)"),
    "selected": problem("a.index_select(1, b)", ROWS, "torch.randint(0, 77, (9,))"),
    "gathered": problem("torch.gather(a, 1, b) * 2", ROWS, "torch.randint(0, 77, (5, 6))"),
    "looked_up": problem(
        "self.table(a)", "torch.randint(0, 9, (4, 5))", layers="self.table = nn.Embedding(9, 21)"
    ),
    "triangle": problem("torch.tril(a) + torch.triu(a, 1)", "torch.randn(2, 7, 7)"),
    "masked": problem("a.masked_fill(b, -1.0)", ROWS, "torch.rand(5, 77) > 0.5"),
    "two_results": problem("(a + 1, a.sum(-1))", ROWS),
    "whole_numbers": problem(
        "(a // b) * 2 + a % b", "torch.randint(-20, 20, (40,))", "torch.randint(1, 6, (40,))"
    ),
    "types": problem("a.to(torch.int32) + b", "torch.randn(40) * 9", "torch.randint(0, 9, (40,))"),
    "powers": problem("a ** 2 + a ** 3 - torch.pow(a.abs(), 0.5) + 2 ** a", "torch.randn(40)"),
    "clamped": problem("a.clamp(min=-0.5, max=0.5) + a.clamp_min(0.1)", "torch.randn(40)"),
}
