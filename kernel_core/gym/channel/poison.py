"""Contents of fresh memory: secret numbers. Unwritten places show, and a kernel cannot recognise the judge by
them.

Every pass draws new poison, in a runner as in a replay. In two of three passes a storage holds ordinary
numbers, as old memory does. In the third it holds NaNs, which spoil every result made of them. NaNs are every
other word, or all of a small storage, since a sum may be too large for a number to show. A kernel that looks
for either kind is wrong in the other passes or lanes. Memory holds the same kind whatever type it is read as.
The patterns repeat every 16 bits, in which bfloat16, float16, float32 and float64 begin alike. No byte is 0
or 1, so no byte is a valid boolean.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

_HALVES = 0x0001_0001_0001_0001


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


_SMALL_BYTES = 64
_FEWEST_BYTES = 4
_ROUND = 3
"""Passes from one with NaNs to the next."""
_NANS = (0x800D * _HALVES, 0x7FF2 * _HALVES)
"""The bits that are drawn, and those that are set; large integers, mostly."""
_ORDINARY = (0x81FD * _HALVES, 0x4002 * _HALVES)
"""Floats between 2 and 32 but for the longest, of either sign: neutral in no sum, product or maximum."""


class _Choice(NamedTuple):
    """The fill of one storage."""

    seed: int
    has_nans: bool
    odd_words: int
    """The index of the word of a pair that is NaN, where there are NaNs."""


@dataclass(slots=True)
class Poison:
    """Fills memory, pass by pass, with numbers of `chance`. A fixed seed makes a repeated judgement alike."""

    chance: random.Random = field(default_factory=random.SystemRandom)
    _to_come: list[int] = field(default_factory=list)
    """For each storage of a pass, the number of passes in which it holds NaNs."""
    _made: int = 0
    _choices: list[_Choice] = field(default_factory=list)
    """The choices of this pass so far, or of the pass that it repeats."""
    _generators: dict[torch.device, torch.Generator] = field(default_factory=dict)
    """Separate generators, because a candidate's draws must not depend on its allocations."""

    def begin(self, *, as_before: bool = False) -> None:
        """Begin another pass. With `as_before` its memory holds the same poison as in the pass before."""
        self._made = 0
        if not as_before:
            self._choices.clear()

    def fill(self, raw: torch.Tensor, start: int = 0) -> None:
        """Poison the bytes of a storage, from the one at `start`."""
        choice = self._choose()
        if raw.device.type == "meta":
            return
        if raw.device not in self._generators:
            self._generators[raw.device] = torch.Generator(raw.device)
        self._generators[raw.device].manual_seed(choice.seed)
        first, last = -(-start // 8) * 8, raw.numel() // 8 * 8
        is_small = raw.numel() - start < _SMALL_BYTES
        kind = _NANS if is_small and choice.has_nans else _ORDINARY
        if first < last:
            words = raw[first:last].view(torch.int64)
            self._draw(words, kind)
            if choice.has_nans and not is_small:
                self._draw(words[choice.odd_words :: 2], _NANS)
        for begin, end in ((start, min(first, raw.numel())), (max(last, first), raw.numel())):
            if begin < end:
                word = torch.empty(1, dtype=torch.int64, device=raw.device)
                self._draw(word, kind)
                raw[begin:end] = word.view(torch.uint8)[begin % 8 :][: end - begin]

    def _choose(self) -> _Choice:
        if self._made == len(self._choices):
            if self._made == len(self._to_come):
                self._to_come.append(self.chance.randrange(_ROUND))
            passes = self._to_come[self._made]
            self._to_come[self._made] = (passes - 1) % _ROUND
            self._choices.append(_Choice(self.chance.getrandbits(63), not passes, self.chance.getrandbits(1)))
        self._made += 1
        return self._choices[self._made - 1]

    def _draw(self, words: torch.Tensor, kind: tuple[int, int]) -> None:
        drawn, fixed = kind
        words.random_(-(1 << 63), None, generator=self._generators[words.device])
        words.bitwise_and_(_signed(drawn)).bitwise_or_(_signed(fixed))


def is_poison(values: torch.Tensor) -> bool:
    """Return True if every value may be one that fresh memory holds: no kernel has written it.

    By chance one value of 32 bits in 16,000 looks so. Fewer bits, bytes, and equal values (NaN) never do.
    """
    size = values.element_size()
    if size < 2 or size * values.numel() < _FEWEST_BYTES:
        return False
    halves = values.reshape(-1, 1).contiguous().view(torch.int16).to(torch.int32) & 0xFFFF
    if bool((halves == halves[0, 0]).all()):
        return False
    kinds = [(halves & (~drawn & 0xFFFF)) == (fixed & 0xFFFF) for drawn, fixed in (_NANS, _ORDINARY)]
    return bool(torch.stack([kind.all(1) for kind in kinds]).any(0).all())
