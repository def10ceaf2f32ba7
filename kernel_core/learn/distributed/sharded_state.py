"""Weights that train and their moments, in shards that any number of processes reads.

`torch.distributed.checkpoint` writes a safetensors file a process, with each shard's place in its header.
Whole tensors of one process are read from the same files.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

from kernel_core.learn.distributed.data_parallel import reshard

_MOMENTS = ("exp_avg", "exp_avg_sq")


def trained(model: Any) -> Iterator[tuple[str, Any]]:
    """Return the trained weights by name, each as this process's shard."""
    reshard(model)
    return ((name, p) for name, p in model.named_parameters() if p.requires_grad)


def begin_save(model: Any, optimiser: torch.optim.Optimizer, folder: str, group: Any) -> Future[Any]:
    """Copy the shards into the host's memory, and write them into a local folder in the background.

    All processes call it together; `group` (gloo) serves this alone. The result comes when all have written.
    """
    writer = HuggingFaceStorageWriter(folder, save_distributed=True)
    saving = state_dict_saver.async_save(_state(model, optimiser), storage_writer=writer, process_group=group)
    assert isinstance(saving, Future)
    return saving


def load(model: Any, optimiser: torch.optim.Optimizer, folder: str) -> None:
    """Load the state of a folder, whatever number of processes wrote it."""
    reader = HuggingFaceStorageReader(folder)
    stepped = any(name.startswith(_MOMENTS) for name in reader.read_metadata().state_dict_metadata)
    optimiser.state.clear()
    on_device = bool(optimiser.defaults.get("fused"))
    for _, parameter in trained(model) if stepped else ():
        step = torch.zeros((), device=parameter.device if on_device else "cpu")
        moments = {name: torch.zeros_like(parameter.detach()) for name in _MOMENTS}
        optimiser.state[parameter] = {"step": step, **moments}
    is_alone = not dist.is_initialized()
    state_dict_loader.load(_state(model, optimiser), storage_reader=reader, no_dist=is_alone)


def _state(model: Any, optimiser: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Return the state by name; a number is kept once, since files of shards have no scalars."""
    state = {}
    for name, parameter in trained(model):
        state[f"weight.{name}"] = parameter.detach()
        for moment, value in optimiser.state.get(parameter, {}).items():
            state[f"{moment}.{name}"] = value if value.ndim else value.reshape(1)
    return state
