"""The families of inputs by their names; `inputs` makes them."""

from __future__ import annotations

from typing import Literal

Draw = Literal["own", "normal", "mixed", "positive", "wide", "integers", "edges"]
DRAWS: tuple[Draw, ...] = ("own", "normal", "mixed", "positive", "wide", "integers", "edges")
