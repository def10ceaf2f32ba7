# cpu: NODES=17, EDGES=45, WIDTH=13
import torch
import torch.nn as nn


class Model(nn.Module):
    """Messages along edges, added up at the node where each edge ends."""

    def forward(self, nodes, sources, targets, weights):
        messages = nodes[sources] * weights[:, None]
        return torch.zeros_like(nodes).index_add(0, targets, messages)


NODES = 65536
EDGES = 524288
WIDTH = 128


def get_inputs():
    return [
        torch.randn(NODES, WIDTH),
        torch.randint(0, NODES, (EDGES,)),
        torch.randint(0, NODES, (EDGES,)),
        torch.rand(EDGES),
    ]


def get_init_inputs():
    return []
