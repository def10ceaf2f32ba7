"""Sampling with shapes that never change, so that on a GPU a step is one replay of a recorded graph.

`decode.decode` lets its cache grow and its batch shrink row by row, which costs a launch an operator. Here
keys and values have fixed places: row b's token t is at slot t. Prompts of any length stand side by side
without padding between them. A step reads the first `width` slots of the first `rows` rows. Both are
rounded up to a few sizes, and each pair of sizes is recorded once as a CUDA graph; everything that a step
needs to know (which rows still write, how far each is, its random numbers) is in tensors that the graph
itself updates. On a CPU the same step runs without a graph.

The prompt is read up to its last token, which is fed as the first step: every token that is drawn comes from
the same computation. Draws are those of `decode.draw`, a row's own random numbers through the inverted
cumulative distribution. Models with sliding windows or other caches are left to `decode.decode`.

Axes: B rows, S slots, N new tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from kernel_core.policy.chat_tokens import Drawn, Ids
from kernel_core.policy.decode import draw
from kernel_core.policy.device_memory import RECORDING
from kernel_core.policy.fast_decode.decode_state import DecodeState, SlotLayer, attending
from kernel_core.policy.fast_decode.fused_linears import JoinedLinears
from kernel_core.policy.fast_decode.fused_norms import FusedNorms
from kernel_core.policy.fast_decode.fused_rotary import FusedRotary

ROW_SIZES = (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
SLOT_STEP = 128
"""Widths are multiples of this."""
LOOK_EVERY = 16
"""Steps between looks at how many rows still write: a look makes the CPU wait for the GPU."""
PREFILL_TOKENS = 65_536
"""Prompts are read in batches of about so many tokens, padding included."""
WARM_UPS = 2
"""Steps run before a graph is recorded, so that libraries have chosen their algorithms."""


class StaticDecoder:
    """Decodes for one model. Its weights may change in place between calls; graphs stay valid."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._norms = FusedNorms(model)
        self._linears: JoinedLinears
        self._types: tuple[set[torch.dtype], torch.dtype] | None = None
        """Types of the weights and of the keys and values that layers, buffers and graphs were made for."""
        self._rotary = FusedRotary(model)
        self._shape = (0, 0, 0)
        """Rows, slots and new tokens that there is room for."""
        self._state: DecodeState | None = None
        self._slots: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._ends: dict[tuple[int, ...], torch.Tensor] = {}
        self._graphs: dict[tuple[Any, ...], torch.cuda.CUDAGraph] = {}
        self._pool: Any = None
        self._stream: Any = None

    @torch.no_grad()
    def decode(
        self,
        prompts: Sequence[Ids],
        *,
        max_new: Sequence[int],
        uniforms_B_T: npt.NDArray[np.float64],
        temperature: float,
        end_ids: Sequence[int],
        pad_id: int,
    ) -> list[Drawn]:
        """Sample one continuation per prompt, in order; see `decode.decode`."""
        rows: list[Drawn] = []
        for start in range(0, len(prompts), ROW_SIZES[-1]):
            part = slice(start, start + ROW_SIZES[-1])
            rows += self._decode(
                prompts[part], list(max_new[part]), uniforms_B_T[part], temperature, end_ids, pad_id
            )
        return rows

    def _decode(
        self,
        prompts: Sequence[Ids],
        max_new: Sequence[int],
        uniforms_B_T: npt.NDArray[np.float64],
        temperature: float,
        end_ids: Sequence[int],
        pad_id: int,
    ) -> list[Drawn]:
        longest = max(len(prompt) for prompt in prompts)
        self._follow_types()
        self._make_room(len(prompts), longest + max(max_new), uniforms_B_T.shape[1])
        self._linears.refresh()
        state = self._state
        assert state is not None
        state.begin(prompts, max_new, uniforms_B_T)
        self._prefill(prompts, pad_id)
        ends = self._ends.setdefault(tuple(end_ids), torch.tensor(list(end_ids), device=state.token_B.device))
        finished: dict[int, Drawn] = {}
        row_of_slot = np.arange(len(prompts))
        num_rows = len(prompts)
        for done in range(0, max(max_new), LOOK_EVERY):
            rows = _at_least(ROW_SIZES, num_rows)
            width = min(_multiple(longest + done + LOOK_EVERY), self._shape[1])
            for _ in range(min(LOOK_EVERY, max(max_new) - done)):
                self._step(rows, width, temperature, ends)
            writing = np.array(state.writing_B[:num_rows].tolist())
            if not writing.any():
                break
            if _at_least(ROW_SIZES, int(writing.sum())) < rows:
                finished |= self._read(row_of_slot, ~writing)
                keep = torch.from_numpy(np.flatnonzero(writing)).to(ends.device)
                self._compact(keep)
                row_of_slot, num_rows = row_of_slot[writing], len(keep)
        finished |= self._read(row_of_slot, np.ones(num_rows, bool))
        return [finished[row] for row in range(len(prompts))]

    def release(self, most_bytes: int) -> None:
        """Let keys and values go, if they are larger than that. Their graphs go too, and are recorded anew
        by the next call, which takes seconds: small ones are better kept."""
        held = sum(tensor.numel() * tensor.element_size() for pair in self._slots for tensor in pair)
        if held > most_bytes:
            self._forget()

    def _forget(self) -> None:
        # A pool that no graph is left in cannot be recorded into again.
        self._graphs.clear()
        self._pool = None
        self._slots, self._state = [], None
        self._shape = (0, 0, 0)

    def _follow_types(self) -> None:
        """Make everything anew for weights of another type: a trainer casts those of a loaded model."""
        types = {parameter.dtype for parameter in self._model.parameters()}, self._dtype()
        if types != self._types:
            self._linears = JoinedLinears(self._model)
            self._shape = (0, 0, 0)
            self._types = types

    def _make_room(self, rows: int, slots: int, new: int) -> None:
        """Buffers that hold so much; larger ones replace smaller ones and their graphs."""
        needed = (_at_least(ROW_SIZES, rows), _multiple(slots), _multiple(new))
        if all(have >= want for have, want in zip(self._shape, needed, strict=True)):
            return
        larger = tuple(max(a, b) for a, b in zip(self._shape, needed, strict=True))
        self._forget()
        self._shape = larger  # type: ignore[assignment]
        num_rows, num_slots, num_new = self._shape
        parameter = next(self._model.parameters())
        device, dtype = parameter.device, self._dtype()
        config = self._model.config
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (num_rows, heads, num_slots, width)
        self._slots = [
            (torch.zeros(shape, dtype=dtype, device=device), torch.zeros(shape, dtype=dtype, device=device))
            for _ in range(config.num_hidden_layers)
        ]
        self._state = DecodeState.empty(num_rows, num_new, device)

    def _dtype(self) -> torch.dtype:
        """Return the type of keys and values: autocast's type where that is on."""
        parameter = next(self._model.parameters())
        if torch.is_autocast_enabled(parameter.device.type):
            return torch.get_autocast_dtype(parameter.device.type)
        dtype: torch.dtype = parameter.dtype
        return dtype

    def _prefill(self, prompts: Sequence[Ids], pad_id: int) -> None:
        """Read each distinct prompt but its last token, and put its keys and values into all its rows."""
        rows_of: dict[bytes, list[int]] = {}
        for row, prompt in enumerate(prompts):
            rows_of.setdefault(prompt[:-1].tobytes(), []).append(row)
        distinct = sorted((key for key in rows_of if key), key=len)
        device = self._slots[0][0].device
        while distinct:
            widest = len(distinct[-1]) // np.dtype(np.int32).itemsize
            batch = [distinct.pop() for _ in range(min(len(distinct), max(1, PREFILL_TOKENS // widest)))]
            ids_B_S = np.full((len(batch), widest), pad_id, np.int64)
            for ids_S, key in zip(ids_B_S, batch, strict=True):
                ids = np.frombuffer(key, np.int32)
                ids_S[: len(ids)] = ids
            # Padding is on the right, where causal attention lets no token see it.
            cache = DynamicCache(config=self._model.config)
            self._model(
                input_ids=torch.from_numpy(ids_B_S).to(device),
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            source = torch.tensor([i for i, key in enumerate(batch) for _ in rows_of[key]], device=device)
            target = torch.tensor([row for key in batch for row in rows_of[key]], device=device)
            for (keys, values), layer in zip(self._slots, cache.layers, strict=True):
                keys[target, :, :widest] = layer.keys[source].to(keys.dtype)
                values[target, :, :widest] = layer.values[source].to(values.dtype)

    def _step(self, rows: int, width: int, temperature: float, ends: torch.Tensor) -> None:
        """Draw one token for each of the first rows that still writes."""
        if ends.device.type != "cuda":
            self._advance(rows, width, temperature, ends)
            return
        key = rows, width, temperature, ends.data_ptr()
        if key not in self._graphs:
            self._graphs[key] = self._recorded(rows, width, temperature, ends)
        self._graphs[key].replay()

    def _recorded(
        self, rows: int, width: int, temperature: float, ends: torch.Tensor
    ) -> torch.cuda.CUDAGraph:
        """Record the step as a CUDA graph. Warming up must leave no trace: what it changes is put back."""
        assert self._state is not None
        kept = [tensor.clone() for tensor in self._state.tensors]
        # One stream, on the model's GPU: graphs that share a pool find its memory by their stream.
        stream = self._stream = self._stream or torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self._advance(rows, width, temperature, ends)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Another thread may be learning meanwhile: its work is no part of this graph, and no error.
        with (
            RECORDING,
            torch.cuda.graph(graph, pool=self._pool, stream=stream, capture_error_mode="thread_local"),
        ):
            self._advance(rows, width, temperature, ends)
        self._pool = self._pool or graph.pool()
        for tensor, value in zip(self._state.tensors, kept, strict=True):
            tensor.copy_(value)
        return graph

    def _advance(self, rows: int, width: int, temperature: float, ends: torch.Tensor) -> None:
        assert self._state is not None
        state = self._state.first(rows)
        slot_S = torch.arange(width, device=ends.device)
        # Added to the scores: torch would make this of a mask of booleans in every layer.
        mask_B_S = torch.zeros(rows, width, dtype=self._dtype(), device=ends.device)
        mask_B_S.masked_fill_(slot_S[None] > state.position_B[:, None], -torch.inf)
        cache = DynamicCache()
        cache.layers = [
            SlotLayer(keys[:rows, :, :width], values[:rows, :, :width], state.position_B)
            for keys, values in self._slots
        ]
        with attending(self._model), self._norms.fused(), self._linears.joined(), self._rotary.fused():
            output = self._model(
                input_ids=state.token_B[:, None],
                attention_mask=mask_B_S[:, None, None],
                position_ids=state.position_B[:, None],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
        token_B, logprob_B = draw(output.logits[:, -1], temperature, state.uniform_B)
        state.write(token_B, logprob_B, ends)

    def _read(self, row_of_slot: npt.NDArray[np.int64], selected: npt.NDArray[np.bool_]) -> dict[int, Drawn]:
        """Return the output of some of the rows in use, by row number."""
        assert self._state is not None
        slots = np.flatnonzero(selected)
        rows = self._state.read(slots)
        return {int(row): read for row, read in zip(row_of_slot[slots], rows, strict=True)}

    def _compact(self, keep: torch.Tensor) -> None:
        """Move the rows that still write to the front."""
        assert self._state is not None
        self._state.keep(keep)
        for keys, values in self._slots:
            keys[: len(keep)] = keys[keep]
            values[: len(keep)] = values[keep]


def decodes(model: Any) -> bool:
    """Return True if a model's keys and values have slots: sliding windows, soft caps and others do not."""
    layers = DynamicCache(config=model.config).layers
    plain = bool(layers) and all(type(layer) is DynamicLayer for layer in layers)
    return (
        plain
        and model.config._attn_implementation == "sdpa"
        and not getattr(model.config, "attn_logit_softcapping", None)
    )


def _at_least(sizes: Sequence[int], least: int) -> int:
    return next(size for size in sizes if size >= least)


def _multiple(count: int) -> int:
    return -(-count // SLOT_STEP) * SLOT_STEP
