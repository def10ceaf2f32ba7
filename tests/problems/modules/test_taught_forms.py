"""Forms that a taught model met on a benchmark and had not seen: each is drawn, and its kernel is correct."""

from __future__ import annotations

import ast
import re

import pytest

from kernel_core.gym.contract.requests import Gym, JudgeRequest
from kernel_core.problems.modules.draft import Draft
from kernel_core.problems.modules.generate import generate_modules
from kernel_core.problems.source import parse_problem
from kernel_core.records import Candidate

from .conftest import draw

CONV_CHAINS = ("conv_elementwise", "conv_norm", "conv_reduce", "conv_pool")
LINEAR_CHAINS = ("linear_elementwise", "linear_reduction", "linear_softmax", "linear_layernorm")
LINEAR_NORMS = ("linear_groupnorm", "linear_batchnorm")
KEPT = r"\n\s+(\w+) = x(?:\.clone\(\)(?:\.detach\(\))?)?\n"
USED = r"\n\s+x = (?:x [+*] \1|\1 [+*] x)\n"
SEEDS = range(3000, 3600)
FORMS = {
    "linear layer without bias": (LINEAR_CHAINS, r"nn\.Linear\(\w+, \w+, bias=False\)"),
    "vector with a leading axis": (LINEAR_CHAINS, r"nn\.Parameter\(torch\.randn\(1, \w+\)\)"),
    "value a row": (LINEAR_CHAINS, r"torch\.randn?\(batch_size, 1\)"),
    "one value twice": (LINEAR_CHAINS, r"(?s)torch\.m\w+\(x, self\.(\w+)\).*x = x [-+] self\.\1\b"),
    "two reductions of a row": (
        LINEAR_CHAINS,
        r"keepdim=True\)(?:\.values|\[0\])?(?:  # \w+)?\n\s+x = torch\.\w+\(x, dim=1",
    ),
    "parameter viewed by channel": (CONV_CHAINS, r"x [-+*] self\.\w+\.(?:view|reshape)\(1, "),
    "one value for all": (CONV_CHAINS, r"torch\.randn\(1, 1, 1, 1"),
    "default slope": (CONV_CHAINS, r"nn\.LeakyReLU\(\)"),
    "limits of the constructor": (CONV_CHAINS, r"nn\.Hardtanh\(min_val=[a-z]"),
    "limits in a call": (CONV_CHAINS, r"hardtanh\(x, min_val=-1(?:\.0)?, "),
    "value times its activation": (CONV_CHAINS, r"x = x \* (?:F|torch)\.\w+\(x\)"),
    "pool with stride": (CONV_CHAINS, r"Pool[23]d\(kernel_size=\w+, stride=\w+\)"),
    "pool with padding": (CONV_CHAINS, r"Pool[23]d\(kernel_size=\w+, stride=\w+, padding=\w+\)"),
    "reduction of one pixel": (
        CONV_CHAINS,
        r"(?s)(?:keepdim=True\)|self\.g\w+\(x\)).*torch\.(?:mean|sum)\(x, dim=.2, 3(?:, 4)?., keepdim=True\)",
    ),
    "residual of a value inside the chain": (
        CONV_CHAINS,
        rf"self\.\w+\(x\)(?:\n\s+x = [^\n]+)+{KEPT}(?:\s+x = [^\n]+\n)*\s+x = [^\n]+{USED}",
    ),
    "product with a kept value": (CONV_CHAINS, rf"(?s){KEPT}.*\n\s+x = (?:x \* \1|\1 \* x)\n"),
    "residual in a linear chain": (LINEAR_CHAINS, rf"self\.\w+\(x\)(?:\n\s+x = [^\n]+)+{KEPT}(?s:.*){USED}"),
    "input of the layer added to a value a row": (
        ("linear_reduction",),
        rf"{KEPT}\s+x = (?s:.*)keepdim=True(?s:.*)\n\s+x = x \+ \1\n",
    ),
    "pool before the convolution": (
        CONV_CHAINS,
        r"x = self\.\w*pool\w*\(x\)[^\n]*\n\s+x = self\.(?:conv|layer)",
    ),
    "pool with a tuple": (CONV_CHAINS, r"Pool2d\([^\n]*\((?:2, 3|3, 2|1, 2|2, 1)\)"),
    "tuple of the constructor for a pool": (CONV_CHAINS, r"(?i)\npool_size = \((?:2, 3|3, 2|1, 2|2, 1)\)"),
    "single pool with tuples": (("window_pool",), r"(?i)\nkernel_size = \(\d, \d"),
    "softmax over a flattened space": (CONV_CHAINS, r"x\.view\(\w, c, -1\)\n\s+x = [\w.]+softmax\(x, dim="),
    "difference to a plane's mean": (CONV_CHAINS, r"x = x - (?:torch\.mean\(x, |x\.mean\()dim=.2, 3"),
    "difference to a row's mean": (("linear_softmax",), r"x = x - (?:torch|x)\.mean"),
    "mean of all but the batch": (CONV_CHAINS, r"mean\((?:x, )?dim=.1, 2, 3(?:, 4)?.\)"),
    "sum of all but the batch, axes kept": (
        CONV_CHAINS,
        r"sum\((?:x, )?dim=.1, ?2, ?3(?:, ?4)?., keepdim=True",
    ),
    "axes counted from behind": (CONV_CHAINS, r"dim=.(?:-3, )?-2, ?-1[)\]]"),
    "extreme of a plane": (CONV_CHAINS, r"(?:torch\.|x\.)amax\((?:x, )?dim=.2, "),
    "extreme of a row behind a group norm": (LINEAR_NORMS, r"(?s)GroupNorm.*torch\.(?:min|max)\(\w+, dim=1"),
    "clamp at one side by an attribute": (CONV_CHAINS, r"clamp\((?:x, )?min=self\.\w+\)"),
    "number kept by the constructor": (CONV_CHAINS, r"self\.(?!dim|axis)\w+ = -?\d+(?:\.\d+)?\n"),
    "channels behind a global pool": (
        CONV_CHAINS,
        r"(?s)Adaptive.*x = torch\.(?:logsumexp|max|min|softmax)\(x, dim=1",
    ),
}


def first_with(form: str) -> Draft:
    families, pattern = FORMS[form]
    drafts = (draw(families[seed % len(families)], seed) for seed in SEEDS)
    return next(draft for draft in drafts if re.search(pattern, draft.reference))


SAMPLED = [
    pytest.param(form, marks=() if number % 24 == 0 else pytest.mark.exhaustive)
    for number, form in enumerate(FORMS)
]
"""A 24th of the forms is in the fast suite."""


@pytest.mark.parametrize("form", SAMPLED)
def test_a_kernel_of_the_form_is_judged_correct(form: str, quick_gym: Gym) -> None:
    draft = first_with(form)
    problem = parse_problem(draft.reference, id="modules/drawn", suite="modules")
    problem = problem.model_copy(update={"cpu_constants": {size.name: size.cpu for size in draft.sizes}})
    kernel = next(one for one in draft.kernels if one.grade == "fused")
    candidate = Candidate.from_source(kernel.source)
    (evaluation,) = quick_gym.judge([JudgeRequest(problem=problem, candidate=candidate, seed=0)])
    assert evaluation.verdict == "correct", (evaluation.feedback, draft.reference, kernel.source)


def test_a_third_of_linear_layers_has_no_bias_and_their_kernels_load_none() -> None:
    drafts = [draw("linear_elementwise", seed) for seed in range(120)]
    without = [draft for draft in drafts if "bias=False" in draft.reference]
    assert 25 <= len(without) <= 55
    for draft in without:
        assert not any(re.search(r"self\.\w+\.bias\b", kernel.source) for kernel in draft.kernels)


def test_numbers_of_a_layer_are_read_under_the_names_that_torch_gives_them() -> None:
    known = {
        "LeakyReLU": {"negative_slope"}, "ELU": {"alpha"}, "Softplus": {"beta"},
        "Hardtanh": {"min_val", "max_val"},
    }  # fmt: skip
    found = 0
    for family in (*CONV_CHAINS, "linear_elementwise"):
        for seed in range(60):
            source = draw(family, seed).kernels[1].source
            for attribute, layer in re.findall(
                r"self\.(\w+) = nn\.(LeakyReLU|ELU|Softplus|Hardtanh)\(", source
            ):
                read = set(re.findall(rf"self\.{attribute}\.(\w+)", source))
                assert read == known[layer], source
                found += 1
    assert found > 30


def launches_and_kernels(source: str) -> list[tuple[ast.Call, ast.FunctionDef]]:
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    launched = [node for node in calls if isinstance(node.func, ast.Subscript)]
    return [(node, functions[ast.unparse(node.func.value)]) for node in launched]


@pytest.mark.parametrize("family", (*CONV_CHAINS, *LINEAR_CHAINS, *LINEAR_NORMS))
def test_a_launch_passes_every_argument_of_the_kernel(family: str, seeds: range) -> None:
    for seed in seeds:
        for kernel in draw(family, seed).kernels:
            for call, function in launches_and_kernels(kernel.source):
                names = [one.arg for one in function.args.args]
                passed = {*names[: len(call.args)], *(one.arg for one in call.keywords)}
                tuned = any("autotune" in ast.unparse(one) for one in function.decorator_list)
                left = {name for name in names if name not in passed and not (tuned and name.isupper())}
                assert not left, (family, seed, ast.unparse(call))


def test_a_kept_value_has_the_problems_name_in_the_kernel() -> None:
    found = 0
    for family in (*CONV_CHAINS, *LINEAR_CHAINS):
        for seed in range(80):
            draft = draw(family, seed)
            for name in re.findall(r"\n\s+(\w+) = x(?:\.clone\(\)(?:\.detach\(\))?)?\n", draft.reference):
                source = next(one.source for one in draft.kernels if one.grade == "fused")
                assert re.search(rf"\b{name} = (?:v|x|tl\.load\({name}_ptr)", source), source
                found += 1
    assert found > 60


def test_numbers_of_the_constructor_have_many_names() -> None:
    names: set[str] = set()
    for made in generate_modules("train", 160, 1, (*CONV_CHAINS, *LINEAR_CHAINS)):
        names.update(re.findall(r"\n\s+self\.(\w+) = \1\n", made.problem.source))
    assert len(names) > 45, sorted(names)


def test_a_kernel_calls_no_function_that_its_text_lacks(seeds: range) -> None:
    for family in (*CONV_CHAINS, *LINEAR_CHAINS, *LINEAR_NORMS):
        for seed in seeds:
            for kernel in draw(family, seed).kernels:
                tree = ast.parse(kernel.source)
                known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
                known |= {"isinstance", "max", "min", "range", "super", "float", "len"}
                names = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
                called = {one.id for one in names if isinstance(one, ast.Name)}
                assert called <= known, (family, seed, called - known)
                twice = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
                assert len(twice) == len(set(twice)), (family, seed, twice)


def test_a_reference_has_spaces_in_its_gap_at_times_and_an_answer_never() -> None:
    spaced = 0
    for seed in range(60):
        draft = draw("conv2d", seed)
        spaced += bool(re.search(r"^ +$", draft.reference, re.MULTILINE))
        assert not any(re.search(r"^ +$", kernel.source, re.MULTILINE) for kernel in draft.kernels)
    assert 8 <= spaced <= 30
