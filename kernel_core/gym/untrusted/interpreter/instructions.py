"""Torch's operators that stand for a kernel's instructions in Triton's interpreter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def instruction(function: Callable[..., Any]) -> Callable[..., Any]:
    """Hide the operators of a function from recorders and counters: they are no work of the candidate's."""

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        with torch._C._DisableTorchDispatch():
            return function(*arguments)

    return run
