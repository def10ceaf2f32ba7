"""Answers that leave out what they keep of the problem's text, and the whole candidates that they become."""

import ast
import dis

import pytest
import torch

from kernel_core.dialogue.borrowing import missing, with_definitions, without_definitions
from kernel_core.dialogue.parse import parse_completion
from kernel_core.dialogue.prompt import format_completion
from kernel_core.generator.graded import taught_answers
from kernel_core.generator.read import Unreadable
from kernel_core.problems.generators import generator_of

PROBLEM = """import math
import torch
import torch.nn as nn

WIDTH = 64


def scaled(x, factor):
    return x * factor / math.sqrt(WIDTH)


class Norm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float()).to(x.dtype)


class Model(nn.Module):
    def __init__(self, width, norm=Norm):
        super(Model, self).__init__()
        self.norm = norm(width)

    def forward(self, x):
        return scaled(self.norm(x), 2.0)


def get_inputs():
    return [torch.randn(3, WIDTH)]


def get_init_inputs():
    return [WIDTH]
"""
KEPT_CONSTRUCTOR = """import triton


class ModelNew(Model):
    def forward(self, x):
        return scaled(x, 3.0)"""
CHANGED_CLASS = """class Norm(Norm):
    def forward(self, x):
        return x + 1.0


class ModelNew(Model):
    pass"""
CHANGED_FUNCTION = """def scaled(x, factor):
    return x - factor


class ModelNew(Model):
    pass"""


def executed(source):
    """Names of a module whose kernels are plain functions."""
    tree, namespace = ast.parse(source), {"__name__": "answer"}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.decorator_list = []
    exec(compile(tree, "answer", "exec"), namespace)
    return namespace


def test_a_constructor_helpers_constants_and_imports_come_from_the_problem():
    whole = with_definitions(KEPT_CONSTRUCTOR, PROBLEM)
    assert missing(ast.parse(whole)) == set() and "get_inputs" not in whole
    namespace = executed(whole)
    model = namespace["ModelNew"](4)
    assert type(model.norm).__name__ == "Norm"
    assert float(model(torch.ones(()))) == pytest.approx(3 / 8)


def test_a_changed_class_counts_in_defaults_of_later_functions():
    namespace = executed(with_definitions(CHANGED_CLASS, PROBLEM))
    model = namespace["ModelNew"](4)
    assert float(model(torch.ones(1, 4))[0, 0]) == pytest.approx(2 * 2.0 / 8)


def test_a_changed_function_replaces_the_problems():
    namespace = executed(with_definitions(CHANGED_FUNCTION, PROBLEM))
    assert namespace["scaled"](5.0, 2.0) == 3.0


@pytest.mark.parametrize("answer", ["class ModelNew:\n    pass", "class ModelNew(", ""])
def test_an_answer_that_lacks_nothing_stays(answer):
    assert with_definitions(answer, PROBLEM) == answer
    assert with_definitions(KEPT_CONSTRUCTOR, "not Python (") == KEPT_CONSTRUCTOR


def test_a_class_whose_constructor_names_it_is_not_extended_under_its_own_name():
    problem = PROBLEM.replace("super().forward", "super(Norm, self).forward")
    whole = problem.replace("class Model(", "class ModelNew(").replace("x.dtype)", "x.dtype) + 1")
    short = without_definitions(whole.split("def get_inputs")[0].rstrip(), problem)
    assert "class Norm(nn.LayerNorm):" in short and "class ModelNew(Model):\n    pass" in short


def test_docstrings_change_nothing_and_a_changed_constructor_keeps_its_class_whole():
    explained = PROBLEM.replace("        super(Model", '        """Norm first."""\n        super(Model')
    answer = PROBLEM.split("def get_inputs")[0].replace("Model", "ModelNew").rstrip()
    assert "__init__" not in without_definitions(answer, explained)
    assert without_definitions(answer, explained).endswith("class ModelNew(Model):\n    pass")
    changed = without_definitions(answer.replace("norm(width)", "norm(2 * width)"), explained)
    assert "class ModelNew(nn.Module):" in changed


def methods_of(namespace):
    """Code of the functions and methods that the answer defines, by name."""
    members = {}
    for name, value in namespace.items():
        if isinstance(value, type) and value.__module__ == namespace["__name__"]:
            named = [attribute for attribute in dir(value) if callable(getattr(value, attribute))]
            members |= {f"{name}.{attribute}": getattr(value, attribute) for attribute in named}
        elif callable(value):
            members[name] = value
    codes = {name: getattr(value, "__code__", None) for name, value in members.items()}
    return {name: instructions_of(code) for name, code in codes.items() if code is not None}


def instructions_of(code):
    """Operations with their arguments: a docstring moves constants to other numbers."""
    steps = [(step.opname, str(step.argval).partition(" at 0x")[0]) for step in dis.get_instructions(code)]
    return [(name, value.replace("ModelNew", "Model")) for name, value in steps]


@pytest.mark.parametrize("suite", ["graphs", "modules"])
def test_a_shortened_answer_is_the_same_candidate(suite):
    shorter = 0
    for made in generator_of(suite).draw("train", 25, 3, ()):
        try:
            answer = taught_answers(made.problem, on_meta=True)[0].source
        except Unreadable:
            continue
        short = without_definitions(answer, made.problem.source)
        shorter += len(short) < len(answer)
        parsed = parse_completion(format_completion("", short), "stop", made.problem.source)
        whole, again = (methods_of(executed(text)) for text in (answer, parsed.source))
        assert whole.items() <= again.items()
    assert shorter > 15
