"""Each launch of an answer gives its kernel every parameter once: the host code runs on meta tensors.

Triton's interpreter runs an answer at small sizes alone. Here nothing is computed, so the sizes are the
problem's own: Python binds the arguments of each launch, with those of each config, to the signature.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kernel_core.generator.answer import answer
from kernel_core.generator.read import load_module
from kernel_core.problems.load import load_file
from kernel_core.problems.source import parse_problem
from kernel_core.records import Problem
from tests.generator.small_problems import BY_SCHEDULE, problem

PAGES = Path(__file__).parents[2] / "docs" / "kernels"
OPTIONS = {"num_warps", "num_stages", "grid", "warmup"}


def bind(kernel: JITFunction, args: tuple, kwargs: dict) -> None:
    signature = inspect.signature(kernel.fn)
    signature.bind(*args, **{name: given for name, given in kwargs.items() if name not in OPTIONS})


def bind_each_config(tuner: Autotuner, args: tuple, kwargs: dict) -> None:
    for config in tuner.configs:
        if twice := set(config.kwargs) & set(kwargs):
            raise TypeError(f"a config and the launch both set {', '.join(twice)}")
        bind(tuner.fn, args, {**kwargs, **config.kwargs})


@pytest.fixture
def launches(monkeypatch) -> list[str]:
    """Names of the kernels that were launched; none of them runs."""
    names: list[str] = []

    def launch(kernel, *args, **kwargs):
        bind(kernel, args, kwargs)
        names.append(kernel.fn.__name__)

    def launch_each_config(tuner, *args, **kwargs):
        bind_each_config(tuner, args, kwargs)
        names.append(tuner.fn.fn.__name__)

    monkeypatch.setattr(JITFunction, "run", launch)
    monkeypatch.setattr(Autotuner, "run", launch_each_config)
    return names


def run(given: Problem, source: str, folder: Path) -> None:
    """Run the host code of an answer at the problem's own sizes."""
    path = folder / "new.py"
    path.write_text(source)
    names: dict = {"__name__": "new", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    module = load_module(given)
    with torch.device("meta"), torch.no_grad():
        match module.get_init_inputs():
            case [list() as positional, dict() as named]:
                model = names["ModelNew"](*positional, **named)
            case positional:
                model = names["ModelNew"](*positional)
        model(*module.get_inputs())


def faults(answered: dict[str, tuple[Problem, str]], launches: list[str], folder: Path) -> dict[str, str]:
    """Errors of the host code of answers by the problem's name."""
    errors = {}
    for name, (given, source) in answered.items():
        before = len(launches)
        try:
            run(given, source, folder)
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"
        else:
            if len(launches) == before:
                errors[name] = "no launch"
    return errors


def answered(given: Problem) -> tuple[Problem, str]:
    return given, answer(given).source


def parsed(source: str) -> Problem:
    return parse_problem(source, id="test", suite="test")


def test_each_page_gives_its_kernels_every_parameter_once(launches, tmp_path):
    pages = [path for path in PAGES.glob("*.py") if not path.stem.endswith(("_kernel", "make"))]
    problems = {path.stem: answered(load_file(path)) for path in pages}
    assert len(pages) == 20 and not faults(problems, launches, tmp_path)


def test_each_schedule_gives_its_kernels_every_parameter_once(answers_by_schedule, launches, tmp_path):
    problems = {name: (parsed(BY_SCHEDULE[name]), text) for name, text in answers_by_schedule.items()}
    assert len(problems) == len(BY_SCHEDULE) and not faults(problems, launches, tmp_path)


ATTENTION = """import torch


class Model(torch.nn.Module):
    def forward(self, t, target, y):
        return torch.softmax(t @ target.transpose(-2, -1), dim=-1) @ y


def get_inputs():
    return [torch.randn(2, 3, 40, 16), torch.randn(2, 3, 40, 16), torch.randn(2, 3, 40, 16)]


def get_init_inputs():
    return []
"""


def test_a_size_in_the_name_of_a_longer_tensor_stays(launches, tmp_path):
    """`target.shape[2]` has the text of `t.shape[2]` in it, which is `M` by then."""
    given, source = answered(parsed(ATTENTION))
    assert "M = t.shape[2]" in source and "N = target.shape[2]" in source
    assert not faults({"attention": (given, source)}, launches, tmp_path)


def test_drawn_problems_give_their_kernels_every_parameter_once(
    drawn_graphs, answers_of_graphs, launches, tmp_path
):
    problems = {given.id: (given, answers_of_graphs[given.id]) for given in drawn_graphs}
    assert len(problems) == 60 and not faults(problems, launches, tmp_path)


def test_a_kernel_of_which_one_size_is_one_gets_all_numbers_of_a_dilation_or_none(launches, tmp_path):
    layer = "self.conv = nn.Conv3d(6, 5, (3, 3, 1), dilation=2)"
    source = problem("self.conv(a)", "torch.randn(2, 6, 9, 11, 7)", layers=layer)
    assert not faults({"conv": answered(parsed(source))}, launches, tmp_path)
    assert "conv3d_kernel" in launches


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ("k[(1,)](1, 2, 3)", "multiple values"),
        ("k[(1,)](1, 2, BLOCK=8)", "both set BLOCK"),
        ("k[(1,)](1)", "missing"),
        ("k[(1,)](1, 2, C=3)", "unexpected keyword"),
    ],
)
def test_launches_that_do_not_fit_are_found(launches, launch, message):
    def kernel(x_ptr, n, BLOCK):
        pass

    k = triton.autotune([triton.Config({"BLOCK": 16})], key=["n"])(triton.jit(kernel))
    with pytest.raises(TypeError, match=message):
        eval(launch, {"k": k})
    assert not launches
