"""Targets: files and packages that give a module with inputs, and plain errors for all others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_core.errors import CallerError, ConfigError, NotFound
from kernel_core.optimize.target import load_target, target_name

MODULES = Path(__file__).with_name("small_modules.py")
_LINEAR = "import torch\ndef build():\n    return torch.nn.Linear(4, 2), "


def test_a_function_of_a_file_gives_module_and_inputs():
    target = load_target(f"{MODULES}:block")
    assert target.name == "small-modules-block" and not target.module.training
    assert target.call().shape == target.args[0].shape


def test_a_function_of_a_package_is_found():
    assert load_target("tests.optimize.small_modules:norm").args[0].shape == (2, 12, 32)


def test_the_same_seed_gives_the_same_weights_and_inputs():
    first, second = (load_target(f"{MODULES}:block").call() for _ in range(2))
    assert torch.equal(first, second)


def test_kernelbench_names_are_a_target(tmp_path):
    file = tmp_path / "gelu.py"
    file.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, n):\n"
        "        super().__init__()\n        self.n = n\n"
        "    def forward(self, x):\n        return torch.relu(x) * self.n\n"
        "def get_inputs():\n    return [torch.randn(3, 4)]\ndef get_init_inputs():\n    return [2]\n"
    )
    target = load_target(str(file))
    assert target.name == "gelu" and target.call().shape == (3, 4)


def test_inputs_by_name_are_keyword_arguments(tmp_path):
    file = tmp_path / "named.py"
    file.write_text(
        "import torch\ndef build():\n    return torch.nn.Linear(4, 2), {'input': torch.ones(1, 4)}\n"
    )
    assert load_target(f"{file}:build").kwargs["input"].shape == (1, 4)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("def build():\n    return 3, 4\n", "gives int in place of an nn.Module"),
        ("def build():\n    return 3\n", "in place of (module, inputs)"),
        ("import torch\nclass build(torch.nn.Module):\n    pass\n", "is a class"),
        ("def build():\n    raise KeyError('weights')\n", "KeyError: 'weights'"),
        (
            "import torch\ndef build():\n    return torch.nn.Linear(4, 2), torch.ones(1, 5)\n",
            "call with its example",
        ),
        ("import torch\ndef build():\n    return torch.nn.Linear(4, 2), 'ones'\n", "inputs of type str"),
        ("import no_such_package\n", "No module named"),
        ("other = 1\n", "has no 'build'"),
    ],
)
def test_a_target_that_is_none_is_refused_by_its_reason(tmp_path, text, word):
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(CallerError) as raised:
        load_target(f"{file}:build")
    assert word in str(raised.value) and "\n" not in str(raised.value)


def test_a_missing_file_package_or_form_says_what_a_target_is():
    for target, kind in (("no.py", NotFound), ("no_such_package:build", NotFound), ("block", ConfigError)):
        with pytest.raises(kind, match="PACKAGE"):
            load_target(target)


def test_names_are_short():
    assert target_name("models/block.py:build") == "block-build"
    assert target_name("my.models:two_layers") == "models-two-layers"
