"""Texts of drawn problems: habits change the surface, never the kernels, and what docstrings say is true."""

from __future__ import annotations

import ast
import random
import re
import types
from dataclasses import replace

import pytest
import torch

from benchmarks.drawn_habits import HABITS, counted
from kernel_core.generator.answer import answer
from kernel_core.generator.draw import problems as draw
from kernel_core.generator.draw.convolutions import CONVOLUTIONS, single_convolution
from kernel_core.generator.draw.habits import CHOICES, draw_habits
from kernel_core.generator.draw.sketch import Sketch
from kernel_core.generator.draw.text import source_of
from kernel_core.generator.read import Unreadable, load_module, model_and_inputs
from kernel_core.problems.source import parse_problem, resize
from kernel_core.records import Problem
from tests.generator.test_answers import wrong

IN_THE_GRAPH = ("settings", "dtype", "functional", "sizes", "square", "upper", "drawn_names")
"""Habits that the sketch reads: they choose what is computed, or names and values of sizes."""


def kernels_of(source: str) -> list[str]:
    """The functions of Triton in an answer."""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [ast.unparse(node) for node in functions if "triton" in ast.unparse(node.decorator_list[-1:])]


def answers_by_habit(number: int, styles: int) -> list[str]:
    """Answers to the texts of one sketch in several authors' habits; empty where there is none."""
    _, sketch, results = draw.sketched(random.Random(f"style {number}"), (), draw.LEVELS, "train")
    texts = []
    for style in range(styles):
        other = draw_habits(random.Random(f"{number} {style}"))
        kept = {name: getattr(sketch.habits, name) for name in IN_THE_GRAPH}
        written = source_of(sketch, results, replace(other, **kept))
        problem = parse_problem(written.source, id="graphs/test", suite="graphs")
        try:
            texts.append(answer(problem, on_meta=True).source)
        except Unreadable:
            return []
    return texts


def result_of(source: str) -> torch.Tensor:
    """The result of a drawn module at its CPU sizes, with weights and inputs of one seed."""
    model, inputs = model_and_inputs(load_module(parse_problem(source, id="graphs/test", suite="graphs")))
    return model(*inputs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", draw.families())
def test_each_drawn_module_has_a_text_that_python_reads(family):
    for number in range(100):
        _, sketch, results = draw.sketched(random.Random(f"text {number}"), (family,), draw.LEVELS, "train")
        ast.parse(source_of(sketch, results).source)


@pytest.mark.parametrize("part", ["none", "class"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_options_of_a_layer_are_numbers_or_arguments_of_the_constructor(name, part):
    rng = random.Random(name)
    habits = replace(draw_habits(rng), dtype="float32", settings="argument", sizes="small")
    sketch = Sketch(rng, habits)
    results = single_convolution(sketch, name)
    texts = {
        (settings, arguments): source_of(
            sketch, results, replace(habits, settings=settings, arguments=arguments, part=part)
        ).source
        for settings in CHOICES["settings"]
        for arguments in CHOICES["arguments"]
    }
    first, *others = map(result_of, texts.values())
    assert all(torch.equal(first, other) for other in others)
    assert "kernel_size" in texts["argument", "listed"]
    assert re.search(r"def __init__\(.*kernel_size", texts["inline", "listed"]) is None


def assert_same_kernels(count: int, styles: int) -> None:
    compared = 0
    for number in range(count):
        answers = answers_by_habit(number, styles)
        compared += bool(answers)
        assert len({tuple(kernels_of(text)) for text in answers}) <= 1, answers
    assert compared > count * 0.8


def test_habits_do_not_change_the_kernels():
    assert_same_kernels(12, 3)


@pytest.mark.exhaustive
def test_habits_never_change_the_kernels():
    assert_same_kernels(200, 4)


@pytest.mark.exhaustive
def test_each_habit_is_in_three_of_a_hundred_texts():
    counts = counted(2000, 0)
    assert not {name: counts[name] for name in HABITS if counts[name] < 0.03 * 2000}


def test_each_choice_of_an_author_is_drawn():
    drawn = [draw_habits(random.Random(number)) for number in range(400)]
    for name, weights in CHOICES.items():
        assert {getattr(habits, name) for habits in drawn} == {*weights}


def runnable(count: int, split: str = "train") -> list:
    """Problems at the sizes of a CPU."""
    made = draw.generate_graphs(split, count, 11)
    return [resize(graph.problem, graph.problem.cpu_constants) for graph in made]


def run_on_meta(problem: Problem) -> tuple[types.ModuleType, object]:
    """The module of a problem and the result of its model, at its own sizes and without data."""
    with torch.device("meta"), torch.no_grad():
        module = load_module(problem)
        match module.get_init_inputs():
            case [list() as positional, dict() as named]:
                model = module.Model(*positional, **named)
            case given:
                model = module.Model(*given)
        return module, model(*module.get_inputs())


def checked_returns(count: int) -> tuple[int, int]:
    """Compare hints and docstrings with results; return how many texts had a hint and a shape."""
    hinted = documented = 0
    for number in range(count):
        draft = draw.drawn(random.Random(f"docs {number}"))
        if draft is None or not draw.is_sound(draft.problem):
            continue
        module, result = run_on_meta(draft.problem)
        hint = module.Model.forward.__annotations__.get("return")
        assert hint is None or isinstance(result, tuple if hint == "tuple" else torch.Tensor), module
        hinted += hint is not None
        text = str(module.Model.forward.__doc__)
        shape = re.search(r"torch\.Tensor: .*of shape (\(.*\))\.$", text, re.M)
        if shape and all(name in vars(module) for name in re.findall(r"[a-zA-Z_]\w*", shape[1])):
            documented += 1
            assert tuple(result.shape) == eval(shape[1], vars(module)), draft.problem.source
    return hinted, documented


def test_docstrings_and_hints_say_what_forward_returns():
    hinted, documented = checked_returns(40)
    assert hinted and documented


@pytest.mark.exhaustive
def test_docstrings_and_hints_always_say_what_forward_returns():
    hinted, documented = checked_returns(400)
    assert hinted > 40 and documented > 15


def test_sizes_of_a_cpu_are_small_wherever_they_stand():
    for problem in runnable(40):
        inputs = load_module(problem).get_inputs()
        elements = [x.numel() for x in inputs if isinstance(x, torch.Tensor)]
        assert max(elements) <= 2**17, problem.source


def test_drawn_problems_are_answered_correctly_in_all_habits():
    problems = runnable(12)
    assert not wrong({problem.id: problem.source for problem in problems})


@pytest.mark.exhaustive
def test_three_hundred_drawn_problems_are_answered_correctly():
    problems = runnable(300)
    assert not wrong({problem.id: problem.source for problem in problems})
