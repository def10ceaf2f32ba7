"""Known costs of torch's operators."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

FREE = frozenset(
    f"aten::{name}"
    for name in ("_local_scalar_dense", "lift", "lift_fresh", "_unsafe_view", "_reshape_alias")
)
"""These operators move nothing, and neither do operators that leave memory unwritten."""

_TORCHS_OWN = frozenset(torch._C._dispatch_get_all_op_names())
"""Torch's operators at the time of this import, before a candidate can add any."""
_PLACES = ("cpu", "meta", "cuda")
"""Devices of tensors; an operator on several devices works on the last of them."""

_UNWRITTEN_NAME = re.compile(r"(^|_)(empty|resize)(_|$)")
_OUTSIDE = frozenset(["aten::from_file"])
"""These operators use memory that outlives them."""

GATHERS = ("aten::embedding", "aten::gather", "aten::index", "aten::index_select", "aten::take")
"""Operators that read as much of their first input as they write."""

_MOVES = "filled, copied, put together, moved"
_LIGHT = {
    _MOVES: """
        fill zero zeros_like ones_like full_like new_zeros new_ones new_full clone contiguous copy
        _to_copy cat stack repeat repeat_interleave flip roll rot90 constant_pad_nd tril triu
        diag_embed pixel_shuffle channel_shuffle pixel_unshuffle block_diag masked_select
        masked_scatter index_fill index_copy scatter put index_put _index_put_impl _unsafe_index
        _unsafe_index_put nonzero reflection_pad1d reflection_pad2d reflection_pad3d im2col col2im
        _stack replication_pad1d replication_pad2d replication_pad3d resize set _pin_memory
        slice_scatter select_scatter diagonal_scatter as_strided_scatter _chunk_cat
        _unsafe_masked_index embedding_renorm nonzero_static resize_as
    """,
    "reduced, scanned, sorted": """
        sum mean prod var var_mean std std_mean amax amin aminmax _aminmax max min argmax argmin any
        all norm linalg_vector_norm logsumexp nansum count_nonzero median nanmedian mode kthvalue
        trace dist cumsum cumprod _cummax_helper _cummin_helper _logcumsumexp logcumsumexp topk sort
        searchsorted bucketize bincount histc unique_consecutive _unique2 scatter_add scatter_reduce
        cummax cummin unique_dim _unique histogram _is_all_true _is_any_true index_add index_reduce
        isin
    """,
    "a vector's products take as long as reading what goes in": """
        dot vdot mv addmv addr linalg_cross
    """,
    "normalised, pooled, sampled anew": """
        _softmax _log_softmax _safe_softmax _masked_softmax native_layer_norm renorm native_batch_norm
        _native_batch_norm_legit _native_batch_norm_legit_no_training
        _native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_no_update
        native_group_norm _fused_rms_norm cudnn_batch_norm batch_norm_stats batch_norm_elemt
        avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices
        adaptive_max_pool2d adaptive_max_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
        mkldnn_max_pool2d mkldnn_max_pool3d max_unpool2d max_unpool3d fractional_max_pool2d
        fractional_max_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
        upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d grid_sampler_2d
        grid_sampler_3d affine_grid_generator _upsample_nearest_exact1d _upsample_nearest_exact2d
        _upsample_nearest_exact3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
        _weight_norm_interface
    """,
    "losses, gates, and numbers at random": """
        mse_loss smooth_l1_loss huber_loss binary_cross_entropy nll_loss_forward nll_loss2d_forward
        multi_margin_loss multilabel_margin_loss_forward soft_margin_loss
        binary_cross_entropy_with_logits glu log_sigmoid_forward _prelu_kernel rrelu_with_noise
        native_dropout _fused_dropout bernoulli uniform normal random exponential rand_like randn_like
        randint_like multinomial complex polar log_normal geometric cauchy poisson _assert_async
    """,
    "pointwise, and not tagged so": """
        __and__ __or__ __xor__ __lshift__ __rshift__ hardswish floor_divide
    """,
}
"""Light operators that torch does not tag as pointwise: they do a few operations for each element of inputs
and outputs."""
_LIGHT_NAMES = frozenset(name for names in _LIGHT.values() for name in names.split())
_DISTANCES = frozenset(("_cdist_forward", "_euclidean_dist"))
_MOVING_NAMES = frozenset(f"aten::{name}" for name in _LIGHT[_MOVES].split()) | {*GATHERS}


def only_moves(name: str) -> bool:
    """Return True if an operator computes nothing."""
    return name.removesuffix("_") in _MOVING_NAMES


@functools.cache
def leaves_unwritten(function: Any) -> bool:
    """Return True if an operator does nothing but make memory, or make it larger, that it does not write to,
    or say anew where in memory a tensor lies. Torch tags the latter, and names the others alike."""
    name = function._schema.name.partition("::")[2]
    return torch.Tag.inplace_view in function.tags or _UNWRITTEN_NAME.search(name) is not None


@functools.cache
def gives_view(function: Any) -> bool:
    """Return True if an operator moves and computes nothing, and gives its argument's memory in another
    form."""
    schema = function._schema
    return not schema.is_mutable and any(value.alias_info is not None for value in schema.returns)


def operator_by_name(name: Any, overload: Any) -> torch._ops.OpOverload[Any, Any]:
    """One of torch's own operators, by its name in a trace. Raises `ValueError` for every other name. Raises
    it also for operators that keep state outside the trace or return uninitialised memory."""
    if not isinstance(name, str) or not isinstance(overload, str):
        raise ValueError("an operator is called by words")
    home, _, own_name = name.partition("::")
    full_name = f"{name}.{overload}" if overload not in ("", "default") else name
    if home != "aten" or "." in own_name or full_name not in _TORCHS_OWN:
        raise ValueError(f"operator {full_name[:80]} cannot be replayed")
    packet = getattr(torch.ops.aten, own_name)
    function = getattr(packet, overload or "default") if type(packet) is torch._ops.OpOverloadPacket else None
    if (
        type(function) is not torch._ops.OpOverload
        or (function._schema.name, function._schema.overload_name) != (name, full_name[len(name) + 1 :])
        or name in _OUTSIDE
        or leaves_unwritten(function)
    ):
        raise ValueError(f"operator {full_name[:80]} cannot be replayed")
    return function


_ROWS = torch.Tensor.crow_indices, torch.Tensor.col_indices, torch.Tensor.values
_COLUMNS = torch.Tensor.ccol_indices, torch.Tensor.row_indices, torch.Tensor.values
SPARSE = {
    torch.sparse_coo: (torch.Tensor._indices, torch.Tensor._values),
    **dict.fromkeys((torch.sparse_csr, torch.sparse_bsr), _ROWS),
    **dict.fromkeys((torch.sparse_csc, torch.sparse_bsc), _COLUMNS),
}
"""The methods for the members of a sparse tensor, in the order of its constructor, by its layout."""


def members_of(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Indices and values of a sparse tensor; none of another."""
    return [member(tensor) for member in SPARSE.get(tensor.layout, ())]


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among arguments or results of an operator; of a sparse one its members."""
    if isinstance(value, torch.Tensor):
        return members_of(value) or [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def storages_in(value: Any) -> list[torch.UntypedStorage]:
    """All storages in nested lists, tuples and dicts, and those of tensors."""
    if isinstance(value, torch.UntypedStorage):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [storage for item in value for storage in storages_in(item)]
    return [tensor.untyped_storage() for tensor in tensors_in(value)]


def only_looks_anew(function: Any) -> bool:
    """Return True if an operator makes no tensor, but says where in memory one lies."""
    return torch.Tag.inplace_view in function.tags


def sizes_by_values(function: Any, args: Any) -> bool:
    """Return True if values say how large an operator's result is: those of a mask do, places do not."""
    if torch.Tag.dynamic_output_shape not in function.tags:
        return False
    return function._schema.name != "aten::index" or torch.bool in {
        tensor.dtype for tensor in tensors_in(args)
    }


def is_torchs_own(function: Any) -> bool:
    """Return True if torch came with an operator; a candidate may register others."""
    return function.name() in _TORCHS_OWN


def do_inside(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Do what an operator does where its tensors lie, so that modes which are active see each step."""
    devices = {tensor.device.type for tensor in tensors_in([*args, *kwargs.values()])}
    key = torch._C._dispatch_key_for_device(max(devices, default="cpu", key=_PLACES.index))
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    return function.redispatch(keys, *args, **kwargs)


def computable(value: torch.Tensor) -> torch.Tensor:
    """8-bit floats as wider ones, because torch does not compute with them."""
    return value.float() if value.is_floating_point() and value.element_size() == 1 else value


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The value with each tensor in it changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(map_tensors(item, change) for item in value)
    return value


def read_again(name: str, given: list[torch.Tensor], made: list[torch.Tensor]) -> int:
    """Bytes that an operator reads more than once. To normalise a layer, a row is read twice, and the weights
    for each row."""
    if name != "aten::native_layer_norm":
        return 0
    values, *weights = given
    return values.nbytes + (made[1].numel() - 1) * sum(weight.nbytes for weight in weights)


def num_programs(name: str, args: Any, made: list[torch.Tensor]) -> int:
    """The number of programs of torch's CUDA kernel for an operator; 0 where there are always enough. One
    block handles a row in `layer_norm_kernel.cu`, and in `SoftMax.cu` where rows are contiguous."""
    if name == "aten::native_layer_norm":
        return made[1].numel()
    if name in ("aten::_softmax", "aten::_log_softmax") and made[0].numel():
        return made[0].numel() // made[0].shape[args[1]]
    return 0


def formula_of(function: Any) -> Callable[..., int] | None:
    """Torch's own formula for the operations of a product or a convolution."""
    packet = function._overloadpacket
    for operator in (packet, getattr(torch.ops.aten, packet.__name__.removesuffix("_"), None)):
        if operator in flop_registry:
            return flop_registry[operator]
    return None


def is_light(function: Any) -> bool:
    """Return True if an operator is known to do a few operations an element: in place, or with many tensors
    one by one, as otherwise."""
    home, _, name = function._schema.name.partition("::")
    return home == "aten" and _is_light(name.removeprefix("_foreach_").removesuffix("_"))


@functools.cache
def _is_light(name: str) -> bool:
    if name in _LIGHT_NAMES or f"aten::{name}" in GATHERS:
        return True
    packet = getattr(torch.ops.aten, name, None)
    forms = [getattr(packet, form) for form in packet.overloads()] if packet is not None else []
    # Some forms of an operator lack its tag.
    return any({torch.Tag.pointwise, torch.Tag.view_copy} & set(form.tags) for form in forms)


def has_products(function: Any) -> bool:
    """Return True if an operator may multiply matrices: distances between many rows are made of products,
    too."""
    return function._opname in _DISTANCES or formula_of(function) is not None
