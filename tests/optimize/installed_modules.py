"""Modules of an installed package that the tests of `optimize` use as targets."""

from __future__ import annotations

import torch
from torch import nn
from transformers.models.convnext.modeling_convnext import ConvNextConfig, ConvNextStage
from transformers.models.llama.modeling_llama import LlamaConfig, LlamaDecoderLayer, LlamaRotaryEmbedding


class Layers(nn.Module):
    """Decoder layers with rotary positions, RMSNorm, grouped attention and SwiGLU."""

    def __init__(self, config: LlamaConfig, count: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList([LlamaDecoderLayer(config, index) for index in range(count)])
        self.rotary = LlamaRotaryEmbedding(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = self.rotary(x, torch.arange(x.shape[1], device=x.device)[None])
        for layer in self.layers:
            x = layer(x, position_embeddings=positions)
        return x


def llama_layers() -> tuple[nn.Module, torch.Tensor]:
    """Return two decoder layers and their input."""
    config = LlamaConfig(
        hidden_size=128,
        intermediate_size=352,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_hidden_layers=2,
    )
    config._attn_implementation = "sdpa"
    return Layers(config), torch.randn(2, 32, 128)


def convnext_stage() -> tuple[nn.Module, torch.Tensor]:
    """Return a stage of two blocks behind its downsampling, and its input."""
    config = ConvNextConfig(layer_scale_init_value=1.0)
    return ConvNextStage(config, 24, 48, depth=2, drop_path_rates=[0.0, 0.0]), torch.randn(2, 24, 16, 16)
