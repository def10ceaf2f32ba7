"""A problem at its run sizes, executed by the judge: secret inputs, weights and expected outputs."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from kernel_core.errors import NotAProblem
from kernel_core.gym.channel.constant_perturbation import VariedConstants
from kernel_core.gym.channel.pytree import same_bytes
from kernel_core.gym.channel.seeds import CONSTRUCTION_SEED, seed_torch
from kernel_core.gym.channel.torch_ops import GATHERS, tensors_in
from kernel_core.gym.channel.work import OperatorCounter
from kernel_core.gym.oracle.input_families import Draw, is_far, without_zeros
from kernel_core.gym.oracle.input_generators import floating_in, look_at_all, redraw
from kernel_core.gym.oracle.input_invariants import ENOUGH, Kept, declared, in_common, mutable_inputs
from kernel_core.gym.oracle.inputs_left import LeavesInputs, inputs_left
from kernel_core.gym.oracle.problem_module import ProblemModule, own_seeds
from kernel_core.gym.oracle.reference_outputs import LARGE_BYTES, IsEnough, ReferenceOutputs
from kernel_core.gym.oracle.trial import Trial, is_finite, loose, tensor_bytes
from kernel_core.problems.source import resize
from kernel_core.records import Constant, Problem, Tolerance
from kernel_core.store import digest_of

_ASSERTING = frozenset(
    {f"aten::{name}" for name in ("binary_cross_entropy", "bernoulli", "multinomial", "binomial")}
    | {f"aten::{name}" for name in ("index_put", "index_copy", "index_add", "index_fill", "one_hot")}
    | {f"aten::{name}" for name in ("scatter", "scatter_add", "scatter_reduce", "nll_loss_forward")}
    | {*GATHERS}
)
"""Operators that assert numbers in [0, 1], or indices within a tensor, in their kernels."""

_FEW_DRAWS, _MANY_DRAWS = 2, 16
_TRAITS: OrderedDict[str, tuple[bool, bool]] = OrderedDict()
"""True if a problem has products on float32 values, and if it has values in half precision, by its key."""
_MOST_TRAITS = 1 << 14
_BOTH_STRAY = 1.25
"""Allowances are four errors of the reference's or more; its own values stray by one."""


class Reference:
    """An executed problem. `trial` advances the module's own state, as repeated calls of it would.

    Threads may use it at once: `own_seeds` lets them draw one after another.
    """

    def __init__(
        self,
        problem: Problem,
        sizes: dict[str, Constant],
        device: str = "cpu",
        varies: bool = True,
        tf32: bool | None = None,
        tolerance: Tolerance = "measured",
    ) -> None:
        """`tf32`: whether products may be of that precision; on a GPU they may, unless it says otherwise or
        the tolerance is `strict`."""
        self.problem = problem
        self.sizes = dict(sizes)
        self.device = device
        self.key = reference_key(problem, self.sizes)
        self._is_field = tolerance == "field"
        self.source = resize(problem, self.sizes).source if self.sizes else problem.source
        self.mutable = mutable_inputs(self.source)
        """The positions of the input tensors that a candidate may leave with any contents."""
        self._program = ProblemModule(self.source, problem.id, problem.precision, device)
        self.gradients = self._program.gradients
        """The tensors that a pass computes gradients of, beside the outputs; see `gradients.py`."""
        with own_seeds(device):
            seed_torch(CONSTRUCTION_SEED, device)
            self.arguments = self._program.arguments()
            varied = VariedConstants() if varies else None
            self.module = self._program.construct(self.arguments, varied)
            self.constants = varied.vary(self.module, self.arguments) if varied else None
            """The initial constants of varied weights; None if weights were not varied. See
            `constant_perturbation.py`."""
        self.state = {
            name: value.detach().clone()
            for name, value in (*self.module.named_parameters(), *self.module.named_buffers())
        }
        if tf32 is None:
            tf32 = device == "cuda" and tolerance == "measured"
        self._answers = ReferenceOutputs(problem.id, device, self.module, tf32, as_shipped=self._is_field)
        self._gaps: list[torch.Tensor | None] | None = None
        self._kept: tuple[Kept, ...] | None = None
        self._small: Reference | None = None

    def inputs_of(self, trial: Trial) -> list[Any]:
        """The trial's inputs, drawn again if they were not kept."""
        return trial.inputs or self.draw(trial.seed, trial.draw)

    def with_values(self, trial: Trial) -> Trial:
        """The trial with what is expected of it; if that was not kept, made again as in `trial_like`, and
        without inputs."""
        return trial if trial.has_values else replace(self.trial_like(trial, trial.seed), inputs=[])

    def draw(self, seed: int, draw: Draw) -> list[Any]:
        """Inputs under a seed, on the reference's device."""
        with own_seeds(self.device):
            kept = () if draw == "own" else self._what_draws_keep()
            inputs = self._program.drawn(seed)
            with torch.device(self.device):
                return redraw(inputs, draw, kept)

    @property
    def num_floating(self) -> int:
        """The number of input tensors in floating point: only these differ between draws."""
        with own_seeds(self.device):
            return len(self._what_draws_keep())

    def is_safe_with(self, draw: Draw) -> bool:
        """Return True if operators of torch's can be given such inputs. Those that assert something of theirs
        end the process where that is a GPU's; on a processor they raise, so one is asked, at small sizes."""
        if self.device == "cpu" or draw == "own" or not self._asserts:
            return True
        if self._small is None:
            self._small = Reference(self.problem, self.problem.cpu_constants)
        try:
            self._small.trial(CONSTRUCTION_SEED, draw, exact=False)
        except NotAProblem:
            return False
        return True

    @functools.cached_property
    def _asserts(self) -> bool:
        with own_seeds(self.device):
            inputs = self._program.drawn(CONSTRUCTION_SEED)
            with OperatorCounter() as counter:
                self._answers.now(inputs, CONSTRUCTION_SEED)
        return any(work.name.removesuffix("_") in _ASSERTING for work in counter.works)

    def _what_draws_keep(self) -> tuple[Kept, ...]:
        """Found once, of a few own draws one after the other, because large ones have no room beside one
        another. The fewer numbers there are, the more draws it takes."""
        if self._kept is None:
            inputs = self._program.drawn(CONSTRUCTION_SEED)
            declared_kinds, names = declared(self.source), inspect.signature(self.module.forward).parameters
            known = [
                declared_kinds.get(name)
                for name, value in zip(names, inputs, strict=False)
                for _ in floating_in(value)
            ]
            looks = [look_at_all(inputs)]
            del inputs
            count = _MANY_DRAWS if any(look.numel < ENOUGH for look in looks[0]) else _FEW_DRAWS
            looks += [look_at_all(self._program.drawn(CONSTRUCTION_SEED + n)) for n in range(1, count)]
            common = map(in_common, zip(*looks, strict=True))
            self._kept = tuple(
                known_kind or other for known_kind, other in itertools.zip_longest(known, common) if other
            )
        return self._kept

    @property
    def takes_any_size(self) -> bool:
        """True if the problem says of all its inputs that they may be numbers of any size."""
        with own_seeds(self.device):
            return all(kind.is_any for kind in self._what_draws_keep())

    @property
    def may_have_tf32_products(self) -> bool:
        """True if products may be TF32 and no trial has shown that there are none."""
        return self._answers.has_products

    @property
    def has_float32_products(self) -> bool:
        """True if the module multiplies matrices of float32 values; true before a trial of the problem."""
        return _TRAITS.get(self.key, (True, False))[0]

    @property
    def is_in_half(self) -> bool:
        """True if half precision or shorter is native to it: it has such values, and no float32 products."""
        has_products, has_half = _TRAITS.get(self.key, (True, False))
        return has_half and not has_products

    def _note_traits(self) -> None:
        """Keep what the first pass showed longer than this reference: outlines of its trials outlive it."""
        if self._answers.float32_products is not None:
            _TRAITS[self.key] = (self._answers.float32_products, self._answers.has_half)
            while len(_TRAITS) > _MOST_TRAITS:
                _TRAITS.popitem(last=False)

    def as_shipped(self, trial: Trial) -> list[Any]:
        """Return the outputs for a trial with torch's switches for TF32 as they are at its start."""
        with own_seeds(self.device):
            inputs = copy.deepcopy(trial.inputs) or self.draw(trial.seed, trial.draw)
            return self._answers.shipped(inputs, trial.seed)

    def exactly(self, trial: Trial, is_enough: IsEnough = lambda expected: False) -> Trial:
        """The trial with the largest tolerance that its own inputs justify, or one that `is_enough`: by
        float64's answer to them, where slices of zeros decide an output, and where last bits do. The field's
        tolerance knows no more than its own."""
        if self._is_field:
            return self.with_values(trial)
        known = self._loosened(trial) if trial.has_values else self._made_loose(trial)
        with own_seeds(self.device):
            blurred = self._answers.blurred(known.expected, self.inputs_of(known), known.seed, is_enough)
            return replace(known, expected=blurred)

    def left_exactly(self, trial: Trial) -> Trial:
        """The trial with the largest tolerance for what the reference leaves in its inputs: see
        `inputs_left.py`."""
        with own_seeds(self.device):
            module = LeavesInputs(copy.deepcopy(self.module))
            answers = ReferenceOutputs(self.problem.id, self.device, module, self._answers.has_products)
            return replace(trial, left=inputs_left(answers, self.inputs_of(trial), trial.seed))

    def _made_loose(self, trial: Trial) -> Trial:
        """A trial with unknown outputs. There is no room to compare them with others."""
        exact = self.trial(trial.seed, trial.draw)
        return exact if without_zeros(trial.draw) == trial.draw else loose(exact)

    def _loosened(self, trial: Trial) -> Trial:
        """The trial, with more tolerance where a slice of zeros among the inputs decides an output.

        Such a slice may become one constant with the deviation zero, and a norm makes large errors of its
        rounding. Honest arithmetic may have a larger error there than the reference, which may happen to
        round to nothing.
        """
        exact = trial if trial.is_exact else self.trial(trial.seed, trial.draw)
        draw = without_zeros(trial.draw)
        if draw == trial.draw:
            return exact
        others = self.trial(trial.seed, draw).expected
        pairs = list(zip(exact.expected, others, strict=True))
        if any(leaf.shape != other.shape for leaf, other in pairs):
            return exact  # the shapes follow from the values, which such inputs do not have
        return replace(
            exact, expected=tuple(leaf.allowing(loose=leaf.value != other.value) for leaf, other in pairs)
        )

    @property
    def returns_nothing(self) -> bool:
        """True if a pass returns None, so that the outputs are what it leaves in its inputs."""
        return self._answers.returns_nothing

    @property
    def work_bytes(self) -> int:
        """See `ReferenceOutputs`."""
        return self._answers.work_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self._answers.weight_bytes

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights, and of the copy that candidates are given."""
        return 2 * self.weight_bytes

    def trial(self, seed: int, draw: Draw, exact: bool = True) -> Trial:
        """Inputs drawn under a seed, and the expected outputs: in float64 where that is possible, or, not
        `exact` or too large for it, in the reference's own arithmetic. Raises `NotAProblem` when it fails."""
        exact = exact and not self._is_field
        with own_seeds(self.device):
            wide = self._answers.double() if exact else None
            inputs = self.draw(seed, draw)
            known = copy.deepcopy(inputs) if tensor_bytes(inputs) <= LARGE_BYTES else []
            before = [tensor._version for tensor in tensors_in(inputs)]
            nesting, plain = self._answers.plain(inputs, seed)
            self._note_traits()
            if exact:
                self._answers.refuse_random(inputs, seed)
            if plain and all(isinstance(leaf, torch.Tensor) and not leaf.numel() for leaf in plain):
                raise NotAProblem(
                    f"the outputs of {self.problem.id} are empty at these sizes; give larger ones"
                )
            if known:
                changed = any(
                    not same_bytes(tensor, other)
                    for tensor, other in zip(tensors_in(inputs), tensors_in(known), strict=True)
                )
            else:
                # Torch reports changes of large inputs; smaller ones are compared with a copy.
                changed = before != [tensor._version for tensor in tensors_in(inputs)]
            left = self._answers.plainly(tensors_in(inputs)) if changed else ()
            pristine = known or (self.draw(seed, draw) if changed else inputs)
            del inputs, known
            is_fit, true = True, plain
            if not exact:
                expected = tuple(
                    replace(leaf, is_field=self._is_field) for leaf in self._answers.plainly(plain)
                )
            elif tensor_bytes([*pristine, *plain]) > LARGE_BYTES:
                expected, is_fit = self._answers.expected_by_a_part(wide, pristine, seed, plain)
            else:
                true = self._answers.exact(wide, pristine, seed, plain)
                strictly = bool(self.gradients) and is_far(draw)  # errors of products decide where slopes are
                expected, is_fit = self._answers.expected(wide, pristine, seed, plain, true, strictly)
            del wide
            is_usual = draw == "own" or (is_fit and self._is_usual(plain) and self._is_usual(true))
        return Trial(draw, seed, pristine, nesting, expected, left, exact, is_usual)

    def trial_like(self, known: Trial, seed: int) -> Trial:
        """Inputs of the same family under another seed, and expected outputs in the reference's own
        arithmetic: a third of the work of `trial`. What is allowed is what was measured for `known`, and a
        little more, because here the expected values have that error too."""
        with own_seeds(self.device):
            inputs = self.draw(seed, known.draw)
            nesting, plain = self._answers.plain(inputs, seed)
            left = self._answers.plainly(tensors_in(inputs)) if known.changes_inputs else ()
            if known.changes_inputs:
                inputs = self.draw(seed, known.draw)
        expected = tuple(
            replace(leaf, tolerance=other.rounding(_BOTH_STRAY), is_field=self._is_field)
            for leaf, other in zip(self._answers.plainly(plain), known.expected, strict=True)
        )
        return Trial(known.draw, seed, inputs, nesting, expected, left, False, known.is_usual)

    def inputs_that_matter(self) -> tuple[int, ...]:
        """Positions of the tensor inputs without which the output would be another."""
        with own_seeds(self.device):
            first, second = (self._program.drawn(CONSTRUCTION_SEED + number) for number in range(2))
            base = self._answers.now(copy.deepcopy(first), CONSTRUCTION_SEED)
            places = []
            for index, value in enumerate(first):
                if not isinstance(value, torch.Tensor):
                    continue
                changed = copy.deepcopy([*first[:index], second[index], *first[index + 1 :]])
                leaves = self._answers.now(changed, CONSTRUCTION_SEED)
                if any(not torch.equal(a, b) for a, b in zip(base, leaves, strict=False)):
                    places.append(index)
        return tuple(places)

    def _is_usual(self, leaves: list[Any]) -> bool:
        """See `Trial`. A mask makes infinities for all inputs."""
        if all(map(is_finite, leaves)):
            return True
        if self._gaps is None:
            inputs = self.draw(CONSTRUCTION_SEED, "own")
            own = self._answers.now(inputs, CONSTRUCTION_SEED)
            self._gaps = [None if is_finite(leaf) else ~leaf.isfinite() for leaf in own]
        return all(
            is_finite(leaf) or (gap is not None and torch.equal(~leaf.isfinite(), gap))
            for leaf, gap in zip(leaves, self._gaps, strict=True)
        )


def reference_key(problem: Problem, sizes: Mapping[str, Constant]) -> str:
    """The key of a problem at some sizes."""
    return f"{problem.sha256}:{problem.precision}:{digest_of(dict(sizes))}"
