"""Many threads parse at once, as rollouts do."""

from __future__ import annotations

import ast
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_core.problems import syntax
from kernel_core.problems.syntax import syntax_tree

SOURCE = Path(syntax.__file__).read_text() * 4
SECONDS = 2.0


class Loop:
    """Garbage with a finaliser: while a tree is built, the collector lets another thread run."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(200):
            pass


@pytest.fixture
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def faults(parse: Callable[[str], object]) -> list[SystemError]:
    """The faults of six threads that parse at different depths of the stack."""
    end, found = time.monotonic() + SECONDS, []

    def run() -> None:
        while time.monotonic() < end:
            for _ in range(20):
                Loop()
            try:
                parse(SOURCE)
            except SystemError as error:
                found.append(error)

    def below(depth: int) -> None:
        below(depth - 1) if depth else run()

    threads = [threading.Thread(target=below, args=(5 * number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.exhaustive
def test_threads_do_not_disturb_each_other(many_switches):
    assert not faults(syntax_tree)


def test_another_fault_of_python_is_not_hidden(monkeypatch):
    def broken(source: str) -> ast.Module:
        raise SystemError("unknown opcode")

    monkeypatch.setattr(ast, "parse", broken)
    with pytest.raises(SystemError, match="opcode"):
        syntax_tree("x = 1")


@pytest.mark.parametrize("source", ["def (:", "x = '\0'", "(" * 5000])
def test_text_that_is_not_python_is_told_as_python_tells_it(source):
    with pytest.raises((SyntaxError, ValueError, RecursionError, MemoryError)):
        syntax_tree(source)
