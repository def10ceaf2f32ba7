"""What the words of a `dojo` command are read by: one line for a mistake, numbers within bounds."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line, as every error of `dojo` is told."""

    def error(self, message: str) -> NoReturn:
        """Leave with exit code 2."""
        line = " ".join(message.split())
        self.exit(2, f"dojo: {line}; `{self.prog} --help` names every argument\n")


def number(
    kind: Callable[[str], Any], at_least: float, at_most: float = float("inf")
) -> Callable[[str], Any]:
    """An argument's type: an `int` or a `float` within bounds."""
    bounds = f"{at_least} or more" if at_most == float("inf") else f"{at_least} to {at_most}"

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not at_least <= value <= at_most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number within bounds: wanted {bounds}")
        return value

    return read


port = number(int, 1, 65535)
"""The type of an argument that is a port."""
