"""Agreement of an output with the reference's: shape and type, then non-finite masks, then values.

A value passes when `|got - expected| <= rtol·|expected| + atol`. Here `atol` is `rtol` times the size of a
typical expected value, at most 1, so an output of tiny numbers cannot be answered with zeros. A few times the
error of the reference's own arithmetic against float64, on values of that size, is allowed on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_core.gym.channel.poison import is_poison
from kernel_core.gym.numerics.error_model import most_by_size, typical_size
from kernel_core.gym.numerics.expected import Expected, Undecided

RELATIVE_TOLERANCE = {"float64": 1e-4, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
RELATIVE_TOLERANCE |= {"float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2, "float8_e8m0fnu": 2.0**-2}
"""The relative tolerance by an output type, as in KernelBench: of 8-bit floats one step, of powers none."""
_SMALLEST_TOLERANCE = 1e-6
_CHUNK, _EXACT_CHUNK = 1 << 26, 1 << 24
"""Elements compared at a time, plainly and in float64: huge outputs need little memory beside themselves."""
_DESCRIBED_CHUNKS, _SPOTS = 4, 4096
_MOST_PLACES, _FEWEST = 1 << 20, 4
"""The most failing elements of a chunk that are looked at for a clue, and the fewest that give one."""
_NOWHERE = torch.empty(0, 0, dtype=torch.int64)
_ALIKE, _FAR, _FAR_SHARE = 1e-3, 0.25, 1 / 2
"""Factors are one to this precision. Far is off by so much of a value, or of a typical one, at this share."""
Compare = Callable[[torch.Tensor, Expected], str | None]
"""The fault of an output, or None."""


def compare_outputs(
    nesting: Any,
    leaves: Sequence[Any],
    values: Sequence[torch.Tensor],
    want: Any,
    expected: Sequence[Expected],
) -> str | None:
    """None when every output passes, else a clause for the feedback: place, value, expected value."""
    return form_fault(nesting, leaves, want, expected) or value_fault(values, expected, compare_values)


def form_fault(
    nesting: Any, leaves: Sequence[Any], want: Any, expected: Sequence[Expected], last: Sequence[str] = ()
) -> str | None:
    """`compare_outputs` before the values of either side were looked at; `last` names the last outputs."""
    if nesting != want:
        return f"the outputs are nested as {_shorten(nesting)}, expected {_shorten(want)}"
    if len(leaves) != len(expected):
        return f"there are {len(leaves)} outputs, expected {len(expected)}"
    faults = (_form_fault(*pair) for pair in zip(leaves, expected, strict=True))
    return _first(faults, len(expected), last)


def value_fault(
    values: Sequence[torch.Tensor], expected: Sequence[Expected], compare: Compare, last: Sequence[str] = ()
) -> str | None:
    """`compare_outputs` for outputs of the right form."""
    faults = (compare(*pair) for pair in zip(values, expected, strict=True))
    return _first(faults, len(expected), last)


def _first(faults: Iterable[str | None], count: int, last: Sequence[str]) -> str | None:
    num_plain = count - len(last)
    names = ["output"] if num_plain == 1 else [f"output {index}" for index in range(num_plain)]
    for name, fault in zip([*names, *last], faults, strict=True):
        if fault is not None:
            return f"{name} {fault}"
    return None


def _form_fault(leaf: Any, wanted: Expected) -> str | None:
    match leaf:
        case ["tensor", str(dtype), list(shape)]:
            if shape != list(wanted.shape):
                return f"has shape {_shorten(shape)}, expected {list(wanted.shape)}"
            if dtype != wanted.dtype:
                return f"has dtype {_shorten(dtype)}, expected {wanted.dtype}"
            return None
        case ["other", str(kind)]:
            return f"is a {_shorten(kind)}, expected a tensor"
    return "cannot be read"


def compare_values(got: torch.Tensor, wanted: Expected) -> str | None:
    """None when all elements pass, else the worst one and the share that fails. In huge outputs that fail,
    elements after the first failing one are sampled."""
    got, wanted = _in_reals(got, wanted)
    comparison = _Comparison(got, wanted)
    worst, num_bad, num_seen = _Worst(), 0, 0
    stride = -(-len(comparison.starts) // _DESCRIBED_CHUNKS)
    for number, start in enumerate(comparison.starts):
        if num_bad and number % stride:
            continue
        bad, badness = comparison.look(start)
        num_seen += bad.numel()
        num_bad += worst.look(bad, badness, start)
    if not num_bad:
        return None
    clue = _clue(got, wanted.value, worst.places(got.shape), whole=stride == 1)
    return _describe(got, wanted.value, worst.position, num_bad / num_seen) + clue


def all_pass(got: torch.Tensor, wanted: Expected, scale: float | None = None) -> bool:
    """Return True if all elements pass. They are all or part of an output with the typical size `scale`."""
    comparison = _Comparison(*_in_reals(got, wanted), scale)
    return not any(bool(comparison.look(start)[0].any()) for start in comparison.starts)


def each_passes(values: Sequence[torch.Tensor], expected: Sequence[Expected]) -> bool:
    """`all_pass` for every output, which may have another size where values decide it."""
    pairs = zip(values, expected, strict=True)
    return all(value.shape == wanted.value.shape and all_pass(value, wanted) for value, wanted in pairs)


def _in_reals(got: torch.Tensor, wanted: Expected) -> tuple[torch.Tensor, Expected]:
    """Complex numbers as pairs of real ones along a last dimension."""
    if not got.is_complex():
        return got, wanted
    dtype = str(got.real.dtype).removeprefix("torch.")
    value = torch.view_as_real(wanted.value.resolve_conj())
    return torch.view_as_real(got.resolve_conj()), Expected(dtype, tuple(value.shape), value)


def unlike(got: torch.Tensor, wanted: Expected) -> str | None:
    """`compare_values` without the element that fails."""
    return None if all_pass(got, wanted) else "is wrong"


@dataclass(frozen=True, slots=True)
class Spots:
    """The expected values at a few secret places of an output. If these fail, the whole output fails."""

    places: torch.Tensor
    """Positions in the flat output."""
    wanted: Expected
    scale: float
    """The typical size of all expected values: see `error_model.typical_size`."""

    @classmethod
    def of(cls, wanted: Expected) -> Spots:
        """Drawn at random; all places of a small output."""
        true = wanted.value.reshape(-1)
        generator = torch.Generator(true.device)
        generator.seed()
        places = (
            torch.randint(true.numel(), (_SPOTS,), generator=generator, device=true.device)
            if true.numel() > _SPOTS
            else torch.arange(true.numel(), device=true.device)
        )
        return cls(places, wanted.at(places), typical_size(true))

    def all_pass(self, got: torch.Tensor) -> bool:
        """Return True if the whole may pass."""
        return all_pass(got.reshape(-1)[self.places], self.wanted, self.scale)

    def are_far(self, got: torch.Tensor) -> bool:
        """Return True if much of a large output is so far off that no errors of honest arithmetic explain
        it."""
        if len(self.places) < _SPOTS or not self.wanted.value.is_floating_point():
            return False
        mine, true = got.reshape(-1)[self.places].double(), self.wanted.value.double()
        close = (mine - true).abs() <= _FAR * true.abs().clamp(min=self.scale)
        return bool((torch.isfinite(true) & ~close).double().mean() > _FAR_SHARE)


def num_failing(got: torch.Tensor, wanted: Expected, enough: float = math.inf) -> int:
    """The number of failing elements, counted not much further than `enough`."""
    comparison, failing = _Comparison(got, wanted), 0
    for start in comparison.starts:
        failing += int(comparison.look(start)[0].sum())
        if failing >= enough:
            break
    return failing


class _Comparison:
    """An output and what is expected, chunk by chunk; there are none where all is plainly well."""

    def __init__(self, got: torch.Tensor, wanted: Expected, scale: float | None = None) -> None:
        self._got, self._true = got.reshape(-1), wanted.value.reshape(-1)
        self._wanted = wanted.chosen(got)
        self._is_exact = wanted.dtype not in RELATIVE_TOLERANCE
        self._chunk = _CHUNK
        if not self._is_exact:
            self._relative = RELATIVE_TOLERANCE[wanted.dtype]
            self._scale = typical_size(self._true) if scale is None else scale
            scaled = max(self._relative * min(1.0, self._scale), _SMALLEST_TOLERANCE)
            self._floor = self._relative if wanted.is_field else scaled
            self._chunk = _EXACT_CHUNK
        is_well = not self._is_exact and _is_plainly_close(self._got, self._true, self._relative, self._floor)
        self.starts = range(0, 0 if is_well else self._true.numel(), self._chunk)

    def look(self, start: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The failing elements of the chunk, and by how much each fails."""
        here = slice(start, start + self._chunk)
        mine, wanted = self._got[here], self._wanted.at(here)
        theirs, tolerance = wanted.value, wanted.tolerance
        if self._is_exact or isinstance(tolerance, Undecided):
            bad = mine != theirs.to(mine.dtype)
            if isinstance(tolerance, Undecided):
                bad &= ~tolerance.places
            return bad, bad.double()
        honest = tolerance.error(theirs, most_by_size(theirs, self._scale))
        bad, excess = _exceeds(mine, theirs, self._relative, self._floor + honest)
        return bad, torch.where(torch.isnan(excess), torch.inf, excess)


def _is_plainly_close(got: torch.Tensor, true: torch.Tensor, relative: float, floor: float) -> bool:
    """Return True if all is finite and passes without any allowance for honest errors: the usual case,
    quickly. More quickly yet where no value needs a tolerance by its size."""
    close = torch.ones((), dtype=torch.bool, device=true.device)
    for start in range(0, true.numel(), _CHUNK):
        error = got[start : start + _CHUNK].to(true.dtype) - true[start : start + _CHUNK]
        lowest, highest = error.aminmax()
        close &= (lowest >= -floor) & (highest <= floor)  # both are false for NaN
    if close:
        return True
    close.fill_(True)
    for start in range(0, true.numel(), _CHUNK):
        theirs = true[start : start + _CHUNK]
        error = (got[start : start + _CHUNK].to(true.dtype) - theirs).abs_()
        close &= (error <= theirs.abs().mul_(relative).add_(floor)).all() & torch.isfinite(error).all()
    return bool(close)


def _exceeds(
    got: torch.Tensor, true: torch.Tensor, relative: float, floor: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The failing elements, and the excess of each over its tolerance."""
    got64, true64 = got.double(), true.to(got.dtype).double()
    finite = torch.isfinite(true64)
    # Compared before subtracting, because inf - inf is NaN.
    same_special = (got64 == true64) | (torch.isnan(got64) & torch.isnan(true64))
    exact64 = torch.where(finite, true.double(), torch.zeros_like(true64))
    error = torch.where(finite, (got64 - exact64).abs(), torch.zeros_like(true64))
    excess = error - relative * exact64.abs() - floor
    return torch.where(finite, ~(excess <= 0), ~same_special), excess


class _Worst:
    """The element that is furthest off, over all chunks."""

    def __init__(self) -> None:
        self.position = 0
        self._badness = -math.inf
        self._places: list[torch.Tensor] = []

    def look(self, bad: torch.Tensor, badness: torch.Tensor, start: int) -> int:
        """Consider a chunk that starts at `start`; gives how many of its elements fail."""
        count = int(bad.sum())
        if count:
            step = 1 + count // _MOST_PLACES
            self._places.append(start + step * bad.reshape(-1)[::step].nonzero().flatten())
            masked = torch.where(bad, badness.double(), -torch.inf)
            position = int(masked.argmax())
            if float(masked[position]) > self._badness:
                self._badness, self.position = float(masked[position]), start + position
        return count

    def places(self, shape: torch.Size) -> torch.Tensor:
        """Coordinates of failing elements, one row each; of many, a part."""
        return torch.stack(torch.unravel_index(torch.cat(self._places), shape), dim=1) if shape else _NOWHERE


def _clue(got: torch.Tensor, true: torch.Tensor, places: torch.Tensor, *, whole: bool) -> str:
    """Name a trait of all failing elements: no kernel wrote them, one factor, a part of the output."""
    clue = ", none of which was ever written" if is_poison(got[tuple(places.T)]) else ""
    if len(places) < _FEWEST:
        return clue
    values, wanted = (whole[tuple(places.T)].double() for whole in (got, true))
    factors = values / wanted
    factor = factors.median().item()
    is_one = math.isfinite(factor) and bool(((factors - factor).abs() <= _ALIKE * abs(factor)).all())
    clue += f", each is {factor:.4g} times what is expected" if is_one and factor else ""
    ends = [*zip(places.amin(0).tolist(), places.amax(0).tolist(), got.shape, strict=True)]
    if whole and any(low > 0 or high < size - 1 for low, high, size in ends):
        part = ", ".join(f"{low or ''}:{'' if high == size - 1 else high + 1}" for low, high, size in ends)
        clue += f", all in [{part}]"
    return clue


def _describe(got: torch.Tensor, true: torch.Tensor, position: int, share_of_bad: float) -> str:
    index = [int(i) for i in torch.unravel_index(torch.tensor(position), got.shape)] if got.dim() else []
    percent = f"{100 * share_of_bad:.0f}" if share_of_bad >= 0.01 else "<1"
    got_text, true_text = _number(got.reshape(-1)[position]), _number(true.reshape(-1)[position])
    place = f"at {index} " if index else ""
    return f"{place}is {got_text}, expected {true_text}; {percent} % of values differ"


def _number(value: torch.Tensor) -> str:
    return f"{item:.4g}" if isinstance(item := value.item(), float) else str(item)


def _shorten(value: Any) -> str:
    text = str(value).replace("'*'", "tensor")
    return text if len(text) <= 60 else text[:57] + "…"
