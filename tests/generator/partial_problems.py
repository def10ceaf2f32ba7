"""Small modules of which an answer replaces a part."""

from __future__ import annotations

HEAD = """\
# Adapted from a paper.
import torch
import torch.nn as nn
import torch.nn.functional as F

"""
TAIL = """

SIZE = 24


def get_inputs():
    return [torch.randn(4, 7, SIZE)]


def get_init_inputs():
    return [SIZE]
"""

NORM_TWICE = (
    HEAD
    + """
SCALE = 2.0  # of the residual


# A norm without a mean.
class Norm(nn.Module):
    def __init__(self, size, eps: float=1e-5):
        super(Norm, self).__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        # the second moment
        moment = x.pow(2).mean(-1, keepdim=True)  # of each row
        return self.weight * (x * torch.rsqrt(moment + self.eps))


class Mixer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        # a comment that stays
        x = self.proj(x)
        x = x * SCALE + 1.50e-3
        return x


def unused(x):
    return x + 1


class Model(nn.Module):
    \"\"\"Two norms around a layer.\"\"\"

    def __init__(self, size):
        super(Model, self).__init__()
        self.before, self.after = Norm(size), Norm(size)
        self.mixer = Mixer(size)

    def forward(self, x):
        x = self.before(x)
        x = self.mixer(x)
        return self.after(x)
"""
    + TAIL
)

TWO_RESULTS = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = nn.Linear(size, 2 * size)
        self.outer = nn.Linear(size, size)
        self.limit = 0.75

    def forward(self, x):
        value, gate = self.inner(x).chunk(2, dim=-1)
        value = torch.tanh(value) * self.limit
        gate = torch.sigmoid(gate)
        value, gate = self.outer(value), self.outer(gate)
        return torch.cat((value, gate), dim=-1)
"""
    + TAIL
)

OTHER_LAYERS = (
    HEAD
    + """
class Step(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.act = act

    def forward(self, x):
        return self.act(x) * x


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first = Step(nn.ReLU())
        self.second = Step({second})
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        return self.second(self.proj(self.first(x)))
"""
    + TAIL
)
"""`{second}` is the activation of the second step."""

WITHOUT_EFFECT = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        unread = torch.exp(x)
        weight = torch.sigmoid(self.scale)
        x = self.proj(x) * weight
        unread = unread + x
        residual = x
        x += 1
        return torch.tanh(residual)
"""
    + TAIL
)
"""Calls that the results do not need, that read no input, and that change a tensor in place."""

IN_PLACE = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        x = self.proj(x)
        residual = x
        x = {step}
        return self.proj(x) @ residual.transpose(-2, -1)
"""
    + TAIL
)
"""`{step}` is a call that may change `x`, which `residual` shares."""

LOOP = (
    HEAD
    + """
def gated(x, gate):
    if gate is None:
        return x
    return x * F.silu(gate)


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = gated(layer(x), x)
        return x
"""
    + TAIL
)

LOOP_OF_LAYERS = (
    HEAD
    + """
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(size, size) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            residual = x
            x = torch.tanh(x) * 0.5
            x = layer(x)
            x = F.softmax(x, dim=-1) + residual
        return x
"""
    + TAIL
)

UNREADABLE = (
    HEAD
    + """
class Inner(nn.Module):
    def forward(self, x):
        return F.softmax(x, dim=-1)


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        doubled = x.clone()
        first = doubled[..., :3]
        doubled.mul_(2)
        return self.inner(x), first
"""
    + TAIL
)
"""A view is read after its memory changed."""

OTHER_BRANCH = (
    "# cpu: SIZE=12\n"
    + HEAD
    + """
class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        x = self.proj(x)
        if x.shape[-1] > 12:
            x = torch.sigmoid(x) * x
        return self.proj(torch.relu(self.proj(x)))
"""
    + TAIL
)
"""A statement that does not run at the sizes for a CPU."""
