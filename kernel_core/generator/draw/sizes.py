"""Sizes of a drawn module: their kinds, the names that authors give them, and their values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A size: its text over named sizes, its value on a GPU, and a small one for a CPU."""

    text: str
    gpu: int
    cpu: int

    def times(self, factor: int) -> Axis:
        """Return the size times a number."""
        if factor == 1:
            return self
        text = str(self.gpu * factor) if self.text.isdigit() else f"{self._factor} * {factor}"
        return Axis(text, self.gpu * factor, self.cpu * factor)

    def over(self, divisor: int) -> Axis:
        """Return the whole quotient by a number."""
        text = str(self.gpu // divisor) if self.text.isdigit() else f"{self._factor} // {divisor}"
        return Axis(text, self.gpu // divisor, self.cpu // divisor)

    def plus(self, number: int) -> Axis:
        """Return the size and a number, which may be negative."""
        if number == 0:
            return self
        text = f"{self.text} {'+' if number > 0 else '-'} {abs(number)}"
        text = str(self.gpu + number) if self.text.isdigit() else text
        return Axis(text, self.gpu + number, self.cpu + number)

    @property
    def _factor(self) -> str:
        return f"({self.text})" if " " in self.text else self.text


ONE = Axis("1", 1, 1)


@dataclass(frozen=True)
class Kind:
    """Names, meaning and values that a size of a kind may have."""

    meaning: str
    names: tuple[str, ...]
    gpu: tuple[int, ...]
    cpu: tuple[int, ...]
    literal: tuple[int, ...] = (4, 8, 16, 32)
    """Values that a CPU takes as they are."""


_EVEN, _SMALL = (4, 6, 8, 10, 12), (2, 3, 4, 5)
KINDS = {
    "b": Kind(
        "batch size",
        (*["batch_size"] * 8, "batch", "num_samples", "bs", "B", "N", "n_batch"),
        (1, 2, 3, 4, 8, 10, 16, 24, 32, 48, 64, 96, 128, 256),
        _SMALL,
        (1, 2, 3, 4),
    ),
    "m": Kind(
        "number of rows",
        ("rows", "num_rows", "M", "num_tokens", "num_items", "n_samples", "batch_size", "batch_size"),
        (31, 64, 100, 128, 256, 500, 512, 768, 1000, 1024, 2048, 3000, 4096, 8192, 16384, 32768),
        (5, 7, 9, 12, 17),
        (3, 4, 5, 8, 16, 64),
    ),
    "n": Kind(
        "number of features",
        ("cols", "features", "dim", "hidden_size", "num_features", "N", "hidden_dim", "d_model", "embed_dim"),
        (
            *(100, 128, 256, 384, 500, 512, 640, 768, 1000, 1024, 1536, 2048, 4096, 5000, 8192),
            *(10000, 16384, 20000, 32768, 65536),
        ),
        (8, 12, 16, 20, 24, 36),
        (4, 8, 10, 16, 32, 64),
    ),
    "k": Kind(
        "number of input features",
        ("in_features", "in_features", "input_size", "K", "in_dim", "inner", "input_dim"),
        (10, 32, 64, 100, 128, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384, 32768),
        (8, 16, 20, 24),
        (4, 8, 10, 16, 32),
    ),
    "o": Kind(
        "number of output features",
        ("out_features", "out_features", "output_size", "out_dim", "P", "output_dim"),
        (10, 20, 64, 128, 256, 512, 768, 1000, 1024, 2048, 4096),
        (8, 12, 16, 20),
        (4, 5, 8, 16, 32),
    ),
    "s": Kind(
        "sequence length",
        ("seq_len", "length", "steps", "num_tokens", "T", "sequence_length"),
        (50, 64, 77, 100, 128, 197, 200, 256, 384, 512, 1024, 2048, 4096, 4095, 8192, 10000),
        (6, 7, 9, 11, 14),
        (4, 5, 8, 10, 16),
    ),
    "l": Kind(
        "length of the signal",
        ("length", "seq_length", "samples", "width", "num_points"),
        (100, 256, 500, 512, 1000, 2048, 4096, 16000, 32768, 65536),
        (12, 16, 20),
        (16, 32, 64),
    ),
    "c": Kind(
        "number of channels",
        ("channels", "in_channels", "num_channels", "C", "planes"),
        (4, 8, 16, 32, 48, 64, 96, 128, 256),
        (4, 8, 12),
        (4, 8, 4),
    ),
    "p": Kind(
        "number of output channels",
        ("out_channels", "filters", "out_planes", "num_filters"),
        (8, 16, 32, 64, 96, 128, 256),
        (4, 8, 12),
        (4, 8),
    ),
    "h": Kind(
        "height",
        ("height", "H", "rows", "image_height"),
        (8, 14, 16, 24, 28, 32, 48, 56, 64, 96, 128, 224, 256, 512),
        _EVEN,
        (4, 8, 16, 20),
    ),
    "w": Kind(
        "width",
        ("width", "W", "cols", "image_width"),
        (8, 14, 16, 24, 28, 32, 48, 56, 64, 96, 128, 224, 256, 512),
        _EVEN,
        (4, 8, 16, 20),
    ),
    "d": Kind("depth", ("depth", "frames", "D", "num_frames"), (4, 8, 12, 16, 20), (4, 6, 8), (4, 8)),
    "e": Kind("number of heads", ("num_heads", "heads", "n_heads"), (2, 4, 8, 12, 16), (2, 3), (2, 4)),
    "f": Kind("dimension of a head", ("head_dim", "dim_head", "d_k"), (16, 32, 64, 128), (8, 16), (8, 16)),
    "v": Kind(
        "number of entries",
        ("vocab_size", "num_embeddings", "table_size", "num_classes"),
        (10, 100, 512, 1000, 5000, 32000),
        (11, 19, 30),
        (10, 20),
    ),
    "q": Kind(
        "number of indices",
        ("num_indices", "count", "num_selected", "picks"),
        (7, 64, 100, 256, 1000, 4096),
        (5, 9, 13),
        (3, 5, 6),
    ),
    "t": Kind(
        "number of entries",
        ("num_rows", "table_size", "num_nodes", "capacity"),
        (4096, 5000, 10000, 32768, 50000),
        (19, 24, 30),
        (8, 16, 20),
    ),
    "z": Kind(
        "number of elements",
        ("n", "size", "numel", "length", "num_elements"),
        (1023, 4096, 65536, 100000, 262144, 1000000, 1048576, 4194304),
        (37, 70, 130),
        (7, 64, 100, 256),
    ),
}
"""Kinds of sizes by letter; channels, widths and heights are even, so that groups and windows divide them."""
SHAPES = ("z", "z", "mn", "mn", "mn", "bn", "bn", "bsn", "bsn", "bchw", "bchw", "besf", "bcl", "bcdhw")
ODD = (3, 5, 7, 11, 13, 17, 31, 33, 63, 65, 97, 127, 129, 255, 257)
"""Values that no block divides, for sizes that nothing has to divide."""
