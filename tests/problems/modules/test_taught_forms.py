"""Forms that a taught model met on a benchmark and had not seen: each is drawn."""

from __future__ import annotations

import re

import pytest

from kernel_core.problems.modules.generate import generate_modules

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


@pytest.mark.parametrize("form", FORMS)
def test_the_form_is_drawn(form: str) -> None:
    families, pattern = FORMS[form]
    drafts = (draw(families[seed % len(families)], seed) for seed in SEEDS)
    assert any(re.search(pattern, draft.reference) for draft in drafts)


def test_a_third_of_linear_layers_has_no_bias() -> None:
    references = [draw("linear_elementwise", seed).reference for seed in range(120)]
    assert 25 <= sum("bias=False" in reference for reference in references) <= 55


def test_numbers_of_the_constructor_have_many_names() -> None:
    names: set[str] = set()
    for problem in generate_modules("train", 320, 1, (*CONV_CHAINS, *LINEAR_CHAINS)):
        names.update(re.findall(r"\n\s+self\.(\w+) = \1\n", problem.source))
    assert len(names) > 65, sorted(names)


def test_a_reference_has_spaces_in_its_gap_at_times() -> None:
    references = [draw("conv2d", seed).reference for seed in range(60)]
    assert 8 <= sum(bool(re.search(r"^ +$", reference, re.MULTILINE)) for reference in references) <= 30
