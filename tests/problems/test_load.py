"""Problems from files and from configs."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_core.config import ProblemsConfig
from kernel_core.errors import ConfigError, NotAProblem, NotFound, SourceUnavailable
from kernel_core.problems.generate import generate
from kernel_core.problems.generators import WITHOUT_LIMIT
from kernel_core.problems.load import (
    load_dojo,
    load_file,
    load_folder,
    load_kernelbench,
    load_problems,
)
from kernel_core.problems.source import halved
from kernel_core.records import Problem

RELU = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


batch_size = 4096
dim = 393216


def get_inputs():
    x = torch.rand(batch_size, dim)
    return [x]


def get_init_inputs():
    return []  # No special initialization inputs needed
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """An imitation of a KernelBench checkout."""
    level_1 = tmp_path / "KernelBench" / "level1"
    level_1.mkdir(parents=True)
    (level_1 / "19_ReLU.py").write_text(RELU)
    (level_1 / "2_Standard_matrix_multiplication_.py").write_text(RELU.replace("dim = 393216", "dim = 64"))
    (tmp_path / "KernelBench" / "level2").mkdir()
    (tmp_path / "KernelBench" / "level2" / "1_Conv2D_ReLU_BiasAdd.py").write_text(RELU)
    return tmp_path


def test_a_checkout_gives_its_levels_in_numbered_order(checkout: Path) -> None:
    problems = load_kernelbench((1, 2), root=str(checkout))
    assert [problem.id for problem in problems] == [
        "kernelbench/level1/2_Standard_matrix_multiplication_",
        "kernelbench/level1/19_ReLU",
        "kernelbench/level2/1_Conv2D_ReLU_BiasAdd",
    ]
    relu = problems[1]
    assert (relu.suite, relu.level, relu.name, relu.family) == ("kernelbench", 1, "19_ReLU", "relu")
    assert relu.constants == {"batch_size": 4096, "dim": 393216}
    assert relu.source == RELU


def test_the_root_may_be_the_folder_with_the_levels_itself(checkout: Path) -> None:
    inner = load_kernelbench((1,), root=str(checkout / "KernelBench"))
    assert inner == load_kernelbench((1,), root=str(checkout))


def test_the_environment_names_a_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(checkout))
    found = load_problems(ProblemsConfig(suite="kernelbench", levels=(2,)))
    assert [problem.name for problem in found] == ["1_Conv2D_ReLU_BiasAdd"]


def test_a_level_that_is_not_there_is_not_found(checkout: Path) -> None:
    with pytest.raises(NotFound, match="no KernelBench/level3"):
        load_kernelbench((3,), root=str(checkout))
    with pytest.raises(ConfigError, match="no level 7"):
        load_kernelbench((7,), root=str(checkout))


@pytest.mark.exhaustive
def test_a_hub_out_of_reach_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "from kernel_core.problems.load import load_kernelbench\n"
        "from kernel_core.errors import SourceUnavailable\n"
        "try:\n    load_kernelbench((1,))\n"
        "except SourceUnavailable as error:\n    print(error)\n"
    )
    monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", "/nonexistent")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "could not load ScalingIntelligence/KernelBench (level_1)" in done.stdout, done.stderr
    assert "set KERNELBENCH_ROOT" in done.stdout
    assert SourceUnavailable.exit_code == 3


def test_a_folder_gives_its_files_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "b.py").write_text("# cpu: dim=7\n" + RELU)
    (folder / "a.py").write_text(RELU)
    (folder / "_notes.py").write_text("not a problem")
    assert [problem.id for problem in load_folder(folder)] == ["mine/a", "mine/b"]
    assert load_problems(ProblemsConfig(suite=str(folder))) == load_folder(folder)
    (only,) = load_problems(ProblemsConfig(suite=str(folder / "b.py")))
    assert (only.id, only.cpu_constants) == ("file/b", {"dim": 7})


def test_what_is_missing_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no problem file"):
        load_file(tmp_path / "absent.py")
    with pytest.raises(NotFound, match="no problem files"):
        load_folder(tmp_path)
    with pytest.raises(
        NotFound, match="no suite 'kernelbnch'; give dojo, generated, modules, graphs, kernelbench"
    ):
        load_problems(ProblemsConfig(suite="kernelbnch"))
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(NotAProblem, match="not UTF-8"):
        load_file(tmp_path / "binary.py")


def test_a_generated_config_gives_the_generators_problems() -> None:
    config = ProblemsConfig(split="validation", limit=7, seed=3)
    assert load_problems(config) == [made.problem for made in generate("validation", 7, 3)]
    assert len(load_problems(ProblemsConfig())) == WITHOUT_LIMIT


def test_families_narrow_a_config_and_an_unknown_one_names_the_nearest() -> None:
    found = load_problems(ProblemsConfig(families=("softmax", "cumsum"), limit=6))
    assert {problem.family for problem in found} == {"softmax", "cumsum"}
    with pytest.raises(ConfigError, match="no problem family 'sofmax': did you mean softmax"):
        load_problems(ProblemsConfig(families=("sofmax",)))
    with pytest.raises(ConfigError, match="no family of gated_norm is in split train"):
        load_problems(ProblemsConfig(families=("gated_norm",)))


def test_all_splits_together_are_drawn_in_equal_shares() -> None:
    found = load_problems(ProblemsConfig(split="all", limit=8))
    assert [problem.tags[0] for problem in found] == ["train"] * 3 + ["validation"] * 3 + ["held_out"] * 2
    reserved = load_problems(ProblemsConfig(split="all", families=("gated_norm",), limit=3))
    assert [problem.tags[0] for problem in reserved] == ["held_out"] * 3


def test_our_own_suite_is_for_evaluation_only() -> None:
    suite = load_dojo()
    assert load_problems(ProblemsConfig(suite="dojo", split="held_out")) == suite
    with pytest.raises(ConfigError, match="all of it is held out"):
        load_problems(ProblemsConfig(suite="dojo", split="train"))


def test_a_limit_takes_some_of_a_suite_by_seed_and_keeps_their_order() -> None:
    every = [problem.id for problem in load_dojo()]
    config = ProblemsConfig(suite="dojo", split="held_out", limit=5, seed=1)
    some = [problem.id for problem in load_problems(config)]
    assert some == [problem.id for problem in load_problems(config)] == [one for one in every if one in some]
    other = load_problems(config.model_copy(update={"seed": 2}))
    assert [problem.id for problem in other] != some


@functools.cache
def drawn_graphs() -> list[Problem]:
    """Problems in all forms in which a size stands in a text."""
    return load_problems(ProblemsConfig(suite="graphs", limit=24, seed=3))


@given(times=st.integers(0, 16), index=st.integers(0, 23))
@settings(max_examples=60, deadline=None)
def test_halved_sizes_stay_above_those_of_a_cpu_and_their_modules_run(times: int, index: int) -> None:
    own = drawn_graphs()[index]
    found = halved(own, times)
    assert found.constants.keys() == own.constants.keys()
    for name, size in found.constants.items():
        was, least = own.constants[name], own.cpu_constants.get(name, size)
        assert size == was or (isinstance(size, int) and isinstance(was, int) and was % size == 0)
        assert size == was or size >= least
    assert found == own or (found.id == f"{own.id}@halved-{times}" and found.source != own.source)
    scope: dict[str, Any] = {}
    with torch.device("meta"):
        exec(found.source, scope)
        given_inits = scope["get_init_inputs"]()
        is_by_name = len(given_inits) == 2 and isinstance(given_inits[1], dict)
        positional, named = given_inits if is_by_name else (given_inits, {})
        scope["Model"](*positional, **named)(*scope["get_inputs"]())


@pytest.mark.parametrize(("sizes", "times"), [("own", 0), ("half", 1), ("quarter", 2)])
def test_a_setting_asks_for_halved_sizes(sizes: Any, times: int) -> None:
    config = ProblemsConfig(suite="graphs", limit=4)
    found = load_problems(config.model_copy(update={"sizes": sizes}))
    assert found == [halved(problem, times) for problem in load_problems(config)]


def test_each_halving_halves_the_largest_size() -> None:
    source = "N = 4096\nM = 1000\nK = 7\n"
    sizes = {"constants": {"N": 4096, "M": 1000, "K": 7}, "cpu_constants": {"M": 600}}
    problem = load_dojo()[0].model_copy(update={"source": source, **sizes})
    assert [halved(problem, times).constants for times in (1, 3, 9)] == [
        {"N": 2048, "M": 1000, "K": 7},
        {"N": 512, "M": 1000, "K": 7},
        {"N": 64, "M": 1000, "K": 7},
    ]
