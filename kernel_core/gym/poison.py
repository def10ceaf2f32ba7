"""What fresh memory holds: secret numbers, so that what is left unwritten shows, and no judge is known by it.

Every pass draws its own, a runner's like a replay's. In some passes a storage holds nothing but NaNs, which
spoil all that is made of them; in others ordinary numbers, as old memory does. A kernel that looks for either
is wrong in the other passes. Whatever type memory is read as, it holds the same kind: the patterns repeat
every 16 bits, in which bfloat16, float16, float32 and float64 begin alike. No byte is 0 or 1, so that none is
a boolean that somebody stored.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import torch

_HALVES = 0x0001_0001_0001_0001


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


_NANS = (0x800D * _HALVES, 0x7FF2 * _HALVES)
"""The bits that are drawn, and those that are set; large integers, mostly."""
_ORDINARY = (0x81FD * _HALVES, 0x4002 * _HALVES)
"""Floats between 2 and 32 but for the longest, of either sign: neutral in no sum, product or maximum."""


@dataclass(slots=True)
class _Kind:
    """What one of a pass's storages holds: two passes long the same, then two passes the other."""

    first: int = field(default_factory=lambda: secrets.randbits(1))
    passes: int = 0

    def next_is_nan(self) -> bool:
        self.passes += 1
        return bool((self.passes - 1 >> 1 & 1) ^ self.first)


@dataclass(slots=True)
class Poison:
    """Fills memory, pass by pass."""

    _kinds: list[_Kind] = field(default_factory=list)
    _made: int = 0
    _generators: dict[torch.device, torch.Generator] = field(default_factory=dict)
    """Own ones, because a candidate's draws must not depend on its allocations."""

    def begin(self) -> None:
        """Another pass."""
        self._made = 0

    def fill(self, raw: torch.Tensor, start: int = 0) -> None:
        """Poison the bytes of a storage, from the one at `start`."""
        if self._made == len(self._kinds):
            self._kinds.append(_Kind())
        kind = self._kinds[self._made]
        self._made += 1
        drawn, fixed = _NANS if kind.next_is_nan() else _ORDINARY
        if raw.device.type == "meta" or start >= raw.numel():
            return
        if raw.device not in self._generators:
            generator = self._generators[raw.device] = torch.Generator(raw.device)
            generator.seed()

        def draw(words: torch.Tensor) -> torch.Tensor:
            words.random_(-(1 << 63), None, generator=self._generators[raw.device])
            return words.bitwise_and_(_signed(drawn)).bitwise_or_(_signed(fixed))

        first, last = min(-(-start // 8) * 8, raw.numel()), raw.numel() // 8 * 8
        if first < last:
            draw(raw[first:last].view(torch.int64))
        for begin, end in ((start, first), (max(last, first), raw.numel())):
            if begin < end:
                word = draw(torch.empty(1, dtype=torch.int64, device=raw.device)).view(torch.uint8)
                raw[begin:end] = word[begin % 8 : begin % 8 + end - begin]
