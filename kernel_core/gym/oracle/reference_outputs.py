"""A reference's outputs in its own arithmetic, in float64 and with TF32 products; the expected outputs."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from kernel_core.errors import NotAProblem, first_line
from kernel_core.gym.channel.gradients import Differentiated
from kernel_core.gym.channel.host_for_gpu import autocasts_entered
from kernel_core.gym.channel.pytree import flatten
from kernel_core.gym.channel.seeds import seed_torch
from kernel_core.gym.channel.tf32_flags import SHIPPED
from kernel_core.gym.channel.tf32_flags import tf32 as switched
from kernel_core.gym.channel.torch_ops import computable, map_tensors, tensors_in
from kernel_core.gym.numerics.ambiguous_indices import is_discrete
from kernel_core.gym.numerics.ambiguous_integers import ConversionsSeen, look_for_undecided
from kernel_core.gym.numerics.compare import each_passes
from kernel_core.gym.numerics.error_model import (
    ProductsSeen,
    Shorten,
    ShortenedProducts,
    Widened,
    allowed_table,
    most_by_size,
    nearest,
    truncated,
    typical_size,
    with_room,
)
from kernel_core.gym.numerics.expected import Choice, Expected, Rounding, Undecided
from kernel_core.gym.numerics.random_rounding import Forward, spread_of_strays
from kernel_core.gym.oracle.trial import tensor_bytes

IsEnough = Callable[[Sequence[Expected]], bool]
"""True if outputs pass with what is expected now, so that no more need be measured."""
LARGE_BYTES = 4 << 30
"""For larger inputs and outputs only a part is computed in float64, which takes many times as much memory."""
_MOST_STRAYING_BYTES = {"cuda": 1 << 30, "cpu": 1 << 25}
"""The largest sum of weights, inputs and outputs for passes with straying values. These take eight times as
much memory in float64, in a dozen passes and more."""
_SMALL_SHARE = 0.25
"""The share of the strays of TF32 that is allowed, where that is at most what is ever allowed by size: twice
its errors."""
_SEPARATE = 1e-3
"""The agreement required of a part of the outputs that is computed from a part of the inputs."""


class ReferenceOutputs:
    """The outputs of one module for inputs. The caller holds the drawing turn. `plain` advances its state."""

    def __init__(
        self, problem_id: str, device: str, module: Any, tf32: bool, as_shipped: bool = False
    ) -> None:
        """`as_shipped`: its own arithmetic has TF32 products where torch's initial switches allow them."""
        self.work_bytes = 0
        """On a GPU: the most memory that a pass took beside its inputs and weights, outputs included; more if
        other threads took some meanwhile."""
        self._problem_id = problem_id
        self._device = device
        self._module = module
        self.weight_bytes = tensor_bytes([*module.parameters(), *module.buffers()])
        self._can_widen = True
        self.has_products = tf32
        """True if the module may have TF32 products."""
        self.float32_products: bool | None = None
        """True if it multiplies matrices of float32 values; None before the first pass."""
        self.has_half = False
        """True if some input, output or weight is in half precision or shorter."""
        self._switches = SHIPPED if as_shipped else (False, False)
        self.returns_nothing = False
        """True if the last pass returned None: its outputs are then the tensors of its inputs."""
        self._drew = False
        """True if the last pass drew random numbers from the global generators."""
        self.is_defined = True
        """True if the answers of `plain` follow from the last inputs: see `ConversionsSeen`."""

    def plain(self, inputs: list[Any], seed: int) -> tuple[Any, list[Any]]:
        """Nesting and leaves, by the module's own arithmetic."""
        products, conversions, entered = ProductsSeen(), ConversionsSeen(), autocasts_entered()
        is_new = self.float32_products is None
        looking = products if self.has_products or is_new else contextlib.nullcontext()
        with switched(self._switches), self._weighing(), looking, conversions:
            answer = flatten(self._forward(self._module, inputs, seed))
        self.has_products &= products.are_there
        # Autocast leaves float64 as it is, where the module multiplies narrow values.
        self._can_widen &= autocasts_entered() == entered
        if is_new:
            self.float32_products = products.on_float32
            weights = [*self._module.parameters(), *self._module.buffers()]
            self.has_half = any(map(_is_half, [*tensors_in(inputs), *tensors_in(answer[1]), *weights]))
        self.is_defined = conversions.are_defined
        return answer

    def refuse_random(self, inputs: list[Any], seed: int) -> None:
        """Raise `NotAProblem` if the last pass drew numbers, and passes under two seeds differ."""
        if not self._drew:
            return
        first, second = (self.now(copy.deepcopy(inputs), seed + number) for number in range(2))
        if any(not _agree(left, other) for left, other in zip(first, second, strict=True)):
            raise NotAProblem(
                f"the reference of {self._problem_id} draws random numbers in forward, so its outputs differ "
                "from pass to pass; take the numbers as inputs, or draw with a generator that forward seeds"
            )

    def now(self, inputs: list[Any], seed: int) -> list[Any]:
        """The same leaves, by a copy of the module, which is left as it is."""
        return flatten(self._forward(copy.deepcopy(self._module), inputs, seed))[1]

    def shipped(self, inputs: list[Any], seed: int) -> list[Any]:
        """Return the leaves by a copy of the module, with torch's switches as they are at its start."""
        with switched(SHIPPED):
            return self.now(inputs, seed)

    def double(self) -> Any:
        """A copy of the module as it is now, in float64; None where that cannot be."""
        try:
            return copy.deepcopy(self._module).double() if self._can_widen else None
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            # A module that cannot be copied or widened keeps its own precision.
            self._can_widen = False
            return None

    def exact(self, wide: Any, inputs: list[Any], seed: int, plain: list[Any]) -> list[Any]:
        """The leaves in float64, by what `double` gave; `plain` where that cannot be."""
        for mode in (Widened(), contextlib.nullcontext()) if wide is not None and self._can_widen else ():
            try:
                copies = [map_tensors(value, _to_double) for value in inputs]  # the inputs are never changed
                with mode:
                    _, exact = flatten(self._forward(wide, copies, seed))
                return exact if _are_alike(exact, plain) else plain
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception:
                continue  # some modules name a dtype inside; their own precision is the best then
        self._can_widen = False
        return plain

    def expected(
        self, wide: Any, inputs: list[Any], seed: int, plain: list[Any], exact: list[Any], strictly: bool
    ) -> tuple[tuple[Expected, ...], bool]:
        """The expected outputs, and whether the module suits inputs of the kind. It does not if what `plain`
        gave is not defined, or if TF32 products would be refused and there is no memory to check value by
        value. `strictly`: products that are rounded in another way must pass without such a check."""
        tf32 = self._tf32(inputs, seed, plain)
        expected = self._all_expected(plain, exact, tf32, inputs)
        expected = self._with_undecided(expected, wide, inputs, seed, plain)
        if tf32 is not None and strictly:
            tf32 = self._tf32(inputs, seed, plain, nearest)
        elif tf32 is None or self._can_stray([*inputs, *plain]):
            return expected, self.is_defined
        else:
            tf32 = with_room(tf32, plain)
        return expected, self.is_defined and (tf32 is None or each_passes(tf32, expected))

    def expected_by_a_part(
        self, wide: Any, inputs: list[Any], seed: int, plain: list[Any]
    ) -> tuple[tuple[Expected, ...], bool]:
        """As `expected`, for large inputs: the plain answer. It allows errors of TF32 products, and those of
        the first rows if these give the first rows of the outputs."""
        tf32 = self._tf32(inputs, seed, plain)
        expected = self._all_expected(plain, plain, tf32)
        part = self._first_rows(inputs, plain)
        first = self.plain(copy.deepcopy(part), seed)[1] if part else []
        if part and all(
            _agree(leaf, part_of_all[: len(part[0])]) for leaf, part_of_all in zip(first, plain, strict=True)
        ):
            exact = self.exact(wide, part, seed, first)
            measured = self._all_expected(first, exact, None, part)
            expected = tuple(
                replace(leaf, tolerance=_wider(leaf.rounding(), other.rounding()))
                for leaf, other in zip(expected, measured, strict=True)
            )
        return expected, tf32 is None or each_passes(with_room(tf32, plain), expected)

    @staticmethod
    def _first_rows(inputs: list[Any], plain: list[Any]) -> list[Any]:
        """As many first rows of all inputs as fit beside float64; none where not all have the same rows."""
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        shapes = [tuple(tensor.shape) for tensor in (*tensors, *plain)]
        if len(tensors) != len(inputs) or len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
            return []
        rows = max(1, shapes[0][0] * LARGE_BYTES // (2 * tensor_bytes([*inputs, *plain])))
        return [tensor[:rows] for tensor in tensors]

    def plainly(self, plain: list[Any]) -> tuple[Expected, ...]:
        """The plain answer is expected, and nothing is allowed beyond tolerances."""
        return self._all_expected(plain, plain, None)

    def blurred(
        self, expected: Sequence[Expected], inputs: list[Any], seed: int, is_enough: IsEnough
    ) -> tuple[Expected, ...]:
        """The expected outputs, with what is allowed at each value because its last bits decide it: see
        `random_rounding.py`. With TF32 products only a part of what these come to is allowed, where that is
        no more than is allowed by size. Otherwise products in bfloat16 would pass."""
        values = [leaf.value for leaf in expected]
        if not self._can_stray([*inputs, *values]):
            return tuple(expected)
        forward = self._exactly(self.double(), seed, values)
        tf32 = self.has_products and any(leaf.dtype == "float32" for leaf in expected)
        allowed = tuple(expected)
        bends = isinstance(self._module, Differentiated)
        for spreads in spread_of_strays(forward, inputs, seed, tf32=tf32, at_bends=bends):
            if tf32:
                spreads = [
                    torch.where(
                        spread > most_by_size(value, typical_size(value)), spread, _SMALL_SHARE * spread
                    )
                    for spread, value in zip(spreads, values, strict=True)
                ]
            pairs = zip(expected, spreads, strict=True)
            allowed = tuple(leaf.allowing(spread=spread) for leaf, spread in pairs)
            if is_enough(allowed):
                break
        return allowed

    def _can_stray(self, values: list[Any]) -> bool:
        """Return True if there is memory, and time, for passes over these inputs and outputs that stray."""
        num_bytes = self.weight_bytes + tensor_bytes(values)
        return self._can_widen and num_bytes <= _MOST_STRAYING_BYTES[self._device]

    def _exactly(self, wide: Any, seed: int, plain: list[Any]) -> Forward:
        """The outputs in float64 for inputs, each time by a module in the same state."""
        return lambda inputs: self.exact(copy.deepcopy(wide), inputs, seed, plain)

    def _tf32(
        self, inputs: list[Any], seed: int, plain: list[Any], shorten: Shorten = truncated
    ) -> list[Any] | None:
        """The leaves with TF32 products; None where there are no products."""
        if not self.has_products:
            return None
        with switched((True, True)), ShortenedProducts(shorten) as products:
            _, leaves = flatten(self._forward(self._module, copy.deepcopy(inputs), seed))
        if not _are_alike(leaves, plain):
            return None
        # Recurrent cells of a library are no products by name.
        self.has_products = products.are_there or any(
            not torch.equal(leaf, other)
            for leaf, other in zip(plain, leaves, strict=True)
            if _is_single(leaf)
        )
        return leaves if self.has_products else None

    def _with_undecided(
        self, expected: tuple[Expected, ...], wide: Any, inputs: list[Any], seed: int, plain: list[Any]
    ) -> tuple[Expected, ...]:
        """The expected outputs with their ambiguous integers and booleans."""
        if not any(map(is_discrete, plain)):
            return expected
        values = [leaf.value for leaf in expected]
        undecided = [computable(value) != other for value, other in zip(plain, values, strict=True)]
        choices: list[Choice | None] = [None] * len(plain)
        if self._can_stray([*inputs, *plain]):
            forwards = self._exactly(wide, seed, plain), lambda values: self.now(copy.deepcopy(values), seed)
            choices = look_for_undecided(undecided, *forwards, inputs, plain, seed, tf32=self.has_products)
        return tuple(
            replace(leaf_expected, tolerance=Undecided(mask, choice)) if is_discrete(leaf) else leaf_expected
            for leaf_expected, mask, choice, leaf in zip(expected, undecided, choices, plain, strict=True)
        )

    def _all_expected(
        self, plain: list[Any], exact: list[Any], tf32: list[Any] | None, inputs: Sequence[Any] = ()
    ) -> tuple[Expected, ...]:
        others = tf32 if tf32 is not None else [None] * len(plain)
        most = max((tensor.numel() for tensor in tensors_in(inputs)), default=0)
        return tuple(self._expected(*triple, most) for triple in zip(plain, exact, others, strict=True))

    def _expected(self, plain: Any, exact: Any, tf32: Any, num_inputs: int) -> Expected:
        if not isinstance(plain, torch.Tensor):
            kind = type(plain).__name__
            raise NotAProblem(f"the reference of {self._problem_id} gives a {kind}, not tensors")
        rounding = Rounding()
        if plain.is_floating_point() and (exact.dtype != plain.dtype or tf32 is not None):
            strict = allowed_table(plain, None, exact, num_inputs)
            table = strict if tf32 is None else allowed_table(plain, tf32, exact, num_inputs)
            rounding = Rounding(table, strict_by_size=strict)
        value = computable(exact.detach())
        if self._device == "cuda" and plain.is_floating_point() and plain.dtype != torch.float64:
            # Half the memory of float64, and far finer than any tolerance.
            value = value.float()
        if value.data_ptr() == plain.data_ptr() and value.nbytes <= LARGE_BYTES:
            # A module may keep its outputs and write to them in its next pass; no module keeps large ones as
            # long.
            value = value.clone()
        return Expected(
            dtype=str(plain.dtype).removeprefix("torch."),
            shape=tuple(plain.shape),
            value=value,
            tolerance=rounding,
        )

    def _forward(self, module: Any, inputs: list[Any], seed: int) -> Any:
        seed_torch(seed, self._device)
        states = _generator_states(self._device)
        try:
            with torch.no_grad():
                result = module(*inputs)
            self.returns_nothing = result is None
            self._drew = not all(map(torch.equal, states, _generator_states(self._device)))
            return tensors_in(list(inputs)) if result is None else result
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            fault = f"fails on its own inputs: {type(error).__name__}: {first_line(error)}"
            raise NotAProblem(f"the reference of {self._problem_id} {fault}") from error

    @contextlib.contextmanager
    def _weighing(self) -> Iterator[None]:
        if self._device != "cuda":
            yield
            return
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        self.work_bytes = max(self.work_bytes, torch.cuda.max_memory_allocated() - before)


def _to_double(value: torch.Tensor) -> torch.Tensor:
    wide = torch.float64 if value.is_floating_point() else value.dtype
    return value.to(torch.complex128 if value.is_complex() else wide, copy=True)


def _wider(rounding: Rounding, other: Rounding) -> Rounding:
    def widest(*tables: torch.Tensor | float) -> torch.Tensor | float:
        known = [table for table in tables if isinstance(table, torch.Tensor)]
        return functools.reduce(torch.maximum, known) if known else 0.0

    strict = widest(rounding.strict_by_size, other.strict_by_size)
    return Rounding(widest(rounding.by_size, other.by_size), strict_by_size=strict)


def _are_alike(leaves: list[Any], plain: list[Any]) -> bool:
    """Return True if outputs have the same shapes. Rounding may decide these, such as a number of
    elements."""
    shapes, others = ([getattr(leaf, "shape", None) for leaf in part] for part in (leaves, plain))
    return shapes == others


def _generator_states(device: str) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device == "cuda" else ())]


def _agree(leaf: Any, known: torch.Tensor) -> bool:
    if not isinstance(leaf, torch.Tensor) or leaf.shape != known.shape:
        return False
    return bool((leaf - known).abs().max() <= _SEPARATE * known.abs().max())


def _is_half(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.element_size() < torch.float32.itemsize


def _is_single(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32
