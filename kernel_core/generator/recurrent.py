"""Recurrent layers as the recorder reads them: cells by their formulas, sequences by one step's shapes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

CELLS = (nn.RNNCell, nn.GRUCell, nn.LSTMCell)


def cell_step(module: nn.RNNCellBase, x: torch.Tensor, state: Any = None) -> Any:
    """The results of one of `CELLS`, by the formulas of torch's documents."""
    if state is None:
        zeros = x.new_zeros((*x.shape[:-1], module.hidden_size))
        state = (zeros, zeros) if isinstance(module, nn.LSTMCell) else zeros
    h = state[0] if isinstance(module, nn.LSTMCell) else state
    of_input = F.linear(x, module.weight_ih, module.bias_ih)
    of_state = F.linear(h, module.weight_hh, module.bias_hh)
    if isinstance(module, nn.LSTMCell):
        i, f, g, o = (of_input + of_state).chunk(4, -1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    if isinstance(module, nn.GRUCell):
        (r_x, z_x, n_x), (r_h, z_h, n_h) = of_input.chunk(3, -1), of_state.chunk(3, -1)
        r, z = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        n = torch.tanh(n_x + r * n_h)
        return (1 - z) * n + z * h
    total = of_input + of_state
    return torch.relu(total) if module.nonlinearity == "relu" else torch.tanh(total)


def sequence_shapes(module: nn.RNNBase, x: torch.Tensor, *state: Any, **named: Any) -> Any:
    """Fake results of a recurrent layer, from one step: thousands of steps take minutes."""
    axis = 1 if module.batch_first and x.dim() == 3 else 0
    length = x.shape[axis]
    output, *rest = module.forward(x.narrow(axis, 0, 1), *state, **named)
    shape = [length if k == axis else size for k, size in enumerate(output.shape)]
    return output.new_empty(shape), *rest
