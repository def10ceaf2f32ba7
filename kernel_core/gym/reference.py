"""A problem at its run sizes, executed by the judge: secret inputs, weights and expected outputs."""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy
import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.draws import WITHOUT_ZEROS, Draw
from kernel_core.gym.inputs import redraw
from kernel_core.gym.operators import map_tensors, tensors_in
from kernel_core.gym.precision import (
    TruncatedProducts,
    allowed_table,
    most_by_size,
    tf32_products,
    typical_size,
)
from kernel_core.gym.problem_module import ProblemModule, own_seeds
from kernel_core.gym.seeds import CONSTRUCTION_SEED
from kernel_core.gym.strays import Forward, spread_of_strays
from kernel_core.gym.structure import flatten, same_bytes
from kernel_core.gym.trial import Expected, Trial, tensor_bytes
from kernel_core.gym.undecided import is_discrete, look_for_undecided
from kernel_core.gym.weights import VariedConstants
from kernel_core.problems.source import resize
from kernel_core.records import Constant, Problem
from kernel_core.store import digest_of

_BOTH_STRAY = 1.25
"""Allowances are four errors of the reference's or more; its own values stray by one."""
_LARGE_BYTES = 4 << 30
"""Of larger inputs and outputs only a part is computed in float64, which takes many times as much; and torch
is asked whether the reference wrote to its inputs, where smaller ones are compared with a copy."""
_MOST_STRAYING_BYTES = {"cuda": 1 << 30, "cpu": 1 << 25}
"""Of weights, inputs and outputs: eight times as much is taken in float64 with what strays, in ten passes."""
_SEPARATE = 1e-3
"""Where a part of the inputs gives that part of the outputs, it agrees so well."""


class Reference:
    """An executed problem. `trial` advances the module's own state, as repeated calls of it would.

    Threads may use it at once: `own_seeds` lets them draw one after another.
    """

    def __init__(
        self, problem: Problem, sizes: dict[str, Constant], device: str = "cpu", varies: bool = True
    ) -> None:
        self.problem = problem
        self.sizes = dict(sizes)
        self.device = device
        self.key = reference_key(problem, self.sizes)
        self.source = resize(problem, self.sizes).source if self.sizes else problem.source
        self._program = ProblemModule(self.source, problem.id, problem.precision, device)
        with own_seeds(device):
            torch.manual_seed(CONSTRUCTION_SEED)
            self.arguments = self._program.arguments()
            varied = VariedConstants() if varies else None
            self.module = self._program.construct(self.arguments, varied)
            self.constants = varied.vary(self.module, self.arguments) if varied else None
            """What weights would have begun as that begin as one number; None where these were left as they
            are. See `weights.py`."""
        self.state = {
            name: value.detach().clone()
            for name, value in (*self.module.named_parameters(), *self.module.named_buffers())
        }
        self.work_bytes = 0
        """On a GPU: the most memory that a pass took beside its inputs and weights, outputs included; more if
        other threads took some meanwhile."""
        self._can_widen = True
        self._gaps: list[torch.Tensor | None] | None = None
        self._has_products = device == "cuda"

    def inputs_of(self, trial: Trial) -> list[Any]:
        """The trial's inputs, drawn again if they were not kept."""
        return trial.inputs or self.draw(trial.seed, trial.draw)

    def with_values(self, trial: Trial) -> Trial:
        """The trial with what is expected of it; if that was not kept, made again as in `trial_like`, and
        without inputs."""
        return trial if trial.has_values else replace(self.trial_like(trial, trial.seed), inputs=[])

    def expected_of(self, trial: Trial) -> tuple[Expected, ...]:
        """The trial's expected outputs, kept or made again."""
        return self.with_values(trial).expected

    def draw(self, seed: int, draw: Draw) -> list[Any]:
        """Inputs under a seed, on the reference's device."""
        with own_seeds(self.device):
            torch.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed % 2**32)
            inputs = self._program.inputs()
            with torch.device(self.device):
                return redraw(inputs, draw)

    def loosened(self, trial: Trial) -> Trial:
        """The trial, with more allowed where a slice of zeros among the inputs decides. What is zeros may
        become one constant, whose deviation is zero, and a norm makes large errors of its rounding: more of
        honest arithmetic's than of the reference's, which may happen to round to nothing. So it is everywhere
        where the outputs are not known."""
        if not trial.has_values:
            exact = self.trial(trial.seed, trial.draw)
            return replace(exact, expected=tuple(replace(one, loose=True) for one in exact.expected))
        others = self.trial(trial.seed, WITHOUT_ZEROS[trial.draw]).expected
        return replace(
            trial,
            expected=tuple(
                replace(one, loose=one.value != other.value)
                for one, other in zip(trial.expected, others, strict=True)
            ),
        )

    def blurred(self, trial: Trial) -> Trial:
        """The trial, with what is allowed at each value because its last bits decide it: see `strays.py`. On
        a GPU they are those of TF32 products, where that comes to more than is allowed by size; below,
        products of half precision would pass for them."""
        inputs, values = self.inputs_of(trial), [one.value for one in trial.expected]
        if not self._can_stray([*inputs, *values]):
            return trial
        with own_seeds(self.device):
            forward = self._exactly_forward(self._double(), trial.seed, values)
            tf32 = self._has_products and any(one.dtype == "float32" for one in trial.expected)
            spreads = spread_of_strays(forward, inputs, trial.seed, tf32=tf32)
        if tf32:
            spreads = [
                torch.where(one > most_by_size(value, typical_size(value)), one, 0.0)
                for one, value in zip(spreads, values, strict=True)
            ]
        expected = zip(trial.expected, spreads, strict=True)
        return replace(trial, expected=tuple(replace(one, spread=spread) for one, spread in expected))

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return tensor_bytes(list(self.state.values()))

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights, and of the copy that candidates are given."""
        return 2 * self.weight_bytes

    def trial(self, seed: int, draw: Draw, exact: bool = True) -> Trial:
        """Inputs drawn under a seed, and the expected outputs: in float64 where that is possible, or, not
        `exact` or too large for it, in the reference's own arithmetic. Raises `NotAProblem` when it fails."""
        with own_seeds(self.device):
            wide_module = self._double() if exact and self._can_widen else None
            inputs = self.draw(seed, draw)
            known = copy.deepcopy(inputs) if tensor_bytes(inputs) <= _LARGE_BYTES else []
            before = [tensor._version for tensor in tensors_in(inputs)]
            with tf32_products(False):
                nesting, plain = flatten(self._forward(self.module, inputs, seed))
            if known:
                changed = any(
                    not same_bytes(one, other)
                    for one, other in zip(tensors_in(inputs), tensors_in(known), strict=True)
                )
            else:
                changed = before != [tensor._version for tensor in tensors_in(inputs)]
            left = self._plainly_expected(tensors_in(inputs)) if changed else ()
            pristine = known or (self.draw(seed, draw) if changed else inputs)
            del inputs, known
            is_large = tensor_bytes([*pristine, *plain]) > _LARGE_BYTES
            if not exact or is_large:
                expected = self._plainly_expected(plain)
                if exact:
                    expected = self._allow_as_a_part_needs(wide_module, pristine, seed, expected)
                true = plain
            else:
                true = self._exact_leaves(wide_module, pristine, seed, plain)
                expected = self._all_expected(plain, true, self._tf32_leaves(pristine, seed, plain))
                expected = self._with_undecided(expected, wide_module, pristine, seed, plain)
            del wide_module
            is_usual = draw == "own" or (self._is_usual(plain) and self._is_usual(true))
        return Trial(draw, seed, pristine, nesting, expected, left, is_usual)

    def trial_like(self, known: Trial, seed: int) -> Trial:
        """Inputs of the same family under another seed, and expected outputs in the reference's own
        arithmetic: a third of the work of `trial`. What is allowed is what was measured for `known`, and a
        little more, because here the expected values have that error too."""
        with own_seeds(self.device):
            inputs = self.draw(seed, known.draw)
            with tf32_products(False):
                nesting, plain = flatten(self._forward(self.module, inputs, seed))
            left = self._plainly_expected(tensors_in(inputs)) if known.changes_inputs else ()
            if known.changes_inputs:
                inputs = self.draw(seed, known.draw)
        expected = tuple(
            replace(one, allowance=_BOTH_STRAY * other.allowance)
            for one, other in zip(self._plainly_expected(plain), known.expected, strict=True)
        )
        return Trial(known.draw, seed, inputs, nesting, expected, left, known.is_usual)

    def inputs_that_matter(self) -> tuple[int, ...]:
        """Positions of the tensor inputs without which the output would be another."""
        with own_seeds(self.device):
            module = copy.deepcopy(self.module)
            torch.manual_seed(CONSTRUCTION_SEED)
            first, second = self._program.inputs(), self._program.inputs()
            _, base = flatten(self._forward(module, copy.deepcopy(first), CONSTRUCTION_SEED))
            found = []
            for index, value in enumerate(first):
                if not isinstance(value, torch.Tensor):
                    continue
                changed = copy.deepcopy([*first[:index], second[index], *first[index + 1 :]])
                _, leaves = flatten(self._forward(module, changed, CONSTRUCTION_SEED))
                if any(not torch.equal(a, b) for a, b in zip(base, leaves, strict=False)):
                    found.append(index)
        return tuple(found)

    def _is_usual(self, leaves: list[Any]) -> bool:
        """See `Trial`. A mask makes infinities of its own, whatever the inputs are."""
        if all(map(_is_finite, leaves)):
            return True
        if self._gaps is None:
            inputs = self.draw(CONSTRUCTION_SEED, "own")
            _, own = flatten(self._forward(copy.deepcopy(self.module), inputs, CONSTRUCTION_SEED))
            self._gaps = [None if _is_finite(leaf) else ~leaf.isfinite() for leaf in own]
        return all(
            _is_finite(leaf) or (gap is not None and torch.equal(~leaf.isfinite(), gap))
            for leaf, gap in zip(leaves, self._gaps, strict=True)
        )

    def _exact_leaves(self, module: Any, inputs: list[Any], seed: int, plain: list[Any]) -> list[Any]:
        if module is None:
            return plain
        try:
            wide = [map_tensors(value, _to_double) for value in inputs]  # copies: nobody changes the inputs
            _, exact = flatten(self._forward(module, wide, seed))
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            # Some modules name a dtype inside; their own precision is then the best there is.
            self._can_widen = False
            return plain
        return exact if len(exact) == len(plain) else plain

    def _exactly_forward(self, module: Any, seed: int, plain: list[Any]) -> Forward:
        """What `_exact_leaves` gives for inputs, each time by a module in the same state."""
        return lambda inputs: self._exact_leaves(copy.deepcopy(module), inputs, seed, plain)

    def _can_stray(self, values: list[Any]) -> bool:
        """Whether there is memory, and time, for passes over these inputs and outputs that stray."""
        num_bytes = self.weight_bytes + tensor_bytes(values)
        return self._can_widen and num_bytes <= _MOST_STRAYING_BYTES[self.device]

    def _with_undecided(
        self, expected: tuple[Expected, ...], module: Any, inputs: list[Any], seed: int, plain: list[Any]
    ) -> tuple[Expected, ...]:
        """What is expected, with the integers and booleans that nothing decides."""
        if not any(map(is_discrete, plain)):
            return expected
        values = [one.value for one in expected]
        found = [one != other for one, other in zip(plain, values, strict=True)]
        if self._can_stray([*inputs, *plain]):
            forward = self._exactly_forward(module, seed, plain)
            look_for_undecided(found, forward, inputs, seed, tf32=self._has_products)
        return tuple(
            replace(one, undecided=mask) if is_discrete(leaf) else one
            for one, mask, leaf in zip(expected, found, plain, strict=True)
        )

    def _tf32_leaves(self, inputs: list[Any], seed: int, plain: list[Any]) -> list[Any] | None:
        """What the reference gives with TF32 products; None where it has no products."""
        if not self._has_products:
            return None
        work_bytes = self.work_bytes
        with tf32_products(True), TruncatedProducts() as products:
            _, leaves = flatten(self._forward(self.module, copy.deepcopy(inputs), seed))
        self.work_bytes = work_bytes  # others need no copies of what goes into products
        # A library's own recurrent cells are no products by name.
        self._has_products = products.are_there or any(
            not torch.equal(one, other) for one, other in zip(plain, leaves, strict=True) if _is_single(one)
        )
        return leaves if self._has_products else None

    def _allow_as_a_part_needs(
        self, wide: Any, inputs: list[Any], seed: int, expected: tuple[Expected, ...]
    ) -> tuple[Expected, ...]:
        """What is allowed by the errors of the first rows alone, where these give the first rows of the
        outputs; where they do not, nothing is."""
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        shapes = [tuple(one.shape) for one in tensors] + [one.shape for one in expected]
        if len(tensors) != len(inputs) or len({shape[:1] for shape in shapes}) != 1 or not shapes[0]:
            return expected
        num_bytes = tensor_bytes([*inputs, *(one.value for one in expected)])
        rows = max(1, shapes[0][0] * _LARGE_BYTES // (2 * num_bytes))
        part = [one[:rows] for one in tensors]
        with tf32_products(False):
            _, plain = flatten(self._forward(self.module, copy.deepcopy(part), seed))
        if not all(_agree(leaf, one.value[:rows]) for leaf, one in zip(plain, expected, strict=True)):
            return expected
        exact = self._exact_leaves(wide, part, seed, plain)
        measured = self._all_expected(plain, exact, self._tf32_leaves(part, seed, plain))
        return tuple(
            replace(one, allowance=other.allowance) for one, other in zip(expected, measured, strict=True)
        )

    def _plainly_expected(self, plain: list[Any]) -> tuple[Expected, ...]:
        return self._all_expected(plain, plain, None)

    def _all_expected(
        self, plain: list[Any], exact: list[Any], tf32: list[Any] | None
    ) -> tuple[Expected, ...]:
        others = tf32 if tf32 is not None else [None] * len(plain)
        return tuple(self._expected(*one) for one in zip(plain, exact, others, strict=True))

    def _expected(self, plain: Any, exact: Any, tf32: Any) -> Expected:
        if not isinstance(plain, torch.Tensor):
            kind = type(plain).__name__
            raise NotAProblem(f"the reference of {self.problem.id} gives a {kind}, not tensors")
        allowance: torch.Tensor | float = 0.0
        if plain.is_floating_point() and exact.dtype != plain.dtype:
            allowance = allowed_table(plain, tf32, exact)
        value = exact.detach()
        if self.device == "cuda" and plain.is_floating_point() and plain.dtype != torch.float64:
            # Half the memory of float64, and far finer than any tolerance.
            value = value.float()
        if value.data_ptr() == plain.data_ptr() and value.nbytes <= _LARGE_BYTES:
            # A module may keep what it gave, and write to it in its next pass; none keeps large ones as long.
            value = value.clone()
        return Expected(
            dtype=str(plain.dtype).removeprefix("torch."),
            shape=tuple(plain.shape),
            value=value,
            allowance=allowance,
        )

    def _forward(self, module: Any, inputs: list[Any], seed: int) -> Any:
        torch.manual_seed(seed)
        try:
            with torch.no_grad(), self._weighing(module):
                return module(*inputs)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            raise NotAProblem(
                f"the reference of {self.problem.id} fails on its own inputs: {type(error).__name__}: {error}"
            ) from error

    @contextlib.contextmanager
    def _weighing(self, module: Any) -> Iterator[None]:
        if self.device != "cuda" or module is not self.module:
            yield
            return
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield
        self.work_bytes = max(self.work_bytes, torch.cuda.max_memory_allocated() - before)

    def _double(self) -> Any:
        """A copy of the module as it is now."""
        try:
            return copy.deepcopy(self.module).double()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception:
            # A module that cannot be copied or widened serves in its own precision.
            self._can_widen = False
            return None


def reference_key(problem: Problem, sizes: Mapping[str, Constant]) -> str:
    """What a problem is at some sizes."""
    return f"{problem.sha256}:{problem.precision}:{digest_of(dict(sizes))}"


def _to_double(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.float64 if value.is_floating_point() else value.dtype, copy=True)


def _is_finite(leaf: Any) -> bool:
    if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or not leaf.numel():
        return True
    return all(math.isfinite(end.item()) for end in leaf.aminmax())  # NaN is both; no memory beside the leaf


def _agree(leaf: Any, known: torch.Tensor) -> bool:
    if not isinstance(leaf, torch.Tensor) or leaf.shape != known.shape:
        return False
    return bool((leaf - known).abs().max() <= _SEPARATE * known.abs().max())


def _is_single(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32
