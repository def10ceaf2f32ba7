"""Usual values of constructor arguments and sizes of inputs: a large one for a GPU, a small one for a CPU."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from kernel_core.records import Constant

_WIDTHS = (128, 192, 256, 320, 384, 512, 640, 768, 1024)


@dataclass(frozen=True)
class ArgumentValue:
    """Argument: an expression where it is no number, else its name as a size constant."""

    name: str
    large: Constant
    small: Constant
    is_channel: bool = False
    """True if a dimension of the input may be as long."""
    is_size: bool = True
    """Numbers become constants of the problem; other values are written where they are used."""


_DIMENSIONS = ("BATCH_SIZE", "SEQ_LEN", "HEIGHT", "WIDTH", "DEPTH", "LENGTH", "FEATURES", "CHANNELS")

_CHANNELS = re.compile(
    r"(in|out|inner|hidden|mid|input|output|embed|model|base|bottleneck|query|key|value|context|cond|cross_attention"
    r"|encoder|decoder|skip|emb|time_embed|c|d|n)?_?(dim|dims|dimension|channels?|chs|chans|features?|feats?|planes?"
    r"|width|size|c|hidden_size|nc|ch)s?(_?(in|out|inner|hidden))?"
    r"|num_features|num_channels|n_channels|nf|inplanes|planes|hidden|embedding_dim|d_model|dmodel|in_nc|out_nc"
    r"|hidden_size|embed_dims?|normalized_shape|emb_size|channels_per_group|c1|c2|inp|oup|ninp|embedding_size"
    r"|normalized_dim|num_hiddens|vision_hidden_size|text_hidden_size|hid_dim|irreps_dim|query_dim|in_chan|out_chan"
    r"|conv_dim|d_in|d_out|projection_dim|input_features|num_in_features|num_out_features|encoder_hidden_size"
)
_INTERMEDIATE = re.compile(
    r"(\w+_)?(intermediate_size|mlp_dim|ffn_dim|ff_dim|feedforward\w*|n_inner|hidden_features|inner_dim|d_ff"
    r"|intermediate_channels|mlp_size|ffn_embed_dim|d_inner|mlp_hidden_size)"
)
_NUMBERS: dict[str, tuple[Constant, Constant]] = {
    r"\w*head_?dim|dim_head|d_head|d_kv|attention_head_size|dim_heads|embed_dim_per_head|head_size": (64, 6),
    r"(\w*num_?\w*heads|n_?heads?|heads|nhead|h|num_key_value_heads)": (8, 4),
    r"kernel|kernel_?size|ks|k|filter_size|conv_kernel\w*|\w*kernel_size": (3, 3),
    r"stride|dilation|order|num_layers|depth|n_layers|num_hidden_layers|n_blocks|num_blocks|repeat|layer_idx"
    r"|layer_id|block_id|dim_axis": (1, 1),
    r"padding|pad": (1, 1),
    r"\w*eps(ilon)?|tiny": (1e-5, 1e-5),
    r"(num_)?groups?|n_groups|norm_groups|num_groups_\w+|norm_num_groups|cardinality|scale_factor_groups": (
        4,
        4,
    ),
    r"reduction|reduction_ratio|rd_ratio_inv|ratio|se_ratio|squeeze_factor|expand_ratio|expansion\w*|mlp_ratio"
    r"|mult|multiplier": (4, 4),
    r"window|window_size|win_size|pool_size|patch_size|scale_factor|upscale_factor|downscale_factor|block_size"
    r"|scale|factor|upscale|downsample\w*|num_pool|n_bins|shifts?|shift_size": (2, 2),
    r"num_classes|n_classes|num_labels|vocab_size|num_embeddings|num_tokens|n_vocab|n_token\w*|num_types"
    r"|type_vocab_size|classes": (1000, 50),
    r"max_?\w*len\w*|max_position\w*|seq_?len\w*|num_patches|num_positions|n_positions|max_seq\w*|length"
    r"|sequence_length|num_queries|n_ctx|context_length|max_period|base|rope_theta|theta|t": (1024, 16),
    r"img_size|image_size|input_size|input_resolution|resolution|feat_size|size|spatial_size": (224, 32),
    r"\w*(alpha|gamma|momentum|smooth\w*|temp|temperature|tau|margin|delta|sigma|scale|beta\d?|rate|weight"
    r"|threshold|factor|slope|init_values?|layer_scale\w*|layerscale\w*|std|variance|lam\w*|power|p|c|kappa|radius"
    r"|cutoff|r_max|cutoff_\w+|start|end|stop|lower|upper|low|high|min\w*|max\w*|mean|angle|brightness|contrast"
    r"|saturation|hue|gain)": (0.5, 0.5),
    r"num_\w+|n_\w+|\w*rank|degree|p_order|lmax|l_max|number|steps|bins|k_nearest|topk": (4, 4),
    r"\w*(drop|drop_?out|drop_?path|prob|p_drop)\w*": (0.0, 0.0),
}
_TEXTS = {
    r"\w*(bias|affine|residual|causal|is_\w+|use_\w+|with_\w+|qk_norm|track\w*|enable\w*|has_\w+|do_\w+|keepdims?"
    r"|inverse|normalize\w*|swap\w*|flip\w*|reverse\w*|return_\w+|output_\w+|shortcut|conv_shortcut"
    r"|training)": "False",
    r"\w*norm_layer|norm": "nn.LayerNorm",
    r"\w*(act_layer|activation_layer)": "nn.GELU",
    r"\w*act(ivation)?(_fn|_func\w*)?|\w*hidden_act|nonlinearity|non_linearity|hidden_activation"
    r"|feed_forward_proj": "'gelu'",
    r"mode|interpolation|resample": "'bilinear'",
    r"reduction": "'mean'",
    r"dim|axis": "-1",
    r"device|dtype|mask|\w*_mask|layer_types|rope_scaling|quantization_config|kv_\w+": "None",
    r"_attn_implementation": "'eager'",
    r"padding_mode": "'zeros'",
    r"kernel_sizes?": "(3, 3)",
    r"norm_type|norm_layer_type": "'layer'",
}


def usual_value(name: str, rng: random.Random, is_function: bool = False) -> ArgumentValue | None:
    """Return the value for an argument of this name; None where the name suggests nothing."""
    plain = name.lower().strip("_")
    if is_function and plain in ("dim", "axis"):
        return ArgumentValue(name, "-1", "-1", is_size=False)
    if _INTERMEDIATE.fullmatch(plain):
        width = rng.choice((1024, 1536, 2048))
        return ArgumentValue(constant_name(name), width, 48, is_channel=True)
    for pattern, text in _TEXTS.items():
        if plain not in ("dim", "axis") and re.fullmatch(pattern, plain) and plain != "reduction":
            return ArgumentValue(name, text, text, is_size=False)
    if _CHANNELS.fullmatch(plain) and plain not in ("size", "c", "d", "n"):
        return ArgumentValue(constant_name(name), rng.choice(_WIDTHS), 24, is_channel=True)
    for pattern, (large, small) in _NUMBERS.items():
        if re.fullmatch(pattern, plain):
            return ArgumentValue(constant_name(name), large, small)
    return None


def constant_name(name: str) -> str:
    """`hidden_size` as a constant of the module."""
    return name.strip("_").upper()


@dataclass(frozen=True)
class DimensionSetting:
    """Lengths of the dimensions that no constructor argument fixes."""

    small: dict[str, int]
    large: tuple[dict[str, int], ...]
    """Sizes by descending scale."""


def settings(rng: random.Random) -> tuple[DimensionSetting, ...]:
    """Odd lengths first: at those a kernel without masks shows its fault; then lengths that divide evenly."""
    chosen = []
    for small in (
        (2, 13, 7, 9, 5, 37, 27, 6),
        (2, 16, 8, 8, 8, 32, 24, 8),
        (4, 64, 32, 32, 8, 64, 48, 12),
    ):
        lengths = dict(zip(_DIMENSIONS, small, strict=True))
        chosen.append(
            DimensionSetting(lengths, tuple(_large(rng, scale) for scale in (1.0, 0.5, 0.25, 0.12)))
        )
    return tuple(chosen)


def _large(rng: random.Random, scale: float) -> dict[str, int]:
    side = rng.choice((32, 48, 64, 96, 128)) if scale > 0.3 else rng.choice((32, 64))
    return {
        "BATCH_SIZE": max(4, int(rng.choice((16, 24, 32, 48, 64)) * scale)),
        "SEQ_LEN": max(64, int(rng.choice((512, 768, 1024, 2048)) * scale)),
        "HEIGHT": side,
        "WIDTH": side,
        "DEPTH": rng.choice((8, 16)),
        "LENGTH": max(256, int(rng.choice((2048, 4096, 8192)) * scale)),
        "CHANNELS": rng.choice((32, 64, 96, 128)),
        "FEATURES": max(256, int(rng.choice((1024, 2048, 4096)) * scale)),
    }
