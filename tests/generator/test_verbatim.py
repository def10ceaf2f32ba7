"""An answer copies the text that it keeps of a problem."""

from __future__ import annotations

import ast

import pytest

from kernel_core.generator.answer import answer
from kernel_core.generator.module import input_texts, kept
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.source import parse_problem

PROBLEM = '''"""A module's docstring."""
from __future__ import annotations
import torch, math
from torch import nn
RATE, WIDE = 1e-2, (1 << 4)  # the rate of é
UNUSED = 3
LIMIT: float = .5; NAMES = ['ü', "b"]


def scaled(
    x,  # the scale of "Model"
    by=RATE,
):
    """Doc."""

    return x * by


class Base(nn.Module):
\tdef forward(self, x, lr: float = 1e-2, *, unit='é: )') -> "Model":  # no colon: here
\t\treturn x * self.rate


class Model(Base):
    r"""Doc of Model.

    def __init__: no
    """
    count = WIDE; other = 3
    kinds: tuple = (1,
        2)

    @staticmethod
    def rate_of(lr):
        'Doc.'
        # A comment stays.
        return float( lr )

    def unused(self):
        return self.other

    def __init__(self, lr: float = 1e-2, name="Model"):
        """Doc; of two lines,

            as "it" stands."""

        super(Model, self).__init__()
        self.text = """ Model
  é """; self.rate = self.rate_of(scaled(lr)) + 0 * (LIMIT)
        self.kind = f"{name}" if isinstance(self, Model) else self.kinds  # last


def get_inputs():
    return [torch.randn(3, WIDE)]


def get_init_inputs():
    return []
'''
KEPT = '''RATE, WIDE = 1e-2, (1 << 4)
LIMIT: float = .5


def scaled(
    x,  # the scale of "Model"
    by=RATE,
):
    return x * by


class Base(nn.Module):
\tdef forward(self, x, lr: float = 1e-2, *, unit='é: )') -> "Model":  # no colon: here
\t\treturn x * self.rate


class ModelNew(Base):
    kinds: tuple = (1,
        2)

    @staticmethod
    def rate_of(lr):
        # A comment stays.
        return float( lr )

    def __init__(self, lr: float = 1e-2, name="Model"):
        super(ModelNew, self).__init__()
        self.text = """ Model
  é """; self.rate = self.rate_of(scaled(lr)) + 0 * (LIMIT)
        self.kind = f"{name}" if isinstance(self, ModelNew) else self.kinds  # last

    def forward(self, x, lr: float = 1e-2, *, unit='é: )') -> "Model":
        x = x.contiguous()
        return x'''


def test_all_that_is_kept_is_copied():
    imports, text = kept(PROBLEM, ["x = x.contiguous()", "return x"])
    assert imports == [
        "from __future__ import annotations", "import torch, math", "from torch import nn",
    ]  # fmt: skip
    assert text == KEPT
    assert compile("\n".join([*imports, text]), "answer", "exec")


def test_a_class_without_a_constructor_and_with_a_docstring_alone_is_kept():
    source = "class Base:\n    def forward(self, x): return x\nclass Empty(Base):\n    '''Doc.'''\n"
    _, text = kept(f"{source}class Model(Empty): pass\n", ["return x"])
    assert text.endswith("class ModelNew(Empty):\n    def forward(self, x):\n        return x")
    assert "class Empty(Base):\n    pass\n" in text


def test_a_class_that_is_indented_by_tabs_keeps_them():
    source = (
        "class Model(M):\n\tdef __init__(self):\n\t\tsuper().__init__()\n"
        "\tdef forward(self, x):\n\t\treturn x\n"
    )
    _, text = kept(source, ["y = x", "return y"])
    assert text == source.replace("Model", "ModelNew").replace("\tdef f", "\n\tdef f").replace(
        "\t\treturn x\n", "\t    y = x\n\t    return y"
    )
    assert compile(text, "answer", "exec")


def test_inputs_are_written_as_the_problem_writes_them():
    assert input_texts(PROBLEM) == {"x": "torch.randn(3, WIDE)"}
    assert input_texts(PROBLEM.replace("randn(3, WIDE)", "full((3,\n4), 1e-2)")) == {
        "x": "torch.full((3, 4), 0.01)"
    }


def plain(node: ast.stmt) -> str:
    """A statement without docstrings, with the name that the class has in an answer."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(part) is not None:
            part.body = part.body[1:] or [ast.Pass()]
        if isinstance(part, ast.Name) and part.id == "Model":
            part.id = "ModelNew"
    return ast.dump(node)


def members(tree: ast.Module, name: str) -> dict[str, ast.FunctionDef]:
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    return {node.name: node for node in model.body if isinstance(node, ast.FunctionDef)}


def inner_statements(node: ast.stmt) -> list[ast.stmt]:
    """Statements without others in them, and without docstrings."""
    plain(node)
    return [part for part in ast.walk(node) if isinstance(part, ast.stmt) and not hasattr(part, "body")]


@pytest.mark.parametrize("suite", ["graphs", "modules"])
def test_kept_statements_of_drawn_problems_are_those_of_the_problem(suite, drawn_graphs, answers_of_graphs):
    if suite == "graphs":
        drawn = [(problem, answers_of_graphs[problem.id]) for problem in drawn_graphs]
    else:
        drawn = [(made, answer(made, on_meta=True).source) for made in generate_modules("train", 60, 7)]
    copied = 0
    for problem, text in drawn:
        tree, own = ast.parse(text), ast.parse(problem.source)
        old, new = members(own, "Model"), members(tree, "ModelNew")
        definitions = {plain(node) for node in own.body}
        kernels = [node for node in tree.body if getattr(node, "decorator_list", None)]
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name != "ModelNew":
                assert node in kernels or plain(node) in definitions
        for name in set(new) - {"forward"}:
            for statement in inner_statements(new[name]):
                line = ast.get_source_segment(text, statement)
                assert line and line.replace("ModelNew", "Model") in problem.source
                copied += 1
            assert plain(old[name]) == plain(new[name])
        assert ast.dump(new["forward"].args) == ast.dump(old["forward"].args)
        signature = ast.get_source_segment(problem.source, old["forward"]).partition("\n")[0]
        assert signature.endswith("(") or signature.partition("  #")[0] in text
    assert copied > 60


def test_an_answer_with_future_imports_runs_and_imports_each_module_once():
    source = (
        PROBLEM.replace("x * self.rate", "F.relu(x) * math.sqrt(self.rate)")
        .replace("from torch import nn", "from torch import nn\nimport torch.nn.functional as F")
        .replace("lr: float = 1e-2, *, unit='é: )'", "lr: float = 1e-2")
        .replace("\t\treturn", "\t\treturn ")
    )
    text = answer(parse_problem(source, id="test", suite="test")).source
    assert text.count("import torch.nn.functional") == text.count("__future__") == 1
    assert compile(text, "answer", "exec") and text.startswith("from __future__")
