"""The families of inputs by their names; `inputs` makes them."""

from __future__ import annotations

from typing import Literal

Draw = Literal[
    "own",
    "normal",
    "mixed",
    "nonzero",
    "moderate",
    "moderate_nonzero",
    "turned",
    "turned_nonzero",
    "turned_moderate",
    "turned_moderate_nonzero",
    "negative",
    "far_negative",
    "positive",
    "over_minus_one",
    "within_one",
    "wide",
    "integers",
    "edges",
]
DRAWS: tuple[Draw, ...] = ("own", "normal", "mixed", "positive", "wide", "integers", "edges")
"""Those that an audit tries; the others are versions of these, for problems that do not take them."""
HOSTILE: tuple[Draw, ...] = (
    "mixed",
    "nonzero",
    "moderate",
    "moderate_nonzero",
    "normal",
    "over_minus_one",
    "within_one",
    "positive",
)
"""For the last trial, the first that leaves the reference finite: functions that have values for positive
numbers only, and not for those down to minus one, are what is left."""
ONE_SIGNED: tuple[Draw, ...] = ("far_negative", "negative")
"""For the first trial, likewise: no slice of a tensor of both signs is all of it."""
TURNED: dict[Draw, Draw] = {
    "mixed": "turned",
    "nonzero": "turned_nonzero",
    "moderate": "turned_moderate",
    "moderate_nonzero": "turned_moderate_nonzero",
}
"""What a pass is replayed on that was recorded with inputs of such a family: the same along another
dimension. A matrix cannot have a row that is negative throughout and a column that is positive throughout."""
WITHOUT_ZEROS: dict[Draw, Draw] = {
    "mixed": "nonzero",
    "moderate": "moderate_nonzero",
    "turned": "turned_nonzero",
    "turned_moderate": "turned_moderate_nonzero",
}
"""Families with a slice of zeros, and what under the same seed differs in nothing else."""
